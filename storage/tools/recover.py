"""Cut damaged logs off where the damage begins, for `muster log recover`: the last resort, so it says what it costs."""

from dataclasses import dataclass

from muster.storage.disk.checkpoint import read_checkpoint, write_offsets
from muster.storage.disk.files import Files, LockHeld, RealFiles
from muster.storage.errors import DataDirectoryError
from muster.storage.logs.loader import log_bases
from muster.storage.records.scan import BatchFault, Order, walk_checked
from muster.storage.segments.segment import segment_path
from muster.storage.topics.catalog import load_catalog
from muster.storage.topics.data_dir import CLEAN_SHUTDOWN, LOCK, RECOVERY_POINTS
from muster.storage.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Cut:
    """What a recovery takes away: the file from `position` on, and every later segment of the partition."""

    topic: str
    partition: int
    file: str
    position: int
    size: int
    first_offset: int
    later_segments: tuple[str, ...]
    why: str


def recover_dir(data_dir: str, *, dry_run: bool, files: Files | None = None) -> list[Cut]:
    """Find the damage in every partition and cut the logs there; with `dry_run` only say what would go.

    DataDirectoryError while a node is using the directory.
    """
    disk: Files = files or RealFiles()
    catalog = load_catalog(disk, data_dir)
    try:
        lock = disk.lock(f"{data_dir}/{LOCK}")
    except LockHeld as error:
        raise DataDirectoryError(
            f"The data directory {data_dir} is in use by process {error.holder or 'unknown'}. Stop it first.",
            error.holder,
        ) from None
    try:
        cuts = []
        for entry in catalog.values():
            compacted = "compact" in entry.configs.get("cleanup.policy", "")
            for number in range(entry.partitions):
                cut = find_cut(disk, data_dir, (entry.name, number), compacted)
                if cut:
                    cuts.append(cut)
        if cuts and not dry_run:
            _lower_recovery_points(disk, data_dir, cuts)
            for cut in cuts:
                _apply(disk, cut)
        return cuts
    finally:
        lock.release()


def find_cut(files: Files, data_dir: str, tp: TopicPartition, compacted: bool) -> Cut | None:
    """Where the partition's records stop being intact; None when they do not."""
    directory = f"{data_dir}/{tp[0]}-{tp[1]}"
    if not files.is_dir(directory):
        return None
    bases = log_bases(files, directory)
    expected = bases[0] if bases else 0
    for place, base in enumerate(bases):
        path = segment_path(directory, base, ".log")
        later = tuple(segment_path(directory, other, ".log") for other in bases[place + 1 :])
        if base != expected and (not compacted or base < expected):
            why = f"its records begin at offset {base}, expected {expected}"
            return Cut(*tp, path, 0, _size_of(files, path), expected, later, why)
        order = Order(base, base, compacted and bool(later))
        file = files.open(path, writable=False)
        size = file.size()
        try:
            for _ in walk_checked(file, 0, size, order):
                pass
        except BatchFault as fault:
            return Cut(*tp, path, fault.position, size - fault.position, order.next_offset, later, fault.why)
        finally:
            file.close()
        expected = order.next_offset
    return None


def _size_of(files: Files, path: str) -> int:
    file = files.open(path, writable=False)
    try:
        return file.size()
    finally:
        file.close()


def _lower_recovery_points(files: Files, data_dir: str, cuts: list[Cut]) -> None:
    """First of all: nothing past the cuts counts as durable any more, so the next start is content with them."""
    path = f"{data_dir}/{RECOVERY_POINTS}"
    try:
        points, owners = read_checkpoint(files, path)
    except DataDirectoryError:
        points, owners = {}, {}
    for cut in cuts:
        tp = (cut.topic, cut.partition)
        points[tp] = min(points.get(tp, 0), cut.first_offset)
    write_offsets(files, path, points, owners)
    mark = f"{data_dir}/{CLEAN_SHUTDOWN}"
    if files.exists(mark):
        files.remove(mark)
        files.sync_dir(data_dir)


def _apply(files: Files, cut: Cut) -> None:
    directory = cut.file.rsplit("/", 1)[0]
    for path in reversed(cut.later_segments):
        files.remove(path)
    if not cut.position and len(log_bases(files, directory)) > 1:
        files.remove(cut.file)
    else:
        file = files.open(cut.file)
        try:
            file.truncate(cut.position)
            file.sync()
        finally:
            file.close()
    files.sync_dir(directory)
