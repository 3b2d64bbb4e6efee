"""Open a partition's directory: believe what a clean shutdown wrote down, check everything else.

Sealed segments were flushed before the next one began, so damage in them is never a torn tail. In the active
segment, damage at or above the recovery point is the tail that a crash may take, and is cut off; damage below it
means that durable records are gone: the log then serves what is intact, says so, and takes no appends.
"""

import itertools
import logging

from storage.config import TopicSettings
from storage.errors import LogDamaged
from storage.files import Files
from storage.log import Log, LogState, Recovered
from storage.scan import BatchFault, Order, walk_checked
from storage.segment import OpenSegments, Segment
from storage.summaries import Summary, load_summaries
from storage.types import TopicPartition

logger = logging.getLogger("muster.storage")


def create_log(
    files: Files, directory: str, partition: TopicPartition, settings: TopicSettings, opened: OpenSegments, now_ms: int
) -> Log:
    """A new, empty log; its directory and first file are durable on return."""
    files.make_dir(directory)
    first = Segment(files, directory, 0, opened, settings.index_interval_bytes)
    first.start(now_ms)
    files.sync_dir(directory)
    return Log(files, directory, partition, settings, opened, LogState([first], {}, 0))


def open_log(
    files: Files,
    directory: str,
    partition: TopicPartition,
    settings: TopicSettings,
    opened: OpenSegments,
    *,
    clean: bool,
    recovery_point: int = 0,
    start_offset: int = 0,
    compacted_below: int = 0,
) -> Log:
    """The log that lies in `directory`. `clean` says that the last process closed it in order."""
    bases = [int(name[:-4]) for name in files.names(directory) if name.endswith(".log") and name[:-4].isdigit()]
    summaries = {base: known for base, known in load_summaries(files, directory).items() if base in bases}
    segments = []
    for base in sorted(bases) or [max(start_offset, 0)]:
        segment = Segment(files, directory, base, opened, settings.index_interval_bytes)
        segment.gaps = base < compacted_below
        segments.append(segment)
    active = segments[-1]
    active.file(create=not bases)
    recovered = Recovered()
    for segment, following in itertools.pairwise(segments):
        _load_sealed(segment, following, summaries)
    _load_active(active, summaries, recovered, clean=clean, durable=max(recovery_point, active.base_offset))
    active.active = True
    state = LogState(segments, summaries, max(start_offset, segments[0].base_offset), recovered=recovered)
    return Log(files, directory, partition, settings, opened, state)


def _load_sealed(segment: Segment, following: Segment, summaries: dict[int, Summary]) -> None:
    known = summaries.get(segment.base_offset)
    if known and known.next_offset <= following.base_offset:
        segment.believe(known)
        return
    size = segment.file().size()
    fault = _scan(segment, size)
    if fault:
        # Kept as it is: reading there will say what is wrong.
        segment.next_offset, segment.size = following.base_offset, size
        logger.error("%s", segment.damaged(fault, segment.verified_next))
    summaries.pop(segment.base_offset, None)


def _load_active(
    active: Segment, summaries: dict[int, Summary], recovered: Recovered, *, clean: bool, durable: int
) -> None:
    file = active.file()
    size = file.size()
    known = summaries.pop(active.base_offset, None)
    if clean and known and known.size == size and known.next_offset >= durable:
        active.believe(known)
        active.active = True
        active.index()
        return
    fault = _scan(active, size)
    recovered.end_offset = active.next_offset
    if active.next_offset < durable:
        why = fault.why if fault else "the file ends early"
        at = fault.position if fault else size
        recovered.damage = LogDamaged(active.path(), at, size - at, active.next_offset, durable, why)
        logger.error("%s", recovered.damage)
        return
    if fault:
        recovered.truncated_bytes, recovered.why = size - fault.position, fault.why
        logger.warning(
            "Cut %d bytes off %s at offset %d: %s.", size - fault.position, active.path(), active.next_offset, fault.why
        )
        file.truncate(fault.position)
    file.sync()


def _scan(segment: Segment, size: int) -> BatchFault | None:
    """Note every intact batch of the segment; the fault that ended the walk, if one did."""
    segment.restart()
    order = Order(segment.base_offset, segment.base_offset, segment.gaps)
    try:
        for head in walk_checked(segment.file(), 0, size, order):
            segment.note(head.last_offset, head.max_timestamp, head.size)
            segment.producers |= head.producer_id >= 0
    except BatchFault as fault:
        return fault
    return None
