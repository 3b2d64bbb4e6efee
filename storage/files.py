"""The file-system port: every read and write of this package goes through `Files`.

`RealFiles` is the operating system. Tests and the simulator bring others that keep unsynced bytes apart, run out of
space or fail on demand. Failures are `OSError`, as the system raises them.

Blocks are reserved ahead of a growing file (`fallocate` with FALLOC_FL_KEEP_SIZE): without that, each fsync of a file
that has grown into a new block makes the file system record where the block lies, on ext4 some 70 of 270 microseconds
for a turn of 32 small appends.

Checkpoints are Kafka's small text files: a version, a count, then one line of fields each. Kafka's have no checksum.
Ours end with one that reads as an entry of a topic which cannot exist, so that Kafka's tools still read the file and a
flipped digit does not become an offset; lines of the same kind carry the ids of the topics.
"""

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from crc32c import crc32c

from muster.storage.errors import DataDirectoryError
from muster.storage.types import TopicPartition

# Blocks reserved ahead of a growing file
# ---------------------------------------

_KEEP_SIZE = 1

SMALLEST = 64 << 10
"""A file shorter than this reserves nothing: most partitions are small and idle."""
LARGEST = 1 << 20


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError, TypeError):
        return None  # Linux only
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    found: Callable[[int, int, int, int], int] = function
    return found


_fallocate = _find_fallocate()


def reserve_blocks(fd: int, start: int, end: int) -> int:
    """Reserve blocks for a write from `start` to `end` and a quarter of the file more; return how far they reach.

    A system that cannot is not asked again: it gets the largest number there is.
    """
    reach = end + min(max(end // 4, SMALLEST), LARGEST)
    if _fallocate is None or _fallocate(fd, _KEEP_SIZE, start, reach - start):
        return 1 << 62
    return reach


def release_blocks(fd: int) -> None:
    """Free what was reserved beyond the end of the file."""
    os.ftruncate(fd, os.fstat(fd).st_size)


# The file-system port
# --------------------

Buffer = bytes | bytearray | memoryview

# The kernel takes at most IOV_MAX (1024) buffers in one call.
_MAX_BUFFERS = 1024

# The flag by which Linux reads what it holds in memory and nothing else; 0 where there is none.
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
# How a file system, a kernel or a sandbox says that it does not know the flag.
_UNKNOWN = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS, errno.EPERM})

# Records are nobody's business but the node's: whatever the umask, neither group nor others may read them.
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700


class NotAtHand(Exception):
    """What is to be read is not known to lie in memory, or is too much to be read at once: that is for a thread."""


