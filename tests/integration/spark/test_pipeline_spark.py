"""The pipelines as their users run them: a real node, real rebalances, one Spark session."""

import io
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.client import Admin, Consumer, Producer
from muster.coordinator.rpc.v1.ledger_pb2 import WaitEnd
from muster.spark.pipelines.analytics import analyse, keep, read_kept, rebalance_rows
from muster.spark.pipelines.backtest import (
    Backtest,
    BacktestCandidate,
    are_same_rows,
    parse_candidates,
    read_arrow_table,
    run_here,
    run_on_spark,
)
from muster.spark.pipelines.traces import SCENARIOS, SyntheticPlan
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
TOPIC, GROUP, FIRST, LATER = "orders", "billing", 60, 20
POLLS = 600


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("pipeline") / "data") as running:
        with Admin({"bootstrap.servers": running.address}) as admin:
            admin.create_topic(TOPIC, 4)
        live_through(running.address)
        yield running


def live_through(address: str) -> None:
    """One member joins, a second joins and leaves; all that was there is committed, what comes later is not."""
    send(address, FIRST)
    with member(address, "first") as first:
        read = until(lambda: len(first.assignment()) == 4, first)
        for _ in range(POLLS):
            read += len(first.consume(100, 0.05)) if read < FIRST else 0
        assert read == FIRST
        first.commit()
        with member(address, "second") as second:
            until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
            # Before the second leaves, so that any history has a backlog in it, however soon it is looked at.
            send(address, LATER)
        until(lambda: len(first.assignment()) == 4, first)


