"""Consumers and producers of a cluster that moves (CL-K3, CL-K5, CL-K6), against nodes that do as the test says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.client.aio import AsyncConsumer, AsyncProducer
from muster.client.calls import leaders as leading
from muster.client.errors import LogTruncated
from muster.client.types import RecordMetadata
from muster.storage.records.batch import encode_batch
from tests.support.scripted.cluster import (
    FENCED,
    NO_LEADER,
    NOT_LEADER,
    UNKNOWN_EPOCH,
    ScriptedCluster,
    scripted,
)
from tests.support.scripted.node import BROKEN

Story = Callable[[ScriptedCluster], Awaitable[None]]
PATIENCE_S = 20.0


def play(story: Story, nodes: int = 3, *, lonely: bool = False) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), scripted(nodes, lonely=lonely) as cluster:
            await story(cluster)

    asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits are Kafka's; here nobody has to be spared."""
    monkeypatch.setattr(leading, "BACKOFF_MS", 5)
    monkeypatch.setattr(leading, "BACKOFF_MAX_MS", 40)


def batch(*values: bytes) -> bytes:
    return encode_batch([(1, None, value, ()) for value in values])


def consumer(cluster: ScriptedCluster, *, through: int = 1, **more: Any) -> AsyncConsumer:
    given = {"auto_offset_reset": "earliest", "retry_backoff_ms": 5, "reconnect_backoff_ms": 10}
    return AsyncConsumer(bootstrap_servers=cluster.nodes[through].address, **(given | more))


def producer(cluster: ScriptedCluster, *, through: int = 1, **more: Any) -> AsyncProducer:
    given = {"linger_ms": 0, "retry_backoff_ms": 5, "reconnect_backoff_ms": 10}
    return AsyncProducer(bootstrap_servers=cluster.nodes[through].address, **(given | more))


