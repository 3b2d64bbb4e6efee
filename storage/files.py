"""The file-system port: every read and write of this package goes through `Files`.

`RealFiles` is the operating system. Tests and the simulator bring others that keep unsynced bytes apart,
run out of space or fail on demand. Failures are `OSError`, as the system raises them.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from muster.storage.reserve import SMALLEST, release_blocks, reserve_blocks

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
