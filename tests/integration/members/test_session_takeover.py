"""Pushed against polled members: who has to ask before everything is owned again. Counted, not timed."""

from collections import Counter
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.server.node.node import CoordinatorNode
from tests.integration.conftest import Run
from tests.support.grpc_node import serving
from tests.support.takeover import takeover

pytestmark = pytest.mark.integration

MEMBERS = 10
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


class Tally:
    """What the coordinator answered between two moments of the story."""

    def __init__(self, node: CoordinatorNode) -> None:
        self._node = node
        self._before: Counter[tuple[str, ErrorCode]] = Counter()
        self.until: dict[str, Counter[tuple[str, ErrorCode]]] = {}

    def settled(self, moment: str) -> None:
        now = Counter(self._node.engine.metrics.requests)
        self.until[moment] = now - self._before
        self._before = now


def paced(heartbeat_ms: int) -> dict[str, str]:
    """KIP-848 members take the interval from the node."""
    bounds = {"min_": 1, "": heartbeat_ms, "max_": heartbeat_ms}
    beats = {f"group_consumer_{bound}heartbeat_interval_ms": str(ms) for bound, ms in bounds.items()}
    patience = {f"group_consumer_{bound}session_timeout_ms": "1800000" for bound in ("", "max_")}
    return beats | patience


async def tally(node: CoordinatorNode, properties: dict[str, object]) -> Tally:
    counted = Tally(node)
    await takeover(
        f"127.0.0.1:{node.bound.port}",
        {"group.id": "crew", **properties},
        members=MEMBERS,
        partitions=2 * MEMBERS,
        settled=counted.settled,
    )
    return counted


def test_pushed_members_are_told_and_never_have_to_ask(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        # Their first heartbeat of their own would come after a quarter of an hour: nothing here waits for one.
        properties = {"heartbeat.interval.ms": 900_000, "session.timeout.ms": 1_800_000}
        async with serving(tmp_path) as node:
            counted = await tally(node, properties)
        for moment in ("joined", "left"):
            heard = counted.until[moment]
            assert heard["Heartbeat", REBALANCE] == 0, moment
            assert heard["Listen", REBALANCE] >= MEMBERS - 1, moment

    run(story)


def test_polled_members_hear_of_it_one_heartbeat_each(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with serving(tmp_path) as node:
            counted = await tally(node, {"heartbeat.interval.ms": 300, "group.membership": "poll"})
        for moment in ("joined", "left"):
            heard = counted.until[moment]
            assert heard["Heartbeat", REBALANCE] >= MEMBERS - 1, moment
            assert heard["Listen", REBALANCE] == 0, moment

    run(story)


def test_kip_848_members_are_told_too(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        # Polled, nothing would move before the first interval of 15 minutes is over.
        async with serving(tmp_path, **paced(900_000)) as node:
            counted = await tally(node, {"group.protocol": "consumer"})
        for moment in ("joined", "left"):
            assert counted.until[moment]["Listen", ErrorCode.NONE] >= MEMBERS - 1, moment

    run(story)


def test_polled_kip_848_members_get_there_by_heartbeats(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with serving(tmp_path, **paced(300)) as node:
            counted = await tally(node, {"group.protocol": "consumer", "group.membership": "poll"})
        for moment in ("joined", "left"):
            assert counted.until[moment]["ConsumerHeartbeat", ErrorCode.NONE] >= MEMBERS, moment
            assert counted.until[moment]["Listen", ErrorCode.NONE] == 0, moment

    run(story)


def test_where_no_session_is_to_be_had_members_poll(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with serving(tmp_path, max_sessions="0") as node:
            counted = await tally(node, {"heartbeat.interval.ms": 300})
        for moment in ("joined", "left"):
            assert counted.until[moment]["Heartbeat", REBALANCE] >= MEMBERS - 1, moment

    run(story)
