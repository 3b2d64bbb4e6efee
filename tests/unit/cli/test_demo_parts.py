"""What the demo's proof rests on: lines, keys, reports."""

import io
import re
import struct
from pathlib import Path

import pytest
from rich.console import Console

from muster.cli.common.commands import CommandError
from muster.cli.demo.delivery_proof import REPORT, REPORT_STRUCT, DeliveryProof, ProducedLines, checksum
from muster.cli.demo.group_demo import route_lines, show_ownership, show_proof
from muster.cli.records.produce import MAX_LINE_BYTES, LineSource, SourceLine, choose_source, standard_library_files
from muster.client.records.accumulator import choose_partition
from muster.coordinator.rpc.v1 import ledger_pb2 as pb


def reported(file: Path, *lines: tuple[int, int, bytes]) -> None:
    with file.open("ab") as opened:
        for partition, offset, value in lines:
            opened.write(struct.pack(REPORT_STRUCT, partition, offset, checksum(None, value)))


@pytest.fixture
def proof() -> DeliveryProof:
    """Partition 0 holds a and b, partition 1 holds c at offset 5, partition 2 nothing."""
    produced = ProducedLines(3)
    for partition, offset, value in ((0, 0, b"a"), (0, 1, b"b"), (1, 5, b"c")):
        produced.sent(partition, checksum(None, value))
        produced.delivered(partition, offset)
    return DeliveryProof(produced.expected())


def test_the_reports_layout_is_the_same_for_writer_and_reader() -> None:
    assert struct.calcsize(REPORT_STRUCT) == REPORT.itemsize


def test_every_line_once_is_complete(proof: DeliveryProof, tmp_path: Path) -> None:
    reported(tmp_path / "r", (0, 0, b"a"), (0, 1, b"b"), (1, 5, b"c"))
    proof.follow(tmp_path / "r")
    assert (proof.produced, proof.distinct, proof.duplicates, proof.altered, proof.lost) == (3, 3, 0, 0, 0)
    assert proof.complete


def test_a_line_read_by_two_workers_is_a_duplicate(proof: DeliveryProof, tmp_path: Path) -> None:
    reported(tmp_path / "r1", (0, 0, b"a"), (0, 1, b"b"))
    reported(tmp_path / "r2", (0, 1, b"b"), (1, 5, b"c"), (1, 5, b"c"))
    proof.follow(tmp_path / "r1")
    proof.follow(tmp_path / "r2")
    assert (proof.distinct, proof.duplicates, proof.lost) == (3, 2, 0)


def test_a_line_that_nobody_reported_is_lost(proof: DeliveryProof, tmp_path: Path) -> None:
    reported(tmp_path / "r", (0, 0, b"a"), (1, 5, b"c"))
    proof.follow(tmp_path / "r")
    assert (proof.distinct, proof.lost) == (2, 1)
    assert not proof.complete


@pytest.mark.parametrize(
    "wrong", [(0, 0, b"x"), (1, 0, b"c"), (1, 99, b"c"), (0, -1, b"a"), (7, 0, b"a"), (2, 0, b"a")]
)
def test_a_line_with_other_content_or_at_a_place_where_none_was_sent_is_altered_and_proves_nothing(
    wrong: tuple[int, int, bytes], proof: DeliveryProof, tmp_path: Path
) -> None:
    reported(tmp_path / "r", wrong)
    proof.follow(tmp_path / "r")
    assert (proof.altered, proof.distinct, proof.duplicates) == (1, 0, 0)


def test_a_report_is_followed_as_it_grows_and_a_torn_record_waits_for_its_rest(
    proof: DeliveryProof, tmp_path: Path
) -> None:
    file = tmp_path / "r"
    reported(file, (0, 0, b"a"))
    whole = struct.pack(REPORT_STRUCT, 0, 1, checksum(None, b"b"))
    with file.open("ab") as opened:
        opened.write(whole[:5])
    proof.follow(file)
    proof.follow(file)
    assert (proof.distinct, proof.consumed) == (1, 1)
    with file.open("ab") as opened:
        opened.write(whole[5:])
    proof.follow(file)
    assert (proof.distinct, proof.consumed) == (2, 2)


