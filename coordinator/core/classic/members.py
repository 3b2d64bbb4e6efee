"""The members of a classic group, and which of them, or the coordinator, makes its plans.

Counts by protocol keep a join cheap in a group of thousands.

`choose_classic_planner` applies the settings `assignor`, `assignor.protocols` and `cooperative.only`. Client
libraries lead a group only if the leader's id in the answer to JoinGroup is their own. Where it is no member's id,
they fetch their share like any follower, as Kafka's coordinator does for classic members of KIP-848 groups. So the
coordinator can plan for clients that never heard of it, unless they need more than partitions in their share.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from muster.assignors.api import JsonValue, RebalanceProtocol
from muster.assignors.data.values import TOLD_BESIDE
from muster.assignors.registry import BUILT_IN, resolve
from muster.coordinator.core.groups.member_history import SeenMember
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.events import JoinGroup
from muster.coordinator.core.model.plan import CONSUMER, topics_of
from muster.coordinator.core.model.records import MemberIdentifiers
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Protocol, RequestId
from muster.coordinator.core.settings.assignor_choice import (
    ASSIGNOR,
    COOPERATIVE_ONLY,
    PROTOCOLS,
    chosen_assignor,
    chosen_options,
)
from muster.coordinator.core.settings.setting import HANDOFF_TIMEOUT
from muster.coordinator.errors import CoordinatorError, ErrorCode


@dataclass(slots=True)
class ClassicMember:
    """A member while it lives in the group. `join_request` and `sync_request` are its parked requests.

    What a group counts about its members (`protocols`, `join_request`) is changed through `ClassicMembers` only.
    """

    id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_request: RequestId | None = None
    sync_request: RequestId | None = None
    last_seen_ms: int = 0
    remote_assignor: str = ""
    """The assignor that it asks the coordinator to run; empty: it is ready to lead."""
    client_software: str = field(default="", compare=False)
    """What its client runs, by its own words. Soft: it is told again with the next join."""
    rights: Rights = field(default=None, compare=False)
    """Soft: each join says it anew."""
    connection: int = field(default=0, compare=False)
    """By which connection it joined last. Soft: 0 after a reload, and where the door does not say."""
    noticed_ms: int = field(default=0, compare=False)
    """When it came, or last joined again because topics had changed. Soft."""
    generation: int = 0
    """The last generation it was told to join. Soft: after a reload, that of the record."""

    @property
    def joining(self) -> bool:
        return self.join_request is not None

    @property
    def syncing(self) -> bool:
        return self.sync_request is not None

    @property
    def offer(self) -> frozenset[str]:
        """The names it offers, whatever their order."""
        return frozenset(protocol.name for protocol in self.protocols)

    @property
    def seen(self) -> SeenMember:
        return SeenMember(
            self.id,
            self.client_id,
            self.client_host,
            self.client_software,
            self.group_instance_id or "",
            self.connection,
            self.last_seen_ms,
            self.session_timeout_ms,
            tuple(protocol.name for protocol in self.protocols),
        )

    @property
    def identifiers(self) -> MemberIdentifiers:
        return MemberIdentifiers(self.id, self.group_instance_id, self.client_id, self.client_host)

    def metadata(self, protocol: str | None) -> bytes:
        """The subscription that belongs to `protocol`, empty when the member does not offer it."""
        for offered in self.protocols:
            if offered.name == protocol:
                return offered.metadata
        return b""

    @property
    def client(self) -> str:
        """Who it is, whichever id it comes under: its instance, else its client id and host."""
        return self.group_instance_id or f"{self.client_id} at {self.client_host}"


class ClassicMembers(dict[str, ClassicMember]):
    """Member id -> member, in order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.joining_count = 0
        self._supporters: Counter[str] = Counter()

    def add(self, member: ClassicMember) -> None:
        assert member.id not in self, f"member {member.id!r} is there already"
        self[member.id] = member
        self.joining_count += member.joining
        self._supporters.update(member.offer)

    def remove(self, member: ClassicMember) -> None:
        del self[member.id]
        self.joining_count -= member.joining
        self._withdraw(member)

    def rename(self, member: ClassicMember, new_id: str) -> None:
        """The same member under a new id, in the same place of the order."""
        renamed = [(new_id if key == member.id else key, each) for key, each in self.items()]
        member.id = new_id
        self.clear()
        self.update(renamed)

    def park(self, member: ClassicMember, request_id: RequestId) -> None:
        """The member waits for the join phase to end."""
        self.joining_count += not member.joining
        member.join_request = request_id

    def unpark(self, member: ClassicMember) -> RequestId | None:
        """The request to answer, if there is one; the member waits no longer."""
        request_id, member.join_request = member.join_request, None
        self.joining_count -= request_id is not None
        return request_id

    def offer(self, member: ClassicMember, protocols: tuple[Protocol, ...]) -> None:
        """The member offers these from now on; as a rule they are what it offered before."""
        if protocols == member.protocols:
            return
        self._withdraw(member)
        member.protocols = protocols
        self._supporters.update(member.offer)

    @property
    def common_protocols(self) -> set[str]:
        """The names that every member offers."""
        return {name for name, count in self._supporters.items() if count == len(self)}

    def _withdraw(self, member: ClassicMember) -> None:
        for name in member.offer:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]


