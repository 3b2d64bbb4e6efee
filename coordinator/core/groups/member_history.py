"""What the coordinator knows about members beyond their ids: who went and how, and which newcomer is one of them.

A client that restarts, is fenced or gives up comes back under a new member id. Facts tell that it is the same one: the
group instance id, the connection that its LeaveGroup or its last JoinGroup came by, or client id and host where the
connection of the old id is closed or the id is gone. Everything here is soft, bounded, and lost with the process:
then a newcomer is a newcomer.

The design page is docs/design/explain.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from muster.coordinator.core.model.types import Stall, Takeover, WaitEnd
from muster.coordinator.values import frozen_value

MAX_FORMER_MEMBERS = 64
"""Members that went, kept for each group."""

MAX_CLOSED_CONNECTIONS = 64
"""Closed connections remembered for each group."""

MAX_CONTESTED = 64
"""Group instance ids that two processes use, remembered for each group."""

MAX_AWAY_MS = 15 * 60_000
"""After that long away, a client with the same client id and host counts as a new one."""

MAX_SCANNED = 1_000
"""Members that are looked at for one that a newcomer may be: larger groups are told less."""

DISTURBANCE_MS = 60_000
"""For that long after a stall or a takeover, members that give up on their own are put down to it."""

READ_LATE_MS = 2_000
"""For that long after a stall the node may read what members had sent during it."""

NO_CONNECTION = 0
"""The listener does not say by which connection a request came. One of Kafka's protocol is positive, a session stream,
or the call by which a member joins over gRPC, negative."""

HOW_GONE = {
    WaitEnd.LEFT: "left",
    WaitEnd.EXPIRED: "expired",
    WaitEnd.REPLACED: "replaced",
    WaitEnd.NEVER: "expired",
    WaitEnd.JOINED: "still counted",
}
"""The words of `Incarnation.how`. JOINED: the old id is still a member."""


class SeenMember(NamedTuple):
    """A member of any kind of group, as its history is told. `session_timeout_ms` and `last_seen_ms` in ms."""

    id: str
    client_id: str
    client_host: str
    client_software: str
    instance_id: str
    connection: int
    last_seen_ms: int
    session_timeout_ms: int
    offer: tuple[str, ...] = ()
    """Classic members: the assignors that it offers."""


@frozen_value
class DepartedMember:
    """An id that no longer counts, or is about to. `gone_ms`: when that was decided. `end`: how it went."""

    id: str
    client_id: str
    client_host: str
    instance_id: str
    connection: int
    heard_ms: int
    gone_ms: int
    end: WaitEnd
    software: str = ""
    successor: str = ""
    offer: tuple[str, ...] = ()


@frozen_value
class Returned:
    """A newcomer is this former member. `same_process`: it came by the connection that the old id had used."""

    former: DepartedMember
    same_process: bool
    closed_ms: int | None
    """When the connection of the old id closed; None: it did not, or nobody knows."""


@frozen_value
class Disturbance:
    """What kept the coordinator from hearing members: a stall of the node, or a takeover by this node."""

    takeover: bool
    ended_ms: int
    lasted_ms: int
    detail: str


@dataclass(slots=True)
class MemberHistory:
    """Of one group."""

    former: dict[str, DepartedMember] = field(default_factory=dict)
    """By id, oldest first."""
    closed: dict[int, int] = field(default_factory=dict)
    """Connection -> when it was closed, oldest first."""
    contested: dict[str, int] = field(default_factory=dict)
    """Group instance id -> when the ledger last said that two processes use it."""

    def note_gone(self, member: SeenMember, end: WaitEnd, now_ms: int) -> DepartedMember:
        """A member id no longer counts, or, with JOINED, its process has given it up."""
        known = self.former.pop(member.id, None)
        gone = self.former[member.id] = DepartedMember(
            id=member.id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
            connection=member.connection,
            heard_ms=member.last_seen_ms,
            gone_ms=now_ms,
            end=end,
            software=member.client_software,
            offer=member.offer,
            successor=known.successor if known else "",
        )
        while len(self.former) > MAX_FORMER_MEMBERS:
            del self.former[next(iter(self.former))]
        return gone

    def note_closed(self, connection: int, now_ms: int) -> None:
        """A connection that members of this group had used is closed."""
        self.closed[connection] = now_ms
        while len(self.closed) > MAX_CLOSED_CONNECTIONS:
            del self.closed[next(iter(self.closed))]

    def is_open(self, connection: int) -> bool:
        """Whether it is known to be. A session stream (negative) may have ended in good order, which nobody tells."""
        return connection > NO_CONNECTION and connection not in self.closed

    def closed_ms(self, member: SeenMember) -> int | None:
        """When the member's connection closed; None: it did not, or the member was heard since by another one."""
        at_ms = self.closed.get(member.connection)
        return at_ms if at_ms is not None and member.last_seen_ms <= at_ms else None

    def succeed(self, old_id: str, new_id: str) -> None:
        """`new_id` is what `old_id` was: nobody else will be taken for it. One that keeps its id never went."""
        if old_id == new_id:
            self.former.pop(old_id, None)
        elif old_id in self.former:
            self.former[old_id] = replace(self.former[old_id], successor=new_id)

    def takes_turns(self, holder: SeenMember, connection: int) -> bool:
        """Whether a process whose place this static member has taken wants it back while the holder still runs."""
        if connection in (NO_CONNECTION, holder.connection) or not self.is_open(holder.connection):
            return False
        return any(
            each.connection == connection and each.instance_id == holder.instance_id and each.end is WaitEnd.REPLACED
            for each in self.former.values()
        )

    def may_be(self, member: SeenMember, newcomer: SeenMember) -> bool:
        """Whether a member that still counts goes by the newcomer's names, and has no successor yet."""
        if member.id == newcomer.id or member.instance_id or newcomer.instance_id:
            return False
        known = self.former.get(member.id)
        if known is not None and known.successor:
            return False
        return (member.client_id, member.client_host) == (newcomer.client_id, newcomer.client_host)

    def find_return(self, newcomer: SeenMember, living: Iterable[SeenMember], now_ms: int) -> Returned | None:
        """The former, or still counted, member that this newcomer is."""
        if not self.former and not self.closed:
            return None
        gone = [each for each in reversed(self.former.values()) if not each.successor]
        for each in gone:
            same = newcomer.connection != NO_CONNECTION and each.connection == newcomer.connection
            # A KIP-848 client draws its id when it starts: the same id is the same process.
            if each.id == newcomer.id or (same and each.client_id == newcomer.client_id):
                return Returned(each, same_process=True, closed_ms=None)
        names = (newcomer.client_id, newcomer.client_host)
        for each in gone:
            if now_ms - each.gone_ms > MAX_AWAY_MS or each.instance_id != newcomer.instance_id:
                continue
            if each.instance_id or (each.client_id, each.client_host) == names:
                return Returned(each, same_process=False, closed_ms=self.closed.get(each.connection))
        if not self.closed:
            return None
        for member in islice(living, MAX_SCANNED):
            closed_ms = self.closed_ms(member)
            if closed_ms is not None and self.may_be(member, newcomer):
                former = self.note_gone(member, WaitEnd.JOINED, now_ms)
                return Returned(former, same_process=False, closed_ms=closed_ms)
        return None


