"""How the transactions of a transactional id ended, in sentences (TX-E4).

Pure: facts in, sentences out. What no fact says is told as not known; what is only likely is told as typical.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from muster.coordinator.observability.views.formatting import NAMED, clipped, duration, plural
from muster.coordinator.transactions.events import NO_ORIGIN, RequestOrigin
from muster.coordinator.transactions.records import NO_TIME

PRODUCER: Final = "producer"
NEW_EPOCH: Final = "the producer asked for a new epoch"
TIMED_OUT: Final = "timed out"
FENCED: Final = "fenced by a new instance"
OPERATOR: Final = "operator"
ORPHAN: Final = "orphan"
UNKNOWN: Final = "unknown"

LATE_MS: Final = 1_500
"""An end by timeout that comes so much later than the timeout needs a reason."""
TOLD_HOLD_MS: Final = 1_000
"""A hold that was shorter is no news."""


# The facts
# ---------


@dataclass(frozen=True, slots=True)
class HeldOffset:
    """How long a transaction held the last stable offset of a partition. held_ms, records: -1 where not known.

    exactly: otherwise it held it for longer. behind: records that readers cannot reach, of a hold that goes on; -1.
    """

    topic: str
    partition: int
    offset: int
    held_ms: int
    exactly: bool
    records: int
    behind: int = -1


@dataclass(frozen=True, slots=True)
class ExplainedEnd:
    """How one transaction ended. cause: one of the words above. Times are -1 where not known.

    by: who asked for the end, or led to it. of: the producer. partitions: -1 where not known. place: of an orphan, the
    partition that still exists.
    """

    producer_id: int
    epoch: int
    committed: bool
    cause: str
    decided_ms: int
    completed_ms: int = NO_TIME
    by: RequestOrigin = NO_ORIGIN
    of: RequestOrigin = NO_ORIGIN
    started_ms: int = NO_TIME
    timeout_ms: int = NO_TIME
    stood_still_ms: int = 0
    partitions: int = -1
    place: str = ""
    holds: tuple[HeldOffset, ...] = ()

    @property
    def open_ms(self) -> int:
        """By the node's clock; -1 where not known, or where the clock was set back meanwhile."""
        known = self.started_ms >= 0 and self.decided_ms >= self.started_ms
        return self.decided_ms - self.started_ms if known else NO_TIME


@dataclass(frozen=True, slots=True)
class CurrentTransaction:
    """What an id has open, or decided and not complete. end: what is decided."""

    started_ms: int
    timeout_ms: int
    partitions: int
    producer: RequestOrigin
    holds: tuple[HeldOffset, ...] = ()
    behind_others: int = 0
    """Partitions in which an older transaction holds readers back."""
    end: ExplainedEnd | None = None
    unmarked: tuple[str, ...] = ()
    unmarked_count: int = 0


@dataclass(frozen=True, slots=True)
class IdHistory:
    """What there is to say of one id. known_since_ms: when its shard was loaded; -1: the id is not known now.

    unread: why what `__aborts` has is not known; empty: it is.
    """

    transactional_id: str
    now_ms: int
    known_since_ms: int
    current: CurrentTransaction | None = None
    ended: Sequence[ExplainedEnd] = field(default_factory=tuple)
    unread: str = ""


# The sentences
# -------------


def explain_id(known: IdHistory) -> list[str]:
    """What is open, then the ends, newest first, then what is not known of earlier ones."""
    return [*tell_now(known), *(tell_end(end, known) for end in known.ended), *tell_bounds(known)]


def tell_now(known: IdHistory) -> Iterator[str]:
    """What is open."""
    name, current = repr(clipped(known.transactional_id)), known.current
    if known.known_since_ms < 0:
        yield (
            f"This node does not know the transactional id {name} now: it was not used for "
            "transactional.id.expiration.ms. What follows is from __aborts."
        )
    elif current is None:
        yield f"{name} has no transaction open."
    elif current.end is not None:
        yield f"The transaction of {name} is decided and not complete. {tell_end(current.end, known)}"
        yield tell_unmarked(current)
    else:
        yield tell_open(name, current, known)
        yield from tell_current_holds(current)


def tell_unmarked(current: CurrentTransaction) -> str:
    if not current.unmarked_count:
        return "Its markers are written; the record that says so is not yet."
    return (
        f"Its marker is not durable yet in {name_some(current.unmarked, current.unmarked_count)}. The coordinator "
        "sends it again until it is; until then the id can begin no other transaction."
    )


