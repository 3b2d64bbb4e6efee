"""A broker's log is read on as it grows, through rotation and truncation, and each line once."""

import gzip
from pathlib import Path

import pytest

from muster.coordinator.watch.broker_log import MAX_LINE_BYTES, NoBrokerLog
from muster.coordinator.watch.followed_logs import FollowedLogs


def line(member: str) -> str:
    where = "INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=1]"
    return f"[2026-01-01 10:00:00,000] {where} [GroupId g] Member {member} left the consumer group.\n"


def left(logs: FollowedLogs) -> list[str]:
    """The members that the logs have said to have left since."""
    found, more = [], True
    while more:
        sentences, more = logs.more()
        found += [sentence.member_ids[0] for sentence in sentences]
    return found


def begun(folder: Path, *members: str) -> tuple[Path, FollowedLogs]:
    """A log with these lines, read to its end."""
    file = folder / "server.log"
    file.write_text("".join(map(line, members)))
    logs = FollowedLogs([str(folder)])
    assert len(list(logs.lines())) == len(members)
    return file, logs


def test_what_is_written_later_is_read_once(tmp_path: Path) -> None:
    file, logs = begun(tmp_path, "a")
    assert left(logs) == []
    with file.open("a") as log:
        log.write(line("b") + line("c"))
    assert left(logs) == ["b", "c"]
    assert left(logs) == []


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    file, logs = begun(tmp_path)
    with file.open("a") as log:
        log.write(line("b")[:40])
        log.flush()
        assert left(logs) == []
        log.write(line("b")[40:])
    assert left(logs) == ["b"]


def test_a_rotated_log_is_read_to_its_end_and_then_the_one_in_its_place(tmp_path: Path) -> None:
    file, logs = begun(tmp_path, "a")
    with file.open("a") as log:
        log.write(line("b"))
    file.rename(tmp_path / "server.log.1")
    assert left(logs) == ["b"]
    file.write_text(line("c"))
    assert left(logs) == ["c"]


def test_a_log_that_is_cut_back_is_read_from_its_begin(tmp_path: Path) -> None:
    file, logs = begun(tmp_path, "a", "b")
    file.write_text(line("c"))
    assert left(logs) == ["c"]


def test_a_log_that_is_not_there_yet_is_read_as_soon_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "server.log.1").write_text(line("a"))
    logs = FollowedLogs([str(tmp_path)])
    assert len(list(logs.lines())) == 1
    assert left(logs) == []
    (tmp_path / "server.log").write_text(line("b"))
    assert left(logs) == ["b"]


def test_older_logs_come_first_and_compressed_ones_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "server.log.1.gz").write_bytes(gzip.compress(line("old").replace("10:00", "09:00").encode()))
    (tmp_path / "server.log").write_text(line("new"))
    logs = FollowedLogs([str(tmp_path)])
    assert [each.split("Member ")[1].split(" ")[0] for each in logs.lines()] == ["old", "new"]
    (tmp_path / "server.log.2.gz").write_bytes(gzip.compress(line("other").encode()))
    assert left(logs) == []


def test_an_endless_line_takes_no_room(tmp_path: Path) -> None:
    file, logs = begun(tmp_path)
    with file.open("a") as log:
        log.write("x" * (4 * MAX_LINE_BYTES))
        log.flush()
        assert left(logs) == []
        log.write("\n" + line("b"))
    assert left(logs) == ["b"]
    assert all(len(each._rest) <= MAX_LINE_BYTES for each in logs._logs)


def test_a_log_that_cannot_be_read_is_trouble_until_it_can(tmp_path: Path) -> None:
    file, logs = begun(tmp_path, "a")
    file.unlink()
    file.mkdir()
    left(logs)
    left(logs)
    assert "server.log cannot be read on" in logs.trouble
    file.rmdir()
    file.write_text(line("b"))
    assert left(logs) == ["b"]
    assert logs.trouble == ""


def test_one_that_cannot_be_read_at_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "server.log").mkdir()
    (tmp_path / "server.log.1").write_text(line("a"))
    with pytest.raises(NoBrokerLog, match=r"server\.log cannot be read"):
        list(FollowedLogs([str(tmp_path)]).lines())