def test_the_checksum_covers_the_key() -> None:
    assert checksum(b"k", b"v") != checksum(b"j", b"v")


def source(tmp_path: Path, content: bytes, expression: str | None = None) -> LineSource:
    file = tmp_path / "input.log"
    file.write_bytes(content)
    return choose_source(file, expression)


def test_a_files_lines_are_keyed_by_the_expressions_group(tmp_path: Path) -> None:
    found = source(tmp_path, b"sshd[7]: hello\r\nno key here\n", r"sshd\[(\d+)\]")
    assert list(found.lines()) == [SourceLine(b"7", b"sshd[7]: hello"), SourceLine(None, b"no key here")]


def test_lines_go_where_the_producer_would_send_their_key_and_take_turns_without_one(tmp_path: Path) -> None:
    keyed = source(tmp_path, b"a1\na2\nb1\n", r"[ab]")
    assert [partition for partition, _ in route_lines(keyed, 12)] == [
        choose_partition(key, 12) for key in (b"a", b"a", b"b")
    ]
    plain = source(tmp_path, b"x\nx\nx\n")
    assert [partition for partition, _ in route_lines(plain, 2)] == [0, 1, 0]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b"ok\n" + b"x" * (MAX_LINE_BYTES + 1), rf"input.log:2 has {MAX_LINE_BYTES + 1} bytes")],
)
def test_input_that_does_not_fit_is_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        list(source(tmp_path, content).lines())


def test_the_standard_library_is_its_own_source_files_only() -> None:
    files = standard_library_files()
    assert {"argparse.py", "json/__init__.py"} <= {
        str(file.relative_to(Path(re.__file__).parents[1])) for file in files
    }
    assert all(file.suffix == ".py" and "site-packages" not in file.parts for file in files)


def test_the_ownership_table_marks_what_a_worker_gained() -> None:
    first = pb.Rebalance(generation=1, cause=pb.REBALANCE_CAUSE_MEMBER_JOINED, outcome=pb.REBALANCE_OUTCOME_COMPLETED)
    first.members.add(member_id="w1").assigned.add(topic="t", partitions=[0, 1])
    first.members.add(member_id="w2").assigned.add(topic="t", partitions=[2, 3])
    second = pb.Rebalance(generation=2, cause=pb.REBALANCE_CAUSE_SESSION_EXPIRED, culprit="w2")
    second.outcome = pb.REBALANCE_OUTCOME_COMPLETED
    second.members.add(member_id="w1").assigned.add(topic="t", partitions=[0, 1, 2, 3])
    out = Console(record=True, width=100, file=io.StringIO())
    show_ownership(out, [first, second])
    rows = [" ".join(line.split()) for line in out.export_text().splitlines()]
    assert "1 +0,1 +2,3 member joined" in rows
    assert "2 0,1 +2,3 session expired w2" in rows


def test_the_proof_shows_all_its_figures(proof: DeliveryProof, tmp_path: Path) -> None:
    reported(tmp_path / "r", (0, 0, b"a"), (0, 0, b"a"), (0, 1, b"b"))
    proof.follow(tmp_path / "r")
    out = Console(record=True, width=100, file=io.StringIO())
    show_proof(out, proof, lag=4, killed="worker-2")
    rows = [" ".join(line.split()) for line in out.export_text().splitlines()]
    assert "lines produced 3" in rows
    assert any(row.startswith("distinct lines consumed 2") for row in rows)
    assert "duplicates 1 consumed by worker-2 but not committed before it was killed" in rows
    assert "lost 1" in rows
    assert any(row.startswith("left to commit 4") for row in rows)