async def read(reader: AsyncConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        message = await reader.poll(5)
        if message is not None:
            found.append(message.value or b"")
    return found


async def send(writer: AsyncProducer, topic: str, value: bytes, partition: int = 0) -> RecordMetadata:
    return await (await writer.send(topic, value, partition=partition))


async def until(condition: Callable[[], bool]) -> None:
    """`play` gives it its time."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def test_records_are_fetched_from_whoever_leads_them_by_one_long_poll_each() -> None:
    """CL-K3: bootstrap.servers is a beginning."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 1, 2, 3, 2)
        for number in range(4):
            cluster.append("t", number, batch(b"%d" % number))
        async with consumer(cluster) as reader:
            await reader.assign([("t", number) for number in range(4)])
            assert sorted(await read(reader, 4)) == [b"0", b"1", b"2", b"3"]
            asked = {
                (said.node, part.partition)
                for said in cluster.calls("Fetch")
                for topic in said.request.topics
                for part in topic.partitions
            }
            assert asked == {(1, 0), (2, 1), (3, 2), (2, 3)}

    play(story)


@pytest.mark.parametrize("code", [NOT_LEADER, FENCED, UNKNOWN_EPOCH, NO_LEADER])
def test_a_refusal_of_who_leads_no_more_loses_no_position(code: int) -> None:
    """CL-K3: 6, 74, 75 and 5 refresh the metadata; nothing is skipped and nothing read twice."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.append("t", 0, batch(b"a", b"b"))
        async with consumer(cluster) as reader:
            await reader.assign([("t", 0)])
            assert await read(reader, 2) == [b"a", b"b"]
            looked = len(cluster.calls("Metadata"))
            cluster.refusal, cluster.hints = code, False
            cluster.lead("t", 0, 3)
            cluster.append("t", 0, batch(b"c"))
            assert await read(reader, 1) == [b"c"]
            assert len(cluster.calls("Metadata")) > looked
            assert reader.truncations() == 0

    play(story)


def test_who_says_who_leads_saves_a_look() -> None:
    """CL-K2: `current_leader` of a refusal is as good as metadata."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        async with producer(cluster) as writer, consumer(cluster) as reader:
            await send(writer, "t", b"a")
            await reader.assign([("t", 0)])
            assert await read(reader, 1) == [b"a"]
            looked = len(cluster.calls("Metadata"))
            cluster.lead("t", 0, 3)
            await send(writer, "t", b"b")
            assert await read(reader, 1) == [b"b"]
            assert len(cluster.calls("Metadata")) == looked

    play(story)


def test_a_leader_that_dies_is_followed_by_the_next_one() -> None:
    """CL-K3: a broken connection refreshes the metadata, by a node that lives: here bootstrap is dead."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 1)
        cluster.append("t", 0, batch(b"a"))
        async with consumer(cluster) as reader:
            await reader.assign([("t", 0)])
            assert await read(reader, 1) == [b"a"]
            await cluster.nodes[1].die()
            cluster.lead("t", 0, 3)
            cluster.append("t", 0, batch(b"b"))
            assert await read(reader, 1) == [b"b"]
            assert {said.node for said in cluster.calls("Metadata")} - {1}

    play(story)


def test_metadata_of_an_older_leader_epoch_is_not_taken() -> None:
    """CL-K3: a node that is behind sends nobody back to a former leader."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        async with producer(cluster) as writer:
            await writer.produce("t", b"a")
            await writer.flush()
            cluster.lead("t", 0, 3)
            await writer.produce("t", b"b")
            await writer.flush()
            known = writer._core.transport.leaders
            assert known.leader(("t", 0)) == (3, 1)

            async def old(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
                answer = await truth()
                answer.topics[0].partitions[0].leader_id, answer.topics[0].partitions[0].leader_epoch = 2, 0
                return answer

            for node in cluster.nodes.values():
                node.next("Metadata", old)
            looked = len(cluster.calls("Metadata"))
            known.refresh_leaders([("t", 0)])
            await until(lambda: len(cluster.calls("Metadata")) > looked and known._task.done())
            assert known.leader(("t", 0)) == (3, 1)

    play(story)


def test_a_single_node_is_asked_as_before() -> None:
    """CL-K3: one channel, one Metadata of a producer or of a consumer that assigns, one producer id, no epochs."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 1, 1)
        async with producer(cluster) as writer:
            for number in range(3):
                await writer.produce("t", b"%d" % number, partition=0)
                await writer.flush()
            channels = [len(writer._core.transport._channels)]
        async with consumer(cluster) as reader:
            await reader.assign([("t", 0), ("t", 1)])
            assert await read(reader, 3) == [b"0", b"1", b"2"]
            channels.append(len(reader._core.transport._channels))
        assert channels == [1, 1]
        assert [len(cluster.calls(name)) for name in ("Metadata", "InitProducerId", "Produce")] == [2, 1, 3]
        for said in cluster.calls("Fetch"):
            for part in said.request.topics[0].partitions:
                assert not part.HasField("current_leader_epoch")
                assert not part.HasField("last_fetched_epoch")

    play(story, 1, lonely=True)


def test_a_batch_whose_answer_was_lost_is_written_once() -> None:
    """CL-K6: it is sent again under its sequence numbers, to whoever leads by then."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)

        async def write_and_break(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
            await truth()
            cluster.lead("t", 0, 3)
            return BROKEN

        async with producer(cluster) as writer:
            cluster.nodes[2].next("Produce", write_and_break)
            first = asyncio.ensure_future(send(writer, "t", b"a"))
            assert (await first).offset == 0
            assert (await send(writer, "t", b"b")).offset == 1
        assert cluster.values("t") == [b"a", b"b"]
        assert {said.node for said in cluster.calls("Produce")} == {2, 3}

    play(story)


@pytest.mark.parametrize("code", [NOT_LEADER, 7, 19, 20])
def test_a_batch_that_may_be_written_or_not_is_sent_again_under_its_numbers(code: int) -> None:
    """CL-K6: 6, 7, 19 and 20; what was written under these is not written a second time."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        written = code != 19

        async def refuse(request: Any, truth: Callable[[], Awaitable[Any]]) -> Any:
            answer = await truth() if written else None
            if answer is None:
                answer = leading.pb.ProduceResponse()
                answer.responses.add(name="t").partition_responses.add(index=0)
            answer.responses[0].partition_responses[0].error_code = code
            return answer

        async with producer(cluster) as writer:
            cluster.nodes[2].next("Produce", refuse)
            for number in range(3):
                await writer.produce("t", b"%d" % number, partition=0)
            await writer.flush()
        assert cluster.values("t") == [b"0", b"1", b"2"]
        assert len(cluster.calls("InitProducerId")) == 1

    play(story)


def test_order_is_kept_through_a_move() -> None:
    """CL-K6: of a partition one batch is under way at a time, whoever leads."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 1, 2, 3)
        async with producer(cluster, batch_size=64) as writer:
            for number in range(90):
                await writer.produce("t", b"%d" % number, partition=number % 3)
                if number == 30:
                    cluster.lead("t", 1, 3)
                if number == 60:
                    await cluster.nodes[3].die()
                    cluster.lead("t", 1, 1)
                    cluster.lead("t", 2, 2)
            await writer.flush()
        for partition in range(3):
            assert cluster.values("t", partition) == [b"%d" % number for number in range(partition, 90, 3)]

    play(story)


def test_a_partition_that_nobody_leads_does_not_hold_up_the_others() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2, 2)
        async with producer(cluster) as writer:
            await send(writer, "t", b"x", partition=0)
            cluster.lead("t", 1, -1)
            stuck = asyncio.ensure_future(send(writer, "t", b"later", partition=1))
            for number in range(5):
                await send(writer, "t", b"%d" % number, partition=0)
            assert not stuck.done()
            cluster.lead("t", 1, 3)
            assert (await stuck).offset == 0

    play(story)


def test_a_leader_that_keeps_silent_is_left_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-K3: a node that is frozen, or cut off, answers nothing; metadata says who leads before the call is over."""
    monkeypatch.setattr(leading, "SUSPECT_MS", 20)

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        async with producer(cluster) as writer, consumer(cluster, fetch_max_wait_ms=20) as reader:
            await send(writer, "t", b"a")
            await reader.assign([("t", 0)])
            assert await read(reader, 1) == [b"a"]
            cluster.nodes[2].awake.clear()
            waits = asyncio.ensure_future(send(writer, "t", b"b"))
            await until(lambda: len(cluster.calls("Produce", 2)) == 2)
            cluster.lead("t", 0, 3)
            assert (await waits).offset == 1
            assert await read(reader, 1) == [b"b"]

    play(story)


def test_a_consumer_goes_back_to_where_the_logs_part_and_counts_it() -> None:
    """CL-K5: records that were read and are gone after an unclean election; others take their offsets."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.append("t", 0, batch(b"a"))
        cluster.append("t", 0, batch(b"lost"))
        async with consumer(cluster) as reader:
            await reader.assign([("t", 0)])
            assert await read(reader, 2) == [b"a", b"lost"]
            cluster.unclean("t", 0, 3, keep=1)
            cluster.append("t", 0, batch(b"b"))
            assert await read(reader, 1) == [b"b"]
            assert reader.truncations() == 1

    play(story)


def test_without_a_reset_a_consumer_is_told_what_the_log_lost() -> None:
    """CL-K5: both offsets, and nothing is read on until the application has said where."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.append("t", 0, batch(b"a"))
        cluster.append("t", 0, batch(b"lost", b"too"))
        async with consumer(cluster, auto_offset_reset="none") as reader:
            await reader.assign([("t", 0)])
            await reader.seek(("t", 0), 0)
            assert await read(reader, 3) == [b"a", b"lost", b"too"]
            cluster.unclean("t", 0, 3, keep=1)
            cluster.append("t", 0, batch(b"b"))
            with pytest.raises(LogTruncated, match="t-0: records up to offset 3 were read, and from 1 on") as told:
                await read(reader, 1)
            assert (told.value.partition, told.value.offset, told.value.divergence) == (("t", 0), 3, 1)
            await reader.seek(("t", 0), told.value.divergence)
            assert await read(reader, 1) == [b"b"]

    play(story)


def test_a_position_is_committed_with_the_epoch_of_its_record_and_checked_by_whoever_reads_on() -> None:
    """CL-K5: another consumer begins where one stood that had read what is lost."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.coordinators["g"] = 3
        cluster.append("t", 0, batch(b"a"))
        cluster.lead("t", 0, 2)
        cluster.append("t", 0, batch(b"lost"))
        async with consumer(cluster, group_id="g", enable_auto_commit=False) as reader:
            await reader.assign([("t", 0)])
            assert await read(reader, 2) == [b"a", b"lost"]
            await reader.commit()
        assert cluster.committed == {("g", "t", 0): (2, 1)}
        cluster.unclean("t", 0, 3, keep=1)
        cluster.append("t", 0, batch(b"b", b"c"))
        async with consumer(cluster, group_id="g") as reader:
            await reader.assign([("t", 0)])
            assert await read(reader, 2) == [b"b", b"c"]
            assert reader.truncations() == 1

    play(story)


def test_a_node_that_is_gone_for_long_keeps_no_channel() -> None:
    """CL-K3: metadata older than metadata.max.age.ms is asked for again, and tells of nodes that are no more."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        async with producer(cluster, metadata_max_age_ms=1) as writer:
            await send(writer, "t", b"a")
            transport = writer._core.transport
            assert cluster.nodes[2].address in transport._channels
            await cluster.nodes[2].die()
            cluster.lead("t", 0, 3)
            await send(writer, "t", b"b")

            looked = len(cluster.calls("Metadata"))
            while cluster.nodes[2].address in transport._channels or len(cluster.calls("Metadata")) < looked + 2:
                await send(writer, "t", b"c")

    play(story)


def test_a_consumer_waits_for_a_partition_that_nobody_leads() -> None:
    """CL-K3: it goes on asking, a little later each time, and the others are read meanwhile."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2, -1)
        async with consumer(cluster) as reader:
            await reader.assign([("t", 0), ("t", 1)])
            await reader.seek(("t", 1), 0)
            looking = asyncio.ensure_future(read(reader, 2))
            await until(lambda: len(cluster.calls("Metadata")) > 4)
            cluster.append("t", 0, batch(b"a"))
            cluster.lead("t", 1, 3)
            cluster.append("t", 1, batch(b"b"))
            assert sorted(await looking) == [b"a", b"b"]

    play(story)


def test_a_consumer_asks_anew_who_leads_once_what_it_knows_is_old() -> None:
    """CL-K3: metadata.max.age.ms, though nothing has gone wrong."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.append("t", 0, batch(b"a"))
        async with consumer(cluster, metadata_max_age_ms=1, fetch_max_wait_ms=5) as reader:
            await reader.assign([("t", 0)])
            assert await read(reader, 1) == [b"a"]
            await until(lambda: len(cluster.calls("Metadata")) > 4)

    play(story)
