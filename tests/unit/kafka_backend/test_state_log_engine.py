"""An engine over a state topic: who hears what when, what is sent again, and what a batch has no room for."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend import state_log
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, ShardBatch, ShardRecordRead
from muster.coordinator.kafka_backend.state_log import StateLog, fit_turn, wire_of
from muster.coordinator.kafka_backend.state_log_io import log_batches_of
from muster.coordinator.kafka_backend.state_topic import StateTopicSpec, UnusableUpstream, prepare_state_topic
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.leased import COMMIT_TIMEOUT_MS
from muster.coordinator.runtime.ports import KeyValue, LogFailed
from muster.coordinator.server.driver.clock import NodeClock
from muster.storage.records.batch import encode_batch, read_batches
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import UpstreamBroker, metadata
from tests.support.kafka_backend.over_kafka import OverKafka

SHARDS = 2


def run(story: Callable[[StateTopic, UpstreamBroker, str], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", SHARDS)
            topic.configs["min.insync.replicas"] = "1"  # of one copy, which the node asks for here
            await story(topic, broker, f"127.0.0.1:{broker.address.port}")

    asyncio.run(whole())


def over(address: str, instance: str = "one") -> OverKafka:
    return OverKafka(address, "muster", SHARDS, instance=instance)


# -- what is told when ----------------------------------------------------------------------------------


def test_what_was_acknowledged_is_there_for_the_next_owner() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            told = await asyncio.gather(*(node.commit(f"g{number}", number) for number in range(10)))
            assert set(told) == {ErrorCode.NONE}
        async with over(address, "two") as node:
            await node.all_served()
            assert [await node.committed(f"g{number}") for number in range(10)] == list(range(10))
            assert {(report.owner.turn, report.owner.producer.epoch) for report in node.served.values()} == {(2, 1)}
        first = topic.parts[0].read[0]
        assert (first.count, first.base_sequence, first.producer_epoch) == (1, 0, 0), "the owner record comes first"
        assert first.records()[0].key == b"\xffowner 1 %d 0" % first.producer_id

    run(story)


def test_nobody_hears_of_a_commit_before_kafka_has_it() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            held, asked = asyncio.Event(), asyncio.Event()

            def hold() -> Any:
                asked.set()
                return held.wait()

            topic.before_produce = hold
            answer = asyncio.ensure_future(node.commit("g", 1))
            await asyncio.wait_for(asked.wait(), 10)
            assert not answer.done()
            reading = asyncio.ensure_future(node.committed("g"))
            await asyncio.sleep(0)
            assert not reading.done(), "nor by reading it"
            held.set()
            assert (await answer, await reading) == (ErrorCode.NONE, 1)

    run(story)


class Shifted(NodeClock):
    shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


def test_a3_who_waits_too_long_hears_so_and_what_was_written_counts_all_the_same() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            held = asyncio.Event()
            topic.before_produce = held.wait
            clock = Shifted()
            clock._offset_s = node.clock._offset_s
            node.clock = clock
            answer = asyncio.ensure_future(node.commit("g", 1))
            await node.changes(0.01)
            clock.shift_ms = COMMIT_TIMEOUT_MS + 1
            # The engine has the former clock's method; what it is asked with is the moment.
            node.owning._clock_ms = clock.now_ms
            assert await answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
            held.set()
            assert await node.committed("g") == 1

    run(story)


def test_what_was_decided_meanwhile_leaves_together() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            before = len(broker.of("Produce"))
            await asyncio.gather(*(node.commit(f"g{number}", number) for number in range(40)))
            assert len(broker.of("Produce")) - before <= 4

    run(story)


# -- bad moments ----------------------------------------------------------------------------------------


def test_a_leader_that_is_gone_is_not_asked_for_ever_who_leads_now_is() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with UpstreamBroker() as gone:
            where = gone.address
        brokers = {1: broker.address, 2: where}
        told = dict.fromkeys(range(SHARDS), (2, 1))
        broker.answers["Metadata"] = lambda request: metadata(brokers, {topic.topic: told})
        async with over(address) as node, asyncio.timeout(10):
            await node.until(lambda: node.owning.shards.stages())
            told.update(dict.fromkeys(range(SHARDS), (1, 2)))
            await node.all_served()

    run(story)


def test_after_a_lost_answer_the_same_bytes_are_sent_again_and_lie_there_once() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            ends = sum(part.end for part in topic.parts)
            topic.acks_to_lose = 1
            assert await node.commit("g", 7) is ErrorCode.NONE
            assert await node.committed("g") == 7
            assert sum(part.end for part in topic.parts) == ends + 1
            first, again = (bytes(each.topic_data[0].partition_data[0].records) for each in broker.of("Produce")[-2:])
            assert first == again

    run(story)


@pytest.mark.parametrize("code", [6, 7, 19, 20, 3])
def test_what_may_pass_is_tried_again(code: int) -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            topic.codes.append(code)
            assert await node.commit("g", 7) is ErrorCode.NONE
            assert node.lost == {}

    run(story)


def test_who_is_fenced_tells_everybody_to_look_elsewhere_and_keeps_the_other_shards() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            topic.codes.append(47)
            assert await node.commit("g", 7) is ErrorCode.NOT_COORDINATOR
            (gone,) = node.fenced
            assert "another owner has begun" in node.lost[gone]
            assert node.alone.mine == frozenset(range(SHARDS)) - {gone}

    run(story)


def test_a_shard_that_disagrees_with_the_broker_is_taken_anew() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            await node.commit("g", 1)
            topic.codes.append(45)
            assert await node.commit("g", 2) is ErrorCode.NOT_COORDINATOR
            await node.until(lambda: len(node.served) == SHARDS)
            assert await node.committed("g") == 1
            assert await node.commit("g", 3) is ErrorCode.NONE
            assert sorted(report.owner.turn for report in node.served.values()) == [1, 2]

    run(story)


def test_a_shard_that_the_engine_drops_is_taken_anew() -> None:
    async def story(topic: StateTopic, broker: UpstreamBroker, address: str) -> None:
        async with over(address) as node:
            await node.all_served()
            await node.commit("g", 1)
            node.log.batch_bytes = 10
            assert await node.commit("g", 2) is not ErrorCode.NONE
            node.log.batch_bytes = 1 << 20
            await node.until(lambda: node.lost)
            await node.until(lambda: len(node.served) == SHARDS)
            assert await node.committed("g") == 1
            assert await node.commit("g", 3) is ErrorCode.NONE

    run(story)


# -- what a batch has room for --------------------------------------------------------------------------


def test_an_entry_of_the_ledger_that_is_too_large_is_cut_and_a_group_s_record_is_refused() -> None:
    entry = {"version": 1, "entry": {"group": "g", "snapshot": "s" * 500, "plan": "p" * 500}}
    large = (b'{"group":"g"}', json.dumps(entry).encode(), -1)
    hopeless = (b'{"group":"h"}', json.dumps({"version": 1, "entry": {"why": "w" * 500}}).encode(), -1)
    group = (b"\0\0", b"v", -1)
    short, gone, last = fit_turn(0, [group], [large, hopeless], 300)
    assert json.loads(short[1] or b"") == {"version": 1, "entry": {"group": "g"}, "cut": True}
    assert gone == (b'{"group":"h"}', None, -1)
    assert last is group, "the ledger's come first"
    with pytest.raises(LogFailed, match=r"shard 3 takes 402 bytes, .* room for 268 in one; raise max\.message\.bytes"):
        fit_turn(3, [(b"\0\0", b"v" * 400, -1)], [], 300)


def test_a_batch_is_made_once_and_compressed_where_that_pays() -> None:
    records = [(b"key", b"value" * 100, 0)] * 10
    batch = ShardBatch(0, ProducerEpoch(7, 3), 5, records, 5_030, 1)
    wire = wire_of(batch, 1_000)
    assert wire_of(batch, 2_000) is wire
    (view,) = read_batches(wire)
    assert (view.codec, view.producer_id, view.producer_epoch, view.base_sequence) == ("zstd", 7, 3, 5)
    assert view.crc_ok
    assert [record.value for record in view.records()] == [b"value" * 100] * 10
    small = next(read_batches(wire_of(ShardBatch(0, ProducerEpoch(7, 3), 0, records[:1], 503, 1), 0)))
    assert small.codec == "none"


def test_markers_are_told_from_records() -> None:
    def marker(kind: int) -> bytes:
        return encode_batch(
            [(0, b"\0\0" + kind.to_bytes(2, "big"), b"", ())], producer_id=9, producer_epoch=1, control=True
        )

    data = encode_batch([(0, b"k", b"v", ())], producer_id=9, producer_epoch=1, transactional=True)
    told = list(log_batches_of(read_batches(data + marker(1) + marker(0) + marker(5))))
    assert [(each.marker, each.transactional, len(each.records)) for each in told] == [
        (None, True, 1),
        (True, False, 0),
        (False, False, 0),
        (None, False, 0),
    ]
    assert told[0].producer == ProducerEpoch(9, 1)


@pytest.mark.parametrize("most", [1, 1_000])
def test_what_was_read_is_given_as_it_was_and_the_ledger_apart(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much of it is thinned out: of each key the newest stays."""
    monkeypatch.setattr(state_log, "THIN_OUT_FROM", most)
    log = StateLog(1_000)
    with pytest.raises(LogFailed, match="shard 0 is not read yet"):
        log.read_groups(0)
    log.begin_shard(0)
    log.hold(
        0,
        [
            ShardRecordRead(b"\0a", b"1", 0),
            ShardRecordRead(b"{l}", b"x", 1),
            ShardRecordRead(b"\0b", b"2", 2),
            ShardRecordRead(b"\0a", b"3", 3),
        ],
    )
    kept = [KeyValue(b"\0b", b"2", 2), KeyValue(b"\0a", b"3", 3)]
    if (read := log.much(0)) is not None:
        read.thin_out()
    assert list(log.read_groups(0)) == (kept if most == 1 else [KeyValue(b"\0a", b"1", 0), *kept])
    assert list(log.read_ledger(0)) == [KeyValue(b"{l}", b"x", 1)]


