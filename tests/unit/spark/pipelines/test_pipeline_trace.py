"""Traces as files: they come back equal, and what is wrong with one is named by its line."""

from pathlib import Path

import numpy as np
import pytest

from muster.spark.pipelines.traces import GroupTrace, SyntheticPlan, parse_trace, read_trace, write_lines, write_trace


@pytest.fixture(scope="module")
def made() -> GroupTrace:
    return SyntheticPlan(scenario="crashes", load="bursty", members=3, partitions=4, minutes=30).make(5)


def equal(one: GroupTrace, other: GroupTrace) -> bool:
    return list(write_lines(one)) == list(write_lines(other)) and np.array_equal(one.load, other.load)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_a_trace_comes_back_as_it_was_written(made: GroupTrace, tmp_path: Path, name: str) -> None:
    write_trace(made, tmp_path / name)
    found = read_trace(tmp_path / name)
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
def test_what_is_wrong_is_named(made: GroupTrace, line: int, old: str, new: str, said: str) -> None:
    lines = list(write_lines(made))
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    with pytest.raises(ValueError, match=said):
        parse_trace(lines)


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("[1, 2]\n")
    with pytest.raises(ValueError, match=r"other\.jsonl: line 1"):
        read_trace(path)
    path.write_text("")
    with pytest.raises(ValueError, match="the head of a trace"):
        read_trace(path)
    torn = tmp_path / "torn.jsonl.gz"
    write_trace(SyntheticPlan(scenario="steady", load="even", minutes=5).make(0), torn)
    torn.write_bytes(torn.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"torn\.jsonl\.gz"):
        read_trace(torn)
