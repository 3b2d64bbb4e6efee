"""Plans: reads the blobs that members exchange, requests plans from assignors, and bounds what a plan takes on record.

The coordinator reads topics, owned partitions and assignments from ConsumerProtocol blobs. A blob that cannot be read
is never an error of the group: what it would have said is unknown. Blobs are read once and remembered by their bytes.

A `PlanRequest` is all that an assignor may look at. Built-in assignors plan small groups inline; everything else is
computed off the event loop.

A record that the log cannot take would cost every group of the shard what is not yet on record. Its size is therefore
estimated before a step changes anything, never too low, and checked against `Limits.max_group_bytes`: a quarter of
what one segment holds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

from muster.assignors.api import Assignment, Assignor, AssignorError, JsonValue, Snapshot
from muster.assignors.api import Member as AssignorMember
from muster.assignors.data.consumer_protocol import (
    Subscription,
    member_from_parsed,
    parse_assignment,
    parse_subscription,
)
from muster.assignors.data.snapshot_json import join_snapshot_json, write_member_json
from muster.assignors.registry import BUILT_IN, own_name, resolve
from muster.assignors.run import run
from muster.coordinator.core.model.types import (
    Limits,
    MemberPlan,
    PartitionMove,
    Partitions,
    RebalanceEntry,
    Settlement,
)
from muster.coordinator.errors import CoordinatorError

CONSUMER = "consumer"

Plan = dict[str, Mapping[str, Partitions]]
"""member id -> topic -> partitions"""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A target to compute: the assignor's word and all that it may look at.

    `epoch` fences the answer: no two requests of a shard's life have the same, whichever groups come and go under one
    id. It is the group's own epoch or generation where that number has not been used, else a later one.
    """

    group_id: str
    epoch: int
    assignor: str
    snapshot: Snapshot
    trial: bool = False
    """Made to see what it would be: for a dry run, or before a setting counts."""


Planner: TypeAlias = Callable[[PlanRequest], Plan | None]
"""Computes a plan at once, or returns None: then the request leaves with the step's effects, and `Planned` brings the
answer. Raises AssignorError when the assignor fails at once. Pure."""


def canonical_name(word: str, limits: Limits) -> str:
    """The name behind an alias, a Java class or the class of a plugin that this node offers; else the word itself.

    Nothing is imported: clients may send any.
    """
    return next((name for name, plugin in limits.plugins if word == plugin), "") or own_name(word)


def loadable_name(name: str, limits: Limits) -> str:
    """The word by which it is found anywhere, in a replay as well: a plugin may be known by its class only."""
    return dict(limits.plugins).get(name, name)


def runnable_assignors(limits: Limits) -> tuple[str, ...]:
    """All that an operator, or a member, may have this coordinator run: built in, installed, or named by the node."""
    return tuple(dict.fromkeys((*BUILT_IN, *limits.installed, *limits.remote_assignors)))


def plugins(limits: Limits) -> tuple[str, ...]:
    """The words by which plans are asked for of all that is not built in."""
    names = (*runnable_assignors(limits), *limits.consumer_assignors)
    return tuple(dict.fromkeys(loadable_name(name, limits) for name in names if name not in BUILT_IN))


AT_ONCE_MEMBERS = 200
AT_ONCE_PARTITIONS = 2_000
"""Up to these sizes a built-in assignor takes a few milliseconds at most."""


def plan_inline(request: PlanRequest) -> Plan | None:
    """The planner of a shard that was given none: built-in assignors on small problems; all else is put off."""
    snapshot = request.snapshot
    if len(snapshot.members) > AT_ONCE_MEMBERS or snapshot.size > AT_ONCE_PARTITIONS:
        return None
    if request.assignor not in BUILT_IN:
        return None
    return compute_plan(request)


WANT_LAGS = frozenset({"lag", "lag-sticky"})


def wants_lags(word: str) -> bool:
    """Of the built-in assignors those named after it; a plugin says so with an attribute `wants_lags = True`."""
    if word in BUILT_IN:
        return word in WANT_LAGS
    try:
        return bool(getattr(resolve(word), "wants_lags", False))
    except AssignorError:
        return False


def lacks_lags(request: PlanRequest) -> bool:
    """Whether a built-in assignor has to be told how far behind the group is: only the edge knows where the logs end.

    A plugin is never run at once, so the edge looks whether it wants them (`wants_lags`), and nothing is imported here.
    """
    return request.snapshot.lags is None and request.assignor in WANT_LAGS


Decide: TypeAlias = Callable[[Assignor, Snapshot], Assignment]
"""Asks an assignor for the whole target. Raises AssignorError."""


def run_assignor(assignor: Assignor, snapshot: Snapshot) -> Assignment:
    """Here and now, however long it takes."""
    return run(assignor, snapshot, withhold=False)