# -- whether an upstream will do ------------------------------------------------------------------------


WANTED = StateTopicSpec("muster.state", SHARDS, 3, 1_000_000)


def started(
    change: Callable[[StateTopic, UpstreamBroker], None], wanted: StateTopicSpec = WANTED, *, exists: bool = True
) -> tuple[int, StateTopic]:
    async def whole() -> tuple[int, StateTopic]:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", SHARDS, exists=exists)
            change(topic, broker)
            upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=5))
            try:
                return await prepare_state_topic(upstream, wanted), topic
            finally:
                upstream.close()

    return asyncio.run(whole())


def test_a_topic_that_is_there_is_taken_as_it_is() -> None:
    batch_bytes, topic = started(lambda topic, broker: None)
    assert (batch_bytes, topic.made) == (8_388_608 - 838_860, [])


def test_a_topic_that_is_missing_is_made() -> None:
    _, topic = started(lambda topic, broker: None, exists=False)
    (made,) = topic.made
    assert (made.num_partitions, made.replication_factor) == (SHARDS, 3)
    assert {each.name: each.value for each in made.configs} == {
        "cleanup.policy": "compact",
        "max.message.bytes": "8388608",
        "segment.bytes": "104857600",
        "compression.type": "producer",
        "message.timestamp.type": "LogAppendTime",
        "min.compaction.lag.ms": "3600000",
        "min.insync.replicas": "2",
    }


