"""Whatever happens, in any order: the consumer of the ZooKeeper era keeps its books and can be closed."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.zookeeper_assignment import (
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperSession,
)
from muster.client.members.zookeeper_member import MOVES, ZookeeperMemberMachine, ZookeeperState
from muster.coordinator.errors import ErrorCode

ONE = GroupRegistration({"t": 1})
OTHERS: Sequence[dict[str, GroupRegistration]] = (
    {},
    {"a": ONE},
    {"a": ONE, "z": ONE},
    {"z": GroupRegistration({"(": 1}, "white_list")},
)
LINKS = (ZookeeperSession.CONNECTED, ZookeeperSession.SUSPENDED, ZookeeperSession.LOST)


class Walk:
    """Answers what the machine asks for as the drawn numbers say, and checks every action against its own books."""

    def __init__(self) -> None:
        self.machine = ZookeeperMemberMachine(ZookeeperMemberSettings("g", rebalance_retries=1), ONE)
        self.now_ms = 0
        self.held: set[tuple[str, int]] = set()
        self.asked: zk.ZookeeperAction | None = None
        self.callbacks: list[int] = []
        self.registrations = 0
        self.claims = 0
        self.link = ZookeeperSession.LOST
        self.closed = False

    def step(self, event: zk.ZookeeperEvent) -> None:
        for action in self.machine.step(event, self.now_ms):
            assert not self.closed, f"{action} after the end"
            self.account(action)
        assert self.held == self.machine.owned
        assert self.machine.owned <= self.machine.nodes or self.machine.state is ZookeeperState.CLOSED

    def account(self, action: zk.ZookeeperAction) -> None:
        match action:
            case act.Revoke() | act.Lost():
                assert set(action.partitions) == self.held
                assert isinstance(action, act.Lost) or self.machine.generation >= 0, "revoked means: may commit"
                self.held.clear()
                self.callbacks.append(action.token)
            case act.Assign():
                assert not self.held, "everything was let go of before"
                assert self.link is not ZookeeperSession.LOST
                self.held = set(action.partitions)
            case act.Abandon():
                self.asked = None
            case act.Closed():
                self.closed = True
            case act.WakeMemberAt() | act.Fail() | zk.RebalanceGivenUp():
                pass
            case _:
                assert self.asked is None, f"{action} while {self.asked} waits"
                assert self.link is not ZookeeperSession.LOST, "without a session nothing can be asked"
                self.asked = action

    def answer(self, choice: int) -> None:
        action, self.asked = self.asked, None
        match action:
            case None | act.Revoke() | act.Lost() | act.Assign():
                return
            case _ if choice % 7 == 6:
                self.step(ev.RequestFailed(token_of(action), True, "no answer"))
            case zk.CreateRegistration():
                self.registrations += 1
                self.step(zk.ConsumerRegistered(action.token, f"m{self.registrations}"))
            case zk.ReadGroup():
                mine = {f"m{self.registrations}": ONE} if choice % 5 else {}
                view = ConsumerGroupView({**OTHERS[choice % 4], **mine}, {"t": choice % 6}, (1,) if choice % 11 else ())
                self.step(zk.GroupRead(action.token, view))
            case zk.ClaimOwners():
                self.claims += 1
                conflicts = dict.fromkeys(sorted(action.share)[: choice % 3], "a-0") if choice % 2 else {}
                self.step(zk.OwnersClaimed(action.token, conflicts, self.claims))
            case zk.ReleaseOwners():
                self.step(zk.OwnersReleased(action.token))
            case zk.WithdrawConsumer():
                self.step(zk.ConsumerWithdrawn(action.token))
            case _:
                raise AssertionError(f"{action} wants no answer")

    def happen(self, what: int, choice: int) -> None:
        self.now_ms += choice * 37
        match what:
            case 0:
                self.step(zk.WatchFired("members"))
            case 1:
                link = LINKS[choice % 3]
                if link is ZookeeperSession.LOST:
                    self.asked = None
                self.link = link
                self.step(zk.SessionChanged(link))
            case 2:
                self.step(ev.TimerExpired())
            case 3:
                self.step(ev.PollExpired() if choice % 3 == 0 else ev.PollResumed())
            case 4:
                self.step(ev.SubscriptionChanged(("t",) if choice % 2 else ("t", "u")))
            case 5:
                self.step(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", self.machine.generation))
            case 6 if self.callbacks:
                self.step(ev.Revoked(self.callbacks.pop(0)))
            case _:
                self.answer(choice)

    def close(self) -> None:
        self.step(ev.Close())
        while self.callbacks:
            self.step(ev.Revoked(self.callbacks.pop(0)))


def token_of(action: zk.ZookeeperAction) -> int:
    assert isinstance(
        action, zk.CreateRegistration | zk.ReadGroup | zk.ClaimOwners | zk.ReleaseOwners | zk.WithdrawConsumer
    )
    return action.token


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=80))
def test_any_walk_keeps_the_books_and_ends_closed(walked: list[tuple[int, int]]) -> None:
    walk = Walk()
    walk.link = ZookeeperSession.CONNECTED
    walk.step(zk.SessionChanged(ZookeeperSession.CONNECTED))
    walk.step(ev.Start())
    for what, choice in walked:
        walk.happen(what, choice)
    walk.close()
    assert walk.closed
    assert walk.machine.state is ZookeeperState.CLOSED
    assert not walk.held


def test_every_state_has_its_moves_and_can_be_closed() -> None:
    assert MOVES.keys() == set(ZookeeperState)
    reached = {state: {state, *targets} for state, targets in MOVES.items()}
    for _ in MOVES:
        reached = {state: set().union(*(reached[target] for target in targets)) for state, targets in reached.items()}
    assert all(ZookeeperState.CLOSED in targets for targets in reached.values())
