"""Kafka Streams with exactly_once_v2 on a standalone node's own log: killed once, or the node is; each sum is written
once and right."""

from collections.abc import Iterator
from typing import Final

import pytest

from muster.client import Admin
from tests.interop.test_interop_streams import AHEAD, AT_ONCE, Application, Sums, committed
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = pytest.mark.timeout(300)

RECORDS: Final = 2_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"kafka.listeners": "127.0.0.1:0", "transaction.state.log.num.partitions": "5"}
    with running_node(tmp_path_factory.mktemp("streams") / "data", settings) as running:
        yield running


@pytest.mark.parametrize("struck", ["nobody", "application", "node"])
def test_sums_are_written_once_each_whoever_is_killed(node: NodeProcess, struck: str) -> None:
    group, given, made = (f"sums-{struck}{part}" for part in ("", "-in", "-out"))
    sums = Sums(node.kafka_address, given, made)
    application = Application(node.kafka_address, group, given, made)
    try:
        for first in range(0, RECORDS, AT_ONCE):
            sums.put(range(first, first + AT_ONCE))
            if first == RECORDS // 2 and struck != "nobody":
                until(sums.in_transaction, lambda: f"{application}\n{node.log_tail()}")
                if struck == "application":
                    application.again()
                else:
                    node.kill()
                    node.start()
            until(lambda first=first: sums.read() >= first - AHEAD, lambda: f"{application}\n{node.log_tail()}")
        until(lambda: sums.read() >= RECORDS, lambda: f"{sums.read()} sums\n{application}\n{node.log_tail()}")
        assert sums.found == sums.wanted
        with Admin(bootstrap_servers=node.address) as admin:
            until(lambda: committed(admin, group, given) == RECORDS, lambda: f"{committed(admin, group, given)}")
        application.instances[-1].leave()
        until(lambda: application.instances[-1].ended == "left", lambda: f"{application}")
    finally:
        for instance in application.instances:
            instance.kill()
        sums.close()