def compute_plan(request: PlanRequest, decide: Decide = run_assignor) -> Plan:
    """Run the assignor that the request names. Raises AssignorError."""
    assignor = resolve(request.assignor)
    if request.trial:
        check_declared_options(assignor, request.snapshot.options)
    answer = decide(assignor, request.snapshot)
    return {
        member: {topic: tuple(sorted(partitions)) for topic, partitions in share.items() if len(partitions)}
        for member, share in answer.members.items()
    }


def check_declared_options(assignor: Assignor, options: Mapping[str, JsonValue]) -> None:
    """Refuse options that a plugin does not declare in its attribute `options`; without one it takes any.

    Raises AssignorError.
    """
    declared: Iterable[str] | None = getattr(assignor, "options", None)
    known = list(options if declared is None else declared)
    for name in options:
        if name not in known:
            has = f"its options are {', '.join(known)}" if known else "it has no options"
            raise AssignorError(assignor.name, f"has no option {name!r}; {has}")


REMEMBERED_BYTES = 1_024
REMEMBERED_BLOBS = 4_096
"""Members of one kind mostly say the same, and again in every rebalance: so much of it is not read anew."""
REMEMBERED_ASSIGNMENTS = 1_024
"""The old and the new shares of one round of 500 members."""
REMEMBERED_SUBSCRIPTIONS = 1_024
"""The same of what they say when they join: it is read for its topics, its claims and the ledger's snapshot."""
REMEMBERED_LARGE_BYTES = 2 << 20
"""Of blobs longer than those, of each kind; what is read of them takes about nine times their bytes. A round of 250
members with 4 KB each is read once; of a larger one the first are read again."""

Read = TypeVar("Read")


class BlobCache(Generic[Read]):
    """Reads a blob once while it is asked for again: one answer for all who ask for the same bytes.

    It keeps the blobs that were read since the last turn of its two halves, and those before them; when a half is full,
    the older one is let go. Threads may ask at once: the worst that happens is that a blob is read twice.

    >>> lengths = BlobCache(len, 8)
    >>> lengths(b"abc"), lengths(b"abc"), lengths.reads
    (3, 3, 1)
    """

    def __init__(self, read: Callable[[bytes], Read], most_bytes: int) -> None:
        """`read` is a function of the bytes alone; what it raises is not kept. A blob longer than half is not kept."""
        self._read = read
        self._half = most_bytes // 2
        self._young: dict[bytes, Read] = {}
        self._old: dict[bytes, Read] = {}
        self._room = self._half
        self.reads = 0
        """How often a blob had to be read."""

    def __call__(self, blob: bytes) -> Read:
        for half in (self._young, self._old):
            if blob in half:
                return half[blob]
        self.reads += 1
        found = self._read(blob)
        if len(blob) <= self._half:
            self._keep(blob, found)
        return found

    def _keep(self, blob: bytes, found: Read) -> None:
        if len(blob) > self._room:
            self._old, self._young, self._room = self._young, {}, self._half
        self._young[blob] = found
        self._room -= len(blob)


def assignment_of(blob: bytes) -> Mapping[str, Partitions]:
    """Topic -> partitions of one member's share; empty when the blob is empty or not ConsumerProtocol."""
    return _remembered_assignment(blob) if len(blob) <= REMEMBERED_BYTES else _large_assignment(blob)


def _assignment(blob: bytes) -> Mapping[str, Partitions]:
    if not blob:
        return {}
    try:
        parsed = parse_assignment(blob)
    except ValueError:
        return {}
    return {topic: tuple(sorted(partitions)) for topic, partitions in parsed.partitions.items() if partitions}


_remembered_assignment = lru_cache(maxsize=REMEMBERED_ASSIGNMENTS)(_assignment)


def assignments_of(blobs: Sequence[bytes]) -> Iterator[Mapping[str, Partitions]]:
    """`assignment_of` each, in order: a rebalance reads those of all members."""
    few = max(map(len, blobs), default=0) <= REMEMBERED_BYTES
    return map(_remembered_assignment if few else assignment_of, blobs)


_large_assignment = BlobCache(_assignment, REMEMBERED_LARGE_BYTES)


def shares_of(blob: bytes) -> Mapping[str, int]:
    """Topic -> how many partitions of it are one member's, as `assignment_of` reads it."""
    return _remembered_shares(blob) if len(blob) <= REMEMBERED_BYTES else _shares(blob)


def _shares(blob: bytes) -> Mapping[str, int]:
    return {topic: len(partitions) for topic, partitions in assignment_of(blob).items()}


_remembered_shares = lru_cache(maxsize=REMEMBERED_BLOBS)(_shares)


