"""The port to the real file system: short writes, errors, locks, atomic replacement."""

import os
from pathlib import Path

import pytest

from muster.storage.disk import reserve
from muster.storage.disk.files import LockHeld, RealFiles, read_file, remove_tree, replace_file


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
    reach = reserve.reserve(os.open(path, os.O_RDWR), size, size + 1)
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
