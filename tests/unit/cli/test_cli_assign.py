"""`muster assign` as a filter: answers in step, faults by line."""

import io
import json
import sys
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main

GOOD = '{"assignor":"range","topics":{"t":3},"members":[{"id":"a","topics":["t"]},{"id":"b","topics":["t"]}]}'
PLAN = {"a": {"t": [0, 1]}, "b": {"t": [2]}}

PLUGINS = """
import time
from muster.assignors.api import RebalanceProtocol

class Base:
    name = "mine"
    protocol = RebalanceProtocol.EAGER

class Twice(Base):
    def assign(self, snapshot):
        return {member.id: {"t": [0, 1, 2]} for member in snapshot.members}

class Forgets(Base):
    def assign(self, snapshot):
        return {"a": {"t": [0]}, "b": {}}

class Raises(Base):
    def assign(self, snapshot):
        raise RuntimeError("out of cheese")

class Hangs(Base):
    def assign(self, snapshot):
        while True:
            pass

class Counts(Base):
    def assign(self, snapshot):
        sum(range(10**12))
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "bad_plugins.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "bad_plugins"


def assign(
    text: str | bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, list[str], str]:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode() if isinstance(text, str) else text)))
    code = main(["assign", *options])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_each_problem_gets_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, err = assign(f"{GOOD}\n\n{GOOD}\n", monkeypatch, capsys)
    assert (code, err) == (Exit.OK, "")
    assert [json.loads(line) for line in lines] == [PLAN, PLAN]


def test_the_option_overrules_the_problem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = assign(
        GOOD, monkeypatch, capsys, "--assignor", "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    )
    assert json.loads(lines[0]) == {"a": {"t": [0, 2]}, "b": {"t": [1]}}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: a JSON list, expected an object"),
        ("{}", "line 2: problem: 'topics' is missing"),
        ('{"topics":{"t":-1},"members":[]}', "line 2: topics.t"),
        ('{"assignor":"rnge","topics":{},"members":[]}', "line 2: assignor 'rnge'"),
        ('{"topics":{},"members":[]}', "names no assignor"),
        ('{"topics":{},"members":[],"lagz":{}}', "line 2: problem: 'lagz' is not a field of it; its fields are"),
        ("[" * 100_000, "line 2: not JSON (nested too deeply to read)"),
    ],
)
def test_a_bad_line_is_named_and_answered_with_an_empty_line_while_the_others_are_solved(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, err = assign(f"{GOOD}\n{line}\n{GOOD}\n", monkeypatch, capsys)
    assert code == Exit.USAGE
    assert [json.loads(answer) if answer else None for answer in lines] == [PLAN, None, PLAN]
    assert said in err
    assert err.count("\n") == 1


def test_a_plan_that_was_not_the_assignors_is_said_to_be_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = GOOD[:-1] + ',"options":{"held":"pins"}}'
    code, lines, err = assign(f"{GOOD}\n{held}\n", monkeypatch, capsys)
    assert (code, [json.loads(line) for line in lines]) == (Exit.OK, [PLAN, PLAN])
    assert err == "line 2: the plan on record is another: an operator's word came after the assignor's: pins\n"


def test_a_line_that_is_not_utf_8_is_named_and_the_next_one_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, err = assign(b"\xff\xfe\n" + GOOD.encode() + b"\r\n", monkeypatch, capsys)
    assert code == Exit.USAGE
    assert lines[0] == ""
    assert json.loads(lines[1]) == PLAN
    assert err == "error: line 1: not UTF-8 (byte 1: invalid start byte); expected JSON in UTF-8\n"


def test_a_problem_that_names_no_assignor_class_is_as_wrong_as_one_that_names_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, err = assign(GOOD.replace("range", "json:JSONDecoder"), monkeypatch, capsys)
    assert (code, lines) == (Exit.USAGE, [""])
    assert "line 1: assignor 'json:JSONDecoder'" in err


def test_a_plugin_is_found_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plugin_beside_me.py").write_text(PLUGINS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*filter(None, sys.path)])
    code, _, err = assign(GOOD, monkeypatch, capsys, "--assignor", "plugin_beside_me:Raises")
    assert code == Exit.FAILURE
    assert "out of cheese" in err


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Twice", "gave t-0 twice: to 'a' and 'b'"),
        ("Forgets", "forgot t-1, t-2"),
        ("Raises", "out of cheese"),
        ("Hangs", "was not done after 200 ms; raise --deadline"),
        ("Counts", "was not done after 200 ms; raise --deadline"),
    ],
)
def test_a_bad_plugin_is_named_and_exits_with_1(
    kind: str, said: str, plugins: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, err = assign(GOOD, monkeypatch, capsys, "--assignor", f"{plugins}:{kind}", "--deadline", "0.2")
    assert (code, lines) == (Exit.FAILURE, [""])
    assert "line 1: assignor 'mine'" in err
    assert said in err


def simulate(file: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["simulate", str(file), *words])
    return code, capsys.readouterr().err


def test_a_file_to_simulate_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "snapshot.json"
    for text, said in (
        ("[" * 100_000, "nested too deeply to read"),
        ('{"topics":{},"members":[],"lagz":{}}', "'lagz' is not a field of it; its fields are topics, members, lags"),
    ):
        file.write_text(text)
        code, err = simulate(file, capsys, "--assignor", "range")
        assert code == Exit.USAGE
        assert said in err


def test_a_forecast_says_against_which_lags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(GOOD[:-1] + ',"lags":{"t":[5,0,7]}}')
    _, err = simulate(file, capsys, "--compare", "range,lag-sticky")
    assert f"Lags: as {file} states them; 12 records behind, of 2 members." in err
    file.write_text(GOOD)
    _, err = simulate(file, capsys, "--compare", "range,lag-sticky")
    assert "Lags: none are known, so every partition counts the same." in err
