"""`muster assignor` and `muster simulate` on files: no node is needed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.common.commands import CommandError, Unhealthy
from muster.cli.main import cli

SNAPSHOT = {
    "topics": {"t": 4},
    "members": [
        {"id": "a", "topics": ["t"], "owned": {"t": [0, 1, 2, 3]}, "generation": 3},
        {"id": "b", "topics": ["t"]},
    ],
    "lags": {"t": [100, 0, 0, 0]},
    "assignor": "sticky",
}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), standalone_mode=False)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(SNAPSHOT))
    return str(path)


def test_list_knows_every_built_in() -> None:
    names = [row["name"] for row in json.loads(run("assignor", "list", "-o", "json").output)]
    assert {"range", "roundrobin", "sticky", "cooperative-sticky", "uniform", "lag", "lag-sticky"} <= set(names)


def test_show_takes_kafkas_class_names() -> None:
    done = run("assignor", "show", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    assert done.output.startswith("cooperative-sticky (cooperative, built in)")


def test_a_new_package_passes_its_own_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("assignor", "new", "busy-first")
    monkeypatch.chdir(tmp_path / "busy-first")
    done = run("assignor", "test", "busy_first:BusyFirstAssignor")
    assert done.return_value == 0
    assert "checks passed" in done.output


def test_new_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    done = run("assignor", "new", "busy-first", "--into", str(tmp_path))
    assert isinstance(done.exception, CommandError)
    assert done.exception.code == 5
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_a_plugin_that_lies_fails_the_suite() -> None:
    done = run("assignor", "test", "tests.support.plugins:Forgets")
    assert done.return_value == 1
    assert "forgot" in done.output


def test_simulate_a_file_under_several_assignors(snapshot: str) -> None:
    rows = json.loads(run("simulate", "--compare", "sticky,range,lag", "-o", "json", snapshot).output)
    assert [row["assignor"] for row in rows] == ["sticky", "range", "lag"]
    assert len(rows[0]["moves"]) == 2


def test_simulate_with_other_lags_and_members(snapshot: str, tmp_path: Path) -> None:
    lags = tmp_path / "lags.json"
    lags.write_text(json.dumps({"t": [0, 0, 0, 50]}))
    done = run("simulate", "--assignor", "lag", "--lags", str(lags), "--add-member", "c", "-o", "json", snapshot)
    (forecast,) = json.loads(done.output)
    assert {member["id"] for member in forecast["members"]} == {"a", "b", "c"}
    assert sum(member["lag_after"] for member in forecast["members"]) == 50


def test_ci_exits_with_4_when_a_bound_is_broken(snapshot: str) -> None:
    done = run("simulate", "--max-moves", "1", "--ci", snapshot)
    assert isinstance(done.exception, Unhealthy)
    assert "2 moves, at most 1 allowed" in done.stderr


@pytest.mark.parametrize("words", [("--add-member", "a"), ("--remove-member", "z"), ("--assignor", "rnge")])
def test_a_change_that_cannot_be_is_refused(snapshot: str, words: tuple[str, str]) -> None:
    done = run("simulate", *words, snapshot)
    assert done.exception is not None
    assert words[1] in str(done.exception)