def tell_open(name: str, current: CurrentTransaction, known: IdHistory) -> str:
    open_ms, limit = known.now_ms - current.started_ms, duration(current.timeout_ms)
    told = (
        f"{name} has a transaction open since {second(current.started_ms, known.now_ms)}, in "
        f"{plural(current.partitions, 'partition')}. "
    )
    if open_ms < 0:
        told += "That is still to come by the node's clock, which was set back meanwhile. "
    elif open_ms > current.timeout_ms + LATE_MS:
        told += (
            f"That is {duration(open_ms)}, longer than its transaction.timeout.ms of {limit}: after a start or a "
            "standstill of the node the coordinator waits for longer before it aborts. "
        )
    else:
        told += (
            f"That is {duration(open_ms)}; the coordinator aborts it once it is open for its transaction.timeout.ms of "
            f"{limit}. "
        )
    if current.producer == NO_ORIGIN:
        loaded = second(known.known_since_ms, known.now_ms)
        return told + (
            f"Where its producer is, is not known: it was initialized before {loaded}, when this node loaded the id."
        )
    return told + f"It belongs to {describe_who('its producer', current.producer)}."


def tell_current_holds(current: CurrentTransaction) -> Iterator[str]:
    for hold in current.holds[:NAMED]:
        length = "" if hold.held_ms < 0 else f" for {at_least(hold)}{duration(hold.held_ms)} now"
        yield (
            f"It holds readers of committed records back in {hold.topic}-{hold.partition} at offset {hold.offset}"
            f"{length}; they cannot read {plural(hold.behind, 'record')} there yet."
        )
    if (more := len(current.holds) - NAMED) > 0:
        yield f"It holds them back in {plural(more, 'more partition')}, too."
    if current.behind_others:
        yield f"In {plural(current.behind_others, 'partition')} an older transaction holds them back."


def tell_end(end: ExplainedEnd, known: IdHistory) -> str:
    """One end, with what to do about it."""
    at = f"{second(end.decided_ms, known.now_ms)}: " if end.decided_ms >= 0 else ""
    tell = TELLERS.get(end.cause, tell_unknown)
    return at + tell(end, known) + tell_holds(end)


def tell_producer(end: ExplainedEnd, known: IdHistory) -> str:
    return f"{result_of(end)} by {describe_who('its producer', end.by)}{tell_length(end)}."


def tell_new_epoch(end: ExplainedEnd, known: IdHistory) -> str:
    return (
        f"{result_of(end)} because {describe_who('its producer', end.by)} asked for a new epoch while it was open, as "
        f"clients do after an error of their own{tell_length(end)}."
    )


def tell_timeout(end: ExplainedEnd, known: IdHistory) -> str:
    limit = f" of {duration(end.timeout_ms)}" if end.timeout_ms >= 0 else ""
    told = (
        f"{result_of(end)} by the coordinator: {describe_who('its producer', end.of)} did not end it within its "
        f"transaction.timeout.ms{limit}{tell_length(end)}. "
    )
    late_ms = end.open_ms - end.timeout_ms
    if end.open_ms < 0 or end.timeout_ms < 0:
        pass
    elif late_ms < -LATE_MS:
        told += "The node's clock was set back meanwhile, so that time is too short. "
    elif late_ms > LATE_MS and end.stood_still_ms:
        told += f"The node stood still for {duration(end.stood_still_ms)} meanwhile, which does not count. "
    elif late_ms > LATE_MS and 0 <= end.started_ms < known.known_since_ms <= end.decided_ms:
        told += "The node loaded the id meanwhile, and gives producers at least 10 s from then on. "
    elif late_ms > LATE_MS:
        told += f"Why that came {duration(late_ms)} late is not known. "
    return told + (
        "Whether it died, hung or was slow is not known here; a producer that needs longer has to set a larger "
        "transaction.timeout.ms."
    )


def tell_fence(end: ExplainedEnd, known: IdHistory) -> str:
    told = (
        f"{result_of(end)} by the coordinator: {describe_who('a new instance', end.by)} was initialized with this "
        f"transactional.id while it was open{tell_length(end)}. "
    )
    if end.of.address and end.of.address == end.by.address:
        told += "The one before was on the same host: typical of a restart. It is fenced, and cannot continue. "
    else:
        told += f"{describe_who('The one before', end.of)} is fenced, and cannot continue. "
    return told + "If both are meant to run at the same time, give each a transactional.id of its own."


def tell_operator(end: ExplainedEnd, known: IdHistory) -> str:
    return (
        f"{result_of(end)} by {describe_who('an operator', end.by)}{tell_length(end)}. "
        f"{describe_who('Its producer', end.of)} is fenced: it cannot continue, and one that is started again can."
    )


