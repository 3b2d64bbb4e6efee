"""Committed offsets: commit, fetch, delete and expire them, and commits of transactions (KIP-98, KIP-447).

What concerns every position of a shard, or of a large group, goes a slice at a time: other events have turns in
between. A slice is a step like any other: what it decides is whole, and after a crash the next life continues with
what is left. What is left comes back as an event (`Effects.chores`), which the runtime steps in a later turn.

Positions of a transaction are pending until its marker commits or drops them (TX-G3, TX-G4). Over Muster's own log
both are records of the shard; over a Kafka both are written under the client's own producer, and told as events.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain, islice
from typing import TypeAlias

from muster.assignors.api import TopicPartition
from muster.coordinator.core.classic.group import ClassicGroup, check_generation, check_not_dead, require_member
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.bookkeeping import forget_ledger
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.kind import RefusedPositions
from muster.coordinator.core.groups.state import LongWork, ShardState, Step, WaitingPositions
from muster.coordinator.core.kinds.facts import end_in_slices
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import (
    OffsetCommitReply,
    OffsetDeleteReply,
    OffsetFetchReply,
    TxnEndedReply,
    TxnOffsetCommitReply,
    TxnWriteOverReply,
)
from muster.coordinator.core.model.events import (
    NO_PRODUCER,
    ConsumerHeartbeat,
    DeleteGroup,
    ExpireOffsets,
    ForgetOffsets,
    JoinGroup,
    Loaded,
    LongWorkGoesOn,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RegisterConsumer,
    TopicsChanged,
    TxnEnded,
    TxnMarkerRead,
    TxnOffsetCommit,
    TxnOffsetsWritten,
    TxnWriteOver,
)
from muster.coordinator.core.model.records import OffsetDeleted, OffsetsStored, TxnMarked, TxnOffsetsStored
from muster.coordinator.core.model.types import (
    NO_TOPIC_ID,
    GroupState,
    Position,
    PositionChange,
    StoredOffset,
)
from muster.coordinator.core.requests import audit_entries
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.values import frozen_value

TopicId: TypeAlias = bytes
Catalog: TypeAlias = Mapping[str, int]
"""The number of partitions by topic."""

made = tuple.__new__
"""What a NamedTuple's own constructor does, without its argument names: a commit makes many of them."""


def commit_offsets(request: OffsetCommit, step: Step) -> None:
    """Keep the positions if the committer may still speak for the group."""
    group = step.state.groups.get(request.group_id)
    refused = KINDS[type(group)].may_commit(group, request, step)
    if not request.offsets:
        step.reply(request.request_id, OffsetCommitReply())
        return

    now_ms = step.now_ms
    expire_ms = None if request.retention_ms is None else now_ms + request.retention_ms
    if len(request.offsets) > COMMITTED_SLICES * step.state.limits.slice_positions:
        begin_long_work(LongCommit(request, refused, expire_ms, step), step)
        return
    kept = positions_to_store(request.offsets.items(), refused, now_ms, expire_ms, step)
    if kept:
        if request.operator:
            audit_entries.note_operator_commit(request, kept, step)
        step.keep(OffsetsStored(request.group_id, kept))
        count_commits(request.group_id, len(kept), step)
    step.reply(request.request_id, OffsetCommitReply(partitions=refused))


