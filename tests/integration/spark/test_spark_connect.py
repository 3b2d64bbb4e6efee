"""Spark Connect: the source by its name, a batch, a stream from a group into a topic, the listener that commits."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from muster.client import Admin
from muster.coordinator.java_runtime import JavaNotFound, find_java
from tests.support.node import running_node
from tests.support.pace import pace
from tests.support.topics import fill, make_topics, values

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
CLIENT = ("pandas", "grpcio-status", "googleapis-common-protos", "zstandard")
"""What PySpark's own client of Connect asks for; the extra `dev` brings them."""

RECORDS = 150


def missing() -> list[str]:
    def there(package: str) -> bool:
        try:
            return bool(version(package))
        except PackageNotFoundError:
            return False

    return [package for package in CLIENT if not there(package)]


@pytest.mark.skipif(bool(missing()), reason=f"Spark Connect's client needs {', '.join(missing())}: pip install them")
def test_tables_streams_and_the_listener_work_on_spark_connect(tmp_path: Path) -> None:
    try:
        find_java()
    except JavaNotFound as error:
        pytest.skip(f"Spark needs a Java: {error}")
    with running_node(tmp_path / "data") as node:
        make_topics(node.address, source=3, target=2)
        sent = [b"%03d" % number for number in range(RECORDS)]
        fill(node.address, "source", sent, [b"a", b"b", b"c", b"d", b"e"])
        words = [node.address, "source", "target", "connected", str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.spark.connect", *words],
            cwd=ROOT,
            # Spark's own word for: take any port that is free, others may test, too.
            env=os.environ | {"PYTHONPATH": str(ROOT), "SPARK_TESTING": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240 * pace(),
        )
        assert done.returncode == 0, done.stderr[-4000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert told["session"] == "pyspark.sql.connect.session"
        assert told["found"] == RECORDS
        assert told["written"] == [{"n": RECORDS, "different": RECORDS}]
        assert values(node.address, "target") == sent
        with Admin({"bootstrap.servers": node.address}) as admin:
            assert sum(at.offset for at in admin.group_offsets("connected").values()) == RECORDS, "the only batch, too"
