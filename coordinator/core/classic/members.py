"""The members of a classic group, with the counts that let a join of one of thousands stay cheap."""

from collections import Counter
from dataclasses import dataclass, field

from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Protocol, RequestId


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