def positions_to_store(
    positions: Iterable[tuple[TopicPartition, Position]],
    refused: RefusedPositions,
    now_ms: int,
    expire_ms: int | None,
    step: Step,
) -> dict[TopicPartition, StoredOffset]:
    """As they will be kept, without those that are `refused`, or are here."""
    # Kafka's record has a place for one of the two.
    topic_ids = step.state.topic_ids if expire_ms is None else {}
    kept: dict[TopicPartition, StoredOffset] = {}
    of_topic, topic_id = "", topic_ids.get("", NO_TOPIC_ID)
    for place, position in positions:
        if refused and place in refused:
            continue
        offset, leader_epoch, metadata = position
        if metadata and utf16_length(metadata) > step.limits.max_offset_metadata:
            refused[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        if place[0] is not of_topic:  # one string for all partitions of a topic
            of_topic = place[0]
            topic_id = topic_ids.get(of_topic, NO_TOPIC_ID)
        kept[place] = made(StoredOffset, (offset, leader_epoch, metadata, now_ms, expire_ms, topic_id))
    return kept


def count_commits(group_id: str, positions: int, step: Step) -> None:
    counts = step.state.commit_counts
    counts[group_id] = counts.get(group_id, 0) + positions


def utf16_length(text: str) -> int:
    """A string's length as Kafka counts it."""
    return len(text.encode("utf-16-le")) // 2


def fetch_offsets(request: OffsetFetch, step: Step) -> None:
    """Positions as committed; an unknown group or partition has none, which is not an error."""
    group = step.state.groups.get(request.group_id)
    stored = KINDS[type(group)].positions(group, request, step)
    wanted = request.partitions
    if wanted is None:
        found: dict[TopicPartition, StoredOffset | None] = dict(without_deleted_topics(stored, step))
    else:
        found = dict(zip(wanted, map(stored.get, wanted), strict=True))
        if step.state.forgetting:
            there = without_deleted_topics({place: value for place, value in found.items() if value is not None}, step)
            found = {place: there.get(place) for place in found}
    refused: dict[TopicPartition, ErrorCode] = {}
    if request.require_stable and step.state.pending:
        # Whoever reads on from here must not do so from before a transaction that may yet commit (KIP-447).
        unstable = step.state.pending.unstable(request.group_id)
        refused = {place: ErrorCode.UNSTABLE_OFFSET_COMMIT for place in found if place in unstable}
        found.update(dict.fromkeys(refused))
    step.out.rows += len(found) // 10
    step.reply(request.request_id, OffsetFetchReply(offsets=found, refused=refused))


def delete_offsets(request: OffsetDelete, step: Step) -> None:
    """Forget positions of topics that no member reads."""
    group_id_given(request.group_id)
    group = step.state.groups.get(request.group_id)
    subscribed = KINDS[type(group)].subscribed(group, request.group_id)
    stored = step.state.offsets.get(request.group_id, {})
    pending = step.state.pending.of_group(request.group_id)  # it goes, too: a tombstone is written behind it (TX-G7)
    results: dict[tuple[str, int], ErrorCode] = {}
    gone: list[PositionChange] = []
    for topic, partition in request.partitions:
        if subscribed is None or topic in subscribed:
            results[topic, partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            continue
        if (topic, partition) in stored:
            gone.append(PositionChange(topic, partition, stored[topic, partition].offset, None))
        if (topic, partition) in stored or (topic, partition) in pending:
            step.keep(OffsetDeleted(request.group_id, topic, partition))
        results[topic, partition] = ErrorCode.NONE
    audit_entries.note_positions_changed(request.group_id, gone, request.operator, step)
    step.reply(request.request_id, OffsetDeleteReply(partitions=results))


def expire_ledgers(step: Step) -> None:
    """What is told of groups that have gone, deleted or from ZooKeeper, is kept as long as positions would be."""
    state = step.state
    for group_id in state.ledgers.keys() - state.groups.keys():
        last = state.ledgers[group_id].last
        if last is None or step.now_ms - step.past(last.ended_at_ms) >= step.limits.offsets_retention_ms:
            forget_ledger(group_id, step)


def is_of_deleted_topic(topic: str, value: StoredOffset, deleted_at_ms: int, step: Step) -> bool:
    """Whether a position is of a topic that was deleted then, and not of one made anew under its name."""
    if value.topic_id:
        return value.topic_id != step.state.topic_ids.get(topic)
    return step.past(value.commit_timestamp_ms) <= deleted_at_ms


def without_deleted_topics(
    stored: Mapping[TopicPartition, StoredOffset], step: Step
) -> Mapping[TopicPartition, StoredOffset]:
    """Without the positions of deleted topics that have still to be found."""
    gone = step.state.forgetting
    if not gone:
        return stored
    return {
        place: value
        for place, value in stored.items()
        if place[0] not in gone or not is_of_deleted_topic(place[0], value, gone[place[0]], step)
    }


def count_committed(offsets: Mapping[str, Mapping[TopicPartition, StoredOffset]]) -> Counter[tuple[str, TopicId]]:
    """How many positions there are of each topic, by name and id."""
    return Counter((topic, value.topic_id) for stored in offsets.values() for (topic, _), value in stored.items())


def is_orphaned(topic: str, topic_id: TopicId, partitions: Catalog, topic_ids: Mapping[str, TopicId]) -> bool:
    """Whether a position is of a topic that is gone; one made anew under the same name is another."""
    return topic not in partitions or bool(topic_id and topic_id != topic_ids.get(topic, topic_id))


# Slices: very many positions of one request
# ------------------------------------------

COMMITTED_SLICES = 4
"""Slices that one step commits, or takes in by a marker: four take as long as one that is looked through."""


def begin_long_work(work: LongWork, step: Step) -> None:
    """Nothing is done of it yet: its slices have a turn each."""
    assert step.state.long_work is None, "a shard has begun something while it was at something else"
    step.state.long_work = work
    step.out.rest = LongWorkGoesOn()


def go_on(event: LongWorkGoesOn, step: Step) -> None:
    work = step.state.long_work
    assert work is not None, "nothing is left to go on with"
    if work.go_on(step):
        step.out.rest = event
    else:
        step.state.long_work = None


class LongCommit:
    """A commit of very many positions, which its committer may make. What is told of it is told when all is done."""

    def __init__(self, request: OffsetCommit, refused: RefusedPositions, expire_ms: int | None, step: Step) -> None:
        self._request = request
        self._slices = SlicedPositions(request.offsets, refused, expire_ms, step)
        self._changes = audit_entries.OperatorChanges(request, step)

    def go_on(self, step: Step) -> bool:
        group_id = self._request.group_id
        if kept := self._slices.take(step):
            self._changes.note(kept, step)
            step.keep(OffsetsStored(group_id, kept))
            count_commits(group_id, len(kept), step)
        if self._slices.left:
            return True
        self._changes.tell(step)
        step.reply(self._request.request_id, OffsetCommitReply(partitions=self._slices.refused))
        return False


class LongTxnCommit:
    """The same in a transaction."""

    def __init__(self, request: TxnOffsetCommit, refused: RefusedPositions, step: Step) -> None:
        self._request = request
        self._slices = SlicedPositions(request.offsets, refused, None, step)

    def go_on(self, step: Step) -> bool:
        request = self._request
        if kept := self._slices.take(step):
            step.keep(TxnOffsetsStored(request.producer_id, request.producer_epoch, request.group_id, kept))
        if self._slices.left:
            return True
        step.reply(request.request_id, TxnOffsetCommitReply(partitions=self._slices.refused))
        return False


class LongPermission:
    """The same where others write them."""

    def __init__(self, request: TxnOffsetCommit, refused: RefusedPositions, step: Step) -> None:
        self._request = request
        self._slices = SlicedPositions(request.offsets, refused, None, step)
        self._kept: dict[TopicPartition, StoredOffset] = {}

    def go_on(self, step: Step) -> bool:
        self._kept |= self._slices.take(step)
        if self._slices.left:
            return True
        allow_writing(self._request, self._kept, self._slices.refused, step)
        return False


class LongWriting:
    """Others have written very many, which wait for their marker from here on."""

    def __init__(self, event: TxnOffsetsWritten) -> None:
        self._event = event
        self._at = event.at
        self._left = iter(event.offsets.items())

    def go_on(self, step: Step) -> bool:
        some = dict(islice(self._left, COMMITTED_SLICES * step.limits.slice_positions))
        if not some:
            return False
        step.state.pending.written(self._event.producer_id, self._event.group_id, some, self._at)
        self._at += len(some)
        return True


class SlicedPositions:
    """Those of one request, all with the time at which it was taken. left: how many are still to be looked at. refused:
    what was so far."""

    def __init__(
        self,
        positions: Mapping[TopicPartition, Position],
        refused: RefusedPositions,
        expire_ms: int | None,
        step: Step,
    ) -> None:
        self.refused = refused
        self.left = len(positions)
        self._positions = iter(positions.items())
        self._now_ms = step.now_ms
        self._expire_ms = expire_ms

    def take(self, step: Step) -> dict[TopicPartition, StoredOffset]:
        """The next slice, as it will be kept."""
        some = tuple(islice(self._positions, COMMITTED_SLICES * step.limits.slice_positions))
        self.left -= len(some)
        return positions_to_store(some, self.refused, self._now_ms, self._expire_ms, step)


@frozen_value
class MarkerConsequences:
    """What follows once those that waited for a marker have come to count, or to nothing. waiting: positions by group.
    topics: of a commit, with their ids."""

    event: TxnEnded
    waiting: Mapping[str, int]
    topics: Set[tuple[str, TopicId]]

    def follow(self, step: Step) -> None:
        if self.event.commit:
            for group_id, count in self.waiting.items():
                if count:
                    count_commits(group_id, count, step)
            forget_gone(self.topics, step)
        step.reply(self.event.request_id, TxnEndedReply())


class LongEnd:
    """The end of a transaction for which very many positions wait."""

    def __init__(self, marker: TxnMarked, slices: Iterator[None], consequences: MarkerConsequences) -> None:
        self._marker = marker
        self._slices = slices
        self._consequences = consequences

    def go_on(self, step: Step) -> bool:
        for _ in self._slices:
            return True
        step.has_kept(self._marker)
        self._consequences.follow(step)
        return False


class LongReading:
    """A marker that others have written has been read, and very many positions wait for it."""

    def __init__(self, event: TxnMarkerRead, slices: Iterator[tuple[str, WaitingPositions]]) -> None:
        self._event = event
        self._slices = slices
        self._topics: set[tuple[str, TopicId]] = set()

    def go_on(self, step: Step) -> bool:
        for group_id, ended in self._slices:
            self._topics |= take_ended(self._event, group_id, ended, step)
            return True
        forget_gone(self._topics, step)
        return False


# Slices: expired and orphaned positions
# --------------------------------------

MADE_ANEW = -1
"""As the time when a topic went: before any commit, so that only the topic's id says which positions go."""

OPENING = (JoinGroup, ConsumerHeartbeat, RegisterConsumer, OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit)
"""What must not come between the parts of a deletion: it would meet half a group."""


class SweepSlice:
    """So many positions of the groups as one step may look at, and what is left of them.

    What is left is told once, by where it begins: to hand on a shorter list for each group would copy the whole list
    as often.
    """

    def __init__(self, event: ExpireOffsets | ForgetOffsets) -> None:
        self.groups = event.groups
        self.places = event.places
        self.begin = event.begin

    def taken(self, step: Step) -> Iterator[tuple[str, tuple[TopicPartition, ...]]]:
        room, done = step.limits.slice_positions, 0
        while room > 0 and done < len(self.groups):
            group_id = self.groups[done]
            places = tuple(step.state.offsets.get(group_id, ())) if self.places is None else self.places
            now = places[self.begin : self.begin + room]
            room -= len(now) + 1
            if self.begin + len(now) < len(places):
                self.places, self.begin = places, self.begin + len(now)
            else:
                self.places, self.begin = None, 0
                done += 1
            yield group_id, now
        self.groups = self.groups[done:]


def look_for_expired(step: Step) -> None:
    """Retention is due: look at every group, whatever its kind."""
    state = step.state
    step.out.chores.append(ExpireOffsets(tuple(state.groups)))


def expire_slice(event: ExpireOffsets, step: Step) -> None:
    """A slice of it. The next look is due when this one is over."""
    portion = SweepSlice(event)
    for group_id, places in portion.taken(step):
        if group_id not in step.state.going:
            pending = step.state.pending.of_group(group_id)
            # What a transaction may yet move is no old position, however long ago it was committed (TX-G6).
            step.looked_at = tuple(place for place in places if place not in pending) if pending else places
            group = step.state.groups.get(group_id)
            KINDS[type(group)].expire(group, step)
    if portion.groups:
        step.out.chores.append(ExpireOffsets(portion.groups, portion.places, portion.begin))
    else:
        expire_ledgers(step)
        step.arm(("retention",), step.limits.offsets_retention_check_ms)


def forget_topics(event: TopicsChanged, step: Step) -> None:
    """Deleted topics take their positions with them, in every group; what is still there until then is told nobody."""
    if event.deleted and (step.state.offsets or step.state.pending.of):
        start_forgetting(dict.fromkeys(event.deleted, step.now_ms), step)


def forget_orphan_slice(event: Loaded, step: Step) -> None:
    """So do topics that went while nobody listened. Of one made anew since then, positions without an id stay."""
    start_forgetting(orphaned_topics(event.topics, step), step)


def orphaned_topics(topics: Iterable[tuple[str, TopicId]], step: Step) -> dict[str, int]:
    """Those that are gone or were made anew, and when they count as deleted."""
    state = step.state
    return {
        topic: MADE_ANEW if topic in state.partitions else step.now_ms
        for topic, topic_id in topics
        if is_orphaned(topic, topic_id, state.partitions, state.topic_ids)
    }


def start_forgetting(topics: Mapping[str, int], step: Step) -> None:
    """Look for positions of these topics, beside those that are looked for; each with the time when it went."""
    state = step.state
    begun = bool(state.forgetting)
    state.forgetting = {**state.forgetting, **topics}
    if state.forgetting and not begun:
        step.out.chores.append(topics_being_forgotten(state))


def topics_being_forgotten(state: ShardState) -> ForgetOffsets:
    committed = tuple(state.offsets)
    only_pending = (group_id for group_id in dict.fromkeys(state.pending.groups()) if group_id not in state.offsets)
    return ForgetOffsets(committed + tuple(only_pending), dict(state.forgetting))


def forget_slice(event: ForgetOffsets, step: Step) -> None:
    """A slice of the positions is looked through for topics that have gone."""
    state, gone = step.state, event.topics
    portion = SweepSlice(event)
    for group_id, places in portion.taken(step):
        stored = state.offsets.get(group_id, {})
        for topic, partition in places:
            value = stored.get((topic, partition)) if topic in gone else None
            if value is not None and is_of_deleted_topic(topic, value, gone[topic], step):
                step.keep(OffsetDeleted(group_id, topic, partition))
        if state.pending.of:
            forget_pending(group_id, gone, step)
    if portion.groups:
        step.out.chores.append(ForgetOffsets(portion.groups, gone, portion.places, portion.begin))
        return
    # More may have gone meanwhile, some of them again.
    state.forgetting = {topic: at_ms for topic, at_ms in state.forgetting.items() if gone.get(topic) != at_ms}
    if state.forgetting:
        step.out.chores.append(topics_being_forgotten(state))


def forget_pending(group_id: str, gone: Mapping[str, int], step: Step) -> None:
    """What waits for a marker goes with its topic, as if it had counted already (TX-G7)."""
    for place, value in step.state.pending.newest_of_group(group_id).items():
        if place[0] in gone and is_of_deleted_topic(place[0], value, gone[place[0]], step):
            step.keep(OffsetDeleted(group_id, *place))


def delete_in_part(event: DeleteGroup, step: Step) -> bool:
    """Let go of as many positions of a large empty group as one step may. False: the rest of it may go at once."""
    state, group_id = step.state, event.group_id
    stored, most = state.offsets.get(group_id, {}), step.limits.slice_positions
    pending = state.pending.of_group(group_id)
    group = state.groups.get(group_id)
    if len(stored) + len(pending) <= most or group is None or group.logged is not group or group.members:
        return False
    if group_id not in state.going:
        state.going[group_id] = audit_entries.lost_positions(stored)
    places = chain(stored, sorted(pending - stored.keys()))
    for topic, partition in list(islice(places, most)):
        step.keep(OffsetDeleted(group_id, topic, partition))
    step.out.chores.append(event)
    return True


def check_not_being_deleted(event: object, state: ShardState) -> None:
    """Nobody comes into a group that is being deleted. Raises CoordinatorError."""
    if isinstance(event, OPENING) and event.group_id in state.going:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {event.group_id!r} is being deleted; try again shortly"
        )


# Transactions
# ------------

MOST_PENDING = 100_000
"""Positions of one shard that may wait for markers."""

STALE = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}
"""TxnOffsetCommit knows the second one only, before its v6."""


