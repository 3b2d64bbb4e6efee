"""Consumers and producers against a real node: sharing, handing over, positions, commits."""

from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Producer, TopicPartition
from muster.client.errors import CommitFailed, IllegalState, NoOffset, OffsetOutOfRange, UnknownTopic
from muster.client.records.accumulator import choose_partition
from muster.coordinator.core.model.types import Cause
from muster.coordinator.observability.views.ledger import is_rebalance
from tests.support.client_stories import Told, member, poll_until, read
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration


def test_records_come_back_as_they_were_sent_in_order_per_key(
    node: NodeProcess, producer: Producer, topic: str
) -> None:
    for number in range(200):
        producer.produce(topic, f"value {number}", f"key {number % 7}", headers={"n": b"%d" % number, "none": None})
    producer.produce(topic, None, b"tombstone", timestamp=1_234)
    producer.flush()
    with member(node, topic) as consumer:
        consumer.subscribe(topic)
        messages = read(consumer, 201)
    assert {m.partition for m in messages if m.key == b"key 3"} == {choose_partition(b"key 3", 4)}
    for key in range(7):
        mine = [m.value for m in messages if m.key == f"key {key}".encode()]
        assert mine == [f"value {number}".encode() for number in range(key, 200, 7)]
    tombstone = next(m for m in messages if m.key == b"tombstone")
    assert (tombstone.value, tombstone.timestamp_ms) == (None, 1_234)
    some = next(m for m in messages if m.value == b"value 5")
    assert some.headers == (("n", b"5"), ("none", None))


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_producer_may_compress(node: NodeProcess, topic: str, codec: str) -> None:
    with Producer(bootstrap_servers=node.address, compression_type=codec) as producer:
        sent = [producer.send(topic, b"x" * 500, partition=2) for _ in range(100)]
    assert [future.result().offset for future in sent] == list(range(100))
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 2)])
        assert {m.value for m in read(consumer, 100)} == {b"x" * 500}


def test_two_eager_members_share_and_the_second_takes_over(node: NodeProcess, topic: str) -> None:
    one_told, two_told = Told(), Told()
    one, two = member(node, topic), member(node, topic)
    one.subscribe([topic], **one_told.callbacks())
    poll_until(lambda: len(one.assignment()) == 4, one, what="the first member owns all")
    before = one.fencing_token((topic, 3))
    two.subscribe([topic], **two_told.callbacks())
    poll_until(lambda: len(one.assignment()) == 2 and len(two.assignment()) == 2, one, two, what="both share")
    assert not one.assignment() & two.assignment()

    revoked, event = one_told.revoked[0]
    assert (len(revoked), event.kind, event.protocol) == (4, "revoked", "eager")
    _, event = two_told.assigned[0]
    assert event.cause is Cause.MEMBER_JOINED
    assert event.rebalance_number == 2

    one.close()
    poll_until(lambda: len(two.assignment()) == 4, two, what="the second member takes over")
    assert two_told.assigned[-1][1].cause is Cause.MEMBER_LEFT
    assert two.fencing_token((topic, 3)).generation > before.generation
    two.close()


def test_cooperative_members_hear_only_of_what_moves(node: NodeProcess, topic: str) -> None:
    told = Told()
    one = member(node, topic, partition_assignment_strategy="cooperative-sticky")
    two = member(node, topic, partition_assignment_strategy="cooperative-sticky")
    one.subscribe([topic], **told.callbacks())
    poll_until(lambda: len(one.assignment()) == 4, one, what="the first member owns all")
    two.subscribe([topic])
    poll_until(lambda: len(two.assignment()) == 2, one, two, what="the second member gets its half")
    assert [len(partitions) for partitions, _ in told.revoked] == [2]
    assert told.revoked[0][1].protocol == "cooperative"
    assert told.lost == []
    kept = next(iter(one.assignment()))
    assert one.fencing_token(kept).generation == 1
    one.close()
    two.close()


def test_a_commit_inside_on_revoke_is_where_the_next_owner_begins(
    node: NodeProcess, producer: Producer, topic: str
) -> None:
    for number in range(40):
        producer.produce(topic, b"%d" % number, partition=number % 4)
    producer.flush()
    one = member(node, topic, enable_auto_commit=False)
    one.subscribe([topic], on_revoke=lambda consumer, partitions: consumer.commit())
    seen = read(one, 10)
    one.close()
    two = member(node, topic, enable_auto_commit=False)
    two.subscribe([topic])
    seen += read(two, 30)
    assert sorted(int(m.value) for m in seen) == list(range(40))
    assert two.poll(0.3) is None
    two.close()


