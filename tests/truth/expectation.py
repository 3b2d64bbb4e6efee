"""What a situation knows to be true, in the ledger's words. Written once, whichever client plays the situation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

GONE = frozenset({"EXPIRED", "NEVER", "LEFT", "REPLACED"})
"""How a wait ends for a member that does not come any more."""

WENT = frozenset({"MEMBER_LEFT", "SESSION_EXPIRED", "MEMBER_RESTARTED", "STATIC_MEMBER_REPLACED"})
"""Causes after which the group may wait for the member, or for what it was before."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened and may be reported as a cause.

    who: client id of the member behind it; None if no member is.
    causes: the ledger's words for it.
    vague: words that are not false, but say less.
    required: it must be reported.
    says: words that its sentence contains.
    outcome: the outcome of its entry, if that is part of it.
    unsure: it must be told as something that nobody knows.
    others: client ids that are equally true as the culprit.
    """

    who: str | None
    causes: frozenset[str]
    vague: frozenset[str] = frozenset()
    required: bool = True
    says: tuple[str, ...] = ()
    outcome: str = ""
    others: frozenset[str] = frozenset()
    unsure: bool = False

    def is_of(self, member: str | None) -> bool:
        return member == self.who or member in self.others


@dataclass(frozen=True, slots=True)
class TopicFact:
    """A change of a topic. kind: MADE, GREW, DELETED or REMADE; before, after: numbers of partitions."""

    topic: str
    kind: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """Everything that may be reported from the mark on; a cause that is in no fact is wrong.

    or_topics: equally true instead of `topics`.
    waited: members that must be named as waited for, by client id, and how each wait ended.
    late: members that may be named as waited for.
    phases: phases that must be reported.
    outage: False if no partition lost an owner, so that no unowned time may be reported.
    quiet: True if nothing needs to be reported; facts that are required are so only if there is an entry.
    never: words that no sentence contains.
    incident: the kind of an incident that must be reported.
    moves: False if the moves are not followed.
    reads_on: the member, by client id, that must be reported as fetching what it had lost.
    """

    facts: tuple[Fact, ...]
    topics: tuple[TopicFact, ...] = ()
    or_topics: tuple[TopicFact, ...] = ()
    waited: Mapping[str, frozenset[str]] = field(default_factory=dict)
    late: frozenset[str] = frozenset()
    phases: tuple[str, ...] = ()
    outage: bool = True
    quiet: bool = False
    never: tuple[str, ...] = ()
    incident: str = ""
    moves: bool = True
    reads_on: str = ""

    def from_records(self) -> "Expectation":
        """What a broker's records can tell of it: nobody's waits, no phases, and not why members join again who want
        and have the same. Processes that died while they waited for a plan leave ids behind that nobody ever heard
        again, so a crash loop is not always known for one."""
        incident = "" if self.incident == "crash_loop" else self.incident
        repeated = Fact(None, frozenset({"UNSPECIFIED"}), required=False, unsure=True)
        return replace(self, facts=(*self.facts, repeated), waited={}, phases=(), incident=incident)


def joined(who: str, *, required: bool = True) -> Fact:
    return Fact(who, frozenset({"MEMBER_JOINED"}), required=required)


def back(who: str, *, required: bool = True, says: tuple[str, ...] = ()) -> Fact:
    """A member came back, under a new member id or as itself."""
    causes = frozenset({"MEMBER_RESTARTED", "MEMBER_JOINED", "STATIC_MEMBER_REPLACED"})
    return Fact(who, causes, required=required, says=says)


def left(who: str, *, required: bool = True) -> Fact:
    return Fact(who, frozenset({"MEMBER_LEFT"}), required=required)


def expired(who: str, *, required: bool = True) -> Fact:
    """A member stopped sending heartbeats, or did not come until the rebalance went on without it."""
    return Fact(who, frozenset({"SESSION_EXPIRED", "REBALANCE_TIMEOUT", "SYNC_TIMEOUT"}), required=required)


def left_or_expired(who: str) -> Fact:
    """A member went, and nothing tells how."""
    return Fact(who, frozenset({"MEMBER_LEFT"}), unsure=True)


def poll_exceeded(who: str, *, silent: bool = False) -> Fact:
    """silent: the client stops its heartbeats, too, so its session may end first."""
    vague = {"MEMBER_LEFT", "SESSION_EXPIRED"} if silent else {"MEMBER_LEFT"}
    return Fact(who, frozenset({"POLL_TIMEOUT"}), vague=frozenset(vague))


def gave_up(who: str, *, required: bool = False) -> Fact:
    """A cooperative member rejoined without the partitions that it was asked to give up."""
    return Fact(who, frozenset({"REVOCATION_FOLLOW_UP"}), required=required)


def topic_changed(*says: str) -> Fact:
    return Fact(None, frozenset({"PARTITIONS_CHANGED"}), says=says)


def by_operator(*causes: str, required: bool = True, outcome: str = "", others: frozenset[str] = frozenset()) -> Fact:
    """An operator did it. others: members that it was done to, if they are equally true as the culprit."""
    return Fact(None, frozenset(causes or ("OPERATOR",)), required=required, outcome=outcome, others=others)