class File(Protocol):
    """An open file, read and written by position; safe to use from several threads."""

    def read(self, size: int, at: int) -> bytes:
        """Up to `size` bytes from position `at`; fewer only at the end of the file."""
        ...

    def read_at_hand(self, size: int, at: int) -> bytes | memoryview:
        """`size` bytes from position `at` that lie in memory, without waiting for a disk.

        Raises NotAtHand where they do not, all of them, or where nobody can say; and nothing else: what is wrong with
        the file, or where it ends, is for `read` to find.
        """
        ...

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` from position `at`; return how many bytes there were."""
        ...

    def write(self, buffers: Sequence[Buffer], size: int, at: int) -> None:
        """Write all the buffers (`size` bytes together) at position `at`, or raise.

        After an error any part of them may be there.
        """
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def trim(self) -> None:
        """The file will not grow any more: give back what may have been reserved for it."""
        ...

    def sync(self) -> None:
        """Return when content and size will survive a power cut."""
        ...

    def is_at(self, path: str) -> bool:
        """Whether it is still the file of that name; also where the system does not say."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock; the system releases it when the process dies."""

    def release(self) -> None: ...


class LockHeld(Exception):
    """Another process holds the lock; `holder` is its process id, or None when unknown."""

    def __init__(self, holder: int | None) -> None:
        super().__init__(f"held by process {holder}")
        self.holder = holder


class Files(Protocol):
    """What a file system does for a log. Paths are strings joined with '/'."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File: ...

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; no error when it is there."""
        ...

    def tighten(self, path: str) -> int | None:
        """Let nobody but the owner into a directory: the mode that it had before, None if that was so already."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory, replacing a file of that name."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the directory's entries (created, renamed, removed) survive a power cut."""
        ...

    def sync_all(self, path: str) -> None:
        """Make all that was written below `path` survive a power cut, entries and content: many `sync` in one."""
        ...

    def modified_ms(self, path: str) -> int: ...

    def lock(self, path: str) -> Lock:
        """Take the lock file for this process or raise `LockHeld`."""
        ...

    def boot_id(self) -> str:
        """Another one after each start of the machine; "" where the system does not say."""
        ...


class RealFile:
    """A file descriptor; it closes with the last reference, so a reader may outlive a removed segment."""

    __slots__ = ("_fd", "_reserved", "_tells")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._reserved = SMALLEST
        # Whether the system says what it holds in memory. Each file asks for itself: they may lie on several disks.
        self._tells = bool(_NOWAIT)

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self._fd, size, at)

    def read_at_hand(self, size: int, at: int) -> bytes | memoryview:
        if not self._tells:
            raise NotAtHand
        room = np.empty(size, np.uint8).data  # unlike a bytearray not filled with zeros first
        try:
            found = os.preadv(self._fd, [room], at, _NOWAIT)
        except OSError as error:
            self._tells = error.errno not in _UNKNOWN
            raise NotAtHand from None
        if found < size:
            raise NotAtHand
        return room

    def read_into(self, buffer: memoryview, at: int) -> int:
        return os.preadv(self._fd, [buffer], at)

    def write(self, buffers: Sequence[Buffer], size: int, at: int) -> None:
        if at + size > self._reserved:
            self._reserved = reserve_blocks(self._fd, at, at + size)
        if len(buffers) <= _MAX_BUFFERS and os.pwritev(self._fd, buffers, at) == size:
            return
        # A short write: the disk is nearly full, or a signal came. Go on until done or told why not.
        rest = memoryview(b"".join(buffers))
        done = 0
        while done < size:
            wrote = os.pwrite(self._fd, rest[done:], at + done)
            if wrote == 0:
                raise OSError(errno.EIO, "the file system took no bytes")
            done += wrote

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._reserved = max(size, SMALLEST)

    def trim(self) -> None:
        with contextlib.suppress(OSError):
            release_blocks(self._fd)
        self._reserved = SMALLEST

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def is_at(self, path: str) -> bool:
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # Nobody is left to tell. A write that failed behind our back is told by the next fsync of the file, whatever
        # descriptor asks for it (Linux 4.17 and later).
        with contextlib.suppress(OSError):
            self.close()


class RealLock:
    """An exclusive `flock` on a file that holds our process id."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFiles:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return RealFile(os.open(path, flags | (os.O_CREAT if create else 0), _FILE_MODE))

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_dir(self, path: str) -> None:
        # One by one: `makedirs` gives those in between the mode that the umask leaves.
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(each, _DIRECTORY_MODE)

    def tighten(self, path: str) -> int | None:
        found = stat.S_IMODE(os.stat(path).st_mode)
        if not found & ~_DIRECTORY_MODE:
            return None
        os.chmod(path, _DIRECTORY_MODE)
        return found

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_file_system(fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def lock(self, path: str) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            held_by = os.pread(fd, 32, 0).strip()
            os.close(fd)
            raise LockHeld(int(held_by) if held_by.isdigit() else None) from None
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return ""


def read_file(files: Files, path: str, limit: int = 64 << 20) -> bytes:
    """The whole content of a small file; OSError (EFBIG) past `limit` bytes."""
    file = files.open(path, writable=False)
    try:
        size = file.size()
        if size > limit:
            raise OSError(errno.EFBIG, f"{path} has {size} bytes, expected at most {limit}", path)
        return file.read(size, 0)
    finally:
        file.close()


def sync_file_system(fd: int) -> None:
    """Flush the file system that holds `fd`; all of them where the system cannot flush one alone."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def replace_file(files: Files, path: str, content: bytes, *, sync: bool = True) -> None:
    """Put `content` in place of the file: after a crash the old or the new one is there, whole.

    Without `sync` that is so once the caller has seen to `Files.sync_all`; a crash before may leave anything.
    """
    beside = path + ".tmp"
    file = files.open(beside, create=True)
    try:
        file.truncate(0)
        file.write([content], len(content), 0)
        if sync:
            file.sync()
    finally:
        file.close()
    files.rename(beside, path)
    if sync:
        files.sync_dir(path.rsplit("/", 1)[0])


def remove_tree(files: Files, path: str) -> None:
    """Remove a directory and all in it."""
    for name in files.names(path):
        inside = f"{path}/{name}"
        if files.is_dir(inside):
            remove_tree(files, inside)
        else:
            files.remove(inside)
    files.remove_dir(path)


# Text checkpoints
# ----------------

_SEAL = "#checksum"
_ID = "#id"

logger = logging.getLogger("muster.storage")


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
    """Replace the checkpoint with these offsets, crash-safely; `ids` are those of their topics."""
    lines = [(topic, str(partition), str(offset)) for (topic, partition), offset in sorted(offsets.items())]
    named = [name for name in dict.fromkeys(topic for topic, _ in sorted(offsets)) if name in ids]
    write_lines(files, path, [*lines, *((f"{_ID}/{name}/{ids[name]}", "0", "0") for name in named)])


def read_offsets(files: Files, path: str, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint of the topics that have these `ids`; empty without a file.

    Offsets of another topic of the same name are left out. Where the file names no id, as older ones do not, the name
    has to do. DataDirectoryError when it is damaged.
    """
    offsets, owners = read_checkpoint(files, path)
    ours = {name for name, topic_id in ids.items() if owners.get(name, topic_id) == topic_id}
    return {tp: offset for tp, offset in offsets.items() if tp[0] in ours}


def read_trusted_offsets(files: Files, path: str, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """`read_offsets`; one that is damaged is told of, and counts as empty."""
    try:
        return read_offsets(files, path, ids)
    except DataDirectoryError as error:
        logger.error("%s It is taken as empty.", error)
        return {}


def read_checkpoint(files: Files, path: str) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    """All offsets in a checkpoint, and the ids of their topics as far as it names them."""
    offsets: dict[TopicPartition, int] = {}
    owners: dict[str, str] = {}
    for name, partition, offset in read_lines(files, path, 3):
        if name.startswith(_ID + "/"):
            _, topic, owners[topic] = name.split("/")
        else:
            offsets[name, int(partition)] = int(offset)
    return offsets, owners


def write_lines(
    files: Files, path: str, lines: Iterable[tuple[str, ...]], width: int = 3, *, sync: bool = True
) -> None:
    """Replace the checkpoint with these lines of `width` fields, crash-safely (see `replace_file`)."""
    body = [" ".join(line) for line in lines]
    seal = crc32c("\n".join(body).encode())
    last = " ".join((_SEAL, *["0"] * (width - 2), str(seal)))
    text = "\n".join(("0", str(len(body) + 1), *body, last)) + "\n"
    replace_file(files, path, text.encode(), sync=sync)


def read_lines(files: Files, path: str, width: int) -> list[tuple[str, ...]]:
    """The fields of each line; empty without a file; DataDirectoryError names what is wrong."""
    if not files.exists(path):
        return []
    try:
        text = read_file(files, path).decode()
        version, count, *rest = text.splitlines()
        lines = [tuple(line.split(" ")) for line in rest]
        whole = version == "0" and int(count) == len(lines) and all(len(line) == width for line in lines)
        whole = whole and text.endswith("\n")
        seal = lines.pop() if lines else ("",)
        whole = whole and seal[0] == _SEAL and int(seal[-1]) == crc32c("\n".join(rest[:-1]).encode())
    except ValueError:
        whole = False
    if not whole:
        raise DataDirectoryError(
            f"The checkpoint {path} is damaged: expected version 0, a count, as many lines of {width} fields "
            "and a matching checksum. "
            "Restore it from a copy, or remove it to have it rebuilt."
        )
    return lines