def test_automatic_commits_cover_what_was_done_but_not_what_failed(
    node: NodeProcess, producer: Producer, topic: str
) -> None:
    for number in range(5):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush()

    def work_until_it_breaks() -> None:
        with member(node, topic) as one:
            one.subscribe([topic])
            for message in one:
                if message.value == b"2":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work_until_it_breaks()
    with member(node, topic) as two:
        two.subscribe([topic])
        assert [m.value for m in read(two, 3)] == [b"2", b"3", b"4"]


def test_a_removed_member_cannot_commit_and_hears_that_it_lost_all(
    node: NodeProcess, admin: Admin, producer: Producer, topic: str
) -> None:
    producer.produce(topic, b"x", partition=1)
    producer.flush()
    told = Told()
    with member(node, topic, enable_auto_commit=False, heartbeat_interval_ms=5_000) as consumer:
        consumer.subscribe([topic], **told.callbacks())
        read(consumer, 1)
        admin.remove_members(topic, reason="test")
        with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID"):
            consumer.commit()
        poll_until(lambda: bool(told.lost), consumer, what="on_lost")
        assert len(told.lost[0][0]) == 4
        poll_until(lambda: len(told.assigned) == 2, consumer, what="it joins again")


def test_without_on_lost_the_loss_goes_to_on_revoke(node: NodeProcess, admin: Admin, topic: str) -> None:
    kinds: list[str] = []
    with member(node, topic) as consumer:
        consumer.subscribe([topic], on_revoke=lambda _, __, event: kinds.append(event.kind))
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="assigned")
        admin.remove_members(topic)
        poll_until(lambda: kinds == ["lost"], consumer, what="on_revoke is told of the loss")


def test_an_application_that_does_not_poll_loses_its_partitions_and_gets_some_back(
    node: NodeProcess, topic: str
) -> None:
    told = Told()
    slow = member(node, topic, max_poll_interval_ms=700, session_timeout_ms=6_000)
    slow.subscribe([topic], **told.callbacks())
    poll_until(lambda: len(slow.assignment()) == 4, slow, what="assigned")
    other = member(node, topic)
    other.subscribe([topic])
    poll_until(lambda: len(other.assignment()) == 4, other, what="the others go on without the silent one")
    poll_until(lambda: len(slow.assignment()) == 2, slow, other, what="it comes back")
    assert told.lost, "what it owned was taken away, not handed over"
    slow.close()
    other.close()


def test_a_static_member_comes_back_without_a_rebalance(node: NodeProcess, admin: Admin, topic: str) -> None:
    first = member(node, topic, group_instance_id="i-1")
    first.subscribe([topic])
    poll_until(lambda: len(first.assignment()) == 4, first, what="assigned")
    first.close()
    again = member(node, topic, group_instance_id="i-1")
    again.subscribe([topic])
    poll_until(lambda: len(again.assignment()) == 4, again, what="assigned again")
    assert again.consumer_group_metadata().generation == 1
    restart, start = admin.explain(topic)
    assert (is_rebalance(restart), is_rebalance(start)) == (False, True)
    assert "restarted in" in restart.detail
    assert "and kept its 4 partitions" in restart.detail
    again.close(leave="leave")
    assert admin.describe_group(topic).state == "Empty"


def test_a_pattern_takes_what_it_matches(node: NodeProcess, admin: Admin) -> None:
    for name in ("pattern-a", "pattern-b", "other-c"):
        admin.create_topic(name)
    with member(node, "pattern-group", metadata_max_age_ms=200) as consumer:
        consumer.subscribe("^pattern-")
        poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="both topics")
        admin.create_topic("pattern-new")
        poll_until(lambda: ("pattern-new", 0) in consumer.assignment(), consumer, what="the new topic")
        assert all(tp.topic.startswith("pattern-") for tp in consumer.assignment())


def test_the_leader_notices_new_partitions(node: NodeProcess, admin: Admin, topic: str) -> None:
    with member(node, topic, metadata_max_age_ms=200) as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="assigned")
        admin.create_partitions(topic, 6)
        poll_until(lambda: len(consumer.assignment()) == 6, consumer, what="the new partitions")


def test_positions_can_be_moved(node: NodeProcess, producer: Producer, topic: str) -> None:
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_000 + number)
    producer.flush()
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        assert consumer.position(tp) == 0
        read(consumer, 4)
        assert consumer.position(tp) == 4
        consumer.seek(tp, 8)
        assert [m.offset for m in read(consumer, 2)] == [8, 9]
        consumer.seek_to_beginning()
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end(tp)
        assert consumer.position(tp) == 10
        marks = consumer.get_watermark_offsets(tp)
        assert (marks.low, marks.high) == (0, 10)
        assert consumer.offsets_for_times({tp: 1_005})[tp] == (5, 1_005)
        assert consumer.offsets_for_times({tp: 9_999})[tp] is None
        with pytest.raises(IllegalState, match="cannot seek to -1"):
            consumer.seek(tp, -1)
        with pytest.raises(IllegalState, match="not assigned"):
            consumer.seek((topic, 3), 0)