def subscription_of(blob: bytes) -> Subscription:
    """What a member says that it reads and still holds. ValueError: the blob is not ConsumerProtocol.

    One answer for all who ask for the same bytes: nobody may change it.
    """
    return _remembered_subscription(blob) if len(blob) <= REMEMBERED_BYTES else _large_subscription(blob)


def _subscription(blob: bytes) -> Subscription:
    return parse_subscription(blob)


_remembered_subscription = lru_cache(maxsize=REMEMBERED_SUBSCRIPTIONS)(_subscription)
_large_subscription = BlobCache(_subscription, REMEMBERED_LARGE_BYTES)


def topics_of(blob: bytes) -> frozenset[str] | None:
    """The subscribed topics, or None when they cannot be known."""
    return _remembered_topics(blob) if len(blob) <= REMEMBERED_BYTES else _topics(blob)


def _topics(blob: bytes) -> frozenset[str] | None:
    try:
        return frozenset(subscription_of(blob).topics)
    except ValueError:
        return None


_remembered_topics = lru_cache(maxsize=REMEMBERED_BLOBS)(_topics)


def owned_of(blob: bytes) -> Mapping[str, frozenset[int]]:
    """What the member says it still holds. Eager members have let go of everything before they join."""
    return _remembered_owned(blob) if len(blob) <= REMEMBERED_BYTES else _owned(blob)


def _owned(blob: bytes) -> Mapping[str, frozenset[int]]:
    try:
        owned = subscription_of(blob).owned
    except ValueError:
        return {}
    return {topic: frozenset(partitions) for topic, partitions in (owned or {}).items()}


_remembered_owned = lru_cache(maxsize=REMEMBERED_BLOBS)(_owned)


def owned_by_each(blobs: Sequence[bytes]) -> Iterator[Mapping[str, frozenset[int]]]:
    """`owned_of` each, in order."""
    few = max(map(len, blobs), default=0) <= REMEMBERED_BYTES
    return map(_remembered_owned if few else owned_of, blobs)


def rebuilt_snapshot(
    assignor: str, members: Mapping[str, tuple[str | None, bytes]], partitions: Mapping[str, int]
) -> Snapshot | None:
    """The assignor's input as far as the coordinator knows it; None when a subscription cannot be read.

    What members of `sticky` had is in their user data, where the assignor looks for it.
    """
    try:
        known: list[AssignorMember] = [
            member_from_parsed(member_id, instance_id, subscription_of(blob), assignor)
            for member_id, (instance_id, blob) in members.items()
        ]
    except ValueError:
        return None
    wanted = {topic for member in known for topic in member.topics}
    return Snapshot(
        topics={topic: partitions[topic] for topic in sorted(wanted) if topic in partitions},
        members=known,
        assignor=assignor,
    )


def rebuilt_snapshot_json(
    assignor: str, members: Iterable[tuple[str, str | None, bytes]], partitions: Mapping[str, int]
) -> str | None:
    """`rebuilt_snapshot` as text, of members by id, instance id and subscription.

    What a member says is read and written once, as long as it says the same.
    """
    try:
        known = [
            _remembered_member_json(member_id, instance_id, blob, assignor)
            if len(blob) <= REMEMBERED_BYTES
            else _member_json(member_id, instance_id, blob, assignor)
            for member_id, instance_id, blob in members
        ]
    except ValueError:
        return None
    texts, topics = zip(*known, strict=True) if known else ((), ())
    wanted = sorted(set().union(*topics))
    return join_snapshot_json({topic: partitions[topic] for topic in wanted if topic in partitions}, texts, assignor)


def _member_json(member_id: str, instance_id: str | None, blob: bytes, assignor: str) -> tuple[str, tuple[str, ...]]:
    """Text and topics."""
    member = member_from_parsed(member_id, instance_id, subscription_of(blob), assignor)
    return write_member_json(member), tuple(member.topics)


_remembered_member_json = lru_cache(maxsize=REMEMBERED_SUBSCRIPTIONS)(_member_json)


# Sizes on record
# ---------------

FIXED_BYTES = 64
"""Numbers and lengths of one element, at most."""

ENTRY_BYTES = 160
"""Field names, numbers and punctuation of one element in JSON, at most."""

PARTITION_BYTES = 12
"""A partition number, in binary or in JSON, with what parts it from the next."""

MAX_TOPIC_BYTES = 249

LAST_GENERATION = 2**31 - 1


def next_generation(generation: int) -> int:
    """The log has 32 bits for it; after the last number the count begins anew. Only equality is ever asked.

    >>> next_generation(7), next_generation(2**31 - 1)
    (8, 1)
    """
    return 1 if generation >= LAST_GENERATION else generation + 1


def check_fits_log(group_id: str, what: str, size: int, limits: Limits) -> None:
    """Refuse what would become a record that the log cannot take."""
    if size > limits.max_group_bytes:
        raise CoordinatorError(limits.too_large, too_large(group_id, what, size, limits))


