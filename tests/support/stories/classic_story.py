"""One classic member, driven by hand on a virtual clock."""

from collections.abc import Iterable

from muster.assignors.api import RebalanceProtocol
from muster.assignors.data.consumer_protocol import encode_assignment, parse_subscription
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.member_types import MemberSettings, MembershipState
from muster.client.members.subscription import Subscriber
from muster.coordinator.errors import ErrorCode
from tests.support.stories.member_story import MemberStory


class Named:
    def __init__(self, name: str, protocol: RebalanceProtocol) -> None:
        self.name = name
        self.protocol = protocol


RANGE = Named("range", RebalanceProtocol.EAGER)
STICKY = Named("sticky", RebalanceProtocol.EAGER)
COOPERATIVE = Named("cooperative-sticky", RebalanceProtocol.COOPERATIVE)


class Story(MemberStory):
    """Says what its coordinator answers."""

    def __init__(self, *assignors: Named, topics: Iterable[str] = ("t",), instance: str | None = None) -> None:
        settings = MemberSettings("g", "app", instance, session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
        super().__init__(ClassicMemberMachine(settings, Subscriber(topics, assignors or (RANGE,))))

    def start(self) -> act.SendJoin:
        self.on(ev.Start())
        self.on(ev.CoordinatorFound(self.the(act.FindCoordinator).token))
        return self.the(act.SendJoin)

    def joined(self, generation: int = 1, leader: str = "boss", **more: object) -> None:
        token = self.the(act.SendJoin).token
        self.on(
            ev.JoinAnswered(token, generation=generation, member_id="me", leader=leader, protocol_name="range", **more)
        )  # type: ignore[arg-type]

    def synced(self, *partitions: int, topic: str = "t") -> None:
        share = encode_assignment({topic: partitions} if partitions else {})
        self.on(ev.SyncAnswered(self.the(act.SendSync).token, assignment=share))

    def stable(self, *partitions: int) -> "Story":
        self.start()
        self.joined()
        self.synced(*partitions)
        assert self.member.state is MembershipState.STABLE
        return self

    def heartbeat(self, code: ErrorCode) -> list[act.Action]:
        self.wait(3_000)
        return self.on(ev.ClassicHeartbeatAnswered(self.the(act.SendHeartbeat).token, code))


def claims(join: act.SendJoin) -> tuple[dict[str, list[int]], int]:
    said = parse_subscription(join.protocols[0].metadata)
    return dict(said.owned), said.generation  # type: ignore[arg-type]