def tell_orphan(end: ExplainedEnd, known: IdHistory) -> str:
    place = f"in {end.place} " if end.place else ""
    return (
        f"{result_of(end)} by the node when it had loaded its logs: records {place}of producer id {end.producer_id}, "
        f"epoch {end.epoch}, were of a transaction that no coordinator would have ended, as a power cut leaves them. "
        "Readers of committed records never get them. Since when it was open is not known."
    )


def tell_unknown(end: ExplainedEnd, known: IdHistory) -> str:
    told, loaded = f"{result_of(end)}{tell_length(end)}. ", second(known.known_since_ms, known.now_ms)
    if end.committed:
        return told + f"By whom is not known: it was decided before {loaded}, when this node loaded the id."
    noted = f"__aborts cannot be read ({known.unread})" if known.unread else "__aborts has no entry of it"
    return told + (
        f"Neither why nor by whom is known: it was decided before {loaded}, when this node loaded the id, and {noted}."
    )


TELLERS: Final[Mapping[str, Callable[[ExplainedEnd, IdHistory], str]]] = {
    PRODUCER: tell_producer,
    NEW_EPOCH: tell_new_epoch,
    TIMED_OUT: tell_timeout,
    FENCED: tell_fence,
    OPERATOR: tell_operator,
    ORPHAN: tell_orphan,
    UNKNOWN: tell_unknown,
}


def tell_holds(end: ExplainedEnd) -> str:
    """Partitions whose readers it kept waiting, the longest first."""
    long = [hold for hold in end.holds if hold.held_ms >= TOLD_HOLD_MS]
    if not long:
        return ""
    told = ", ".join(
        f"{hold.topic}-{hold.partition} at offset {hold.offset} for {at_least(hold)}{duration(hold.held_ms)}"
        + (f" (it had {plural(hold.records, 'record')} there)" if hold.records >= 0 else "")
        for hold in long[:NAMED]
    )
    more = f" and in {plural(len(long) - NAMED, 'more partition')}" if len(long) > NAMED else ""
    return f" It held readers of committed records back in {told}{more}."


def tell_bounds(known: IdHistory) -> Iterator[str]:
    """What may have been, and is not told."""
    if known.unread:
        yield f"What the coordinator aborted before the start is not known: __aborts cannot be read ({known.unread})."
    elif known.known_since_ms >= 0:
        yield (
            f"Of what ended before {second(known.known_since_ms, known.now_ms)}, when this node loaded the id, only "
            "the last state and aborts by the coordinator are kept, these for 30 days in __aborts."
        )


# Words
# -----


def result_of(end: ExplainedEnd) -> str:
    return "committed" if end.committed else "aborted"


def describe_who(noun: str, origin: RequestOrigin) -> str:
    """
    >>> describe_who("its producer", RequestOrigin("10.0.0.5", "librdkafka 2.16.0", "billing"))
    "its producer (client 'billing' at 10.0.0.5, librdkafka 2.16.0)"
    >>> describe_who("an operator", RequestOrigin("10.0.0.5")), describe_who("its producer", NO_ORIGIN)
    ('an operator (at 10.0.0.5)', 'its producer (address not known)')
    """
    if origin == NO_ORIGIN:
        return f"{noun} (address not known)"
    client = f"client {clipped(origin.client_id)!r}" if origin.client_id else ""
    at = f"at {origin.address}" if origin.address else ""
    software = f", {clipped(origin.software)}" if origin.software else ""
    return f"{noun} ({' '.join(filter(None, (client, at)))}{software})"


def tell_length(end: ExplainedEnd) -> str:
    """How long it was open, and in how many partitions, as far as that is known."""
    if end.partitions == 0:
        return "; there was nothing in it"
    told = ""
    if end.open_ms >= 0:
        told = f"; it was open for {duration(end.open_ms)}"
    elif end.started_ms >= 0 and end.decided_ms >= 0:
        told = "; how long it was open is not known, for the node's clock was set back meanwhile"
    if end.partitions > 0:
        told += f"{',' if told else '; it was'} in {plural(end.partitions, 'partition')}"
    return told


def at_least(hold: HeldOffset) -> str:
    return "" if hold.exactly else "at least "


def name_some(places: Sequence[str], count: int) -> str:
    """
    >>> name_some(["a-0", "a-1", "b-0", "b-1"], 9)
    'a-0, a-1, b-0 and 6 more partitions'
    """
    more = count - min(len(places), NAMED)
    return ", ".join(places[:NAMED]) + (f" and {plural(more, 'more partition')}" if more > 0 else "")


def second(epoch_ms: int, now_ms: int) -> str:
    """Time of day in UTC to the second, with the date unless it is today's.

    >>> second(50_520_000, 60_000_000), second(50_520_000, 90_000_000)
    ('14:02:00 UTC', '1970-01-01 14:02:00 UTC')
    """
    at, now = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (epoch_ms, now_ms))
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"
