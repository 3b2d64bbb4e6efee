"""`muster transactions` at a cluster: ids have coordinators on every node, and logs are led by others."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.integration.cli.test_cli_node import Prompt
from tests.support.cluster_nodes import running_cluster
from tests.support.kafka.transaction_script import Server, given

pytestmark = pytest.mark.integration

NAMES = tuple(f"app-{number}" for number in range(6))
STRANGER = (4_711, 3)


async def leave_open(addresses: list[str], topic: str) -> None:
    """A transaction of each id, at its coordinator; and in each partition one that nobody knows, at its leader."""
    first = Server(addresses[0], "")
    for name in NAMES:
        look = partial(first.ask, "FindCoordinator", 3, key=name, key_type=1)
        found = await first.until(look, lambda told: not told.error_code)
        coordinator = Server(f"{found.host}:{found.port}", "")
        held = given(await coordinator.until(partial(coordinator.init, name), lambda told: not told.error_code))
        assert await coordinator.add(name, held, (topic, 0)) == [0]
    for number in range(3):
        codes = [
            (await Server(address, "").send("nobody", STRANGER, (topic, number), 0, version=9))[0]
            for address in addresses
        ]
        assert sorted(codes) == [0, 6, 6], "one of them leads it"


def test_all_nodes_are_asked_and_leaders_write_the_markers(tmp_path: Path, zookeeper: str) -> None:
    more = {"transaction.partition.verification.enable": "false", "transaction.state.log.num.partitions": "4"}
    with running_cluster(tmp_path, zookeeper, settings=more) as cluster:
        addresses = [node.kafka_address for node in cluster.nodes.values()]
        muster = Prompt(cluster.nodes[1].address)
        assert muster("topics", "create", "orders", "--partitions", "3", "--replication-factor", "3").code == 0
        asyncio.run(leave_open(addresses, "orders"))
        listed = muster.json("transactions", "list", "--state", "Ongoing")
        assert isinstance(listed, list)
        assert [row["transactional_id"] for row in listed] == list(NAMES)
        assert len({row["coordinator_id"] for row in listed}) > 1
        for row in listed:
            (told,) = muster.json("transactions", "describe", "--transactional-id", row["transactional_id"])  # type: ignore[misc]
            assert (told["coordinator_id"], told["partitions"]) == (row["coordinator_id"], ["orders-0"])
        where = ("--topic", "orders", "--max-transaction-timeout", "0")
        hanging = muster.json("transactions", "find-hanging", *where)
        assert isinstance(hanging, list)
        assert [row["partition"] for row in hanging] == [0, 1, 2]
        by_node = [muster.json("transactions", "find-hanging", *where, "--broker-id", str(node)) for node in (1, 2, 3)]
        assert sorted(row["partition"] for rows in by_node for row in rows) == [0, 1, 2]  # type: ignore[attr-defined]
        for number in range(3):
            done = muster(
                "transactions", "abort", "--topic", "orders", "--partition", str(number), "--start-offset", "0"
            )
            assert done.code == 0, done.err
        assert muster.json("transactions", "find-hanging", *where) == []
        for name in NAMES:
            assert muster("transactions", "force-terminate", "--transactional-id", name).code == 0
        assert muster.json("transactions", "list", "--state", "Ongoing") == []
