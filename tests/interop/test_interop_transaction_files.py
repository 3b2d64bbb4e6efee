"""Logs of transactions are opened by the other side: a broker goes on with a node's, and a node with a broker's."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.kafka_broker import kafka_broker, started_broker
from tests.support.kafka.transaction_script import Server, as_json, given
from tests.support.node import NodeProcess

PARTITIONS: Final = 4
COUNTS: Final = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "transaction.state.log.num.partitions": str(PARTITIONS),
}
TOPICS: Final = ("records", "__transaction_state", "__consumer_offsets")
OPEN_MS: Final = 900_000
IDS: Final = ("done", "gone", "two", "open", "pending")
HERE, THERE = ("records", 0), ("records", 1)


async def live(address: str) -> None:
    """Transactions in every state that is left alone: ended ones of both levels, and open ones."""
    server = Server(address, "")
    await server.ready()
    await server.topic("records")
    for name, commit in (("done", True), ("gone", False)):
        held = given(await server.init(name))
        assert await server.add(name, held, HERE, THERE) == [0, 0]
        await server.send(name, held, HERE, 0, count=2)
        await server.send(name, held, THERE, 0)
        assert await server.add_offsets(name, held, "group") == 0
        assert await server.commit_offsets(name, held, "group", {HERE: 5, THERE: 7 + commit}) == [0, 0]
        assert (await server.end(name, held, commit)).error_code == 0
        await server.ended(name)
    held = given(await server.init("two"))
    for commit in (True, False, True):
        await server.send("two", held, HERE, 0, version=12)
        held = given(await server.end("two", held, commit, version=5))
        await server.ended("two")
    held = given(await server.init("open", timeout_ms=OPEN_MS))
    assert await server.add("open", held, HERE) == [0]
    await server.send("open", held, HERE, 0, count=3)
    held = given(await server.init("pending", timeout_ms=OPEN_MS))
    assert await server.add_offsets("pending", held, "group") == 0
    assert await server.commit_offsets("pending", held, "group", {HERE: 9}) == [0]


async def look(address: str) -> dict[str, Any]:
    """All that a server tells of them. Producer ids are the same on both sides, as they are in the logs."""
    server = Server(address, "")
    await server.ready()
    server.producer = lambda producer_id: str(producer_id)  # type: ignore[method-assign]
    found: dict[str, Any] = {name: await server.state(name) for name in IDS}
    for place in (HERE, THERE):
        await server.until(partial(server.latest, place), lambda told: not told[0])
        found |= {
            f"producers {place[1]}": await server.producers(place),
            f"committed records {place[1]}": await server.fetch(place),
            f"all records {place[1]}": await server.fetch(place, isolation=0),
        }
    found["positions, stable"] = await server.positions("group", HERE, THERE)
    found["positions, any"] = await server.positions("group", HERE, THERE, stable=False)
    return {label: as_json(answer) for label, answer in found.items()}


async def end_what_is_open(address: str) -> dict[str, Any]:
    """Each producer ends its transaction at a server that it did not begin it at."""
    server = Server(address, "")
    for name, commit in (("open", True), ("pending", True)):
        row = (await server.ask("DescribeTransactions", 0, transactional_ids=[name])).transaction_states[0]
        answer = await server.end(name, (row.producer_id, row.producer_epoch), commit)
        assert answer.error_code == 0
        assert await server.ended(name) == "CompleteCommit"
    positions = await server.until(
        lambda: server.positions("group", HERE, THERE), lambda found: all(code != 88 for code, _ in found)
    )
    return {"records": as_json(await server.settled(HERE, 12))[:4], "positions": as_json(positions)}


def replace_logs(theirs: Path, ours: Path) -> None:
    """Put the segments of one side in place of the other's. Topics keep the id that their own side knows them by."""
    for topic in TOPICS:
        for folder in sorted(theirs.glob(f"{topic}-[0-9]")):
            target = ours / folder.name
            assert target.is_dir(), target
            for path in target.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            for path in folder.iterdir():
                if path.name != "partition.metadata":
                    shutil.copy(path, target / path.name)


@contextmanager
def node_at(data: Path) -> Iterator[str]:
    node = NodeProcess(data, {"kafka.listeners": "127.0.0.1:0", **COUNTS})
    node.start()
    try:
        yield node.kafka_address
    finally:
        node.stop()


@pytest.mark.parametrize("writer", ["node", "kafka"])
def test_the_other_side_goes_on_with_the_logs(tmp_path: Path, writer: str) -> None:
    classpath = os.environ.get("KAFKA_BROKER_CLASSPATH")
    if shutil.which("java") is None or not classpath:
        pytest.skip("it takes java, and KAFKA_BROKER_CLASSPATH with the jars of org.apache.kafka:kafka_2.13:4.1.1")
    more = "\n" + "\n".join(f"{name}={value}" for name, value in COUNTS.items()) + "\n"
    place, data = tmp_path / "kafka", tmp_path / "data"
    with kafka_broker(classpath, place, more) as kafka, node_at(data) as node:
        for address in (kafka, node):  # The reader has all the topics, too, with ids of its own.
            asyncio.run(live(address))
        written = asyncio.run(look(node if writer == "node" else kafka))
    port = int(kafka.rpartition(":")[2])
    if writer == "node":
        replace_logs(data, place / "logs")
        with started_broker(classpath, place, port):
            found, ended = asyncio.run(look(kafka)), asyncio.run(end_what_is_open(kafka))
    else:
        replace_logs(place / "logs", data)
        with node_at(data) as node:
            found, ended = asyncio.run(look(node)), asyncio.run(end_what_is_open(node))
    assert found == written
    assert ended["positions"] == [[0, 9], [0, 8]]
    assert ended["records"][1] == ended["records"][2], "readers of committed records get everything"
