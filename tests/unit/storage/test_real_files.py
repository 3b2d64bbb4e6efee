"""The port to the real file system: short writes, errors, locks, atomic replacement."""

import ctypes
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.storage import files as disk_files
from muster.storage import files as reserve
from muster.storage.files import File, LockHeld, NotAtHand, RealFiles, read_file, remove_tree, replace_file


def test_a_short_write_goes_on_until_all_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().open(str(tmp_path / "x"), create=True)
    real = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: real(fd, bytes(buffers[0])[:1], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file.write([b"hello ", b"world"], 11, 2)
    assert (tmp_path / "x").read_bytes() == b"\0\0hello world"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="took no bytes"):
        file.write([b"more"], 4, 13)


def answering_preadv(monkeypatch: pytest.MonkeyPatch, answer: Callable[[memoryview], int]) -> list[tuple[int, int]]:
    """From now on the system answers so; what it is asked for: position and flags."""
    asked: list[tuple[int, int]] = []

    def preadv(fd: int, buffers: list[memoryview], at: int, flags: int = 0) -> int:
        asked.append((at, flags))
        return answer(buffers[0])

    monkeypatch.setattr(os, "preadv", preadv)
    return asked


def refusing(number: int) -> Callable[[memoryview], int]:
    def refuse(buffer: memoryview) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


def holding(data: bytes) -> Callable[[memoryview], int]:
    def answer(buffer: memoryview) -> int:
        buffer[: len(data)] = data
        return len(data)

    return answer


def written(tmp_path: Path, data: bytes = b"hello") -> File:
    file = RealFiles().open(str(tmp_path / "x"), create=True)
    file.write([data], len(data), 0)
    return file


def test_what_the_system_holds_in_memory_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path)
    asked = answering_preadv(monkeypatch, holding(b"ello"))
    assert file.read_at_hand(4, 1) == b"ello"
    assert asked == [(1, os.RWF_NOWAIT)]


def test_what_was_just_written_is_at_hand_on_this_disk_too(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    file = written(tmp_path, data)
    try:
        assert file.read_at_hand(200_000, 7) == data[7:200_007]
    except NotAtHand:
        pytest.skip("this file system does not say what it holds in memory")
    with pytest.raises(NotAtHand):
        file.read_at_hand(2, 299_999)  # where a file ends is for `read` to find


@pytest.mark.parametrize(
    "answer",
    [refusing(errno.EAGAIN), refusing(errno.EIO), holding(b"hel"), holding(b"")],
    ids=["wait", "EIO", "half", "end"],
)
def test_what_is_not_all_in_memory_is_not_at_hand_now(
    answer: Callable[[memoryview], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    asked = answering_preadv(monkeypatch, answer)
    for _ in range(2):
        with pytest.raises(NotAtHand):
            file.read_at_hand(5, 0)
    assert len(asked) == 2, "it may be, next time"
    assert file.read(5, 0) == b"hello"


def test_a_file_system_that_does_not_say_is_asked_once_for_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    asked = answering_preadv(monkeypatch, refusing(errno.EOPNOTSUPP))
    for _ in range(3):
        with pytest.raises(NotAtHand):
            file.read_at_hand(5, 0)
    assert len(asked) == 1
    other = RealFiles().open(str(tmp_path / "x"))
    monkeypatch.undo()
    assert answering_preadv(monkeypatch, holding(b"hello")) == []
    assert other.read_at_hand(5, 0) == b"hello"


def test_a_system_without_such_reads_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_files, "_NOWAIT", 0)
    file = written(tmp_path)
    asked = answering_preadv(monkeypatch, holding(b"hello"))
    with pytest.raises(NotAtHand):
        file.read_at_hand(5, 0)
    assert asked == []


def test_more_buffers_than_the_kernel_takes_at_once(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "x"), create=True)
    file.write([b"ab"] * 3000, 6000, 0)
    assert file.read(7000, 0) == b"ab" * 3000
    assert file.size() == 6000


def test_blocks_are_reserved_ahead_of_a_long_file_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "x"
    file = RealFiles().open(str(path), create=True)
    file.write([b"x" * reserve.SMALLEST], reserve.SMALLEST, 0)
    assert os.stat(path).st_blocks * 512 <= 2 * reserve.SMALLEST, "a short file reserves nothing"
    file.write([b"y" * 100], 100, reserve.SMALLEST)
    size = reserve.SMALLEST + 100
    assert file.size() == size, "what is reserved is not part of the file"
    assert file.read(200, reserve.SMALLEST) == b"y" * 100
    reach = reserve.reserve_blocks(os.open(path, os.O_RDWR), size, size + 1)
    if reach > 1 << 60:
        pytest.skip("this file system reserves nothing")
    assert reach == size + 1 + reserve.SMALLEST
    assert os.stat(path).st_blocks * 512 >= size + reserve.SMALLEST // 2
    file.trim()
    assert file.size() == size
    assert os.stat(path).st_blocks * 512 < size + reserve.SMALLEST // 2


def test_a_system_that_cannot_reserve_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(reserve, "_fallocate", lambda fd, mode, start, size: asked.append(start) or -1)
    file = RealFiles().open(str(tmp_path / "x"), create=True)
    for place in range(4):
        file.write([b"z" * reserve.SMALLEST], reserve.SMALLEST, place * reserve.SMALLEST)
    assert file.size() == 4 * reserve.SMALLEST
    assert asked == [reserve.SMALLEST]


def test_a_full_device_is_an_error() -> None:
    file = RealFiles().open("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        file.write([b"x"], 1, 0)


def test_a_file_outlives_its_name_while_somebody_reads(tmp_path: Path) -> None:
    files = RealFiles()
    file = files.open(str(tmp_path / "x"), create=True)
    file.write([b"kept"], 4, 0)
    files.remove(str(tmp_path / "x"))
    assert file.read(10, 0) == b"kept"
    file.close()
    file.close()


def test_a_replaced_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    files = RealFiles()
    path = str(tmp_path / "x")
    replace_file(files, path, b"old")
    replace_file(files, path, b"new!")
    assert read_file(files, path) == b"new!"
    assert files.names(str(tmp_path)) == ["x"]
    with pytest.raises(OSError, match="at most 3"):
        read_file(files, path, limit=3)


def test_a_lock_is_held_by_one_and_given_back(tmp_path: Path) -> None:
    files = RealFiles()
    lock = files.lock(str(tmp_path / "l"))
    with pytest.raises(LockHeld) as held:
        files.lock(str(tmp_path / "l"))
    assert held.value.holder == os.getpid()
    lock.release()
    files.lock(str(tmp_path / "l")).release()


def test_a_tree_is_removed_whole(tmp_path: Path) -> None:
    files = RealFiles()
    files.make_dir(str(tmp_path / "a/b/c"))
    replace_file(files, str(tmp_path / "a/b/x"), b"1")
    remove_tree(files, str(tmp_path / "a"))
    assert files.names(str(tmp_path)) == []


@pytest.mark.parametrize("answer", [0, -1, None])
def test_a_whole_file_system_is_flushed_by_itself_where_the_system_can(
    answer: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All partitions of a request are made with this one flush."""
    flushed: list[str] = []

    def syncfs(fd: int) -> int | None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        return answer

    system = SimpleNamespace() if answer is None else SimpleNamespace(syncfs=syncfs)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: system)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EIO)
    monkeypatch.setattr(os, "sync", partial(flushed.append, "all"))
    if answer:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            RealFiles().sync_all(str(tmp_path))
    else:
        RealFiles().sync_all(str(tmp_path))
    assert flushed == ["all" if answer is None else str(tmp_path)]