def with_config(name: str, value: str) -> Callable[[StateTopic, UpstreamBroker], None]:
    return lambda topic, broker: topic.configs.update({name: value})


@pytest.mark.parametrize(
    ("change", "wanted", "sentence"),
    [
        (with_config("cleanup.policy", "delete"), WANTED, "cleanup.policy of the upstream's muster.state is 'delete'"),
        (with_config("min.insync.replicas", "1"), WANTED, "min.insync.replicas of the upstream's muster.state is 1"),
        (
            lambda topic, broker: None,
            WANTED._replace(partitions=50),
            "offsets.topic.num.partitions is 50, but the upstream's muster.state has 2 partitions",
        ),
        (
            lambda topic, broker: setattr(topic, "broker_id", 1_000_000),
            WANTED,
            "the upstream has a broker of id 1000000",
        ),
        (
            lambda topic, broker: broker.offers.update({22: (0, 0), 3: (0, 9)}),
            WANTED,
            "the upstream does not speak Metadata 10, InitProducerId 1, which is needed; expected Apache Kafka",
        ),
    ],
)
def test_an_upstream_that_will_not_do_is_refused_in_a_sentence(
    change: Callable[[StateTopic, UpstreamBroker], None], wanted: StateTopicSpec, sentence: str
) -> None:
    with pytest.raises(UnusableUpstream) as caught:
        started(change, wanted)
    assert sentence in str(caught.value)
