"""What stays behind: of requests that were refused, of groups that have gone; and what one of many members costs."""

import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.model import events
from muster.coordinator.core.model.events import GroupObserved, GroupUnseen, ObservedMember
from muster.coordinator.core.model.records import RebalanceDecided
from muster.coordinator.core.model.types import Limits, MemberIdentity, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode

RANGE = (Protocol("range", encode_subscription(Subscription(version=1, topics=("t",)))),)
LIMITS = Limits(initial_rebalance_delay_ms=3_000)


def join(number: int, group: str = "g", *, instance: str | None = None, protocols: Any = RANGE) -> events.JoinGroup:
    return events.JoinGroup(
        *(number, group, "", instance, "c", "h", 10_000, 60_000, "consumer", protocols),
        fresh_id=f"f{number}",
        require_known_member_id=False,
    )


def sizes(shard: Shard) -> dict[str, int]:
    """How much the shard's state holds, by the field of it."""
    found = {one.name: getattr(shard.state, one.name) for one in fields(shard.state)}
    return {name: len(each) for name, each in found.items() if hasattr(each, "__len__")}


REFUSED: dict[str, Callable[[int, str], Any]] = {
    "join without protocols": lambda n, g: join(n, g, protocols=()),
    "join as somebody": lambda n, g: events.JoinGroup(n, g, "m", None, "c", "h", 10_000, 1, "consumer", RANGE, "f"),
    "sync": lambda n, g: events.SyncGroup(n, g, "m", None, 1, None, None, ()),
    "heartbeat": lambda n, g: events.Heartbeat(n, g, "m", None, 1),
    "leave": lambda n, g: events.LeaveGroup(n, g, (MemberIdentity("m"),)),
    "commit": lambda n, g: events.OffsetCommit(n, g, "m", None, 1, {}),
    "fetch": lambda n, g: events.OffsetFetch(n, g, None),
    "delete": lambda n, g: events.DeleteGroup(n, g),
    "delete offsets": lambda n, g: events.OffsetDelete(n, g, (("t", 0),)),
    "describe": lambda n, g: events.DescribeGroup(n, g),
    "explain": lambda n, g: events.ExplainGroup(n, g, 1, 0),
    "listen": lambda n, g: events.Listen(n, g, "m", None, 1),
    "consumer heartbeat": lambda n, g: events.ConsumerHeartbeat(n, g, "m", 5),
    "consumer describe": lambda n, g: events.DescribeConsumerGroup(n, g),
    "forget": lambda n, g: events.Forget(g, n),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_for_a_group_that_is_not_there_leaves_nothing(name: str) -> None:
    shard = Shard(LIMITS, 0)
    before = sizes(shard)
    for number in range(5):
        shard.step(REFUSED[name](number, f"nobody-{number}"), 10)
    assert sizes(shard) == before


def gone_from_zookeeper(group: str = "console-1") -> Shard:
    """A group of the ZooKeeper era that came, had a rebalance, and went."""
    shard = Shard(LIMITS, 0)
    member = ObservedMember("m", ("t",))
    shard.step(GroupObserved(group, (member,), {("t", 0): "m"}, {"t": 1}), 0)
    shard.step(GroupObserved(group, (), {}, {"t": 1}), 10)
    shard.step(GroupUnseen(group), 20)
    assert list(shard.ledgers) == [group]
    return shard


def test_what_is_told_of_a_group_that_has_gone_from_zookeeper_can_be_deleted() -> None:
    shard = gone_from_zookeeper()
    effects = shard.step(events.DeleteGroup(1, "console-1"), 30)
    assert effects.replies[0][1].code is ErrorCode.NONE
    assert not shard.ledgers
    assert shard.step(events.DeleteGroup(2, "console-1"), 30).replies[0][1].code is ErrorCode.GROUP_ID_NOT_FOUND
    again = Shard(LIMITS, 0)
    for record in [*ledger_records(gone_from_zookeeper()), *effects.records]:
        again.apply(record)
    assert not again.ledgers


def ledger_records(shard: Shard) -> list[Any]:
    return [RebalanceDecided(group, entry) for group, kept in shard.ledgers.items() for entry in kept.entries.values()]


def test_it_goes_by_itself_when_positions_would() -> None:
    shard = gone_from_zookeeper()
    fire_retention(shard, LIMITS.offsets_retention_ms)
    assert list(shard.ledgers) == ["console-1"]
    fire_retention(shard, LIMITS.offsets_retention_ms + 10)
    assert not shard.ledgers


def fire_retention(shard: Shard, now_ms: int) -> None:
    shard.state.deadlines["retention",] = now_ms
    chores = shard.step(events.TimerFired(("retention",), now_ms), now_ms).chores
    while chores:
        chores += shard.step(chores.pop(0), now_ms).chores


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Python it takes, comprehensions by their elements: work that no other process slows down."""
    count = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def stable(members: int, *, static: bool = False) -> Shard:
    """A group of so many members with a plan; the members' ids are c-f0, c-f1 and so on, or i0-f0."""
    shard = Shard(LIMITS, 0)
    shard.step(events.TopicsChanged({"t": members}, ids={"t": b"t" * 16}), 0)
    for number in range(members):
        shard.step(join(number, instance=f"i{number}" if static else None), 10)
    while ("join", "g") in shard.state.deadlines:
        now_ms = shard.state.deadlines["join", "g"]
        shard.step(events.TimerFired(("join", "g"), now_ms), now_ms)
    return shard


@pytest.mark.parametrize("how", ["sync", "listen"])
def test_one_of_many_that_wait_is_forgotten_without_a_look_at_the_others(how: str) -> None:
    def cost(members: int) -> int:
        shard = stable(members)
        ids, generation = list(shard.groups["g"].members), shard.groups["g"].generation
        for number, member_id in enumerate(ids[1:], 10_000):
            event: Any = events.SyncGroup(number, "g", member_id, None, generation, None, None, ())
            if how == "listen":
                event = events.Listen(number, "g", member_id, None, generation)
            assert not shard.step(event, 20).replies, "it waits"
        assert len(ids) > members - 2
        return lines_of(lambda: shard.step(events.Forget("g", 10_000 + len(ids) - 2), 30))

    few, many = cost(20), cost(200)
    assert many < few + 20


def test_the_replacement_of_a_static_member_does_not_read_what_all_others_said() -> None:
    def cost(members: int) -> int:
        shard = stable(members, static=True)
        group = shard.groups["g"]
        plan = tuple((one, encode_assignment({"t": [number]})) for number, one in enumerate(group.members))
        leader = group.members[group.leader or ""]
        shard.step(events.SyncGroup(1_000, "g", leader.id, leader.group_instance_id, 1, None, None, plan), 20)
        shard.step(join(2_000, instance="i0"), 30)
        return lines_of(lambda: shard.step(join(2_001, instance="i1"), 30)) // members

    assert cost(400) < 150, "lines for each member"


def test_what_is_told_of_a_group_has_a_bound_in_bytes_too() -> None:
    """A hundred entries of one group of 300 members took 83 MB."""
    shard = Shard(Limits(initial_rebalance_delay_ms=0, ledger_max_bytes=20_000), 0)
    member = ObservedMember("m", ("t",))
    for number in range(40):
        owners = {("t", partition): "m" for partition in range(number % 2, 10)}
        shard.step(GroupObserved("g", (member,), owners, {"t": 10 - number % 2}), 10_000 * number)
        shard.step(GroupObserved("g", (), {}, {"t": 10}), 10_000 * number + 10)
    entries = shard.ledgers["g"].entries
    assert max(entries) >= 40
    assert 1 <= len(entries) < 10
    assert sorted(entries) == list(range(min(entries), max(entries) + 1)), "the oldest went"
    huge = Shard(Limits(ledger_max_bytes=0), 0)
    huge.step(GroupObserved("g", (member,), {}, {"t": 1}), 0)
    huge.step(GroupObserved("g", (), {}, {"t": 1}), 10)
    assert list(huge.ledgers["g"].entries) == [1], "the newest is kept"