def commit_in_transaction(request: TxnOffsetCommit, step: Step) -> None:
    """Keep what may be until the transaction ends; or, where others write it, allow it, and take it for unstable: it
    may be in the log before its writer hears so."""
    group_id_given(request.group_id)
    state, now_ms = step.state, step.now_ms
    refused = check_may_commit(request, step)
    if state.pending and len(state.pending) + len(request.offsets) > MOST_PENDING:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"{len(state.pending)} positions of this shard wait for their transactions to end, and {MOST_PENDING} may; "
            f"try again when some have ended",
        )
    if len(request.offsets) > COMMITTED_SLICES * step.limits.slice_positions:
        others_write = request.producer_id == NO_PRODUCER
        begin_long_work((LongPermission if others_write else LongTxnCommit)(request, refused, step), step)
        return
    kept = positions_to_store(request.offsets.items(), refused, now_ms, None, step)
    if request.producer_id != NO_PRODUCER:
        if kept:
            step.keep(TxnOffsetsStored(request.producer_id, request.producer_epoch, request.group_id, kept))
        step.reply(request.request_id, TxnOffsetCommitReply(partitions=refused))
        return
    allow_writing(request, kept, refused, step)


def allow_writing(
    request: TxnOffsetCommit, kept: Mapping[TopicPartition, StoredOffset], refused: RefusedPositions, step: Step
) -> None:
    if kept:
        step.state.pending.writing[request.request_id] = (request.group_id, kept.keys())
    step.reply(request.request_id, TxnOffsetCommitReply(partitions=refused, kept=kept))


