"""The life of a producer's transactions: which call fits when, and what an error means. Pure; safe to read from any
thread.

A producer with a transactional id has one transaction at a time. What goes wrong in it is remembered until it is
aborted, so nothing that is only partly written can be committed.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from muster.client.errors import ClientError, IllegalState, ProducerFenced, Refused, TransactionAborted, Unreachable


class TransactionPhase(Enum):
    """Where a producer is between its first InitProducerId and its end."""

    UNINITIALIZED = "init_transactions() has not been called"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    FAILED = "the transaction can only be aborted"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    UNRESOLVED = "it is unknown how the last transaction ended"
    FENCED = "this producer may write no more"


UNINITIALIZED, READY, OPEN, FAILED = (
    TransactionPhase.UNINITIALIZED,
    TransactionPhase.READY,
    TransactionPhase.OPEN,
    TransactionPhase.FAILED,
)
COMMITTING, ABORTING, UNRESOLVED, FENCED = (
    TransactionPhase.COMMITTING,
    TransactionPhase.ABORTING,
    TransactionPhase.UNRESOLVED,
    TransactionPhase.FENCED,
)

MOVES: Final[Mapping[TransactionPhase, frozenset[TransactionPhase]]] = {
    UNINITIALIZED: frozenset({READY, FENCED}),
    READY: frozenset({READY, OPEN, FENCED}),
    OPEN: frozenset({FAILED, COMMITTING, ABORTING, FENCED}),
    FAILED: frozenset({ABORTING, FENCED}),
    COMMITTING: frozenset({READY, FAILED, UNRESOLVED, FENCED}),
    ABORTING: frozenset({READY, UNRESOLVED, FENCED}),
    UNRESOLVED: frozenset({READY, FENCED}),
    FENCED: frozenset({FENCED}),
}


# What an error means
# -------------------

NOT_YET: Final = frozenset({14, 15, 16, 19, 51})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS,
CONCURRENT_TRANSACTIONS: the same request again."""
FENCING: Final = frozenset({49, 53, 90})
"""INVALID_PRODUCER_ID_MAPPING, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, PRODUCER_FENCED."""
INVALID_TXN_STATE: Final = 48
FENCING_AN_END: Final = FENCING | {47, INVALID_TXN_STATE}
"""For EndTxn also INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE: somebody else has ended the transaction."""
ABORTING_OFFSETS: Final = frozenset({22, 25, 47, 48, 82, 113, 120})
"""Of TxnOffsetCommit: the group went on without this member (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH), or the coordinator has ended the transaction."""


def fences(error: Exception, codes: frozenset[int] = FENCING) -> bool:
    """Whether the producer may write no more: another one has its transactional id, or it may not use it."""
    return isinstance(error, Refused) and error.code in codes


def is_not_yet(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, Unreachable) or (isinstance(error, Refused) and error.code in NOT_YET)


def build_fenced(error: Refused, fate: str = "") -> ProducerFenced:
    """`error` as what ends the producer, with its code and the node's words. fate: what became of the transaction."""
    kind = type(error) if isinstance(error, ProducerFenced) else ProducerFenced
    return kind(error.code, error.name, "; ".join(filter(None, (error.message, fate))))


def describe_fate(transactional_id: str, code: int, *, timeout_ms: int, unanswered: bool = False) -> str:
    """What became of the transaction of a producer that was fenced, and what to do.

    Nobody else can commit what was written with this producer's epoch. So it is aborted, unless a request to commit it
    was not answered before (`unanswered`), which may have come through.
    """
    restart = (
        "this producer is of no use any more: close it and start again with a new one, from the group's committed "
        "offsets"
    )
    if unanswered:
        return (
            "an earlier request to commit was not answered, so the transaction is committed completely or not at all; "
            f"`muster transactions explain {transactional_id}` says which; {restart}"
        )
    why = ""
    if code == INVALID_TXN_STATE:
        why = (
            "its coordinator ended it before the commit came, typically because transaction.timeout.ms of "
            f"{timeout_ms} ms was over; "
        )
    return f"the transaction is aborted: readers of committed records see nothing of it; {why}{restart}"


