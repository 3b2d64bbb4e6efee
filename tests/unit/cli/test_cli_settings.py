"""`muster settings` says what a node would run with, and what of that somebody chose."""

import json
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.coordinator.config import known_settings, load_settings


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(("settings", *arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_all_settings_are_listed_with_default_bounds_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "-o", "json")
    rows = json.loads(out)
    assert code == Exit.OK
    assert [row["setting"] for row in rows] == list(known_settings())
    assert all(row["value"] == row["default"] and row["allowed"] and row["meaning"] for row in rows)


def test_only_what_differs_from_its_default(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("node.id=7\nauto.create.topics.enable=false\nlogging.level=info\n")
    _, out, _ = run(capsys, "--config", str(file), "--set", "max.sessions=9", "--changed", "-o", "csv")
    told = sorted(line.split(",")[0:3] for line in out.splitlines()[1:])
    assert told == [
        ["auto.create.topics.enable", "false", "true"],
        ["max.sessions", "9", "20000"],
        ["node.id", "7", "1"],
    ]


def test_a_part_of_a_name_finds_all_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "node.id", "consumer.session", "-o", "csv")
    found = [line.split(",")[0] for line in out.splitlines()[1:]]
    assert found == [name for name in known_settings() if name == "node.id" or "consumer.session" in name]


def test_what_it_prints_as_properties_is_a_file_for_serve(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = run(capsys, "--set", "node.id=3", "-o", "properties")
    file = tmp_path / "node.properties"
    file.write_text(out)
    assert load_settings(file) == load_settings(None, {"node.id": "3"})


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--set", "node.id=-4"], Exit.USAGE, "--set: node.id is '-4', expected a whole number from 0 to 2147483647"),
        (["group.min.sesion.timeout.ms"], Exit.NOT_FOUND, "did you mean group.min.session.timeout.ms?"),
        (["--running", "--set", "node.id=4"], Exit.USAGE, "leave out --config and --set"),
    ],
)
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str], code: Exit, said: str) -> None:
    got, out, err = run(capsys, *arguments)
    assert (got, out) == (code, "")
    assert said in err
