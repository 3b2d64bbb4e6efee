"""`muster lab compare` on the command line."""

import json
from pathlib import Path

import pytest

from muster.cli.main import main

FEW = ["lab", "compare", "--members", "2", "--partitions", "4", "--joining", "1"]


def test_chosen_generations_come_as_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--only", "static", "--only", "eager", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["generation"], row["chapter"]) for row in found] == [("eager", "all"), ("static", "all")]
    assert all(row["messages"] > 0 for row in found)


def test_chapters_come_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--only", "eager", "--chapters", "-o", "json"]) == 0
    assert [row["chapter"] for row in json.loads(capsys.readouterr().out)] == ["rolling restart", "crash", "scale-out"]


def test_an_unknown_generation_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--only", "eagre"]) == 2
    assert "'eagre' is not a generation; known here: zookeeper, central, eager," in capsys.readouterr().err


def test_a_generation_without_a_node_does_not_run_for_real(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--real", "--only", "zookeeper"]) == 2
    assert "'zookeeper' runs in virtual time alone" in capsys.readouterr().err


def test_one_member_more_wakes_everybody_and_costs_by_the_size_of_the_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "join", "--members", "5", "--members", "10", "--only", "zookeeper", "-o", "json"]) == 0
    few, many = json.loads(capsys.readouterr().out)
    assert (few["woken"], many["woken"]) == (5, 10)
    assert few["stops"] == many["stops"] == 200
    assert few["messages"] < many["messages"]


def test_real_processes_are_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--real", "--chart", "chart.svg"]) == 2
    assert "leave out --real or --chart" in capsys.readouterr().err


def test_a_chart_that_cannot_be_written_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main([*FEW, "--only", "eager", "--chart", str(tmp_path / "chart.unknown")]) == 1
    assert "cannot draw" in capsys.readouterr().err


def test_old_clients_are_compared_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FEW, "--real-old-clients", "--only", "eager"]) == 2
    assert "--real-old-clients goes with --members, --partitions and --output alone" in capsys.readouterr().err
    assert main([*FEW, "--real-old-clients", "--members", "4"]) == 2
    assert "more --partitions than --members" in capsys.readouterr().err


def test_without_maven_old_clients_are_not_compared_and_it_is_said_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main([*FEW, "--real-old-clients"]) == 1
    said = capsys.readouterr().err
    assert "consumers of the ZooKeeper era cannot be run: mvn is not on the PATH" in said
    assert "install both, or leave out --real-old-clients" in said
