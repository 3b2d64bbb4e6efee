"""The benchmark of the reader of a watched Kafka's groups, at a size that proves nothing about speed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.coordinator.watch.segment_files import find_segments
from muster.workshop.bench import watch_suite
from muster.workshop.bench.kafka_peer import JarsUnavailable
from muster.workshop.bench.report import BenchRow
from muster.workshop.bench.watch_load import LoadShape, read_load, write_partition

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000


def test_made_up_segments_are_those_of_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They roll, and each group has its generations and positions."""
    monkeypatch.setattr("muster.workshop.bench.watch_load.SEGMENT_BYTES", 20_000)
    sizes = [write_partition(tmp_path, number, LoadShape(3, 10, 4, NOW_MS), 100, 2) for number in range(2)]
    segments = find_segments((tmp_path,))
    assert len(segments) > 4
    read = read_load([tmp_path])
    assert (read.size, read.positions, read.entries) == (sum(sizes), 60, 2 * 3 * 3)
    assert read.records == 2 * (100 * 10 + 3 * 4)
    assert read_load([tmp_path], NOW_MS - DAY_MS).entries == 2 * 3


def test_the_suite_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"ROUNDS": 1, "POSITIONS": 100, "MIB": 8, "MANY_GROUPS": 20, "MANY_GENERATIONS": 2}.items():
        monkeypatch.setattr(watch_suite, name, value)
    monkeypatch.setattr(watch_suite, "BESIDE_KAFKA", {"comparators": without_kafka})
    assert main(["bench", "watch", "--json"]) in (Exit.OK, Exit.UNHEALTHY)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["bench"] for row in rows} == {"watch"}
    assert len(rows) == 19
    assert all(row["value"] > 0 for row in rows[:-1])
    assert rows[-1]["case"] == "comparators: skipped, there are none"


def without_kafka(name: str, home: str, place: str, bench: str) -> Iterator[BenchRow]:
    raise JarsUnavailable("there are none")
