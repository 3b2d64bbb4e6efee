"""Put a compacted segment in the place of those it was made from, so that a crash at any step loses nothing.

Kafka's protocol: the new files are written as `.cleaned`, renamed to `.swap` once they are whole, the old ones to
`.deleted`, and then `.swap` to their final names. Whoever finds `.cleaned` forgets it, whoever finds `.swap` goes on.
The log's own file is renamed to `.swap` last, so that its presence means that all the others are there.
"""

from collections.abc import Sequence

from muster.storage.files import Files
from muster.storage.records.scan import BatchFault, walk_headers

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
PARTS = (".index", ".timeindex", ".txnindex", ".log")


def commit_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """From here on the compacted segment is the true one."""
    name = f"{directory}/{base_offset:020d}"
    files.sync_dir(directory)
    for part in PARTS:
        if files.exists(name + part + CLEANED):
            files.rename(name + part + CLEANED, name + part + SWAP)
            files.sync_dir(directory)


def retire_files(files: Files, directory: str, bases: Sequence[int]) -> list[str]:
    """Rename the segments' files out of the way, newest first; the paths to remove later."""
    doomed = []
    for base in sorted(bases, reverse=True):
        name = f"{directory}/{base:020d}"
        for part in reversed(PARTS):
            if files.exists(name + part):
                files.rename(name + part, name + part + DELETED)
                doomed.append(name + part + DELETED)
    files.sync_dir(directory)
    return doomed


def finish_swap(files: Files, directory: str, base_offset: int) -> None:
    """Give the compacted segment its final names."""
    name = f"{directory}/{base_offset:020d}"
    for part in PARTS:
        if files.exists(name + part + SWAP):
            files.rename(name + part + SWAP, name + part)
    files.sync_dir(directory)


def finish_swaps(files: Files, directory: str) -> list[int]:
    """After a crash: go on with each swap that was begun, and forget side files whose log never got there.

    The base offsets of the segments that were put in place: what is written down of them may be out of date.
    """
    names = files.names(directory)
    swapped = sorted(int(name[:20]) for name in names if name.endswith(".log" + SWAP))
    for base in reversed(swapped):
        last = _next_offset(files, f"{directory}/{base:020d}.log{SWAP}", base)
        covered = [
            int(name[:20]) for name in names if name.endswith(".log") and base <= int(name[:20]) < max(last, base + 1)
        ]
        retire_files(files, directory, covered)
        finish_swap(files, directory, base)
    stale = [name for name in files.names(directory) if name.endswith(SWAP)]
    for name in stale:
        files.remove(f"{directory}/{name}")
    if stale:
        files.sync_dir(directory)
    return swapped


def _next_offset(files: Files, path: str, base: int) -> int:
    file = files.open(path, writable=False)
    last = base
    try:
        for head in walk_headers(file, 0, file.size()):
            last = head.last_offset + 1
    except BatchFault:
        pass  # Found again, and reported, when the segment is loaded.
    finally:
        file.close()
    return last
