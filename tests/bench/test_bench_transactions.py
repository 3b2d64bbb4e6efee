"""`muster bench transactions` runs, at a size that proves nothing about speed and everything about the reports."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="processes are found by it: pip install 'muster-groups[workshop]'")

from muster.cli.main import main
from muster.workshop.bench import transaction_suite
from muster.workshop.bench.kafka_peer import JarsUnavailable

pytestmark = pytest.mark.integration

SMALL = {
    "ROUNDS": 1,
    "EACH": 2,
    "PRODUCERS": 2,
    "TOGETHER_S": 0.2,
    "EMPTY_IDS": 2,
    "EMPTY_ROUNDS": 1,
    "EMPTY_EACH": 1,
    "KNOWN": (0, 2),
    "LOG_RECORDS": 100,
    "FETCH_S": 0.05,
    "FETCH_ROUNDS": 1,
    "TRANSACTIONS": 4,
    "TRANSACTION_RECORDS": 2,
    "READ_ROUNDS": 1,
    "IDS": 5,
    "ID_RECORDS": 40,
    "ID_SHARDS": 2,
    "DECIDED": 3,
    "DECIDED_ROUNDS": 1,
}


def no_broker(*_: object, **__: object) -> Iterator[None]:
    raise JarsUnavailable("there are none")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(transaction_suite, name, value)
    monkeypatch.setattr(transaction_suite, "running_broker", no_broker)


@pytest.mark.usefixtures("small")
@pytest.mark.timeout(300)
def test_every_case_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "transactions", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["bench"] for row in rows} == {"transactions"}
    skipped = [row for row in rows if "skipped" in row["case"]]
    assert [row["case"] for row in skipped] == ["Kafka's Java producer: skipped, there are none"]
    measured = [row for row in rows if row not in skipped]
    assert [row["case"].split(":")[0] for row in measured] == [
        "one record, our client",
        "100 records to 2 partitions, our client",
        "one record, Kafka's protocol",
        "100 records to 2 partitions, Kafka's protocol",
        "empty-handed",
        "producers together, our client, 2 at once",
        "producers together, Kafka's protocol, 2 at once",
        "fetch of committed records, 0 producers known",
        "fetch of committed records, 2 producers known",
        "aborted, every second transaction, our consumer",
        "loading, 40 records of 5 transactional ids",
        "decided before a kill, 3 partitions",
    ]
    assert all(row["value"] > 0 and row["peer_value"] > 0 for row in measured)


def test_lines_of_kafkas_producer_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'a line of a logger'\necho '1 2.5'\necho '100 3.25'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(transaction_suite, "java_program", lambda: str(program))
    assert transaction_suite.run_java("jars", "127.0.0.1:1") == {1: 2.5, 100: 3.25}
