"""Whatever the coordinator and the application do, in any order: the member keeps its books and can be closed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.assignors.api import RebalanceProtocol
from muster.assignors.data.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_subscription,
)
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.member_types import GroupMember, LeavePolicy, MemberSettings, MembershipState
from muster.client.members.subscription import Subscriber
from muster.coordinator.errors import ErrorCode

CODES = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
]
TOPICS = [("t",), ("s", "t"), ("s",)]


class Assignor:
    def __init__(self, name: str, protocol: RebalanceProtocol) -> None:
        self.name, self.protocol = name, protocol


class Walk:
    """Answers what the member asks for as the drawn numbers say, and checks every action against its own books."""

    def __init__(self, protocol: RebalanceProtocol, static: bool) -> None:
        config = MemberSettings("g", group_instance_id="i" if static else None, session_timeout_ms=9_000)
        self.eager = protocol is RebalanceProtocol.EAGER
        self.member = ClassicMemberMachine(config, Subscriber(("t",), (Assignor("sticky", protocol),)))
        self.now_ms = 0
        self.generation = 0
        self.open: list[act.Action] = []
        self.held: set[tuple[str, int]] = set()
        self.closed = False
        self.wake_ms: int | None = None

    def step(self, event: ev.ClassicEvent) -> None:
        for action in self.member.step(event, self.now_ms):
            assert not self.closed, f"{action} after the end"
            self.account(action)

    def account(self, action: act.Action) -> None:
        match action:
            case act.Revoke() | act.Lost():
                assert set(action.partitions) <= self.held
                assert action.partitions
                self.held -= set(action.partitions)
                self.open.append(action)
            case act.Assign():
                assert not set(action.added) & self.held
                assert not self.eager or not self.held
                self.held |= set(action.added)
                assert self.held == set(action.partitions)
            case act.SendJoin():
                assert not any(isinstance(other, act.SendJoin | act.SendSync) for other in self.open)
                said = parse_subscription(action.protocols[0].metadata)
                assert {(topic, n) for topic, numbers in said.owned.items() for n in numbers} == self.held
                assert said.generation >= 0 or not self.held, "a member without a generation has lost everything"
                self.open.append(action)
            case act.Abandon():
                self.open = [other for other in self.open if getattr(other, "token", None) != action.token]
            case act.WakeMemberAt():
                self.wake_ms = action.at_ms
            case act.Closed():
                self.closed = True
            case act.SendLeave() | act.Fail():
                pass
            case _:
                self.open.append(action)

    def answer(self, which: int, code: ErrorCode, lost: bool) -> None:
        if not self.open:
            return
        action = self.open.pop(which % len(self.open))
        if lost and not isinstance(action, act.Revoke | act.Lost | act.MakePlan):
            self.step(ev.RequestFailed(action.token, retriable=True))  # type: ignore[union-attr]
            return
        match action:
            case act.FindCoordinator():
                self.step(ev.CoordinatorFound(action.token))
            case act.SendJoin():
                self.generation += 1
                metadata = encode_subscription(Subscription(3, self.member.topics))
                me = (GroupMember("me", None, metadata),)
                leader = "me" if which % 2 else "boss"
                generation = self.generation if code is ErrorCode.NONE else -1
                self.step(ev.JoinAnswered(action.token, code, "", generation, None, "sticky", leader, False, "me", me))
            case act.SendSync():
                share = encode_assignment({"t": list(range(which % 4))})
                self.step(ev.SyncAnswered(action.token, code, "", share))
            case act.SendHeartbeat():
                self.step(ev.ClassicHeartbeatAnswered(action.token, code))
            case act.MakePlan():
                if lost:
                    self.step(ev.PlanFailed(action.generation, "no"))
                else:
                    self.step(ev.PlanMade(action.generation, (), b"", {"t": 4}))
            case act.Revoke() | act.Lost():
                self.step(ev.Revoked(action.token))

    def happen(self, which: int) -> None:
        events: list[ev.ClassicEvent] = [
            ev.TimerExpired(),
            ev.SubscriptionChanged(TOPICS[which % 3]),
            ev.PartitionCountsChanged({"t": which}),
            ev.PollExpired(),
            ev.PollResumed(),
            ev.CommitRefused(CODES[which % len(CODES)], "", self.generation),
        ]
        self.step(events[which % len(events)])

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        if self.wake_ms is not None and self.now_ms >= self.wake_ms:
            self.wake_ms = None
            self.step(ev.TimerExpired())


MOVE = st.tuples(st.integers(0, 5), st.integers(0, 50), st.sampled_from(CODES), st.booleans())


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(RebalanceProtocol), st.booleans(), st.lists(MOVE, max_size=60))
def test_the_member_stays_consistent_and_can_be_closed(
    protocol: RebalanceProtocol, static: bool, moves: list[tuple[int, int, ErrorCode, bool]]
) -> None:
    walk = Walk(protocol, static)
    walk.step(ev.Start())
    for kind, which, code, flag in moves:
        if kind <= 2:
            walk.answer(which, code, flag)
        elif kind == 3:
            walk.answer(which, ErrorCode.NONE, False)
        elif kind == 4:
            walk.pass_time(which * 200)
        else:
            walk.happen(which)
    walk.step(ev.Close(list(LeavePolicy)[len(moves) % 3]))
    while (releases := [a for a in walk.open if isinstance(a, act.Revoke | act.Lost)]) and not walk.closed:
        walk.open.remove(releases[0])
        walk.step(ev.Revoked(releases[0].token))
    assert walk.closed
    assert walk.held == set()
    assert walk.member.state is MembershipState.CLOSED


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(RebalanceProtocol), st.booleans(), st.lists(MOVE, max_size=40))
def test_once_the_trouble_is_over_a_member_becomes_stable(
    protocol: RebalanceProtocol, static: bool, moves: list[tuple[int, int, ErrorCode, bool]]
) -> None:
    walk = Walk(protocol, static)
    walk.step(ev.Start())
    for kind, which, code, flag in moves:
        if kind <= 3:
            walk.answer(which, code, flag)
        elif kind == 4:
            walk.pass_time(which * 200)
        else:
            walk.happen(which)
    walk.step(ev.SubscriptionChanged(("t",)))
    walk.step(ev.PollResumed())
    for _ in range(200):
        if walk.member.state in {MembershipState.STABLE, MembershipState.FAILED} and not walk.open:
            break
        walk.pass_time(1_000)
        walk.answer(0, ErrorCode.NONE, False)
    assert walk.member.state in {MembershipState.STABLE, MembershipState.FAILED}
