"""The leader's plan: what the assignor is given, and what happens when it cannot be trusted."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from muster.assignors.api import Assignor, Plan, RebalanceProtocol, Snapshot
from muster.assignors.data.consumer_protocol import Subscription, encode_subscription, parse_assignment
from muster.assignors.registry import resolve
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import GroupMember
from muster.client.membership import leader_planner
from muster.client.membership.leader_planner import LeaderPlanner, shared_isolation
from muster.client.types import TopicPartition
from tests.support import plugins


class Plugin:
    """An assignor that does as it is told by the test."""

    def __init__(
        self, decide: Callable[[Snapshot], Plan], protocol: RebalanceProtocol = RebalanceProtocol.EAGER
    ) -> None:
        self.name = "plugin"
        self.protocol = protocol
        self.decide = decide

    def assign(self, snapshot: Snapshot) -> Plan:
        return self.decide(snapshot)


HERE = shared_isolation("thread")
"""For plugins that do as a test tells them, which no other process could make."""


def member(name: str, owned: Mapping[str, Sequence[int]] | None = None, generation: int = -1) -> GroupMember:
    return GroupMember(name, None, encode_subscription(Subscription(3, ("t",), None, owned or {}, generation)))


async def four_partitions(topics: Iterable[str]) -> Mapping[str, int]:
    return dict.fromkeys(topics, 4)


def plan(planner: LeaderPlanner, *members: GroupMember, protocol: str = "plugin", generation: int = 1) -> ev.PlanMade:
    return asyncio.run(planner.plan(act.MakePlan(generation, protocol, members)))


def shares(planned: ev.PlanMade) -> dict[str, list[int]]:
    return {name: list(parse_assignment(blob).partitions.get("t", ())) for name, blob in planned.assignments}


def options(planned: ev.PlanMade) -> dict[str, str]:
    found: dict[str, str] = json.loads(planned.snapshot).get("options", {})
    return found


def test_everybody_gets_a_share_and_the_snapshot_goes_along() -> None:
    planned = plan(LeaderPlanner([resolve("range")], four_partitions), member("a"), member("b"), protocol="range")
    assert shares(planned) == {"a": [0, 1], "b": [2, 3]}
    assert Snapshot.from_json(planned.snapshot).topics == {"t": 4}
    assert planned.partition_counts == {"t": 4}


def test_a_cooperative_plan_withholds_what_another_member_still_owns() -> None:
    planner = LeaderPlanner([resolve("cooperative-sticky")], four_partitions)
    planned = plan(planner, member("a", {"t": [0, 1, 2, 3]}, 1), member("b"), protocol="cooperative-sticky")
    assert len(shares(planned)["a"]) == 2
    assert shares(planned)["b"] == []


def raising(snapshot: Snapshot) -> Plan:
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("decide", "says"),
    [
        (raising, "oops"),
        (lambda snapshot: {"a": {"t": [0, 1, 2, 3]}, "b": {"t": [3]}}, "t-3"),
        (lambda snapshot: {"a": {"t": [0, 1]}}, "forg"),
        (lambda snapshot: {"a": {"t": [0, 1, 2, 3, 4]}}, "4"),
        (lambda snapshot: {"nobody": {"t": [0, 1, 2, 3]}}, "nobody"),
        (lambda snapshot: 5, "int"),
    ],
)
def test_a_plugin_that_raises_or_lies_is_replaced_by_range_and_named(
    decide: Callable[[Snapshot], Plan], says: str
) -> None:
    planned = plan(LeaderPlanner([Plugin(decide)], four_partitions, isolation=HERE), member("a"), member("b"))
    assert shares(planned) == {"a": [0, 1], "b": [2, 3]}
    assert options(planned)["fallback"] == "range"
    assert says in options(planned)["reason"]
    assert "plugin" in options(planned)["reason"]


def test_the_last_good_plan_is_kept_while_it_fits() -> None:
    answers: list[Callable[[Snapshot], Plan]] = [lambda s: {"a": {"t": [0, 1, 2]}, "b": {"t": [3]}}, raising, raising]
    planner = LeaderPlanner([Plugin(lambda snapshot: answers.pop(0)(snapshot))], four_partitions, isolation=HERE)
    plan(planner, member("a"), member("b"))
    kept = plan(planner, member("a"), member("b"))
    assert shares(kept) == {"a": [0, 1, 2], "b": [3]}
    assert options(kept)["fallback"] == "last good assignment"
    changed = plan(planner, member("a"), member("b"), member("c"))
    assert options(changed)["fallback"] == "range"
    assert [len(share) for share in shares(changed).values()] == [2, 1, 1]


def test_a_failed_cooperative_plugin_is_replaced_without_handing_out_what_others_own() -> None:
    plugin = Plugin(raising, RebalanceProtocol.COOPERATIVE)
    planned = plan(
        LeaderPlanner([plugin], four_partitions, isolation=HERE), member("a"), member("b", {"t": [0, 1, 2, 3]}, 1)
    )
    assert shares(planned)["a"] == []


@pytest.mark.parametrize("kind", [plugins.Hangs, plugins.Counts])
def test_a_plugin_that_hangs_is_given_up_at_its_deadline(kind: type[Assignor]) -> None:
    planned = plan(LeaderPlanner([kind()], four_partitions, deadline_ms=20), member("a"), protocol=kind().name)
    assert shares(planned) == {"a": [0, 1, 2, 3]}
    assert "20 ms" in options(planned)["reason"]


def test_a_plugin_runs_in_a_process_of_its_own() -> None:
    planner = LeaderPlanner([plugins.Remembers()], four_partitions)
    planned = plan(planner, member("a"), member("b"), protocol="remembers")
    assert shares(planned) == {"a": [0, 2], "b": [1, 3]}
    assert "fallback" not in options(planned)


def test_a_protocol_this_leader_does_not_list_is_replaced_too() -> None:
    planned = plan(LeaderPlanner([resolve("range")], four_partitions), member("a"), protocol="unheard-of")
    assert shares(planned) == {"a": [0, 1, 2, 3]}
    assert "unheard-of" in options(planned)["reason"]


def test_a_member_whose_subscription_is_garbage_gets_nothing_and_harms_nobody() -> None:
    planned = plan(
        LeaderPlanner([resolve("range")], four_partitions),
        member("a"),
        GroupMember("z", None, b"\x00"),
        protocol="range",
    )
    assert shares(planned) == {"a": [0, 1, 2, 3], "z": []}


def test_options_reach_the_assignor_and_the_snapshot() -> None:
    options = {"max.partitions.per.member": 1}
    planned = plan(
        LeaderPlanner([resolve("uniform")], four_partitions, options=options), member("a"), protocol="uniform"
    )
    assert len(shares(planned)["a"]) == 1
    assert Snapshot.from_json(planned.snapshot).options == options


@pytest.mark.parametrize(("assignor", "asked"), [("lag", True), ("range", False)])
def test_lags_are_measured_only_for_an_assignor_that_wants_them(assignor: str, asked: bool) -> None:
    measured: list[TopicPartition] = []

    async def measure(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        measured.extend(partitions)
        return {tp: 10 * tp.partition for tp in partitions}

    chosen: Assignor = resolve(assignor)
    planned = plan(LeaderPlanner([chosen], four_partitions, measure), member("a"), protocol=assignor)
    assert bool(measured) is asked
    assert Snapshot.from_json(planned.snapshot).lags == ({"t": [0, 10, 20, 30]} if asked else None)


def test_lag_sticky_is_told_when_partitions_last_moved() -> None:
    """So that a partition cools down whoever leads: the moves come from the ledger, not from this leader's memory."""

    async def lags(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 1)

    async def moved() -> Mapping[TopicPartition, int]:
        return {TopicPartition("t", 3): 1_700_000_000_000}

    planner = LeaderPlanner([resolve("lag-sticky")], four_partitions, lags, recall_moves=moved)
    planned = asyncio.run(planner.plan(act.MakePlan(1, "lag-sticky", (member("a"), member("b")))))
    options = json.loads(planned.snapshot)["options"]
    assert options["moved.at.ms"] == {"t": {"3": 1_700_000_000_000}}
    assert options["now.ms"] > 1_700_000_000_000


