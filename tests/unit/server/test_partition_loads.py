"""What the node has seen of a group's partitions, as a drain and a pin are told of it."""

import asyncio

import pytest

from muster.coordinator.observability.history.group_history import GroupHistory, Sample
from muster.coordinator.server.backend import assignor_inputs
from muster.coordinator.server.backend.assignor_inputs import loads_now

SAMPLE_MS = 10_000
PLACES = [("orders", 2), ("orders", 0), ("bills", 0)]


def looked_twice() -> GroupHistory:
    history = GroupHistory(SAMPLE_MS)
    history.topics({"orders": b"1", "bills": b"2"})
    for now_ms, ends, committed in ((SAMPLE_MS, [0, 0, 0], [0, 0, 0]), (2 * SAMPLE_MS, [100, 50, 0], [40, 50, 0])):
        history.record_sample("g", Sample(PLACES, ends, committed, [now_ms] * 3), now_ms)
        history.settle("g", now_ms)
    return history


@pytest.mark.parametrize("at_once", [500, 2])
def test_each_partition_has_its_pace_and_what_waits(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many partitions in a thread; of one that nobody looked at, nothing."""
    monkeypatch.setattr(assignor_inputs, "PARTITIONS_IN_ONE_TURN", at_once)
    seen = asyncio.run(loads_now(looked_twice(), lambda: 2 * SAMPLE_MS, "g"))
    assert seen == {"orders": ([5.0, 0.0, 10.0], [0, 0, 60]), "bills": ([0.0], [0])}


def test_of_a_group_that_was_not_looked_at_lately_nothing_is_said() -> None:
    history = looked_twice()
    assert asyncio.run(loads_now(history, lambda: 100 * SAMPLE_MS, "g")) is None
    assert asyncio.run(loads_now(history, lambda: 2 * SAMPLE_MS, "nobody")) is None
    assert asyncio.run(loads_now(None, lambda: 0, "g")) is None
