"""Open a partition's directory: believe what a clean shutdown wrote down, check everything else.

Sealed segments were flushed before the next one began, so damage in them is never a torn tail. In the active
segment, damage at or above the recovery point is the tail that a crash may take, and is cut off, as Kafka does
(`LogSegment.recover`); where records behind it could be read, that is said. Damage below the recovery point means that
durable records are gone: the log then serves what is intact, says so, and takes no appends.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from muster.storage.config import TopicSettings
from muster.storage.errors import LogDamaged, RecordsCut, StorageError
from muster.storage.files import Files, read_file
from muster.storage.logs.log import Log, LogRecovery, LogState
from muster.storage.logs.log_files import rescan_segment
from muster.storage.logs.log_metadata import (
    EPOCHS,
    SUMMARIES,
    LeaderEpochs,
    Summary,
    load_epochs,
    load_summaries,
    save_summaries,
)
from muster.storage.logs.producer_state import load_producers
from muster.storage.logs.segment import SWAP, OpenSegments, Segment, finish_swaps
from muster.storage.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from muster.storage.records.scan import BatchFault, Order, walk_checked, walk_headers
from muster.storage.types import TopicPartition

METADATA = "partition.metadata"
_SIDES = (".index", ".timeindex", ".txnindex")

logger = logging.getLogger("muster.storage")


def create_log(
    files: Files,
    directory: str,
    partition: TopicPartition,
    settings: TopicSettings,
    opened: OpenSegments,
    *,
    now_ms: int,
    topic_id: str,
    sync: bool = True,
) -> Log:
    """A new, empty log; what its directory holds, `partition.metadata` among it, is durable on return.

    Without `sync`, once the caller has seen to `Files.sync_all`.
    """
    files.make_dir(directory)
    metadata = f"version: 0\ntopic_id: {topic_id}"
    file = files.open(f"{directory}/{METADATA}", create=True)
    try:
        file.write([metadata.encode()], len(metadata), 0)
        if sync:
            file.sync()
    finally:
        file.close()
    first = Segment(files, directory, 0, opened, settings.index_interval_bytes)
    first.start(now_ms)
    if sync:
        files.sync_dir(directory)
    return Log(files, directory, partition, settings, opened, LogState([first], {}, 0), topic_id)


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """What the last process left word of a log. clean: it closed the log in order. recovery_point: all below it was
    flushed. start_offset: the first offset that was not given up. high_watermark: of a log that is told its own."""

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0
    high_watermark: int | None = None


def open_log(
    files: Files,
    directory: str,
    partition: TopicPartition,
    settings: TopicSettings,
    opened: OpenSegments,
    checkpoint: LogCheckpoint,
    *,
    topic_id: str = "",
    sync: bool = True,
    told: bool = False,
) -> Log:
    """The log that lies in `directory`.

    StorageError when the directory says that it is another topic's than `topic_id`. What it found is durable on return;
    without `sync`, once the caller has seen to `Files.sync_all`. `told` says that the log is a cluster's: another node
    may have compacted what came here.
    """
    found = files.names(directory)
    check_owner(files, directory, found, topic_id)
    names = finish_interrupted_changes(files, directory, found)
    state = load_log_state(
        files, directory, names, settings, opened, checkpoint, sync=sync, holes=told and settings.compacted
    )
    if not sync:
        # Of many logs few are used soon: who uses one opens its file then.
        for segment in state.segments:
            segment.close()
    return Log(files, directory, partition, settings, opened, state, topic_id)


def check_owner(files: Files, directory: str, names: Sequence[str], topic_id: str) -> None:
    """Never serve one topic's records as those of another that has its name."""
    if not topic_id or METADATA not in names:
        return
    found = read_topic_id(files, directory)
    if found != topic_id:
        raise StorageError(
            f"{directory}/{METADATA} says that the partition's topic has the id {found or 'unknown'}, topics.json that "
            f"it has {topic_id}: these are not its records. Restore the directory and topics.json from one copy."
        )


def read_topic_id(files: Files, directory: str) -> str | None:
    """The id of the topic whose partition a directory holds; None where it does not say."""
    path = f"{directory}/{METADATA}"
    if not files.exists(path):
        return None
    lines = read_file(files, path).decode(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("topic_id:")), None)


