"""A driver that is killed and started again from its checkpoint: each record is copied once, and its group commits."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.client import Admin
from tests.support.node import running_node
from tests.support.topics import end_offsets, eventually, fill, make_topics, values

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
RECORDS = 2_000
ROWS_PER_BATCH = 250
START_PATIENCE_S = 120.0


@contextmanager
def driver(folder: Path, *arguments: str) -> Iterator[None]:
    """The copying query, killed with its JVM and its Python workers at the end of the block."""
    log = (folder / "driver.log").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.spark.copy", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


def test_every_record_is_copied_once_though_the_driver_dies(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        make_topics(node.address, source=4, target=3)
        fill(node.address, "source", (b"%06d" % number for number in range(RECORDS)), [b"a", b"b", b"c", b"d", b"e"])

        def copied() -> int:
            return sum(end_offsets(node.address, "target").values())

        arguments = [node.address, "source", "target", str(tmp_path / "checkpoint"), str(ROWS_PER_BATCH)]
        with driver(tmp_path, *arguments):
            eventually(lambda: copied() > 2 * ROWS_PER_BATCH, "some batches are copied", START_PATIENCE_S)
        assert copied() < RECORDS, "the driver was to die before the end"
        with driver(tmp_path, *arguments), Admin({"bootstrap.servers": node.address}) as admin:

            def committed() -> int:
                return sum(at.offset for at in admin.group_offsets("copy").values())

            eventually(lambda: committed() >= RECORDS, "the rest is copied and committed", START_PATIENCE_S)
        assert values(node.address, "target") == [b"%06d" % number for number in range(RECORDS)]