def check_may_commit(request: TxnOffsetCommit, step: Step) -> RefusedPositions:
    """As for a plain commit, but that nothing need be said of oneself, and that a rebalance is no reason to refuse
    (TX-G2)."""
    group = step.state.logged(request.group_id)
    nobody = request.generation < 0 and not request.member_id and request.group_instance_id is None
    if isinstance(group, ClassicGroup):
        check_not_dead(group)
        if not nobody and (request.generation >= 0 or group.state is not GroupState.EMPTY):
            member = require_member(group, request.member_id, request.group_instance_id)
            check_generation(group, member, request.generation)
        return {}
    if isinstance(group, ConsumerGroup) and nobody:
        return {}
    plain = OffsetCommit(
        request.request_id,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation,
        request.offsets,
        missing_group_code_is_illegal_generation=group is None,
    )
    try:
        refused = KINDS[type(group)].may_commit(group, plain, step)
    except CoordinatorError as refusal:
        raise CoordinatorError(STALE.get(refusal.code, refusal.code), refusal.message) from None
    return {place: STALE.get(code, code) for place, code in refused.items()}


def take_written(event: TxnOffsetsWritten, step: Step) -> None:
    if len(event.offsets) > COMMITTED_SLICES * step.limits.slice_positions:
        begin_long_work(LongWriting(event), step)
        return
    step.state.pending.written(event.producer_id, event.group_id, event.offsets, event.at)


