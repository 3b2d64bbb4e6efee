"""What an operator hears of shards over a Kafka: that they are not served, or slow, and what that Kafka says."""

from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from muster.coordinator.config import load_settings
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendFailure
from muster.coordinator.kafka_backend.shard_ownership.node_shards import ASSIGNED_ELSEWHERE, MOVED_AWAY, NodeShards
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.kafka_backend.upstream_diagnostics import PATIENCE_MS, ShardDiagnostics
from tests.support.owning import Kafka, OwningNode


@dataclass
class Performing:
    shards: NodeShards


def heard(node: OwningNode, name: str) -> str | None:
    """The sentence of a condition, after it had the time to come about."""
    watching = ShardDiagnostics(load_settings(None, {"engine": "kafka://b:9092"}))
    conditions = Conditions(lambda: node.kafka.now_ms)
    watching.report_shards(Performing(node.shards), conditions, node.kafka.now_ms)
    node.passes(PATIENCE_MS + 100)
    watching.report_shards(Performing(node.shards), conditions, node.kafka.now_ms)
    return conditions.sentence(name)


@pytest.mark.parametrize(
    ("step", "code", "says"),
    [
        (fx.InitProducer, 53, "asks for its producer for more than 5 s (it says TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (fx.FindLogEnd, 29, "reads its log for more than 5 s (it says TOPIC_AUTHORIZATION_FAILED (29))"),
        (fx.Produce, 29, "writes its owner record for more than 5 s (it says TOPIC_AUTHORIZATION_FAILED (29))"),
    ],
)
def test_why_a_shard_is_not_served_is_told(step: type, code: int, says: str) -> None:
    """Without it an operator looks at brokers, and it is a rule that is missing."""
    node = OwningNode(Kafka(), 1)
    node.codes = {step: code}
    node.assign_shards()
    assert says in (heard(node, "shards-not-served") or "")
    node.codes.clear()
    node.passes(5_000)
    assert node.serves
    assert node.shards.trouble(0) is None


def test_why_what_was_written_is_not_acknowledged_is_told() -> None:
    node = OwningNode(Kafka(), 1)
    node.assign_shards()
    node.codes = {fx.Produce: 19}
    node.writes(b"k", b"v")
    node.passes(PATIENCE_MS)
    said = heard(node, "upstream-slow") or ""
    assert (
        "what shards 0 wrote is not acknowledged by the upstream for more than 5 s (it says NOT_ENOUGH_REPLICAS" in said
    )
    node.codes.clear()
    node.passes(5_000)
    assert heard(node, "upstream-slow") is None


def test_a_shard_that_goes_for_a_reason_is_a_line_in_the_log_and_one_that_moves_is_none() -> None:
    """A node whose appends came too late, or whose lease ended, gave its shards up without a word."""
    watching = ShardDiagnostics(load_settings(None, {"engine": "kafka://b:9092"}))
    with capture_logs() as lines:
        watching.lost(3, AppendFailure.LATE.value)
        watching.lost(4, MOVED_AWAY)
        watching.lost(5, ASSIGNED_ELSEWHERE)
    assert [(line["log_level"], line["shard"]) for line in lines] == [("warning", 3), ("debug", 4), ("debug", 5)]
    assert "engine.kafka.delivery.timeout.ms" in lines[0]["why"]
