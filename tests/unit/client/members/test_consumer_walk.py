"""Whatever happens, in any order: the KIP-848 member keeps its books and can be closed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import ConsumerMemberMachine, RequestedSubscription
from muster.client.members.member_types import LeavePolicy, MemberSettings, MembershipState
from muster.coordinator.errors import ErrorCode

CODES = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
]
SHARES = [None, (), (("t", 0),), (("t", 0), ("t", 1)), (("t", 1), ("t", 2)), (("s", 0),)]


class Walk:
    """Answers what the member asks for as the drawn numbers say, and checks every action against its own books."""

    def __init__(self, static: bool) -> None:
        config = MemberSettings("g", group_instance_id="i" if static else None, session_timeout_ms=9_000)
        self.member = ConsumerMemberMachine(config, "me", RequestedSubscription(("t",)))
        self.now_ms = 0
        self.epoch = 0
        self.open: list[act.Action] = []
        self.held: set[tuple[str, int]] = set()
        self.told: set[tuple[str, int]] = set()
        self.closed = False

    def step(self, event: ev.ConsumerEvent) -> None:
        for action in self.member.step(event, self.now_ms):
            assert not self.closed, f"{action} after the end"
            self.account(action)

    def account(self, action: act.Action) -> None:
        match action:
            case act.Revoke() | act.Lost():
                assert action.partitions
                assert set(action.partitions) <= self.held
                self.held -= set(action.partitions)
                self.open.append(action)
            case act.Assign():
                assert action.added
                assert self.held.isdisjoint(action.added)
                self.held |= set(action.added)
                assert self.held == set(action.partitions) == self.member.owned
            case act.SendConsumerHeartbeat():
                self.send(action)
            case act.FindCoordinator():
                self.open.append(action)
            case act.Abandon():
                self.open = [asked for asked in self.open if getattr(asked, "token", None) != action.token]
            case act.WakeMemberAt():
                assert action.at_ms >= 0
            case act.Closed():
                self.closed = True
            case _:
                assert isinstance(action, act.Fail | act.LeaveConsumerGroup)

    def send(self, action: act.SendConsumerHeartbeat) -> None:
        assert action.member_id == "me"
        assert not any(isinstance(asked, act.SendConsumerHeartbeat) for asked in self.open), "one at a time"
        if action.epoch == 0:
            assert action.owned == ()
            assert not self.held
        elif action.owned is not None:
            # Nothing is called given up before the application has let go of it.
            letting_go = {tp for asked in self.open if isinstance(asked, act.Revoke) for tp in asked.partitions}
            assert self.held | (letting_go & set(action.owned)) == set(action.owned)
            if self.member.state is MembershipState.ADOPTING:
                assert letting_go <= set(action.owned)
        self.open.append(action)

    def answer(self, which: int, code: ErrorCode, share: int) -> None:
        if not self.open:
            return
        asked = self.open.pop(which % len(self.open))
        match asked:
            case act.FindCoordinator():
                self.step(ev.CoordinatorFound(asked.token))
            case act.Revoke() | act.Lost():
                self.step(ev.Revoked(asked.token))
            case act.SendConsumerHeartbeat():
                self.step(self.word(asked.token, code, share))
            case _:
                raise AssertionError(asked)

    def word(self, token: int, code: ErrorCode, share: int) -> ev.ConsumerHeartbeatAnswered:
        self.epoch += share % 2
        return ev.ConsumerHeartbeatAnswered(token, code, "", max(self.epoch, 1), 3_000, SHARES[share % len(SHARES)])


moves = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=60)


@settings(max_examples=300, deadline=None)
@given(moves=moves, static=st.booleans())
def test_any_walk_keeps_the_books_and_can_be_closed(moves: list[tuple[int, int, int]], static: bool) -> None:
    walk = Walk(static)
    walk.step(ev.Start())
    for kind, which, what in moves:
        match kind:
            case 0:
                walk.now_ms += 100 * (what + 1) ** 2
                walk.step(ev.TimerExpired())
            case 1:
                failed = [asked for asked in walk.open if not isinstance(asked, act.Revoke | act.Lost)]
                if failed:
                    asked = failed[which % len(failed)]
                    walk.open.remove(asked)
                    walk.step(ev.RequestFailed(asked.token, True))  # type: ignore[union-attr]
            case 2:
                walk.step(ev.ConsumerHeartbeatPushed(walk.word(0, CODES[which % len(CODES)], what)))
            case 3:
                walk.step(ev.PollExpired() if what % 3 == 0 else ev.PollResumed())
            case 4:
                walk.step(ev.SubscriptionChanged(("t",) if what % 2 else ("s", "t")))
            case 5:
                code = [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID][what % 2]
                walk.step(ev.CommitRefused(code, "", walk.member.generation))
            case _:
                walk.answer(which, CODES[what % len(CODES)], which)
    walk.step(ev.Close(list(LeavePolicy)[len(moves) % 3]))
    while walk.open and not walk.closed:
        walk.answer(0, ErrorCode.NONE, 0)
    assert walk.closed
    assert not walk.held