def test_a_paused_partition_rests_and_forgets_nothing(node: NodeProcess, producer: Producer, topic: str) -> None:
    for partition in (0, 1):
        for number in range(20):
            producer.produce(topic, b"%d" % number, partition=partition)
    producer.flush()
    quiet = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([quiet, (topic, 1)])
        before = read(consumer, 5)
        consumer.pause(quiet)
        assert consumer.paused() == {quiet}
        seen = [m for m in before if m.partition == 0]
        rest = read(consumer, 20 - sum(m.partition == 1 for m in before))
        assert {m.partition for m in rest} == {1}
        consumer.resume(quiet)
        seen += read(consumer, 20 - len(seen))
        assert [m.offset for m in seen] == list(range(20))


def test_without_an_offset_and_without_a_reset_it_says_so(node: NodeProcess, topic: str) -> None:
    with member(node, topic, auto_offset_reset="none") as consumer:
        consumer.subscribe([topic])
        with pytest.raises(NoOffset, match=r"auto\.offset\.reset=none"):
            poll_until(lambda: False, consumer, what="the error")


def test_an_offset_the_log_does_not_hold_is_an_error_or_a_reset(
    node: NodeProcess, producer: Producer, topic: str
) -> None:
    producer.produce(topic, b"x", partition=0)
    producer.flush()
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="none") as strict:
        strict.assign([(topic, 0)])
        strict.seek((topic, 0), 77)
        with pytest.raises(OffsetOutOfRange, match="77"):
            poll_until(lambda: False, strict, what="the error")
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as lenient:
        lenient.assign([(topic, 0)])
        lenient.seek((topic, 0), 77)
        assert read(lenient, 1)[0].value == b"x"


def test_stored_offsets_are_committed_instead_of_positions(node: NodeProcess, producer: Producer, topic: str) -> None:
    for number in range(4):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush()
    with member(node, topic, enable_auto_offset_store=False) as consumer:
        consumer.subscribe([topic])
        messages = read(consumer, 4)
        consumer.store_offsets(messages[1])
        consumer.commit()
        assert consumer.committed([(topic, 0)])[TopicPartition(topic, 0)] == (2, "", -1)


def test_an_asynchronous_commit_is_a_future(node: NodeProcess, producer: Producer, topic: str) -> None:
    producer.produce(topic, b"x", partition=0)
    producer.flush()
    with member(node, topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        message = read(consumer, 1)[0]
        future = consumer.commit(message, asynchronous=True)
        assert future is not None
        future.result(timeout=20)
        committed = consumer.committed([(topic, 0), (topic, 1)])
        assert [offset and offset.offset for offset in committed.values()] == [1, None]


def test_calls_that_do_not_fit_are_refused_with_a_reason(node: NodeProcess, topic: str) -> None:
    with Consumer(bootstrap_servers=node.address) as consumer:
        with pytest.raises(IllegalState, match=r"group\.id"):
            consumer.subscribe([topic])
        with pytest.raises(UnknownTopic, match="partitions 0 to 3; 9 is not one"):
            consumer.assign([(topic, 9)])
        with pytest.raises(UnknownTopic, match="no topic 'nowhere'"):
            consumer.assign([("nowhere", 0)])
        with pytest.raises(IllegalState, match="not owned"):
            consumer.fencing_token((topic, 0))
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll(0)


def test_a_consumer_survives_its_node_and_loses_nothing(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t", 2)
        consumer = member(node, "g")
        consumer.subscribe(["t"])
        poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="assigned")
        with Producer(bootstrap_servers=node.address) as producer:
            first = [producer.send("t", b"%d" % n, key=b"%d" % n) for n in range(50)]
            for future in first:
                future.result(timeout=30)
            node.kill()
            for n in range(50, 100):
                producer.produce("t", b"%d" % n, key=b"%d" % n)
            node.start()
            producer.flush(60)
        seen: set[int] = set()
        patience = Patience(60)
        while seen != set(range(100)):
            assert patience.lasts(), f"missing: {sorted(set(range(100)) - seen)}"
            message = consumer.poll(0.2)
            if message is not None and message.value is not None:
                seen.add(int(message.value))
        consumer.close()