def build_aborted(reason: Exception) -> TransactionAborted:
    aborted = TransactionAborted(reason)
    aborted.__cause__ = reason
    return aborted


# The machine
# -----------


class TransactionLife:
    """One producer's transactions, one after the other.

    `failure`: what went wrong in the open transaction, or in one that was aborted for it and not begun again since.
    `used`: whether anything was written in the open transaction, so that its coordinator has to hear of its end.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = UNINITIALIZED
        self.failure: Exception | None = None
        self.used = False
        self._fence: ProducerFenced | None = None

    def become(self, phase: TransactionPhase) -> None:
        assert phase in MOVES[self.phase], f"{self.phase} -> {phase}"
        self.phase = phase

    # Calls of the application: each raises unless it fits

    def check_usable(self) -> None:
        """Raises ProducerFenced once this producer may write no more."""
        if self._fence is not None:
            raise self._fence

    @property
    def must_initialize(self) -> bool:
        """Whether InitProducerId comes first. After an unknown outcome it also keeps out what is still under way."""
        return self.phase in (UNINITIALIZED, UNRESOLVED)

    def check_initialize(self) -> None:
        self.check_usable()
        if self.phase not in (UNINITIALIZED, UNRESOLVED, READY):
            raise self._misplaced("init_transactions()", "call it before the first begin()")

    def initialized(self) -> None:
        """Producer id and epoch are there. Again while nothing is open, it changes nothing."""
        self.become(READY)

    def check_begin(self) -> None:
        self.check_usable()
        if not self.must_initialize and self.phase is not READY:
            raise self._misplaced("begin()", "commit() or abort() it first")

    def begin(self) -> None:
        self.check_begin()
        self.become(OPEN)
        self.failure, self.used = None, False

    @property
    def is_open(self) -> bool:
        """Whether records may become part of a transaction."""
        return self.phase is OPEN

    def check_open(self, what: str) -> None:
        """Raises TransactionAborted where the transaction has failed, or has been aborted because it did."""
        self.check_usable()
        if self.phase is OPEN:
            return
        if self.failure is not None and self.phase is not COMMITTING:
            raise build_aborted(self.failure)
        raise self._misplaced(what, "begin() one first, or write inside `with producer.transaction():`")

    def admit(self) -> None:
        """A record, or positions, become part of the open transaction. Raises as `check_open`."""
        self.check_open("produce()")
        self.used = True

    def begin_commit(self) -> None:
        self.check_open("commit()")
        self.become(COMMITTING)

    def begin_abort(self) -> bool:
        """Whether there is anything to abort; not where a failure has led to it already."""
        self.check_usable()
        if self.phase in (READY, UNRESOLVED) and self.failure is not None:
            self.failure = None
            return False
        if self.phase not in (OPEN, FAILED):
            remedy = "the next begin() settles it" if self.phase is UNRESOLVED else "begin() one first"
            raise self._misplaced("abort()", remedy)
        self.become(ABORTING)
        return True

    # What happens

    def fail(self, error: Exception) -> None:
        """Something of the open transaction was not written."""
        if self.phase in (OPEN, COMMITTING):
            self.failure = self.failure or error
            self.become(FAILED)

    def ended(self) -> None:
        """Committed or aborted; a failure that led to it is kept for the calls that do not know of it yet."""
        if self.phase is COMMITTING:
            self.failure = None
        self.become(READY)

    def unanswered(self) -> None:
        """The coordinator did not say whether it has ended the transaction."""
        self.become(UNRESOLVED)

    def fence(self, error: Refused, fate: str = "") -> ProducerFenced:
        """This producer may write no more; returns what its calls raise from now on. fate: see `describe_fate`."""
        self._fence = self._fence or build_fenced(error, fate)
        self.become(FENCED)
        return self._fence

    def _misplaced(self, what: str, remedy: str) -> ClientError:
        return IllegalState(f"{what} of transactional id {self.transactional_id!r}: {self.phase.value}; {remedy}")
