"""Spark against a node that wants TLS and a certificate; no secret is left behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Producer
from muster.spark.offset_commits import OffsetCommitter
from tests.support.certificates import authority, client, secure
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration

COUNT = 50


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("secured")
    settings = secure(
        directory,
        listeners="SSL://127.0.0.1:0",
        ssl_client_auth="required",
        authorizer="acl",
        super_users="User:CN=alice",
    )
    with running_node(directory / "data", settings) as node:
        with Admin(given(node)) as admin, Producer(given(node)) as producer:
            admin.create_topic("orders", 2)
            admin.create_topic("copied", 2)
            for number in range(COUNT):
                producer.produce("orders", b"v%d" % number, partition=number % 2)
        yield node


def given(node: NodeProcess) -> dict[str, str]:
    """All of it inline, which is the worst case for secrets."""
    shown = client("alice")
    return {
        "bootstrap.servers": node.address,
        "security.protocol": "SSL",
        "ssl.truststore.certificates": authority().certificate_pem.decode(),
        "ssl.keystore.certificate.chain": shown.certificate_pem.decode(),
        "ssl.keystore.key": shown.key_pem().decode(),
    }


def kafka_style(node: NodeProcess) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in given(node).items()}


def secrets() -> list[str]:
    """Lines of the key, as they stand, or packed."""
    lines = client("alice").key_pem().decode().splitlines()[1:-1]
    return [line for line in lines if len(line) > 20]


def test_a_secured_topic_is_read_and_written_and_plans_show_no_key(spark: Any, node: NodeProcess) -> None:
    frame = spark.read.format("muster").options(**kafka_style(node), subscribe="orders").load()
    assert frame.count() == COUNT
    frame.select("value").write.format("muster").options(**kafka_style(node), topic="copied").mode("append").save()
    copied = spark.read.format("muster").options(**kafka_style(node), subscribe="copied").load()
    assert copied.count() == COUNT
    execution = frame._jdf.queryExecution()
    shown = f"{execution.toString()}{execution.simpleString()}{execution.explainString(mode(spark))}{frame!r}"
    assert not [secret for secret in secrets() if secret in shown]


def mode(spark: Any) -> Any:
    return spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")


def test_a_stream_in_a_group_leaves_no_key_in_its_checkpoint_its_progress_or_the_ledger(
    spark: Any, node: NodeProcess, tmp_path: Path
) -> None:
    own = {name.replace(".", "_"): value for name, value in given(node).items() if name != "bootstrap.servers"}
    committer = OffsetCommitter(spark, **own)
    checkpoint = tmp_path / "checkpoint"
    stream = spark.readStream.format("muster").options(
        **kafka_style(node), subscribe="orders", startingOffsets="earliest", **{"group.id": "secured"}
    )
    query = (
        stream.load()
        .selectExpr("value", "'copied' AS topic")
        .writeStream.format("muster")
        .options(**kafka_style(node), checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert query.exception() is None
    committer.flush(query)
    left = "".join(path.read_text(errors="replace") for path in checkpoint.rglob("*") if path.is_file())
    left += str(query.recentProgress)
    with Admin(given(node)) as admin:
        left += str(admin.explain("secured", include_snapshots=True))
        assert sum(offset.offset for offset in admin.group_offsets("secured").values()) == COUNT
    committer.close()
    assert "orders" in left
    assert not [secret for secret in secrets() if secret in left]
