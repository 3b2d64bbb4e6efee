"""CL-P6 of `muster bench cluster`: when it begins, when it ends, and what it asks nodes for in between."""

import asyncio
import time
from typing import Any, NamedTuple, cast

import pytest

from muster.workshop.bench import cluster_suite
from muster.workshop.bench.cluster_servers import TrioClient


class Part(NamedTuple):
    leader_id: int


class Nodes:
    """Each question is answered as things stand after one more of those that were asked before."""

    def __init__(self, moves_after: dict[tuple[int, str], int]) -> None:
        self.asked: list[tuple[int, str]] = []
        self._left = dict(moves_after)

    async def described(self, node: int, topic: str, seconds: float) -> list[Part]:
        self.asked.append((node, topic))
        self._left[node, topic] = left = self._left.get((node, topic), 0) - 1
        return [Part(cluster_suite.VICTIM if left >= 0 else cluster_suite.SURVIVORS[0])]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_suite, "PAUSE_S", 0)
    monkeypatch.setattr(cluster_suite, "LOOK_S", 0)


@pytest.mark.usefixtures("at_once")
def test_nodes_are_asked_for_all_partitions_only_when_the_last_one_has_moved() -> None:
    one, two = cluster_suite.SURVIVORS
    nodes = Nodes({(one, cluster_suite.LAST): 3, (two, cluster_suite.LAST): 5})
    before_s = time.time()
    told_s = asyncio.run(cluster_suite.wait_until_known(cast(TrioClient, nodes)))
    assert before_s <= told_s <= time.time()
    assert nodes.asked[-2:] == [(one, cluster_suite.MOVING_TOPIC), (two, cluster_suite.MOVING_TOPIC)]
    assert {topic for _, topic in nodes.asked[:-2]} == {cluster_suite.LAST}
    assert nodes.asked.count((one, cluster_suite.LAST)) == 4, "who has heard is left alone"


@pytest.mark.usefixtures("at_once")
def test_a_partition_that_moves_behind_the_last_one_is_waited_for() -> None:
    nodes = Nodes({(cluster_suite.SURVIVORS[1], cluster_suite.MOVING_TOPIC): 2})
    asyncio.run(cluster_suite.wait_until_known(cast(TrioClient, nodes)))
    assert nodes.asked.count((cluster_suite.SURVIVORS[1], cluster_suite.MOVING_TOPIC)) == 3


def test_the_clock_begins_when_the_first_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    class Election(NamedTuple):
        from_node_id: int
        decided_ms: int

    class Admin:
        def __init__(self, config: dict[str, Any]) -> None:
            self.told = [
                *(Election(cluster_suite.VICTIM, 5_000 + number) for number in range(cluster_suite.UNITS)),
                Election(cluster_suite.SURVIVORS[0], 1_000),
            ]

        def __enter__(self) -> "Admin":
            return self

        def __exit__(self, *of: object) -> None: ...

        def explain_elections(self, limit: int, topic: str) -> list[Election]:
            assert (limit > cluster_suite.UNITS, topic) == (True, cluster_suite.MOVING_TOPIC)
            return self.told

    class Doors:
        doors = dict.fromkeys(cluster_suite.SURVIVORS, "127.0.0.1:1")

    monkeypatch.setattr(cluster_suite, "Admin", Admin)
    assert cluster_suite.first_decision_s(cast(Any, Doors())) == 5.0
