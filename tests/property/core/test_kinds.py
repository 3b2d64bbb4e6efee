"""Whatever is said to a group of whatever kind, it answers lawfully, and nobody who asks has to know its kind.

One group id lives through every kind there is, in ZooKeeper, in the log and in both; anybody says anything to it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.group import ObservedGroup
from muster.coordinator.core.kinds.registry import CONVERSIONS, KINDS
from muster.coordinator.core.model import events
from muster.coordinator.core.model import events as central
from muster.coordinator.core.model import events as control
from muster.coordinator.core.model import events as trial
from muster.coordinator.core.model.effects import REPLY_TYPES, Effects
from muster.coordinator.core.model.events import (
    NO_PRODUCER,
    ClaimFence,
    Event,
    GroupObserved,
    GroupUnseen,
    ObservedMember,
    TxnEnded,
    TxnOffsetCommit,
    TxnWriteOver,
)
from muster.coordinator.core.model.records import By, Orphans
from muster.coordinator.core.model.types import CommittedOffset, Limits, MemberIdentity, Protocol
from muster.coordinator.core.shard import Shard

TOPICS = events.TopicsChanged({"t": 4, "u": 1}, ids={"t": b"t" * 16, "u": b"u" * 16})
GROWN = events.TopicsChanged({"t": 6, "u": 1}, ids={"t": b"t" * 16, "u": b"u" * 16})
LIMITS = Limits(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0, offsets_retention_ms=60_000)
KNOWN_KINDS = {ClassicGroup, ConsumerGroup, CentralGroup}

members = st.sampled_from(["", "a", "b", "c-1", "c-2", "c-3"])
instances = st.sampled_from([None, None, None, "i"])
numbers = st.sampled_from([-2, -1, 0, 0, 1, 2, 3, 9])
requests = st.just(0)
"""The life that is told gives each request a number of its own."""
topics = st.sampled_from([("t",), ("t", "u"), ()])
protocols = topics.map(lambda read: (Protocol("range", encode_subscription(Subscription(version=1, topics=read))),))
offsets = st.sampled_from(
    [{("t", 0): CommittedOffset(1)}, {("u", 0): CommittedOffset(2), ("x", 1): CommittedOffset(3)}]
)
groups = st.sampled_from([*["g"] * 9, ""])


who = (requests, st.just("g"), members)
streams = st.integers(0, 60)
beats = st.builds(
    events.ConsumerHeartbeat,
    requests,
    groups,
    members,
    numbers,
    instances,
    rebalance_timeout_ms=st.sampled_from([10_000, 10_000, -1]),
    topic_names=st.sampled_from([("t",), ("t",), ("u",), None]),
    topic_regex=st.sampled_from([None, None, None, "t.*", "("]),
    server_assignor=st.sampled_from([None, None, None, "range", "nonsense"]),
    owned=st.sampled_from([{}, {}, None, {b"t" * 16: frozenset({0})}]),
)
shares = members.map(lambda member: ((member, encode_assignment({"t": [0]})),))
leavers = st.builds(MemberIdentity, members, instances).map(lambda leaver: (leaver,))

REQUESTS: Mapping[type, st.SearchStrategy[Any]] = {
    events.JoinGroup: st.builds(
        events.JoinGroup,
        requests,
        groups,
        members,
        instances,
        st.just("c"),
        st.just("h"),
        st.sampled_from([10_000, 10_000, 10_000, 1]),
        st.just(20_000),
        st.sampled_from(["consumer", "consumer", "consumer", "connect", ""]),
        protocols,
        st.just(""),
        require_known_member_id=st.booleans(),
        remote_assignor=st.sampled_from(["", "", "", "range", "nonsense"]),
    ),
    events.ConsumerHeartbeat: beats,
    central.RegisterConsumer: st.builds(
        central.RegisterConsumer,
        *who,
        st.just("c"),
        st.just("h"),
        st.sampled_from([10_000, 10_000, 10_000, 1]),
        topics,
        st.sampled_from(["", "", "t.*"]),
        st.sampled_from(["range", "range", "range", "nonsense"]),
        st.sampled_from([-1, -1, -1, 1]),
        stream=st.one_of(st.just(0), st.just(0), streams),
    ),
    central.AwaitOrders: st.builds(central.AwaitOrders, *who, streams),
    central.PingAnswered: st.builds(central.PingAnswered, *who, streams, st.integers(0, 3)),
    central.FetcherStopped: st.builds(central.FetcherStopped, *who, streams, st.integers(0, 3)),
    central.FetcherStarted: st.builds(central.FetcherStarted, *who, streams, st.integers(0, 3)),
    central.Deregister: st.builds(central.Deregister, *who, streams),
    events.SyncGroup: st.builds(
        events.SyncGroup, requests, groups, members, instances, numbers, st.none(), st.just("range"), shares
    ),
    events.Heartbeat: st.builds(events.Heartbeat, requests, groups, members, instances, numbers),
    events.Listen: st.builds(events.Listen, requests, groups, members, instances, numbers, st.booleans()),
    events.Hello: st.builds(events.Hello, requests, groups, members),
    events.SessionHeartbeat: st.builds(events.SessionHeartbeat, requests, beats, st.sampled_from([None, 1])),
    events.LeaveGroup: st.one_of(
        st.builds(events.LeaveGroup, requests, groups, leavers, st.sampled_from(["", "op"])),
        st.builds(events.LeaveGroup, requests, groups, st.just(()), st.just("op"), st.just(True)),
    ),
    events.OffsetCommit: st.builds(events.OffsetCommit, requests, groups, members, instances, numbers, offsets),
    TxnOffsetCommit: st.builds(
        TxnOffsetCommit, requests, groups, members, instances, numbers, offsets, st.sampled_from([NO_PRODUCER, 50, 51])
    ),
    TxnEnded: st.builds(TxnEnded, requests, st.sampled_from([50, 51, 52]), st.just(0), st.booleans(), st.just(0)),
    TxnWriteOver: st.builds(TxnWriteOver, requests, groups, requests),
    events.OffsetFetch: st.builds(events.OffsetFetch, requests, groups, st.none(), st.booleans(), members, numbers),
    events.OffsetDelete: st.builds(events.OffsetDelete, requests, groups, st.just((("t", 0), ("x", 1)))),
    events.DescribeGroup: st.builds(events.DescribeGroup, requests, groups),
    events.DescribeConsumerGroup: st.builds(events.DescribeConsumerGroup, requests, groups),
    events.ListGroups: st.builds(events.ListGroups, requests),
    events.ExplainGroup: st.builds(events.ExplainGroup, requests, groups),
    events.DeleteGroup: st.builds(events.DeleteGroup, requests, groups, st.booleans()),
    events.DescribeSettings: st.builds(events.DescribeSettings, requests, groups),
    events.ListSettings: st.builds(events.ListSettings, requests),
    ClaimFence: st.builds(
        ClaimFence,
        *who,
        st.sampled_from(["t", "t", "x", ""]),
        st.sampled_from([0, 0, 1, -1]),
        numbers,
        st.sampled_from([-1, -1, 100]),
        st.integers(-1, 2),
        st.integers(100, 101),
    ),
    events.AlterSettings: st.builds(
        events.AlterSettings,
        requests,
        groups,
        st.sampled_from([{"assignor.options": {"max_partitions": 1}}, {}, {"x": 1}]),
        st.sampled_from([(), ("assignor.options",)]),
        st.none(),
        st.booleans(),
        st.just("op"),
    ),
    control.HoldGroup: st.builds(
        control.HoldGroup,
        requests,
        groups,
        st.sampled_from(
            [
                control.AskFreeze(),
                control.AskFreeze(Orphans.GIVE),
                control.AskDeploy(2),
                control.AskDrain(By.CLIENT_ID, "a"),
                control.AskPin("t", 0, "a"),
            ]
        ),
        st.sampled_from([None, 60_000, -1]),
        st.none(),
        st.booleans(),
        st.just("op"),
    ),
    control.ResumeGroup: st.builds(
        control.ResumeGroup,
        requests,
        groups,
        st.sampled_from([None, control.EndFreeze(), control.EndDeploy(), control.Undrain(By.CLIENT_ID, "a")]),
        st.sampled_from([None, 3]),
        st.booleans(),
        st.just("op"),
    ),
    control.DescribeHolds: st.builds(control.DescribeHolds, requests, groups),
    trial.StartCanary: st.builds(
        trial.StartCanary,
        requests,
        groups,
        st.sampled_from(["range", "roundrobin", 'lag-sticky{"move.budget": 1}', "nobody"]),
        st.sampled_from([0, 1_000, 60_000]),
        st.sampled_from([(), ("moves > 0",), ("expired > 0", "moves > 2x")]),
        st.just(1_000),
        st.booleans(),
        st.booleans(),
        st.just("operator"),
    ),
    trial.EndCanary: st.builds(trial.EndCanary, requests, groups, st.booleans(), st.just("operator")),
    trial.DescribeCanary: st.builds(trial.DescribeCanary, requests, groups),
}
"""What anybody may say to a group, by its type."""

seen = st.lists(st.builds(ObservedMember, st.sampled_from(["a", "z"]), topics), max_size=2, unique_by=lambda m: m.id)
the_node = st.one_of(
    st.builds(central.StreamClosed, st.just("g"), members, streams),
    st.builds(GroupObserved, st.just("g"), seen.map(tuple), partitions=st.just({"t": 4})),
    st.builds(GroupUnseen, st.just("g")),
    st.builds(events.StreamLost, st.just("g"), members, st.just(1_000)),
    st.builds(events.Forget, st.just("g"), st.integers(1, 60)),
    st.builds(events.Planned, st.just("g"), st.integers(0, 5), st.sampled_from([None, {"a": {"t": (0,)}}])),
    st.builds(events.RegexResolved, st.just("g"), st.just("t.*"), st.just(("t",)), st.integers(0, 3)),
    st.builds(events.StoodStill, st.sampled_from([0, 2_000]), st.just(3_000)),
    st.sampled_from([TOPICS, GROWN]),
    st.integers(1, 20_000).map(lambda after_ms: Wait(after_ms)),
)
said = st.one_of(*REQUESTS.values(), the_node, the_node, the_node)
turning = st.one_of(
    *(REQUESTS[kind] for kind in (events.JoinGroup, events.ConsumerHeartbeat, central.RegisterConsumer)),
    st.builds(events.DeleteGroup, requests, st.just("g"), st.booleans()),
    st.just(GroupUnseen("g")),
    st.integers(1, 20_000).map(lambda after_ms: Wait(after_ms)),
)
"""What makes a group of one kind one of another, or fails to."""


class Wait:
    """So many milliseconds pass, and the timers fire that come due."""

    def __init__(self, after_ms: int) -> None:
        self.after_ms = after_ms

    def __repr__(self) -> str:
        return f"Wait({self.after_ms})"


class Life:
    """A shard, what its log has, and who waits for an answer."""

    def __init__(self) -> None:
        self.shard, self.mirror = Shard(LIMITS, 0), Shard(LIMITS, 0)
        self.now_ms, self.asked = 1_000, 0
        self.waiting: set[int] = set()
        self.kinds: set[type] = set()
        self.say(TOPICS)
        self.say(events.Loaded())

    def tell(self, told: Any) -> None:
        if isinstance(told, Wait):
            self.wait(told.after_ms)
            return
        if type(told) in REPLY_TYPES:
            self.asked += 1
            told = replace(told, request_id=self.asked)
            if isinstance(told, events.JoinGroup):
                told = replace(told, fresh_id=str(self.asked))  # the edge never draws one twice
            if isinstance(told, events.SessionHeartbeat):
                told = replace(told, heartbeat=replace(told.heartbeat, request_id=self.asked))
            self.waiting.add(self.asked)
        self.say(told)

    def wait(self, after_ms: int) -> None:
        until_ms = self.now_ms + after_ms
        for _ in range(200):
            due = min(((at, key) for key, at in self.shard.state.deadlines.items()), default=(until_ms + 1, ()))
            if due[0] > until_ms:
                break
            self.now_ms = max(self.now_ms, due[0])
            self.say(events.TimerFired(due[1], due[0]))
        self.now_ms = until_ms

    def say(self, told: Event) -> None:
        """Every step is lawful, whatever it is."""
        before = standing(self.shard)
        out = self.shard.step(told, self.now_ms)
        for request, _ in out.replies:
            assert request in self.waiting, f"{told}: {request} was answered twice, or never asked"
            self.waiting.discard(request)
        if isinstance(told, events.Forget):
            self.waiting.discard(told.request_id)
        if was_refused(told, out):
            event(f"{type(told).__name__} refused by {type(self.shard.state.groups.get('g')).__name__}")
            assert standing(self.shard) == before, f"{told} was refused, and yet changed something"
        for record in out.records:
            self.mirror.apply(record)
        self.lawful()
        for chore in out.chores:
            self.say(chore)

    def lawful(self) -> None:
        group = self.shard.state.groups.get("g")
        self.kinds.add(type(group))
        assert type(group) in KINDS
        logged = self.shard.state.logged("g")
        assert not isinstance(logged, ObservedGroup), "a group that ZooKeeper holds stands in front of another one"
        assert hard(self.shard) == hard(self.mirror), "the log says otherwise"
        assert {group.id for group in self.shard.state.groups.values()} == set(self.shard.state.groups)


def was_refused(told: Event, out: Effects) -> bool:
    """One answer that says no, and nothing besides."""
    if out.decided or out.notices or len(out.replies) != 1 or type(told) not in REPLY_TYPES:
        return False
    ((request, reply),) = out.replies
    return bool(request == getattr(told, "request_id", None) and reply.code)


def standing(shard: Shard) -> str:
    state = shard.state
    return repr((state.groups, state.offsets, state.ledgers, state.settings, state.deadlines, state.parked))


def hard(shard: Shard) -> tuple[object, ...]:
    """What the log has to hold. A KIP-848 group's soft progress does not take part in comparisons."""
    logged, state = shard.state.logged("g"), shard.state
    stored = logged.stored if isinstance(logged, ClassicGroup | CentralGroup) else logged
    offsets = {group: kept for group, kept in state.offsets.items() if kept}
    return (type(logged), stored, offsets, state.ledgers, state.settings)


