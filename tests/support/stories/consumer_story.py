"""One KIP-848 member, driven by hand on a virtual clock."""

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import ConsumerMemberMachine, RequestedSubscription
from muster.client.members.member_types import MemberSettings, MembershipState, Partitions
from muster.coordinator.errors import ErrorCode
from tests.support.stories.member_story import MemberStory, t

FIVE_SECONDS = 5_000


class Story(MemberStory):
    """Says what its coordinator answers."""

    def __init__(self, wish: RequestedSubscription | None = None, instance: str | None = None) -> None:
        settings = MemberSettings("g", "app", instance, session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
        super().__init__(ConsumerMemberMachine(settings, "me", wish or RequestedSubscription(("t",))))

    @property
    def said(self) -> act.SendConsumerHeartbeat:
        return self.the(act.SendConsumerHeartbeat)

    def start(self) -> act.SendConsumerHeartbeat:
        self.on(ev.Start())
        self.on(ev.CoordinatorFound(self.the(act.FindCoordinator).token))
        return self.said

    def hears(self, epoch: int, assignment: Partitions | None = None) -> None:
        """The heartbeat that was just sent is answered."""
        self.on(answer(self.said.token, epoch, assignment))

    def refused(self, code: ErrorCode) -> None:
        self.on(ev.ConsumerHeartbeatAnswered(self.said.token, code, "because"))

    def pushed(self, epoch: int, assignment: Partitions | None = None) -> None:
        self.on(ev.ConsumerHeartbeatPushed(answer(0, epoch, assignment)))

    def stable(self, *partitions: int, epoch: int = 1) -> "Story":
        """Joined, with these partitions, and everything said."""
        self.start()
        self.hears(epoch, t(*partitions))
        if partitions:
            self.hears(epoch)
        assert (self.member.state, self.member.owned) == (MembershipState.STABLE, set(t(*partitions)))
        return self

    def revoking(self) -> act.Revoke:
        """Stable with partitions 0 and 1, and told by the next heartbeat to keep 0 only."""
        self.stable(0, 1)
        self.wait(FIVE_SECONDS)
        self.hears(1, t(0))
        return self.the(act.Revoke)


def answer(
    token: int, epoch: int, assignment: Partitions | None = None, session_ms: int = 0
) -> ev.ConsumerHeartbeatAnswered:
    return ev.ConsumerHeartbeatAnswered(
        token,
        epoch=epoch,
        heartbeat_interval_ms=FIVE_SECONDS,
        assignment=assignment,
        session_timeout_ms=session_ms,
    )
