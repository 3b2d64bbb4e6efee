"""Consumers of that era that die, freeze, lose their session or stop polling; and the famous failure of a rebalance."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from muster.client import Consumer, aio
from muster.client.errors import CommitFailed, ConsumerRebalanceFailed, ZookeeperAway
from muster.client.membership.zookeeper_membership import ZookeeperJoining
from muster.coordinator.core.model.types import Cause
from tests.integration.conftest import Run
from tests.support.client_stories import Told, poll_until
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import Process, create, era_node, era_properties, fill, plain, wait_for


@pytest.fixture
def node(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=4)
        yield node


def collected(consumer: Consumer, until: Callable[[list[int]], object], what: str) -> list[int]:
    """What it reads until the condition on that holds."""
    found: list[int] = []

    def enough() -> object:
        found.extend(int(message.value or b"") for message in consumer.consume(50, 0.05))
        return until(found)

    wait_for(enough, what)
    return found


def expire(consumer: Consumer) -> None:
    """End its session as the servers would: a second client with its id and password says goodbye in its name."""
    joining = consumer._core.joining
    assert isinstance(joining, ZookeeperJoining)
    assert joining._session is not None
    twin = KazooClient(hosts=joining._session.connect.hosts, client_id=joining._session.client.client_id)
    twin.start(timeout=20)
    twin.stop()
    twin.close()


def test_a_frozen_consumer_loses_its_partitions_and_is_refused_on_waking(node: NodeProcess, zookeeper: str) -> None:
    fill(node, "t", 4, 40)
    frozen = Process(era_properties(zookeeper, consumer_id="a"), "t")
    try:
        wait_for(lambda: len(frozen.told("record")) == 40, "it read everything")
        wait_for(lambda: frozen.told("committed"), "it committed")
        frozen.freeze()
        fill(node, "t", 4, 40, first=40)
        with Consumer(era_properties(zookeeper, consumer_id="b")) as other:
            other.subscribe("t")
            rest = collected(other, lambda found: len(found) >= 40, "its session ends, and all moves")
            assert sorted(rest) == list(range(40, 80)), "from its last commit on, nothing twice"
            other.commit()
            frozen.told("alive")
            before = len(frozen.lines)
            frozen.wake()
            poll_until(lambda: bool(frozen.told("lost")), other, what="it hears that all is lost")
            lost = frozen.told("lost")[0]
            assert (lost["cause"], len(lost["partitions"])) == ("SESSION_EXPIRED", 4)
            meanwhile = [line["kind"] for line in frozen.lines[before : frozen.lines.index(lost)]]
            # The answer to one commit may have been on its way to it when it froze.
            assert meanwhile.count("committed") <= 1, "awake, but not an owner any more"
            poll_until(
                lambda: len(frozen.told("assigned")) == 2 and len(other.assignment()) == 2, other, what="two each again"
            )
            fill(node, "t", 4, 8, first=80)

            def theirs() -> list[int]:
                # What it had fetched when it froze it may read on waking, before it hears what it has lost.
                frozen.told("record")
                heard = frozen.lines[frozen.lines.index(lost) :]
                return [int(line["value"]) for line in heard if line["kind"] == "record"]

            mine = collected(other, lambda found: len(found) + len(theirs()) >= 8, "the rest")
            # Had one of its late commits been taken, what the other one had read would come again.
            assert sorted(mine + theirs()) == list(range(80, 88))
    finally:
        frozen.wake()
        frozen.kill()


def test_a_dead_owner_outlives_too_few_retries(node: NodeProcess, zookeeper: str) -> None:
    few = {"rebalance.max.retries": 1, "rebalance.backoff.ms": 100}
    doomed = Process(era_properties(zookeeper, consumer_id="z", zookeeper_session_timeout_ms=4_000), "t")
    first = Consumer(era_properties(zookeeper, consumer_id="m"))
    second = Consumer({**era_properties(zookeeper, consumer_id="n"), **few})
    try:
        first.subscribe("t")
        poll_until(lambda: len(first.assignment()) == 2 and bool(doomed.told("assigned")), first, what="two each")
        doomed.kill()
        # The dead one is registered still, and still counts: m gets 0 and 1, n 2, z 3. But z's node on 2 is there.
        second.subscribe("t")
        with pytest.raises(ConsumerRebalanceFailed, match=r"can't rebalance after 1 retries.*t-2 by g_z-0") as failed:
            poll_until(lambda: bool(second.assignment()), first, second, what="never")
        assert failed.value.holders == {("t", 2): "g_z-0"}
        # Its session ends, its registration goes, and the watch on that starts the rebalance anew.
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second, what="two each")
    finally:
        second.close()
        first.close()
        doomed.kill()


def test_an_expired_session_means_lost_and_a_new_registration(node: NodeProcess, zookeeper: str) -> None:
    told = Told()
    with Consumer(era_properties(zookeeper)) as consumer, plain(zookeeper) as client:
        consumer.subscribe("t", **told.callbacks())
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
        before, token = consumer.memberid(), consumer.fencing_token(("t", 0))
        expire(consumer)
        poll_until(lambda: len(told.assigned) == 2, consumer, what="assigned again")
        assert [(len(partitions), event.cause) for partitions, event in told.lost] == [(4, Cause.SESSION_EXPIRED)]
        assert told.revoked == []
        assert consumer.memberid() != before
        assert consumer.fencing_token(("t", 0)).generation > token.generation
        assert client.get("/consumers/g/owners/t/0")[0].decode() == f"{consumer.memberid()}-0"


def test_a_deleted_registration_costs_the_partitions_not_the_consumer(node: NodeProcess, zookeeper: str) -> None:
    told = Told()
    with Consumer(era_properties(zookeeper)) as consumer, plain(zookeeper) as client:
        consumer.subscribe("t", **told.callbacks())
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
        client.delete(f"/consumers/g/ids/{consumer.memberid()}")
        poll_until(lambda: len(told.assigned) == 2, consumer, what="assigned again")
        assert told.lost[0][1].cause is Cause.MEMBER_FENCED


def test_a_commit_counts_only_for_what_is_claimed(node: NodeProcess, zookeeper: str) -> None:
    with Consumer(era_properties(zookeeper)) as consumer, plain(zookeeper) as client:
        consumer.subscribe("t")
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
        with pytest.raises(CommitFailed, match=r"u-0 is not claimed by this consumer"):
            consumer.commit(offsets={("u", 0): 1})
        assert not client.exists("/consumers/g/offsets/u")


def test_who_stops_polling_gives_up_its_partitions_and_may_come_back(node: NodeProcess, zookeeper: str) -> None:
    told = Told()
    idle = Consumer(era_properties(zookeeper, max_poll_interval_ms=1_000))
    other = Consumer(era_properties(zookeeper))
    with idle, other:
        idle.subscribe("t", **told.callbacks())
        poll_until(lambda: len(idle.assignment()) == 4, idle, what="all")
        other.subscribe("t")
        poll_until(lambda: len(other.assignment()) == 4, other, what="all moves to who polls")
        poll_until(lambda: len(idle.assignment()) == len(other.assignment()) == 2, idle, other, what="two each")
    assert told.lost[0][1].cause is Cause.POLL_TIMEOUT


def test_a_subscription_may_change(node: NodeProcess, zookeeper: str) -> None:
    create(node, u=2)
    with Consumer(era_properties(zookeeper)) as consumer, plain(zookeeper) as client:
        consumer.subscribe("t")
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="t")
        consumer.subscribe(["u"])
        poll_until(lambda: consumer.assignment() == {("u", 0), ("u", 1)}, consumer, what="u")
        assert client.get_children("/consumers/g/ids") == [consumer.memberid()]
        assert client.get_children("/consumers/g/owners/t") == []
        consumer.unsubscribe()
        assert client.get_children("/consumers/g/ids") == []
        consumer.subscribe("t")
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="t again")


def test_the_asyncio_twin_reads_and_leaves(node: NodeProcess, zookeeper: str, run: Run) -> None:
    fill(node, "t", 4, 12)

    async def story() -> None:
        async with aio.AsyncConsumer(era_properties(zookeeper)) as consumer:
            await consumer.subscribe("t")
            async with asyncio.timeout(30):
                read = [await anext(aiter(consumer)) for _ in range(12)]
            assert len({(m.partition, m.offset) for m in read}) == 12
            await consumer.commit()
        with plain(zookeeper) as client:
            assert client.get("/consumers/g/offsets/t/3")[0] == b"3"
            assert client.get_children("/consumers/g/ids") == []

    run(story)


def test_no_ensemble_and_no_node_are_told_apart(zookeeper: str) -> None:
    nowhere = era_properties("127.0.0.1:1", zookeeper_connection_timeout_ms=300)
    with Consumer(nowhere) as consumer, pytest.raises(ZookeeperAway, match=r"no ZooKeeper answered at 127\.0\.0\.1:1"):
        consumer.subscribe("t")
    with Consumer(era_properties(zookeeper)) as consumer, pytest.raises(ZookeeperAway, match=r"no node is registered"):
        consumer.subscribe("t")