def member(address: str, name: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "client.id": name,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def until(settled: Callable[[], bool], *consumers: Consumer) -> int:
    """Poll until it is so; how many records came meanwhile."""
    read = 0
    for _ in range(POLLS):
        read += sum(consumer.poll(0.05) is not None for consumer in consumers)
        if settled():
            return read
    raise AssertionError(f"not settled after {POLLS} polls: {[consumer.assignment() for consumer in consumers]}")


def send(address: str, count: int) -> None:
    with Producer({"bootstrap.servers": address}) as producer:
        for number in range(count):
            producer.send(TOPIC, value=b"v", key=str(number).encode())


def prompt(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def table(spark: Any, path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spark.read.parquet(str(path)).toArrow().to_pylist()
    return found


def test_both_runners_give_the_same_rows_digit_for_digit(spark: Any) -> None:
    """Every scenario, a recorded history under other member ids, options, and assignors that fail."""
    plans = tuple(
        SyntheticPlan(scenario=name, load="bursty", members=4, partitions=6, minutes=30) for name in SCENARIOS
    )
    recorded = SyntheticPlan(scenario="churn", load="zipf", members=4, partitions=6, minutes=30).make(9)
    tried = parse_candidates("range,cooperative-sticky,lag-sticky[move.budget=2]")
    broken = BacktestCandidate("broken", "lag-sticky", {"move.budget": "none"})
    plugin = BacktestCandidate("plugin", "tests.support.plugins:Raises")
    test = Backtest((*plans, recorded), (*tried, broken, plugin), (0, 1))
    here, there = list(run_here(test)), run_on_spark(test, spark, tasks=5)
    assert len(here) == len(test.jobs) == 8 * 2 * 5
    assert are_same_rows(here, there)
    assert {row.candidate for row in there if row.score is None} == {"broken", "plugin"}
    assert {"out of cheese" in row.error for row in there if row.candidate == "plugin"} == {True}
    assert not are_same_rows(here, here[1:])


def test_the_command_writes_what_it_prints(spark: Any, tmp_path: Path) -> None:
    words = ("--assignor", "range,sticky", "--history", "churn/zipf", "--seeds", "2", "--minutes", "20")
    code, printed, _ = prompt("pipeline", "backtest", *words, "-o", "json", "--rows")
    assert code == 0
    out = tmp_path / "out"
    code, again, told = prompt(
        "pipeline", "backtest", *words, "-o", "json", "--rows", "--spark", "local[2]", "--out", str(out)
    )
    assert (code, again) == (0, printed)
    assert str(out / "report.html") in told
    kept = list(read_arrow_table(spark.read.parquet(str(out / "replays.parquet")).orderBy("job").toArrow()))
    assert [row["mean_lag"] for row in json.loads(printed)] == [
        round(row.score.mean_lag, 3) for row in kept if row.score
    ]
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 4
    assert not re.search(r"(src|href)=.http|@import|<script|<link|url\(http", page), "a report loads nothing"


def test_the_tables_say_what_the_node_says(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    options = {"bootstrap.servers": node.address}
    soon_ms = time.time_ns() // 1_000_000 + 1_000
    done = analyse(spark, options, tmp_path, soon_ms, every_ms=100)
    assert done.malformed == 0
    with Admin(options) as admin:
        told = {entry.number: entry for entry in admin.explain(GROUP)}
        behind = {tuple(one.partition): one.lag for one in admin.group_lag(GROUP)}
    entries = {row["number"]: row for row in table(spark, tmp_path / "rebalances")}
    assert entries.keys() == told.keys()
    assert {row["outcome"] for row in entries.values()} == {"completed", "emptied"}
    for number, entry in told.items():
        row = entries[number]
        assert (row["group"], row["generation"], row["members"]) == (GROUP, entry.generation, len(entry.members))
        assert row["took_ms"] == entry.ended_at_ms - entry.started_at_ms
        if row["unowned_partition_ms"] is not None:
            assert row["unowned_partition_ms"] == round(entry.unowned_partition_seconds * 1000)
    waited = {
        (number, phase.name, wait.member_id, WaitEnd.Name(wait.came).removeprefix("WAIT_END_").lower(), wait.after_ms)
        for number, entry in told.items()
        for phase in entry.phases
        for wait in phase.waits
    }
    columns = ("number", "phase", "member", "came", "after_ms")
    assert {tuple(row[name] for name in columns) for row in table(spark, tmp_path / "waits")} == waited
    assert len(table(spark, tmp_path / "moves")) == sum(len(entry.moves) for entry in told.values())
    lags = table(spark, tmp_path / "lag")
    last = max(row["at"] for row in lags)
    assert {(row["topic"], row["partition"]): row["lag"] for row in lags if row["at"] == last} == behind
    assert sum(behind.values()) == LATER
    assert min(sum(row["lag"] for row in lags if row["at"] == at) for at in {row["at"] for row in lags}) == 0
    causes = {row["cause"]: row["rebalances"] for row in table(spark, tmp_path / "causes")}
    assert causes["member joined"] == 2
    assert causes["member left"] == 2
    members = {row["client_id"]: row for row in table(spark, tmp_path / "members")}
    assert (members["second"]["gained"], members["second"]["lost"]) == (2, 2)
    assert (members["first"]["gained"], members["first"]["lost"]) == (6, 2)
    assert (tmp_path / "report.html").read_text().count("<svg") == 5


def test_what_was_kept_is_added_to_and_not_doubled(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    options, home = {"bootstrap.servers": node.address}, tmp_path / "kept"

    def numbers() -> list[int]:
        keep(spark, options, home)
        rows = rebalance_rows(read_kept(spark, home).ledger).select("number").orderBy("number").toArrow()
        return [row["number"] for row in rows.to_pylist()]

    once = numbers()
    assert numbers() == once
    with member(node.address, "third") as third:
        until(lambda: len(third.assignment()) == 4, third)
    assert numbers() == [*once, len(once) + 1, len(once) + 2], "it came and went"
    words = ("--bootstrap", node.address, "--out", str(tmp_path), "--group", "nobody", "--keep", "-o", "json")
    code, printed, told = prompt("pipeline", "analytics", *words)
    assert code == 0, told
    rows = {row["table"]: row["rows"] for row in json.loads(printed)}
    assert rows == dict.fromkeys(("rebalances", "waits", "moves", "members", "causes"), 0), "nothing committed, no lag"
    assert spark.range(1).count() == 1, "a session that was there before is left running"


def test_a_recorded_group_becomes_a_history_to_try_assignors_on(node: NodeProcess, tmp_path: Path) -> None:
    trace = tmp_path / "billing.jsonl.gz"
    code, _, told = prompt(
        "pipeline", "export-trace", "--bootstrap", node.address, "--group", GROUP, "--every", "0.1", str(trace)
    )
    assert code == 0, told
    assert "members" in told
    words = ("--trace", str(trace), "--assignor", "range,cooperative-sticky", "--seeds", "2", "--rows")
    code, printed, told = prompt("pipeline", "backtest", *words, "-o", "json")
    assert code == 0, told
    rows = json.loads(printed)
    assert {row["history"] for row in rows} == {GROUP}
    assert all(row["decisions"] >= 4 for row in rows), "two joined, two left; follow-up rounds are the replay's own"
    assert all(row["worst_lag"] > 0 for row in rows)
    assert {row["rounds"] > row["decisions"] for row in rows if row["candidate"] == "cooperative-sticky"} == {True}