def too_large(group_id: str, what: str, size: int, limits: Limits) -> str:
    return (
        f"{what} of group {group_id!r} have {size} bytes, at most {limits.max_group_bytes} are kept; "
        f"send less, or raise {limits.group_bytes_of}"
    )


def text_bytes(*texts: str | None) -> int:
    whole = "".join(filter(None, texts))
    return len(whole) if whole.isascii() else len(whole.encode("utf-8", "surrogatepass"))


def share_bytes(share: Mapping[str, Iterable[int]]) -> int:
    """One member's share, by topic."""
    return sum(
        text_bytes(topic) + FIXED_BYTES + PARTITION_BYTES * len(tuple(partitions))
        for topic, partitions in share.items()
    )


def largest_share(plan: Plan) -> int:
    return max((share_bytes(share) for share in plan.values()), default=0)


def shorten_entry(entry: RebalanceEntry, limit: int, listed_bytes: int | None = None) -> RebalanceEntry:
    """The entry as far as it fits: explanations give way. What was left out is said in it.

    listed_bytes: what its moves and members take, where that is known: there may be very many.
    """
    if entry_bytes(entry, listed_bytes) <= limit:
        return entry
    room, kept = limit // 4, 0
    for move in entry.moves:
        room -= move_bytes(move)
        if room < 0:
            break
        kept += 1
    said = f"{len(entry.moves) - kept} of {len(entry.moves)} moves and all shares are left out: the entry is too large"
    shares = shares_bytes(entry.members)
    shorter = replace(
        entry,
        moves=entry.moves[:kept],
        members=() if shares > limit // 4 else entry.members,
        also=(*entry.also, said),
    )
    if entry_bytes(shorter) > limit:
        untold = entry.more_positions + len(entry.positions)
        shorter = replace(
            shorter,
            positions=(),
            more_positions=untold,
            snapshot_json="",
            snapshot_source="left out: the entry is too large",
        )
    return shorter


def entry_bytes(entry: RebalanceEntry, listed_bytes: int | None = None) -> int:
    if listed_bytes is None:
        listed_bytes = sum(map(move_bytes, entry.moves)) + shares_bytes(entry.members)
    told = text_bytes(
        entry.detail, entry.evidence, entry.client_reason, entry.culprit, entry.culprit_client_id, entry.snapshot_json
    )
    words = [*entry.also]
    size = 1_024 + 2 * told  # quotes within a snapshot are escaped
    size += listed_bytes
    for phase in entry.phases:
        words += (phase.name, *phase.waited_for)
        for wait in phase.waits:
            words += (wait.member_id, wait.client_id)
        size += ENTRY_BYTES * (1 + len(phase.waits))
    size += text_bytes(*words) + FIXED_BYTES * len(entry.also)
    for further in entry.triggers:
        size += text_bytes(further.detail, further.culprit, further.culprit_client_id) + ENTRY_BYTES
    for changed in entry.positions:
        size += text_bytes(changed.topic) + ENTRY_BYTES
    for change in entry.topics:
        size += text_bytes(change.topic, change.by) + ENTRY_BYTES
    for back in entry.incarnations:
        size += text_bytes(back.member_id, back.previous_id) + ENTRY_BYTES
    for late in entry.late_fetches:
        size += text_bytes(late.member_id, late.topic) + ENTRY_BYTES
    return size


def move_bytes(move: PartitionMove) -> int:
    return text_bytes(move.topic, move.source, move.target, move.why) + ENTRY_BYTES


def shares_bytes(members: Sequence[MemberPlan]) -> int:
    size, words = ENTRY_BYTES * len(members), list[str | None]()
    for member in members:
        words += (member.member_id, member.client_id, member.client_host, member.group_instance_id)
        for topic, partitions in member.assigned:
            words.append(topic)
            size += FIXED_BYTES + PARTITION_BYTES * len(partitions)
    return size + text_bytes(*words)


def shorten_settlement(settlement: Settlement, limit: int) -> Settlement:
    """The settlement as far as it fits; the sum over all partitions stands, who had his share when goes first."""
    waited_for, fetched = settlement.waited_for, dict(settlement.synced)
    room = limit - 1_024 - text_bytes(*waited_for) - FIXED_BYTES * len(waited_for)
    synced = text_bytes(*fetched) + FIXED_BYTES * len(fetched)
    if synced > room // 4:
        settlement = replace(settlement, synced=())
    else:
        room -= synced
    if len(settlement.unowned) * (ENTRY_BYTES + MAX_TOPIC_BYTES) <= room:
        return settlement
    kept = max(room, 0) // (ENTRY_BYTES + MAX_TOPIC_BYTES)
    return replace(settlement, unowned=settlement.unowned[:kept])
