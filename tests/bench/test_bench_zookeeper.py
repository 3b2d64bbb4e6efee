"""`muster bench zookeeper` runs, at a size that proves nothing about speed and everything about the reports."""

import asyncio
import json
import resource
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="processes are found by it: pip install 'muster-groups[workshop]'")

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.coordinator.java_runtime import JavaNotFound, find_java
from muster.workshop.bench import zookeeper_suite
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.zookeeper_load import EraCrowd, running_ensemble

pytestmark = pytest.mark.integration


@pytest.fixture
def java() -> None:
    try:
        find_java()
    except JavaNotFound as missing:
        pytest.skip(str(missing))


@pytest.mark.timeout(300)
def test_a_central_group_goes_through_its_course(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_suite, "SESSION_MS", 6_000)
    main(["bench", "zookeeper", "--only", "central", "--members", "4", "--members", "20", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["bench"] for row in rows} == {"zookeeper"}
    assert [row["case"].partition(": 20 consumers, ")[2] for row in rows] == [
        f"{event}, {what}"
        for event, until in (
            ("join of all", "until all own"),
            ("one leaves", "first stop to last start"),
            ("one dies", "first stop to last start"),
            ("the topic grows", "first stop to last start"),
        )
        for what in (until, "the node's processor", "messages", "others wait at most")
    ] + ["memory"]
    leaving = next(row for row in rows if row["case"].endswith("one leaves, messages"))
    assert 3.8 <= leaving["value"] <= 4.2, "a stop, a start, and an answer to each; perhaps a ping"
    assert all(row["peer_value"] > 0 for row in rows if "processor" not in row["case"])


@pytest.mark.timeout(300)
def test_the_same_on_zookeeper_wakes_all_and_has_each_read_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, java: None
) -> None:
    monkeypatch.setattr(zookeeper_suite, "SESSION_MS", 6_000)
    main(["bench", "zookeeper", "--only", "beside", "--members", "6", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    beside, herd = rows[:-5], rows[-5:]
    assert [row["case"].partition(": 6 consumers, ")[2] for row in beside] == [
        f"{event}, {what}"
        for event in ("join of all", "one leaves", "one dies", "the topic grows")
        for what in ("until all own", "messages", "processor of the servers")
    ] + ["memory of the servers"]
    assert all(row["value"] > 0 and row["peer_value"] > 0 for row in beside if "processor" not in row["case"])
    fired, requests, writes, kept, expired = (row["value"] for row in herd)
    assert 5 <= fired <= 12, "each of the five that are left is woken, and perhaps once more"
    assert requests >= 5 * (5 + 3), "each reads each, both lists and the topic"
    assert writes >= 2 * 12 - 2, "a claim for each partition, and what was let go"
    assert kept == 18
    assert expired == 0


@pytest.mark.timeout(300)
def test_a_server_that_dies_costs_connections_and_no_session(tmp_path: Path, java: None) -> None:
    """As any client, consumers of the era go on with their sessions at another server."""

    async def course() -> tuple[int, int]:
        async with EraCrowd(ensemble, 6, 12, 10_000) as crowd:
            await crowd.join()
            await crowd.all_own(60)
            ensemble.kill(next(number for number in (1, 2, 3) if number != ensemble.leader()))
            await crowd.grow(18)
            await crowd.all_own(60)
            return crowd.broken, crowd.expired

    with running_ensemble(str(tmp_path), zookeeper_suite.SESSION_MS) as ensemble:
        broken, expired = asyncio.run(course())
    assert broken >= 2
    assert expired == 0


def test_a_shell_that_allows_too_few_open_files_is_told_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1_024))
    with pytest.raises(BenchFailed, match=r"5,000 consumers.* need 5,500 open files.*allows 1,024.*ulimit -Hn 5500"):
        zookeeper_suite.allow_open_files(5_000)


def test_sizes_are_for_this_suite_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "log", "--members", "5"]) == Exit.USAGE
    assert "--members works only with the suite zookeeper" in capsys.readouterr().err