def finish_write(event: TxnWriteOver, step: Step) -> None:
    step.state.pending.writing.pop(event.of, None)
    step.reply(event.request_id, TxnWriteOverReply())


def end_transaction(event: TxnEnded, step: Step) -> None:
    """Keep the marker, whatever waits for it, and tell so once it is durable. A group's kind makes no difference."""
    pending, most = step.state.pending, COMMITTED_SLICES * step.limits.slice_positions
    waiting = {group_id: len(each.values) for group_id, each in pending.of.get(event.producer_id, {}).items()}
    marker = TxnMarked(event.producer_id, event.epoch, event.commit, event.coordinator_epoch, event.level)
    topics = pending.topics_of(event.producer_id) if event.commit else set()
    consequences = MarkerConsequences(event, waiting, topics)
    if sum(waiting.values()) > most:
        begin_long_work(LongEnd(marker, end_in_slices(step.state, marker, most), consequences), step)
        return
    step.keep(marker)
    consequences.follow(step)


def take_transaction_end(event: TxnMarkerRead, step: Step) -> None:
    """The log has it already: nothing is written."""
    pending, most = step.state.pending, COMMITTED_SLICES * step.limits.slice_positions
    if sum(len(each.values) for each in pending.of.get(event.producer_id, {}).values()) > most:
        begin_long_work(LongReading(event, pending.ended_in_slices(event.producer_id, event.at, most)), step)
        return
    topics: set[tuple[str, TopicId]] = set()
    for group_id, ended in pending.ended(event.producer_id, event.at).items():
        topics |= take_ended(event, group_id, ended, step)
    forget_gone(topics, step)


def take_ended(event: TxnMarkerRead, group_id: str, ended: WaitingPositions, step: Step) -> Set[tuple[str, TopicId]]:
    """What has waited for the marker counts, if it commits, unless something later in the log was written over it.
    Returns the topics of what may."""
    if not event.committed:
        return frozenset()
    counting = {
        place: value
        for place, value in ended.values.items()
        if event.counts is None or (group_id, *place) in event.counts
    }
    if not counting:
        return frozenset()
    step.state.pending.overtaken(group_id, {place: ended.at[place] for place in counting})
    step.learn(OffsetsStored(group_id, counting))
    count_commits(group_id, len(counting), step)
    return ended.topics


def forget_gone(topics: Iterable[tuple[str, TopicId]], step: Step) -> None:
    """Positions that have come to count, of topics that went meanwhile, go after them."""
    if step.state.catalog_known and (gone := orphaned_topics(topics, step)):
        start_forgetting(gone, step)