# Which planner makes the plans
# -----------------------------

PLAIN = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky", "RoundRobinAssigner"})
"""Names whose members read only partitions in their share: the first four of Kafka's client in Java, librdkafka,
kafka-python, aiokafka, Sarama and franz-go, the last of kafkajs. Never `stream`: Kafka Streams dies of a share without
its user data."""


@dataclass(frozen=True, slots=True)
class ClassicPlanner:
    """Who makes the plans of a generation."""

    assignor: str = ""
    """What the coordinator runs, by its own name; empty: a member leads."""
    by_setting: bool = False
    """An operator wants it so, by the setting or a canary; else the members ask for it."""
    kept_out: str = ""
    """Why the setting does not count, and because of whom; empty: it does, or there is none."""

    def same(self, other: "ClassicPlanner") -> bool:
        """Whether plans are made by the same, whatever is told of it."""
        return (self.assignor, self.by_setting) == (other.assignor, other.by_setting)


A_MEMBER = ClassicPlanner()


def handoff_timeout_ms(state: ShardState, group_id: str) -> int:
    """How long whoever has to let go may take; 0: as long as a rebalance may take."""
    return HANDOFF_TIMEOUT.of(state, group_id)


def choose_classic_planner(
    state: ShardState,
    group_id: str,
    protocol_type: str | None,
    protocol: str,
    members: Sequence[ClassicMember],
    asked: str,
) -> ClassicPlanner:
    """Who plans for classic members that voted for this protocol. `asked`: the assignor that all of them ask for.

    Members that ask have said themselves that a share of partitions is all they need.
    """
    word = chosen_assignor(state, group_id)
    if not word:
        return ClassicPlanner(asked)
    why = suspension_reason(state, group_id)
    if not why and not asked:
        why = unfit_reason(state, group_id, protocol_type, protocol, members)
    return (
        ClassicPlanner(asked, kept_out=f"{ASSIGNOR.name}={word} does not count: {why}")
        if why
        else ClassicPlanner(word, True)
    )


def suspension_reason(state: ShardState, group_id: str) -> str:
    """Why the setting has no effect until it is set again; empty: it has."""
    stored = state.settings.get(group_id)
    return stored.suspended if stored else ""


def unfit_reason(
    state: ShardState, group_id: str, protocol_type: str | None, protocol: str, members: Sequence[ClassicMember]
) -> str:
    """Why these members need a leader of their own, and which of them is the first; empty: they do not."""
    if protocol_type != CONSUMER:
        return f"the members' protocol type is {protocol_type!r}, and only {CONSUMER!r} can be planned for here"
    plain = PLAIN.union(PROTOCOLS.of(state, group_id))
    if protocol not in plain:
        # All of them offer it; whoever offers nothing else that would do is why it was chosen.
        culprit = next((member for member in members if not member.offer & plain), members[0])
        return (
            f"the members voted for {protocol!r}, which may need more than partitions in a share: "
            f"{describe_client(culprit)} "
            f"offers {', '.join(sorted(culprit.offer))}. If it reads partitions only, name it in {PROTOCOLS.name}"
        )
    unread = next((member for member in members if topics_of(member.metadata(protocol)) is None), None)
    return f"the subscription of {describe_client(unread)} cannot be read" if unread else ""


def describe_client(member: ClassicMember) -> str:
    """The member as an operator knows it: its id, client, and what that says it runs."""
    software = f", {member.client_software}" if member.client_software else ""
    return f"member {member.id} ({member.client_id} at {member.client_host}{software})"


@cache
def cooperative_names() -> frozenset[str]:
    """Names of built-in assignors whose members keep what they have while a rebalance goes on."""
    return frozenset(name for name in BUILT_IN if resolve(name).protocol is RebalanceProtocol.COOPERATIVE)


def check_cooperative_only(request: JoinGroup, state: ShardState) -> None:
    """With `cooperative.only`, refuse whoever would behave eagerly: one eager name among its offers makes it so."""
    if request.group_id not in state.settings or request.protocol_type != CONSUMER:
        return
    if not COOPERATIVE_ONLY.of(state, request.group_id):
        return
    eager = [protocol.name for protocol in request.protocols if protocol.name not in cooperative_names()]
    if eager:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {request.group_id!r} takes cooperative members only ({COOPERATIVE_ONLY.name}), and one that offers "
            f"{', '.join(eager)} gives up all it has in each rebalance; let it offer cooperative names alone: "
            f"{', '.join(sorted(cooperative_names()))}",
        )


def have_options_changed(planned: Mapping[str, JsonValue], group_id: str, state: ShardState) -> bool:
    """Whether a plan was made with other options than the assignor has now; what is only told beside them is none."""
    before = {name: value for name, value in planned.items() if name not in TOLD_BESIDE}
    return before != dict(chosen_options(state, group_id))
