"""A file system in memory that loses at a crash what nobody synced, and fails on demand.

Every file keeps its durable content and the writes since; every directory keeps the entries that were synced.
`crash` decides for each unsynced write whether it is kept, torn at a sector or lost, as a disk may.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from muster.storage.files import Buffer, LockHeld, NotAtHand

SECTOR = 512

# Called before every operation with its name and path; raises OSError to make it fail.
Fault = Callable[[str, str], None]


@dataclass(eq=False)
class Node:
    """A file's content as a process sees it and as the disk has it."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    # (position, bytes) of a write or (size, None) of a truncation, oldest first
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    modified_ms: int = 0

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.pending.clear()


@dataclass(eq=False)
class Folder:
    entries: "dict[str, Node | Folder]" = field(default_factory=dict)
    durable: "dict[str, Node | Folder]" = field(default_factory=dict)


class MemoryFile:
    def __init__(self, files: "MemoryFiles", node: Node, path: str, writable: bool) -> None:
        self._files, self._node, self._path, self._writable = files, node, path, writable
        self._epoch = files.epoch

    def _enter(self, operation: str) -> Node:
        if self._epoch != self._files.epoch:
            raise OSError(errno.EBADF, "the process that opened this file has crashed", self._path)
        self._files.enter(operation, self._path)
        return self._node

    def read(self, size: int, at: int) -> bytes:
        return bytes(self._enter("read").content[at : at + size])

    def read_at_hand(self, size: int, at: int) -> bytes:
        if self._files.cold(self._path):
            raise NotAtHand
        data = self.read(size, at)
        if len(data) < size:
            raise NotAtHand
        return data

    def read_into(self, buffer: memoryview, at: int) -> int:
        found = self._enter("read").content[at : at + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def write(self, buffers: Sequence[Buffer], size: int, at: int) -> None:
        data = b"".join(buffers)
        assert len(data) == size
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading only", self._path)
        # A fault may let a part of the bytes through first, by `partial`.
        try:
            node = self._enter("write")
        except OSError:
            self._put(self._node, data[: self._files.partial], at)
            raise
        room = self._files.capacity
        if room is not None and self._files.used() + max(0, at + size - len(node.content)) > room:
            fits = max(0, room - self._files.used())
            self._put(node, data[:fits], at)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._put(node, data, at)

    def _put(self, node: Node, data: bytes, at: int) -> None:
        if not data:
            return
        if len(node.content) < at:
            node.content += bytes(at - len(node.content))
        node.content[at : at + len(data)] = data
        node.pending.append((at, data))
        node.modified_ms = self._files.now_ms

    def size(self) -> int:
        return len(self._enter("size").content)

    def truncate(self, size: int) -> None:
        node = self._enter("truncate")
        if size < len(node.content):
            del node.content[size:]
        else:
            node.content += bytes(size - len(node.content))
        node.pending.append((size, None))

    def trim(self) -> None:
        """Nothing is ever reserved."""

    def sync(self) -> None:
        self._enter("sync").sync()

    def is_at(self, path: str) -> bool:
        return self._files._find(path) is self._node

    def close(self) -> None:
        """Nothing to give back, but the system may say only here that a write failed."""
        if self._epoch == self._files.epoch:
            self._files.enter("close", self._path)


class MemoryLock:
    def __init__(self, files: "MemoryFiles", path: str) -> None:
        self._files, self._path = files, path

    def release(self) -> None:
        self._files.locks.discard(self._path)


class MemoryFiles:
    """Implements `muster.storage.files.Files`. `calls` counts the operations, `fault` may refuse them."""

    def __init__(self) -> None:
        self.root = Folder()
        self.locks: set[str] = set()
        self.calls = 0
        self.fault: Fault | None = None
        # Whether a file of that name would have to be waited for.
        self.cold: Callable[[str], bool] = lambda path: False
        self.partial = 0
        self.capacity: int | None = None
        self.now_ms = 0
        self.epoch = 0
        self.boots = 0

    def enter(self, operation: str, path: str) -> None:
        self.calls += 1
        if self.fault is not None:
            self.fault(operation, path)

    # -- the port -----------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        self.enter("open", path)
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = folder.entries[name] = Node(modified_ms=self.now_ms)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return MemoryFile(self, node, path, writable)

    def names(self, path: str) -> list[str]:
        self.enter("names", path)
        return sorted(self._folder(path).entries)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Folder)

    def make_dir(self, path: str) -> None:
        self.enter("make_dir", path)
        folder = self.root
        for name in _split(path):
            inside = folder.entries.setdefault(name, Folder())
            if isinstance(inside, Node):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = inside

    def tighten(self, path: str) -> int | None:
        """There is nobody else on this disk."""
        return None

    def remove(self, path: str) -> None:
        self.enter("remove", path)
        folder, name = self._parent(path)
        if not isinstance(folder.entries.get(name), Node):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del folder.entries[name]

    def remove_dir(self, path: str) -> None:
        self.enter("remove_dir", path)
        if self._folder(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        folder, name = self._parent(path)
        del folder.entries[name]

    def rename(self, source: str, target: str) -> None:
        self.enter("rename", source)
        folder, name = self._parent(source)
        if name not in folder.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        other, new_name = self._parent(target)
        other.entries[new_name] = folder.entries.pop(name)

    def sync_dir(self, path: str) -> None:
        self.enter("sync_dir", path)
        folder = self._folder(path)
        folder.durable = dict(folder.entries)

    def sync_all(self, path: str) -> None:
        self.enter("sync_all", path)
        _sync_below(self._folder(path))

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        return node.modified_ms if isinstance(node, Node) else 0

    def lock(self, path: str) -> MemoryLock:
        self.enter("lock", path)
        if path in self.locks:
            raise LockHeld(os.getpid())
        folder, name = self._parent(path)
        folder.entries.setdefault(name, Node())
        self.locks.add(path)
        return MemoryLock(self, path)

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    # -- what tests do to it ------------------------------------------------------------------------------

    def content(self, path: str) -> bytes:
        """What a process would read from the file now."""
        node = self._find(path)
        assert isinstance(node, Node), path
        return bytes(node.content)

    def put(self, path: str, content: bytes) -> None:
        """Set a file's content, durably and behind everybody's back."""
        folder, name = self._parent(path)
        node = folder.entries.setdefault(name, Node())
        assert isinstance(node, Node), path
        node.content[:] = content
        node.sync()
        folder.durable[name] = node

    def copy(self) -> "MemoryFiles":
        """A second disk with the same content, all of it durable."""
        other = MemoryFiles()
        other.root = _copied(self.root)
        return other

    def used(self) -> int:
        return _size(self.root)

    def crash(self, rng_choice: Callable[[Sequence[str]], str] | None = None) -> None:
        """The machine stops: every open file is dead, locks are free, unsynced changes are kept, torn or lost.

        `rng_choice` picks from ("keep", "tear", "lose") for each of them; without it all are lost.
        """
        choose = rng_choice or (lambda choices: "lose")
        self.epoch += 1
        self.boots += 1
        self.locks.clear()
        self.fault = None
        _settle(self.root, choose)

    def kill(self) -> None:
        """Only the process stops: what was written stays, open files and locks go."""
        self.epoch += 1
        self.locks.clear()
        self.fault = None

    # -- inside -------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Node | Folder | None:
        here: Node | Folder = self.root
        for name in _split(path):
            if not isinstance(here, Folder) or name not in here.entries:
                return None
            here = here.entries[name]
        return here

    def _folder(self, path: str) -> Folder:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(found, Node):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return found

    def _parent(self, path: str) -> tuple[Folder, str]:
        *above, name = _split(path)
        return self._folder("/".join(above)), name


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _copied(folder: Folder) -> Folder:
    made = Folder()
    for name, inside in folder.entries.items():
        if isinstance(inside, Folder):
            made.entries[name] = _copied(inside)
        else:
            made.entries[name] = Node(bytearray(inside.content), bytes(inside.content), [], inside.modified_ms)
    made.durable = dict(made.entries)
    return made


def _size(folder: Folder) -> int:
    return sum(_size(x) if isinstance(x, Folder) else len(x.content) for x in folder.entries.values())


def _settle(folder: Folder, choose: Callable[[Sequence[str]], str]) -> None:
    """Decide what of a directory's unsynced entries and its files' unsynced writes is on the disk."""
    after: dict[str, Node | Folder] = {}
    moved = _moves(folder)
    for new_name, old_name in sorted(moved.items()):
        # A rename is one step: the file has the old name or the new one, never both or none.
        node = folder.entries[new_name]
        if choose(("keep", "lose")) == "keep":
            after[new_name] = node
        else:
            after[old_name] = node
            if new_name in folder.durable:
                after[new_name] = folder.durable[new_name]
    settled = {*moved, *moved.values()}
    for name in sorted((set(folder.durable) | set(folder.entries)) - settled):
        old, new = folder.durable.get(name), folder.entries.get(name)
        chosen = new if old is new or choose(("keep", "lose")) == "keep" else old
        if chosen is not None:
            after[name] = chosen
    folder.entries = after
    folder.durable = dict(after)
    for inside in after.values():
        if isinstance(inside, Folder):
            _settle(inside, choose)
        else:
            _settle_file(inside, choose)


def _moves(folder: Folder) -> dict[str, str]:
    """Unsynced renames within the directory: new name -> old name, where the old one is free now."""
    homes = {id(node): name for name, node in folder.durable.items()}
    return {
        name: homes[id(node)]
        for name, node in folder.entries.items()
        if id(node) in homes and homes[id(node)] != name and homes[id(node)] not in folder.entries
    }


def _settle_file(node: Node, choose: Callable[[Sequence[str]], str]) -> None:
    content = bytearray(node.durable)
    for at, data in node.pending:
        fate = choose(("keep", "tear", "lose"))
        if fate == "lose":
            continue
        if data is None:
            if at < len(content):
                del content[at:]
            else:
                content += bytes(at - len(content))
            continue
        # Torn writes end at a sector of the disk, not of the write.
        kept = data if fate == "keep" else data[: max(0, (at + len(data) // 2) // SECTOR * SECTOR - at)]
        if kept:
            content += bytes(max(0, at - len(content)))
            content[at : at + len(kept)] = kept
    node.content[:] = content
    node.durable = bytes(content)
    node.pending.clear()


def _sync_below(folder: Folder) -> None:
    folder.durable = dict(folder.entries)
    for inside in folder.entries.values():
        if isinstance(inside, Folder):
            _sync_below(inside)
        else:
            inside.sync()


def damage_log(files: MemoryFiles, log: str, data: str = "/data") -> None:
    """Flip a bit in the last byte of a log's first segment, as a disk may."""
    file = files.open(f"{data}/{log}/{0:020}.log")
    size = file.size()
    last = file.read(1, size - 1)
    file.write([bytes([last[0] ^ 1])], 1, size - 1)
    file.close()
