"""What the coordinator knows about members beyond their ids: who went and how, and which newcomer is one of them.

A client that restarts, is fenced or gives up comes back under a new member id. Facts tell that it is the same one: the
group instance id, the connection that its LeaveGroup or its last JoinGroup came by, or client id and host where the
connection of the old id is closed or the id is gone. Everything here is soft, bounded, and lost with the process:
then a newcomer is a newcomer.

The design page is docs/design/explain.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from muster.coordinator.core.model.types import Stall, Takeover, WaitEnd, frozen_value

MAX_FORMER_MEMBERS = 64
"""Members that went, kept for each group."""

MAX_CLOSED_CONNECTIONS = 64
"""Closed connections remembered for each group."""

MAX_CONTESTED = 64
"""Group instance ids that two processes use, remembered for each group."""

MAX_AWAY_MS = 15 * 60_000
"""After that long away, a client with the same client id and host counts as a new one."""

DISTURBANCE_MS = 60_000
"""For that long after a stall or a takeover, members that give up on their own are put down to it."""

NO_CONNECTION = 0
"""The door does not say by which connection a request came."""

HOW_GONE = {
    WaitEnd.LEFT: "left",
    WaitEnd.EXPIRED: "expired",
    WaitEnd.REPLACED: "replaced",
    WaitEnd.NEVER: "expired",
    WaitEnd.JOINED: "still counted",
}
"""The words of `Incarnation.how`. JOINED: the old id is still a member."""


class HistoricMember(Protocol):
    """A member of any kind of group, as far as its history is kept."""

    id: str
    client_id: str
    client_host: str
    last_seen_ms: int
    connection: int


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

    def note_gone(self, member: HistoricMember, instance_id: str | None, end: WaitEnd, now_ms: int) -> None:
        """A member id no longer counts."""
        known = self.former.pop(member.id, None)
        self.former[member.id] = DepartedMember(
            id=member.id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=instance_id or "",
            connection=member.connection,
            heard_ms=member.last_seen_ms,
            gone_ms=now_ms,
            end=end,
            software=getattr(member, "client_software", ""),
            successor=known.successor if known else "",
        )
        while len(self.former) > MAX_FORMER_MEMBERS:
            del self.former[next(iter(self.former))]

    def note_closed(self, connection: int, now_ms: int) -> None:
        """A connection that members of this group had used is closed."""
        self.closed[connection] = now_ms
        while len(self.closed) > MAX_CLOSED_CONNECTIONS:
            del self.closed[next(iter(self.closed))]

    def is_open(self, connection: int) -> bool:
        return connection != NO_CONNECTION and connection not in self.closed

    def succeed(self, old_id: str, new_id: str) -> None:
        """`new_id` is what `old_id` was: nobody else will be taken for it."""
        if old_id in self.former:
            self.former[old_id] = replace(self.former[old_id], successor=new_id)

    def find_return(
        self, newcomer: HistoricMember, instance_id: str | None, living: Iterable[HistoricMember], now_ms: int
    ) -> Returned | None:
        """The former, or still counted, member that this newcomer is."""
        gone = [each for each in reversed(self.former.values()) if not each.successor]
        if newcomer.connection != NO_CONNECTION:
            for each in gone:
                if each.connection == newcomer.connection and each.client_id == newcomer.client_id:
                    return Returned(each, same_process=True, closed_ms=None)
        if instance_id:
            for each in gone:
                if each.instance_id == instance_id and now_ms - each.gone_ms <= MAX_AWAY_MS:
                    return Returned(each, same_process=False, closed_ms=self.closed.get(each.connection))
            return None
        for each in gone:
            same = (each.client_id, each.client_host) == (newcomer.client_id, newcomer.client_host)
            if same and not each.instance_id and now_ms - each.gone_ms <= MAX_AWAY_MS:
                return Returned(each, same_process=False, closed_ms=self.closed.get(each.connection))
        return self._still_counted(newcomer, living, now_ms)

    def _still_counted(
        self, newcomer: HistoricMember, living: Iterable[HistoricMember], now_ms: int
    ) -> Returned | None:
        """A member that counts although its process is gone: its connection closed, or it gave up by itself."""
        for member in living:
            if member.id == newcomer.id or ((known := self.former.get(member.id)) is not None and known.successor):
                continue
            if (member.client_id, member.client_host) != (newcomer.client_id, newcomer.client_host):
                continue
            closed_ms = self.closed.get(member.connection)
            same_process = member.connection != NO_CONNECTION and member.connection == newcomer.connection
            if closed_ms is None and not same_process:
                continue
            former = DepartedMember(
                member.id,
                member.client_id,
                member.client_host,
                "",
                member.connection,
                member.last_seen_ms,
                now_ms,
                WaitEnd.JOINED,
            )
            self.former[member.id] = former
            return Returned(former, same_process=same_process, closed_ms=closed_ms)
        return None


def find_disturbance(
    stalls: Iterable[Stall], takeovers: Iterable[Takeover], heard_ms: int, now_ms: int
) -> Disturbance | None:
    """The newest stall or takeover that a member last heard at `heard_ms` has not been heard since."""
    found = [
        Disturbance(False, stall.ended_at_ms, stall.stalled_ms, f"the node did not run for {stall.stalled_ms} ms")
        for stall in stalls
    ]
    found += [
        Disturbance(
            True,
            takeover.serving_ms,
            takeover.serving_ms - (takeover.last_heard_ms or takeover.elected_ms),
            f"node {takeover.moved_to} took the group over ({takeover.cause})",
        )
        for takeover in takeovers
    ]
    near = [
        each
        for each in found
        if heard_ms <= each.ended_ms and each.ended_ms - each.lasted_ms <= now_ms <= each.ended_ms + DISTURBANCE_MS
    ]
    return max(near, key=lambda each: each.ended_ms, default=None)
