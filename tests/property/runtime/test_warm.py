"""CL-G8: a core that takes records in as they come is, at the log's end, what a replay of the log gives."""

from contextlib import nullcontext

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.events import Loaded, TopicsChanged
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.leased import WarmShard
from muster.coordinator.runtime.replay import replay_shard
from tests.property.runtime.test_replay import COMMANDS, LIMITS, Cluster
from tests.sim.checkers.replay import hard_shard
from tests.support.warm_logs import FollowedLog


def unheard(shard: int, why: str) -> None:
    raise AssertionError(f"shard {shard}: {why}")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(COMMANDS, st.tuples(st.integers(0, 2), st.integers(0, 2))), min_size=10, max_size=50),
    st.integers(1, 4),
)
def test_g8_what_came_by_and_by_is_what_a_replay_gives(
    commands: list[tuple[tuple[str, int], tuple[int, int]]], portion: int
) -> None:
    """Either half may be ahead of the other by any number of records."""
    log = FollowedLog(1)
    cluster = Cluster(log)
    warm = WarmShard(0, Shard(LIMITS, 0), log, nullcontext(), unheard)
    for tail in log.tails[0]:
        tail.portion = portion
    for (command, number), slices in commands:
        cluster.obey(command, number)
        for tail, turns in zip(log.tails[0], slices, strict=True):
            # So much of this half is committed by now, and of the other nothing more.
            tail.committed = min(tail.committed + turns * portion, tail.part.end_offset)
            while warm.take_some():
                pass
    assert warm.take_the_rest(lambda: False)
    cold = Shard(LIMITS, 0)
    report = replay_shard(log, 0, cold)
    assert isinstance(warm.core, Shard)
    assert hard_shard(warm.core) == hard_shard(cold)
    assert bool(warm.report.records) == bool(report.records)
    alive = [shard.step(event, cluster.now_ms) for shard in (warm.core, cold) for event in (TOPICS, LOADED)]
    assert alive[:2] == alive[2:], "and it goes on in the same way"
    assert warm.core.deadlines == cold.deadlines


TOPICS = TopicsChanged({"t": 2})
LOADED = Loaded()


def test_the_mutant_that_leaves_a_half_out_is_caught() -> None:
    """The comparison sees it when explanations are missing, or groups."""
    log = FollowedLog(1)
    cluster = Cluster(log)
    for number, command in enumerate(("join", "sync", "commit", "join", "rejoin", "sync")):
        cluster.obey(command, 2 * number)
        cluster.obey("wait", 20_000)
    cold = Shard(LIMITS, 0)
    replay_shard(log, 0, cold)
    for half in (0, 1):
        warm = WarmShard(0, Shard(LIMITS, 0), log, nullcontext(), unheard)
        log.tails[0][-2 + half].at = 10**6
        assert warm.take_the_rest(lambda: False)
        assert isinstance(warm.core, Shard)
        assert hard_shard(warm.core) != hard_shard(cold)
