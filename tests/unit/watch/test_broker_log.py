"""A broker's log as it lies on disks: rotated, compressed, half, in a pipe."""

import gzip
import io
import sys
from pathlib import Path

import pytest

from muster.coordinator.watch.broker_log import MAX_LINE_BYTES, NoBrokerLog, read_lines


def line(clock: str, words: str = "Stabilized group g generation 8 with 2 members") -> str:
    return f"[2026-11-29 {clock},123] INFO [GroupCoordinator 1]: {words}\n"


def test_rotated_logs_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("a stack trace\n" + line("18:00:00"))
    (tmp_path / "server.log.2026-11-29-16").write_text(line("16:00:00"))
    (tmp_path / "server.log.1.gz").write_bytes(gzip.compress(line("17:00:00").encode()))
    (tmp_path / "state-change.log").write_text(line("10:00:00"))
    clocks = [each[12:14] for each in read_lines([str(tmp_path)]) if each.startswith("[")]
    assert clocks == ["16", "17", "18"]


def test_files_may_be_named_in_any_order_and_twice(tmp_path: Path) -> None:
    (tmp_path / "late").write_text(line("18:00:00"))
    (tmp_path / "early").write_text(line("16:00:00"))
    (tmp_path / "none").write_text("nothing here\n")
    names = [str(tmp_path / name) for name in ("none", "late", "early", "late")]
    assert list(read_lines(names)) == [line("16:00:00"), line("18:00:00"), "nothing here\n"]


def test_standard_input_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.log").write_text(line("18:00:00"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\n\xff\n")))
    assert list(read_lines(["-", str(tmp_path)])) == [line("18:00:00"), "from a pipe\n", "�\n"]


def test_the_rest_of_a_line_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_text("x" * (3 * MAX_LINE_BYTES) + "\n" + line("16:00:00"))
    first, second = read_lines([str(file)])
    assert len(first) == MAX_LINE_BYTES
    assert second == line("16:00:00")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoBrokerLog, match="does not exist; expected a broker's"):
        read_lines([str(tmp_path / "nowhere")])
    with pytest.raises(NoBrokerLog, match=r"no server\.log lies in"):
        read_lines([str(tmp_path)])


def test_half_an_archive_is_said(tmp_path: Path) -> None:
    file = tmp_path / "server.log.gz"
    whole = gzip.compress("".join(line(f"16:00:{second % 60:02d}", str(second)) for second in range(9_000)).encode())
    file.write_bytes(whole[:-9])
    with pytest.raises(NoBrokerLog, match="cannot be read to its end"):
        list(read_lines([str(file)]))