def finish_interrupted_changes(files: Files, directory: str, names: Sequence[str]) -> Sequence[str]:
    """Finish or undo what a crash cut short: removals, compactions, replaced files. The names that are left."""
    if any(SWAP in name for name in names):
        swapped = finish_swaps(files, directory)
        known = load_summaries(files, directory)
        save_summaries(files, directory, [known[base] for base in known if base not in swapped])
        names = files.names(directory)
    bases = {name[:20] for name in names if name.endswith(".log")}
    orphans = [
        name
        for name in names
        if name.endswith((".deleted", ".cleaned", ".tmp")) or (name.endswith(_SIDES) and name[:20] not in bases)
    ]
    for name in orphans:
        files.remove(f"{directory}/{name}")
    if orphans:
        files.sync_dir(directory)
        names = files.names(directory)
    return names


def load_log_state(
    files: Files,
    directory: str,
    names: Sequence[str],
    settings: TopicSettings,
    opened: OpenSegments,
    checkpoint: LogCheckpoint,
    *,
    sync: bool = True,
    holes: bool = False,
) -> LogState:
    """Segments, producers and epochs of a tidy directory with these names in it; `holes` may be in all of them."""
    start_offset = checkpoint.start_offset
    bases = segment_bases(names)
    known = load_summaries(files, directory) if SUMMARIES in names else {}
    summaries = {base: summary for base, summary in known.items() if base in bases}
    segments = [
        Segment(files, directory, base, opened, settings.index_interval_bytes)
        for base in bases or [max(start_offset, 0)]
    ]
    active = segments[-1]
    active.file(create=not bases)
    active.gaps = holes
    active.created_ms = files.modified_ms(active.path())
    recovered = LogRecovery()
    for segment, following in pairwise(segments):
        # Compaction leaves holes in sealed segments, never in the active one.
        segment.gaps = settings.compacted
        _load_sealed(segment, following, summaries)
    durable = max(checkpoint.recovery_point, active.base_offset)
    last_epoch = _load_active(active, summaries, recovered, clean=checkpoint.clean, durable=durable)
    if sync and recovered.unflushed:
        flush_recovered(active)
    if start_offset > active.next_offset and not recovered.damage:
        segments, last_epoch = [_start_over(segments, start_offset)], -1
        summaries.clear()
    state = LogState(segments, summaries, max(start_offset, segments[0].base_offset), recovered=recovered)
    state.producers = load_producers(segments, checkpoint.high_watermark)
    epochs = load_epochs(files, directory) if EPOCHS in names else LeaderEpochs()
    state.epochs = _checked_epochs(epochs, segments, state.start_offset, last_epoch)
    _remove_snapshots_past(files, directory, names, segments[-1].next_offset)
    return state


def flush_recovered(active: Segment) -> None:
    """A dead process may have flushed neither what it wrote last nor that the file of it is there."""
    active.file().sync()
    active.files.sync_dir(active.directory)


def _start_over(segments: list[Segment], start_offset: int) -> Segment:
    """All that a crash left lies below the log's start: begin there, so that no offset is used twice."""
    active = segments[-1]
    logger.warning("%s ends below the log start %d: beginning there anew.", active.path(), start_offset)
    for segment in reversed(segments):
        segment.close()
        segment.files.remove(segment.path())
    fresh = Segment(active.files, active.directory, start_offset, active.opened, active.interval)
    fresh.start(active.created_ms)
    active.files.sync_dir(active.directory)
    return fresh


def list_segment_bases(files: Files, directory: str) -> list[int]:
    """The base offsets of the segments in a directory, rising."""
    return segment_bases(files.names(directory))


def segment_bases(names: Sequence[str]) -> list[int]:
    return sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit())


def _load_sealed(segment: Segment, following: Segment, summaries: dict[int, Summary]) -> None:
    known = summaries.get(segment.base_offset)
    if known and _is_of(known, segment, following):
        segment.believe(known)
        return
    size = segment.file().size()
    fault = rescan_segment(segment, size)
    if fault:
        # Kept as it is: reading there will say what is wrong.
        intact_until = segment.next_offset
        segment.next_offset, segment.size, segment.own_from = following.base_offset, size, size
        segment.checked = (0, fault.position, intact_until)
        logger.error("%s", segment.damaged(fault, intact_until))
    summaries.pop(segment.base_offset, None)


def _is_of(known: Summary, segment: Segment, following: Segment) -> bool:
    """Whether a summary is of the segment as it is, and not as it was at a stop before it grew."""
    if known.next_offset == following.base_offset:
        return True
    # Only compaction takes away what comes last in a segment.
    return segment.gaps and known.next_offset < following.base_offset and known.size == segment.file().size()


