"""Workers that share named resources wait for each other (KIP-415), against a real node."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.client import Admin, Worker
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause
from tests.support.client_stories import until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration

RESOURCES = ["ledger", "mail", "search", "stock"]
LONG_MS = 3_600_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data") as running:
        yield running


def worker(node: NodeProcess, group: str, **more: object) -> Worker:
    made = Worker(bootstrap_servers=node.address, group_id=group, heartbeat_interval_ms=50, **more)
    made.join(resources=RESOURCES)
    return made


def generation(each: Worker) -> int:
    return each.group_metadata().generation


def test_what_a_worker_had_waits_for_it_and_then_goes_to_the_others(
    node: NodeProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = worker(node, "g", scheduled_rebalance_max_delay_ms=700), worker(node, "g")
    until(lambda: len(one.owned()) == len(two.owned()) == 2, one, two, what="both have half")
    two.close()
    until(lambda: len(one.owned()) == 4, one, what="the delay is over")
    with Admin(bootstrap_servers=node.address) as admin:
        newest, *older = admin.explain("g")
    assert newest.cause == RebalanceCause.REBALANCE_CAUSE_DELAY_OVER
    assert len(newest.moves) == 2
    assert all(move.unowned_ms >= 700 for move in newest.moves)
    assert {move.why for move in older[0].moves} == {
        "its owner left the group; kept for it to come back while the delay runs"
    }
    one.close()
    capsys.readouterr()
    assert main(["replay", "--group", "g", "--bootstrap", node.address, "-o", "csv"]) == Exit.OK
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows
    assert {row["plan"] for row in rows} == {"same"}


def test_a_worker_that_comes_back_gets_what_it_had_and_nobody_else_moves(node: NodeProcess) -> None:
    one, two = worker(node, "g", scheduled_rebalance_max_delay_ms=700), worker(node, "g")
    until(lambda: len(one.owned()) == len(two.owned()) == 2, one, two, what="both have half")
    kept, had = one.owned(), two.owned()
    two.close()
    back = worker(node, "g")
    until(lambda: len(back.owned()) == 2, one, back, what="it has its half again")
    assert (one.owned(), back.owned()) == (kept, had)
    one.close()
    back.close()


def test_the_delay_outlives_its_leaders_and_the_node(node: NodeProcess) -> None:
    # Nobody's session ends while the node is away, however long a busy machine takes to start it.
    settings = {"scheduled_rebalance_max_delay_ms": LONG_MS, "session_timeout_ms": 120_000}
    first = worker(node, "g", **settings)
    until(lambda: len(first.owned()) == 4, first, what="the first one leads")
    second = worker(node, "g", **settings)
    until(lambda: len(first.owned()) == len(second.owned()) == 2, first, second, what="both have half")
    before = generation(second)
    first.close()
    until(lambda: generation(second) > before, second, what="the second one leads")
    with Admin(bootstrap_servers=node.address) as admin:
        # A kill before the plan is kept brings the first one back, for as long as its session.
        until(lambda: admin.explain("g", limit=1)[0].generation == generation(second), second, what="it has planned")
    node.kill()
    node.start()
    third = worker(node, "g", **settings)
    until(lambda: 0 < generation(third) == generation(second), second, third, what="the third one is in")
    assert (len(second.owned()), len(third.owned())) == (2, 0)
    before = generation(third)
    second.close()
    until(lambda: generation(third) > before, third, what="the third one leads")
    with Admin(bootstrap_servers=node.address) as admin:
        moves = [move for entry in admin.explain("g", limit=3) for move in entry.moves]
    assert {move.target for move in moves} == {""}, "nothing is given out while the delay runs"
    assert not third.owned()
    third.close()


def test_told_not_to_keep_it_a_new_leader_gives_out_everything_at_once(node: NodeProcess) -> None:
    settings = {
        "scheduled_rebalance_max_delay_ms": LONG_MS,
        "scheduled_rebalance_delay_survives_leader": False,
    }
    first = worker(node, "g", **settings)
    until(lambda: len(first.owned()) == 4, first, what="the first one leads")
    second = worker(node, "g", **settings)
    until(lambda: len(first.owned()) == len(second.owned()) == 2, first, second, what="both have half")
    first.close()
    until(lambda: len(second.owned()) == 4, second, what="all went to it")
    second.close()
