"""Walk a whole data directory and say what is wrong with it. Reads only, and needs no lock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from muster.storage.checkpoint import read_checkpoint
from muster.storage.errors import DataDirectoryError
from muster.storage.files import Files, RealFiles
from muster.storage.logs.loader import list_segment_bases
from muster.storage.logs.segment import segment_path
from muster.storage.records.scan import BatchFault, Order, walk_checked
from muster.storage.topics.catalog import load_catalog
from muster.storage.topics.data_dir import CLEANER_POINTS, HIGH_WATERMARKS, LOG_STARTS, PRIVATE_POINTS, RECOVERY_POINTS

# (bytes done, bytes in all, file at work)
Progress = Callable[[int, int, str], None]

_CHECKPOINTS = (RECOVERY_POINTS, PRIVATE_POINTS, LOG_STARTS, CLEANER_POINTS, HIGH_WATERMARKS)
_REPORT_EVERY = 8 << 20


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """Something wrong: where, which bytes, from which offset on, and why."""

    file: str
    position: int
    size: int
    first_offset: int
    why: str


@dataclass(slots=True)
class VerifyReport:
    """What was walked and what was found."""

    files: int = 0
    batches: int = 0
    bytes: int = 0
    findings: list[VerifyFinding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings


def verify_dir(data_dir: str, progress: Progress | None = None, files: Files | None = None) -> VerifyReport:
    """Check the catalog, the checkpoints and every batch of every partition.

    DataDirectoryError when `data_dir` is no data directory. A running node may be appending meanwhile: then the last
    batch of an active segment can be reported as cut off.
    """
    disk: Files = files or RealFiles()
    report = VerifyReport()
    catalog = load_catalog(disk, data_dir)
    for name in _CHECKPOINTS:
        try:
            read_checkpoint(disk, f"{data_dir}/{name}")
        except DataDirectoryError as error:
            report.findings.append(VerifyFinding(f"{data_dir}/{name}", 0, 0, -1, str(error)))
    directories = [
        (f"{data_dir}/{entry.name}-{number}", entry.compacted, entry.holed)
        for entry in catalog.values()
        for number in entry.topic().here
        if not entry.deleting
    ]
    walk = _DirectoryWalk(disk, report, progress, sum(_size(disk, directory) for directory, *_ in directories))
    for directory, compacted, holed in directories:
        if disk.is_dir(directory):
            walk.partition(directory, compacted, holed)
        else:
            report.findings.append(VerifyFinding(directory, 0, 0, -1, "the partition's directory is gone"))
    return report


def _logs(files: Files, directory: str) -> Iterator[tuple[int, str]]:
    for base in list_segment_bases(files, directory):
        yield base, segment_path(directory, base, ".log")


def _size(files: Files, directory: str) -> int:
    if not files.is_dir(directory):
        return 0
    total = 0
    for _, path in _logs(files, directory):
        file = files.open(path, writable=False)
        total += file.size()
        file.close()
    return total


class _DirectoryWalk:
    def __init__(self, files: Files, report: VerifyReport, progress: Progress | None, total: int) -> None:
        self._files = files
        self._report = report
        self._progress = progress
        self._total = total

    def partition(self, directory: str, compacted: bool, holed: bool) -> None:
        expected = None
        logs = list(_logs(self._files, directory))
        for place, (base, path) in enumerate(logs):
            if expected is not None and base != expected and (not compacted or base < expected):
                why = f"its records begin at offset {base}, expected {expected}"
                self._report.findings.append(VerifyFinding(path, 0, 0, expected, why))
            gaps = holed or (compacted and place < len(logs) - 1)
            expected = self._segment(path, base, gaps)

    def _segment(self, path: str, base: int, gaps: bool) -> int:
        report = self._report
        file = self._files.open(path, writable=False)
        size = file.size()
        order = Order(base, base, gaps)
        before = report.bytes
        told = 0
        try:
            for head in walk_checked(file, 0, size, order):
                report.batches += 1
                if head.end - told >= _REPORT_EVERY:
                    told = head.end
                    self._tell(before + told, path)
        except BatchFault as fault:
            finding = VerifyFinding(path, fault.position, size - fault.position, order.next_offset, fault.why)
            report.findings.append(finding)
        finally:
            file.close()
        report.files += 1
        report.bytes = before + size
        self._tell(report.bytes, path)
        return order.next_offset

    def _tell(self, done: int, path: str) -> None:
        if self._progress:
            self._progress(done, self._total, path)