def _load_active(
    active: Segment, summaries: dict[int, Summary], recovered: LogRecovery, *, clean: bool, durable: int
) -> int:
    """The leader epoch of its last batch; -1 where that was not looked at, or it has none."""
    file = active.file()
    size = file.size()
    known = summaries.pop(active.base_offset, None)
    active.active = True
    if clean and known and known.size == size and known.next_offset >= durable:
        summaries[active.base_offset] = known
        active.believe(known)
        active.index()
        return -1
    order = Order(active.base_offset, active.base_offset, active.gaps)
    fault = rescan_segment(active, size, order)
    recovered.end_offset = active.next_offset
    if active.next_offset < durable:
        why = fault.why if fault else "the file ends early"
        at = fault.position if fault else size
        recovered.damage = LogDamaged(active.path(), at, size - at, active.next_offset, durable, why)
        logger.error("%s", recovered.damage)
        return order.leader_epoch
    if fault:
        recovered.truncated_bytes, recovered.why = size - fault.position, fault.why
        recovered.loss = intact_batches_after(active, fault, size)
        logger.warning(
            "Cut %d bytes off %s at offset %d: %s.", size - fault.position, active.path(), active.next_offset, fault.why
        )
        if recovered.loss:
            logger.error("%s", recovered.loss)
        file.truncate(fault.position)
    recovered.unflushed = size > 0
    return order.leader_epoch


def intact_batches_after(active: Segment, fault: BatchFault, size: int) -> RecordsCut | None:
    """What is cut off though it can be read, if there is any: the batches behind the one that cannot.

    A process that is killed tears the last write and leaves nothing behind it.
    """
    file = active.file()
    head = file.read(HEADER_SIZE, fault.position)
    if len(head) < HEADER_SIZE:
        return None
    begin = fault.position + LENGTH_OVERHEAD + HEADER.unpack(head)[1]
    if not fault.position + HEADER_SIZE <= begin < size:
        return None
    batches = records = 0
    last = active.next_offset
    try:
        for batch in walk_checked(file, begin, size, Order(active.base_offset, active.next_offset, gaps=True)):
            batches, records, last = batches + 1, records + batch.count, batch.last_offset
    except BatchFault:
        pass  # what follows is as unreadable
    return RecordsCut(active.path(), active.next_offset, last, batches, records, fault.why) if batches else None


def _remove_snapshots_past(files: Files, directory: str, names: Sequence[str], end_offset: int) -> None:
    for name in names:
        if name.endswith(".snapshot") and (not name[:-9].isdigit() or int(name[:-9]) > end_offset):
            files.remove(f"{directory}/{name}")


# -- leader epochs ------------------------------------------------------------------------------------------


def _checked_epochs(epochs: LeaderEpochs | None, segments: list[Segment], start_offset: int, last: int) -> LeaderEpochs:
    """What was written down of the epochs, unless the log itself says otherwise; `last` is -1 where it is unknown.

    It is flushed before the records of an epoch, so its last entry may begin where the log ends. Records that a crash
    left though they were not flushed may be of epochs that it has not: they are in the last segment.
    """
    end = segments[-1].next_offset
    first = min(start_offset, end - 1)  # of the last record the epoch is known, even if it is not to be read any more
    if last < 0:
        last = _last_epoch(segments)
    if epochs is not None:
        epochs.cut_past(end)
        if not epochs.entries and last == 0:
            epochs = LeaderEpochs([(0, first)])
        epochs.cut_start(first)
    sized = [segment for segment in segments if segment.size]
    if epochs is not None and sized and epochs.at(end - 1) != last:
        before = sized[:-1]
        if not before or _last_epoch(before) == epochs.at(before[-1].next_offset - 1):
            _note_epochs(epochs, sized[-1:])
    if epochs is None or (sized and epochs.at(end - 1) != last):
        epochs = LeaderEpochs()
        _note_epochs(epochs, segments)
        epochs.cut_start(first)
    return epochs


def _last_epoch(segments: list[Segment]) -> int:
    for segment in reversed(segments):
        try:
            head = segment.locate(segment.next_offset - 1) if segment.size else None
        except LogDamaged:
            return -1
        if head:
            return head.leader_epoch
    return -1


def _note_epochs(epochs: LeaderEpochs, segments: list[Segment]) -> None:
    """Add the epochs that begin in these segments, by what their batches say."""
    for segment in segments:
        try:
            for head in walk_headers(segment.file(), 0, segment.size):
                if head.leader_epoch > epochs.latest:
                    epochs.assign(head.leader_epoch, head.base_offset)
        except BatchFault as fault:
            logger.error("The leader epochs of %s are known in part only: %s", segment.path(), fault)
