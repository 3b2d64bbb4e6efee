"""The real file system and the kernel misbehave under a real process; nothing acknowledged may be lost or wrong.

strace makes single calls fail, lie or kill; limits, mounts and other processes do the rest. Where a tool or a right is
missing the test says which.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import LogDamaged, LogFenced, StorageError
from muster.storage.records.batch import decode_records, encode_batch
from tests.torture.appender import value_at
from tests.torture.short_life import NOW_MS, SETTINGS, TURNS, VALUE_BYTES

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
LIFE = [sys.executable, "-m", "tests.torture.short_life"]
STRACE = shutil.which("strace")
WRITE, SYNC, RENAME, CUT = "pwritev2,pwritev", "fdatasync", "rename", "ftruncate"


def run(command: list[str]) -> list[str]:
    """The lines it printed; how it ended does not matter."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, cwd=ROOT, text=True, env=env, check=False)
    return done.stdout.splitlines()


def injected(directory: Path, calls: str, what: str) -> list[str]:
    """The life under strace, which does `what` at some of these system calls."""
    if STRACE is None:
        pytest.skip("strace is not installed: no fault can be put into a system call")
    trace = directory.with_name("trace")
    tracing = ["-f", "-qq", "-o", str(trace), "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    lines = run([STRACE, *tracing, *LIFE, str(directory)])
    seen = trace.read_text() if trace.exists() else ""
    if "INJECTED" not in seen and "killed by" not in seen:
        pytest.skip("strace may not put faults into system calls here (ptrace is restricted)")
    return lines


def acked(lines: list[str]) -> int:
    """The log's end that was acknowledged last."""
    return max((int(line.split()[1]) for line in lines if line.startswith("acked")), default=0)


def read_back(directory: Path) -> tuple[int, bool]:
    """Open what was left and read it: how far that goes, and whether damage ended it. No record may be wrong."""
    broker = Broker(directory, LogSettings.from_properties(SETTINGS))
    try:
        if "t" not in broker.topics():
            return 0, False
        log = broker.log("t", 0)
        offset = log.start_offset
        while offset < log.end_offset:
            for record in decode_records(log.fetch(offset, 1 << 20).records, offset):
                assert (record.offset, record.value) == (offset, value_at(offset, VALUE_BYTES))
                offset += 1
        return offset, False
    except LogDamaged:
        return offset, True
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("calls", "number"), [(WRITE, 2), (WRITE, 25), (WRITE, 71), (SYNC, 20), (SYNC, 90), (RENAME, 9), (CUT, 14)]
)
def test_a_kill_inside_a_system_call_loses_nothing_acknowledged(tmp_path: Path, calls: str, number: int) -> None:
    lines = injected(tmp_path / "d", calls, f"signal=SIGKILL:when={number}")
    assert len(lines) < TURNS
    end, damaged = read_back(tmp_path / "d")
    assert end >= acked(lines)
    assert not damaged


def test_after_a_failed_fsync_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    lines = injected(tmp_path / "d", SYNC, "error=EIO:when=40")
    first = next(place for place, line in enumerate(lines) if line.startswith("refused"))
    assert "Input/output error" in lines[first]
    assert len(lines) == TURNS
    assert all("takes no appends until" in line for line in lines[first + 1 :] if "/keyed-0" not in line)
    end, damaged = read_back(tmp_path / "d")
    assert end >= acked(lines)
    assert not damaged


def test_a_full_disk_refuses_and_the_log_goes_on_once_there_is_room(tmp_path: Path) -> None:
    lines = injected(tmp_path / "d", WRITE, "error=ENOSPC:when=20..26")
    assert any("No space left on device" in line for line in lines)
    assert len(lines) == TURNS
    assert lines[-1].startswith("acked")
    assert read_back(tmp_path / "d") == (acked(lines), False)


def test_an_interrupted_call_is_made_again(tmp_path: Path) -> None:
    lines = injected(tmp_path / "d", f"{WRITE},{SYNC}", "error=EINTR:when=20+7")
    assert lines == [f"acked {number}" for number in range(1, TURNS + 1)]
    assert read_back(tmp_path / "d") == (TURNS, False)


def test_a_short_write_is_written_again(tmp_path: Path) -> None:
    lines = injected(tmp_path / "d", WRITE, "retval=40:when=20+5")
    assert acked(lines) == TURNS
    assert read_back(tmp_path / "d") == (TURNS, False)


def test_a_write_that_was_none_is_found_when_it_is_read(tmp_path: Path) -> None:
    size = len(encode_batch([(NOW_MS, None, value_at(0, VALUE_BYTES), ())]))
    damaged = 0
    for number in range(95, 99):
        directory = tmp_path / str(number)
        # The kernel says that it wrote all and wrote nothing: zeros lie there, or the file is too short.
        assert acked(injected(directory, WRITE, f"retval={size}:when={number}")) == TURNS
        end, found = read_back(directory)
        assert found == (end < TURNS)
        damaged += found
    # The other topic's batches are of another size: for them it was a short write.
    assert damaged == 2


@pytest.mark.parametrize(("limit", "value"), [("RLIMIT_FSIZE", 1500), ("RLIMIT_NOFILE", 3)])
def test_a_limit_of_the_process_refuses_while_it_holds(tmp_path: Path, limit: str, value: int) -> None:
    lines = run([*LIFE, str(tmp_path / "d"), limit, str(value)])
    assert len(lines) == TURNS
    assert {line.split()[0] for line in lines[:10]} == {"acked"}
    assert any("File too large" in line or "Too many open files" in line for line in lines[10:20])
    assert {line.split()[0] for line in lines[21:]} == {"acked"}
    assert read_back(tmp_path / "d") == (acked(lines), False)


def test_a_read_only_file_system_is_said(tmp_path: Path) -> None:
    Broker(tmp_path / "d").close()
    before = sorted(path.name for path in (tmp_path / "d").iterdir())
    mount = f"mount --bind {tmp_path}/d {tmp_path}/d && mount -o remount,ro,bind {tmp_path}/d && echo mounted && "
    if not shutil.which("unshare") or os.geteuid() != 0:
        pytest.skip("a read-only mount needs unshare and root")
    lines = run(["unshare", "-m", "sh", "-c", f"{mount} {' '.join(LIFE)} {tmp_path}/d"])
    if lines[:1] != ["mounted"]:
        pytest.skip("this system does not let root mount")
    assert lines[1].startswith("closed")
    assert "Read-only file system" in lines[1]
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == before


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "d", LogSettings.from_properties(SETTINGS))
    assert f"process {os.getpid()}" in run([*LIFE, str(tmp_path / "d")])[0]
    broker.close()
    assert run([*LIFE, str(tmp_path / "d")])[-1] == f"acked {TURNS}"


def test_a_directory_that_is_taken_away_is_said(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "d", LogSettings.from_properties(SETTINGS))
    broker.create_topic("t", 1)
    shutil.rmtree(tmp_path / "d" / "t-0")
    batch = encode_batch([(NOW_MS, None, b"x" * VALUE_BYTES, ())])
    for _ in range(4):
        # The file has lost its name, not its bytes; the next segment would find no place.
        broker.append("t", 0, batch, NOW_MS)
    with pytest.raises(LogFenced, match="has been removed or replaced while the node uses it"):
        broker.append("t", 0, batch, NOW_MS)
    broker.close()
    again = Broker(tmp_path / "d", LogSettings.from_properties(SETTINGS))
    with pytest.raises(StorageError, match="Restore it from a copy"):
        again.fetch("t", 0, 0, 100)
    again.close()