@settings(max_examples=150, deadline=None)
@given(st.lists(said, min_size=1, max_size=40))
def test_every_kind_answers_every_call_lawfully(life: list[Any]) -> None:
    told = Life()
    for each in life:
        told.tell(each)
    told.say(events.Unload())
    assert not told.shard.state.deadlines
    assert not told.waiting, "somebody waits for ever"


def opening(kind: type) -> list[Any]:
    """What makes a group of this kind that nobody is in any more."""
    join = events.JoinGroup(
        0, "g", "", None, "c", "h", 10_000, 20_000, "consumer", (Protocol("range", b""),), "a", "", False
    )
    beat = events.ConsumerHeartbeat(0, "g", "a", 0, None, None, 10_000, ("t",), owned={})
    register = central.RegisterConsumer(0, "g", "a", "c", "h", 10_000, ("t",), "", "range")
    leave = events.LeaveGroup(0, "g", (), "op", True)
    return {
        ClassicGroup: [join, leave, Wait(1)],
        ConsumerGroup: [beat, leave],
        CentralGroup: [register, leave],
        ObservedGroup: [GroupObserved("g", ())],
        type(None): [],
    }[kind]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(KINDS, key=lambda kind: kind.__name__)), st.booleans(), st.lists(turning, max_size=5))
def test_a_group_that_nobody_is_in_refuses_without_a_trace_whatever_its_kind(
    kind: type, watched: bool, life: list[Any]
) -> None:
    """Most conversions are of such groups: a refused one has changed nothing."""
    told = Life()
    for each in opening(kind):
        told.tell(each)
    if watched:
        told.tell(GroupObserved("g", ()))
    assert type(told.shard.state.logged("g")) is (kind if kind in KNOWN_KINDS else type(None))
    for each in life:
        told.tell(each)


def test_the_table_of_conversions_has_every_way_between_two_kinds_of_the_log() -> None:
    """An empty KIP-848 group turns classic when somebody joins, one with members when its last consumer goes."""
    calls = [(way.source, way.why) for way in CONVERSIONS]
    assert len(set(calls)) == len(calls), "one call leads one way"
    ways = {(way.source, way.target) for way in CONVERSIONS}
    assert ways == {(one, other) for one in KNOWN_KINDS for other in KNOWN_KINDS if one is not other}


def test_every_request_that_there_is_is_said_to_groups_here() -> None:
    assert set(REPLY_TYPES) == set(REQUESTS)