def test_a_large_group_does_not_hold_up_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding, deciding and writing down happen in other threads than the loop's. (Its ticks meanwhile are no measure:
    how often threads take turns is the machine's affair.)"""
    threads: dict[str, int] = {}

    def watched(owner: object, name: str) -> None:
        work = getattr(owner, name)

        def run(*given: Any, **more: Any) -> Any:
            threads[name] = threading.get_ident()
            return work(*given, **more)

        monkeypatch.setattr(owner, name, run)

    for owner, name in ((leader_planner, "read_members"), (leader_planner, "run"), (LeaderPlanner, "_written_down")):
        watched(owner, name)

    async def many_partitions(topics: Iterable[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, 20_000)

    owned = {"t": range(20_000)}
    group = tuple(member(f"m{number}", owned if number == 0 else None, 1) for number in range(50))
    planner = LeaderPlanner([resolve("sticky")], many_partitions)
    planned = asyncio.run(planner.plan(act.MakePlan(1, "sticky", group)))
    assert len(planned.assignments) == 50
    assert threads.keys() == {"read_members", "run", "_written_down"}
    assert threading.get_ident() not in threads.values()


def test_a_snapshot_too_large_for_the_ledger_is_not_sent() -> None:
    async def many_partitions(topics: Iterable[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, 4)

    group = tuple(member(f"member-{number:0200d}") for number in range(6_000))
    planned = asyncio.run(LeaderPlanner([resolve("range")], many_partitions).plan(act.MakePlan(1, "range", group)))
    assert planned.snapshot == b""
    assert len(planned.assignments) == 6_000
