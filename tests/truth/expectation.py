"""What a situation knows to be true, in the words of the ledger. Written once, whichever client plays it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

EXPIRED_WORDS = frozenset({"EXPIRED", "NEVER", "LEFT", "REPLACED"})


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened and may be given as a cause.

    `who`: the client id of the member behind it; None: no member is. `causes`: the ledger's words for it; `vague`:
    words that are not false and say less. `required`: it has to be told. `says`: words that belong to its sentence.
    """

    who: str | None
    causes: frozenset[str]
    vague: frozenset[str] = frozenset()
    required: bool = True
    says: tuple[str, ...] = ()
    outcome: str = ""
    """The entry's outcome, where that is a part of it."""
    others: frozenset[str] = frozenset()
    """Whom it is as true to name instead."""

    def is_of(self, who: str | None) -> bool:
        return who == self.who or who in self.others


@dataclass(frozen=True, slots=True)
class TopicFact:
    """A change of a topic: `kind` is MADE, GREW, DELETED or REMADE; partitions before and after."""

    topic: str
    kind: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that is to be told from the mark on; what is in no fact must not be."""

    facts: tuple[Fact, ...]
    topics: tuple[TopicFact, ...] = ()
    or_topics: tuple[TopicFact, ...] = ()
    """As true as `topics`, all of them together."""
    waited: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Who has to be named as waited for, by client id, and how it came."""
    late: frozenset[str] = frozenset()
    """Who may be named as waited for."""
    phases: tuple[str, ...] = ()
    outage: bool = True
    """False: nobody missed a partition, so no time without an owner may be told."""
    quiet: bool = False
    """True: nothing needs to be told."""
    never: tuple[str, ...] = ()
    """Words that are in no sentence."""
    incident: str = ""
    """The word of the incident that all of it is."""
    moves: bool = True
    """False: the moves are not followed (a group that stopped as a whole)."""


def joined(who: str, *, required: bool = True) -> Fact:
    return Fact(who, frozenset({"MEMBER_JOINED"}), required=required)


def back(who: str, *, required: bool = True, says: tuple[str, ...] = ()) -> Fact:
    """It came back, under a new id, or as itself."""
    causes = frozenset({"MEMBER_RESTARTED", "MEMBER_JOINED", "STATIC_MEMBER_REPLACED"})
    return Fact(who, causes, required=required, says=says)


def left(who: str, *, required: bool = True) -> Fact:
    return Fact(who, frozenset({"MEMBER_LEFT"}), required=required)


def expired(who: str, *, required: bool = True) -> Fact:
    """It was not heard of: for its session, or until the rebalance went on without it."""
    return Fact(who, frozenset({"SESSION_EXPIRED", "REBALANCE_TIMEOUT", "SYNC_TIMEOUT"}), required=required)


def poll_exceeded(who: str) -> Fact:
    return Fact(who, frozenset({"POLL_TIMEOUT"}), vague=frozenset({"MEMBER_LEFT"}))


def gave_up(who: str, *, required: bool = False) -> Fact:
    """In a cooperative group: it comes without the partitions that it was asked for."""
    return Fact(who, frozenset({"REVOCATION_FOLLOW_UP"}), required=required)


def topic_changed(*says: str) -> Fact:
    return Fact(None, frozenset({"PARTITIONS_CHANGED"}), says=says)


def by_operator(*causes: str, required: bool = True, outcome: str = "", others: frozenset[str] = frozenset()) -> Fact:
    """An operator did it, and no member is behind it. `others`: whom he did it to, if it is as true to name these."""
    return Fact(None, frozenset(causes or ("OPERATOR",)), required=required, outcome=outcome, others=others)
