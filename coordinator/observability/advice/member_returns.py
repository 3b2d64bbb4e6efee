"""Members that went and came back under a new id, why, and which rebalances that set off.

A rebalance belongs to members that came back only if nothing else asked for it: what it moved would not have moved
without them (EX-A5). A cooperative follow-up belongs to the rebalance that it finishes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from muster.assignors.api import TopicPartition
from muster.coordinator.observability.views.incidents import DEPARTURES, LOOP_TIMES, ROLLING_MS, Identity
from muster.coordinator.observability.views.sentences import cause_name
from muster.coordinator.rpc.v1.ledger_pb2 import (
    REBALANCE_SOURCE_WATCHED,
    FurtherTrigger,
    Incarnation,
    MemberPlan,
    Rebalance,
)

Numbers: TypeAlias = frozenset[int]
"""Numbers of ledger entries."""

POLLED_LATE, EXPIRED, RESTARTED = "polled late", "expired", "restarted"

FOLLOW_UP: Final = "REVOCATION_FOLLOW_UP"
SAME_PROCESS: Final = "the process was not stopped"
"""In the evidence of an entry whose newcomer came by the connection of its old id (EX-M1)."""
SOON_AFTER_EXPIRY: Final = 2
"""A member that is back within so many session timeouts was only just too late for its session."""


@dataclass(frozen=True, slots=True)
class MemberReturn:
    """One time that a member came back. `away_ms`: from when its old id was last heard of until the new one joined."""

    member_id: str
    previous_id: str
    identity: Identity
    why: str
    away_ms: int
    at_ms: int
    number: int
    partitions: frozenset[TopicPartition]
    """What it had owned."""
    elsewhere: bool = False
    """It came from another host, and is known by its client id alone."""

    @property
    def is_static(self) -> bool:
        return bool(self.identity[1])

    @property
    def unread_s(self) -> float:
        """Partition-seconds for which its share would have waited for it."""
        return self.away_ms / 1000 * len(self.partitions)


@dataclass(frozen=True, slots=True)
class LatePoll:
    """One time that a member did not poll in time. `partitions`: what it owned."""

    member_id: str
    identity: Identity
    number: int
    at_ms: int
    partitions: frozenset[TopicPartition]


def share_of(member: MemberPlan) -> frozenset[TopicPartition]:
    return frozenset((share.topic, partition) for share in member.assigned for partition in share.partitions)


def triggers_of(entry: Rebalance) -> list[Rebalance | FurtherTrigger]:
    """The cause of a rebalance, and what else asked for it while it was under way."""
    return [entry, *entry.triggers]


class ReturnFinder:
    """Reads a history once, oldest entry first. `session_timeout_ms`: of the members, None where it is not known."""

    def __init__(self, entries: Iterable[Rebalance], session_timeout_ms: int | None) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._identities: dict[str, Identity] = {}
        self._owned: dict[str, frozenset[TopicPartition]] = {}
        self._departures: dict[str, str] = {}
        """Member id -> the cause of its going."""
        self._missing: dict[str, int] = {}
        """Members that went and are not back -> when they went, oldest first."""
        self.returns: list[MemberReturn] = []
        self.late_polls: list[LatePoll] = []
        for entry in entries:
            self._look(entry)

    def _look(self, entry: Rebalance) -> None:
        for each in triggers_of(entry):
            if each.culprit:
                known = self._identities.get(each.culprit, (each.culprit_client_id, "", each.culprit_client_host))
                self._identities[each.culprit] = known
                if cause_name(each) in DEPARTURES:
                    self._departures[each.culprit] = cause_name(each)
                    self._missing[each.culprit] = int(entry.started_at_ms)
                if cause_name(each) == "POLL_TIMEOUT":
                    self._note_late_poll(entry, each.culprit)
        for member in entry.members:
            self._identities[member.member_id] = (
                member.client_id or member.member_id,
                member.group_instance_id,
                member.client_host,
            )
        for back in entry.incarnations:
            self._note_return(entry, back)
        self._find_replacements(entry)
        self._owned.update((member.member_id, share_of(member)) for member in entry.members)

    def _note_late_poll(self, entry: Rebalance, culprit: str) -> None:
        """Records of another broker name the member as it came back."""
        former = next((back.previous_id for back in entry.incarnations if back.member_id == culprit), culprit)
        share = self._owned.get(former, frozenset())
        self.late_polls.append(
            LatePoll(former, self._identities[culprit], int(entry.number), int(entry.started_at_ms), share)
        )

    def _note_return(self, entry: Rebalance, back: Incarnation) -> None:
        identity = self._identities.get(back.member_id) or self._identities.get(back.previous_id)
        self._missing.pop(back.previous_id, None)
        if identity is None:
            return
        self.returns.append(
            MemberReturn(
                member_id=back.member_id,
                previous_id=back.previous_id,
                identity=identity,
                why=self._why(entry, back),
                away_ms=int(back.away_ms),
                at_ms=int(entry.started_at_ms),
                number=int(entry.number),
                partitions=self._owned.get(back.previous_id, frozenset()),
            )
        )

    def _find_replacements(self, entry: Rebalance) -> None:
        """Newcomers with the client id of a member that went moments ago, at another host: a container that moved."""
        came = [each.culprit for each in triggers_of(entry) if cause_name(each) == "MEMBER_JOINED" and each.culprit]
        returned = {back.member_id for back in entry.incarnations}
        for newcomer in dict.fromkeys(came):
            identity = self._identities[newcomer]
            former = next((gone for gone in self._missing if self._may_be(gone, identity, entry)), None)
            if newcomer in returned or former is None or not identity[0]:
                continue
            away_ms = int(entry.started_at_ms) - self._missing.pop(former)
            share = self._owned.get(former, frozenset())
            why = POLLED_LATE if self._departures.get(former) == "POLL_TIMEOUT" else RESTARTED
            at_ms, number = int(entry.started_at_ms), int(entry.number)
            self.returns.append(
                MemberReturn(newcomer, former, identity, why, away_ms, at_ms, number, share, elsewhere=True)
            )

    def _may_be(self, gone: str, newcomer: Identity, entry: Rebalance) -> bool:
        client_id, instance_id, host = self._identities[gone]
        away_ms = int(entry.started_at_ms) - self._missing[gone]
        return (client_id, instance_id) == newcomer[:2] and host != newcomer[2] and 0 <= away_ms <= ROLLING_MS

    def _why(self, entry: Rebalance, back: Incarnation) -> str:
        went = self._departures.get(back.previous_id)
        said = {cause_name(each) for each in triggers_of(entry) if each.culprit == back.member_id}
        if went == "POLL_TIMEOUT" or "POLL_TIMEOUT" in said:
            return POLLED_LATE
        if SAME_PROCESS in entry.evidence and back.how == "expired":
            return EXPIRED
        # A broker's records tell nothing of processes: one that was only paused is missed first, and then back.
        session_ms = self._session_timeout_ms
        soon = session_ms is not None and back.away_ms <= SOON_AFTER_EXPIRY * session_ms
        watched = entry.source == REBALANCE_SOURCE_WATCHED
        return EXPIRED if watched and went == "SESSION_EXPIRED" and soon else RESTARTED


def set_off_by(entries: Iterable[Rebalance], went: Collection[str], came: Collection[str]) -> Numbers:
    """Rebalances that nothing else asked for than that these ids went or came, and the follow-ups of these rebalances.

    That an id came for the first time, before it went, is not among them unless it is in `came`.
    """
    found: set[int] = set()
    before = False
    for entry in entries:
        asked = [each for each in triggers_of(entry) if cause_name(each) != FOLLOW_UP]
        if cause_name(entry) == FOLLOW_UP:
            avoidable = before
        else:
            back = {each.member_id for each in entry.incarnations}
            avoidable = all(
                each.culprit in (went if cause_name(each) in DEPARTURES and each.culprit not in back else came)
                for each in asked
            )
        before = avoidable
        if avoidable:
            found.add(int(entry.number))
    return frozenset(found)


def set_off_by_returns(entries: Iterable[Rebalance], returns: Iterable[MemberReturn]) -> Numbers:
    listed = list(returns)
    return set_off_by(entries, {back.previous_id for back in listed}, {back.member_id for back in listed})


def flapping_identity(entries: Iterable[Rebalance], returns: Sequence[MemberReturn]) -> Identity | None:
    """The client that restarted most often: at least half of all restarts, three times for each of its members."""
    times = Counter(back.identity for back in returns)
    if not times:
        return None
    often, count = min(times.items(), key=lambda item: (-item[1], item[0]))
    namesakes = max(
        (
            sum(
                (member.client_id or member.member_id, member.group_instance_id, member.client_host) == often
                for member in entry.members
            )
            for entry in entries
        ),
        default=1,
    )
    return often if count * 2 >= len(returns) and count >= LOOP_TIMES * max(1, namesakes) else None
