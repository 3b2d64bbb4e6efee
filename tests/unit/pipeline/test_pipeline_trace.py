"""Traces as files: they come back equal, and what is wrong with one is named by its line."""

from pathlib import Path

import numpy as np
import pytest

from muster.coordinator.spark.pipelines.synthetic import Plan
from muster.coordinator.spark.pipelines.trace import Trace, lines_of, read, trace_from, write


@pytest.fixture(scope="module")
def made() -> Trace:
    return Plan(scenario="crashes", load="bursty", members=3, partitions=4, minutes=30).make(5)


def equal(one: Trace, other: Trace) -> bool:
    return list(lines_of(one)) == list(lines_of(other)) and np.array_equal(one.load, other.load)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_a_trace_comes_back_as_it_was_written(made: Trace, tmp_path: Path, name: str) -> None:
    write(made, tmp_path / name)
    found = read(tmp_path / name)
    assert equal(found, made)
    assert found.steps == made.steps
    assert found.members == made.members


@pytest.mark.parametrize(
    ("line", "old", "new", "said"),
    [
        (0, '"version":1', '"version":2', "line 1: version"),
        (0, '"drain_per_s"', '"drain"', "line 1: drain"),
        (1, '"at_ms":0', '"at_ms":"soon"', "line 2: at_ms"),
        (1, '"load":[', '"load":[7,', "line 2: load has 9 numbers; expected 8"),
        (1, '"load":[', '"load":[-7,', "line 2: load has"),
        (1, '"present":[0,', '"present":[99,', "names member 99"),
        (2, '"at_ms":', '"at_ms":-', "expected steps in order of time"),
    ],
)
def test_what_is_wrong_is_named(made: Trace, line: int, old: str, new: str, said: str) -> None:
    lines = list(lines_of(made))
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    with pytest.raises(ValueError, match=said):
        trace_from(lines)


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("[1, 2]\n")
    with pytest.raises(ValueError, match=r"other\.jsonl: line 1"):
        read(path)
    path.write_text("")
    with pytest.raises(ValueError, match="the head of a trace"):
        read(path)
    torn = tmp_path / "torn.jsonl.gz"
    write(Plan(scenario="steady", load="even", minutes=5).make(0), torn)
    torn.write_bytes(torn.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"torn\.jsonl\.gz"):
        read(torn)