def connection_after(known: int, said: int) -> int:
    """The connection of a member that is heard by another one: a call over gRPC does not replace a session stream."""
    return said if said > NO_CONNECTION or known == NO_CONNECTION else known


def describe_ms(ms: int) -> str:
    """
    >>> describe_ms(420), describe_ms(12_340)
    ('420 ms', '12.3 s')
    """
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1000:.1f} s"


def find_disturbance(
    stalls: Iterable[Stall], takeovers: Iterable[Takeover], loaded_ms: int, heard_ms: int, now_ms: int, late_ms: int
) -> Disturbance | None:
    """The newest of what a member last heard at `heard_ms` has not been heard since: a stall, a takeover, a start.

    After a stall the node reads what members had sent meanwhile, so one that was heard within a moment of its end may
    have given up long before: `late_ms`, for members that are known to be back under another id. What a coordinator
    hears that has just loaded the group was sent to it.
    """
    recent = recent_disturbances(stalls, takeovers, loaded_ms, now_ms)
    near = [each for each in recent if heard_ms <= each.ended_ms + (0 if each.takeover else late_ms)] if recent else ()
    # Of a takeover, which loads the group, the longer story is told.
    return max(near, key=lambda each: (each.ended_ms // READ_LATE_MS, each.lasted_ms), default=None)


def recent_disturbances(
    stalls: Iterable[Stall], takeovers: Iterable[Takeover], loaded_ms: int, now_ms: int
) -> list[Disturbance]:
    """Those that members which give up now are put down to."""
    found: list[Disturbance] = []
    for each in stalls:
        detail = f"the node did not run for {describe_ms(each.stalled_ms)}"
        found.append(Disturbance(False, each.ended_at_ms, each.stalled_ms, detail))
    for takeover in takeovers:
        lasted_ms = takeover.serving_ms - (takeover.last_heard_ms or takeover.elected_ms)
        detail = f"node {takeover.moved_to} took the group over ({takeover.cause})"
        found.append(Disturbance(True, takeover.serving_ms, lasted_ms, detail))
    if loaded_ms and loaded_ms <= now_ms <= loaded_ms + DISTURBANCE_MS:
        found.append(Disturbance(True, loaded_ms, 0, "the coordinator had been away, and loaded the group again"))
    if not found:
        return found
    return [each for each in found if each.ended_ms - each.lasted_ms <= now_ms <= each.ended_ms + DISTURBANCE_MS]
