"""The log as doors of a cluster's node see it: topics of the image, the records that this node leads."""

import pytest

from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.storage.errors import (
    NotEnoughReplicas,
    NotLeaderOrFollower,
    StorageError,
    UnknownTopicOrPartition,
)
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.types import AppendOrigin
from tests.support.led_side import HERE, ORDERS, THERE, LedSide, partition, topic
from tests.unit.storage.logs import T0, batch, guard_for

LED, COPIED = partition(), partition(leader=THERE, epoch=5)


def side() -> LedSide:
    return LedSide(topic(LED, COPIED))


# -- topics -----------------------------------------------------------------------------------------------


def test_topics_are_the_image_s() -> None:
    one = side()
    told = one.led.topics()
    assert [(each.name, each.partitions, each.internal) for each in told.values()] == [("orders", 2, False)]
    assert one.led.topic("orders").id == b"o" * 16
    assert one.led.topic_settings("orders").min_insync_replicas == 2
    with pytest.raises(UnknownTopicOrPartition, match="no topic 'nowhere'"):
        one.led.topic("nowhere")
    with pytest.raises(TypeError):
        told["x"] = told["orders"]  # type: ignore[index]


def test_topics_are_made_anew_by_what_changed_and_nothing_else() -> None:
    one = side()
    one.hears(topic(LED, name="paid", topic_id=b"p" * 16))
    before, paid = one.led.topics(), one.led.topic("paid")
    one.hears(topic(partition(isr=(1, 2), version=1)))
    assert one.led.topics()["paid"] is paid
    one.hears(topic(LED, name="paid", topic_id=b"p" * 16, configs={"retention.ms": "7"}))
    assert one.led.topic("paid").configs["retention.ms"] == "7"
    assert before["paid"] is paid, "who looks at the former ones goes on with them"


def test_who_listens_hears_of_topics_that_come_go_and_grow() -> None:
    one, heard = side(), []
    one.led.on_topics_changed(lambda: heard.append({name: each.partitions for name, each in one.led.topics().items()}))
    one.hears(topic(LED, name="paid", topic_id=b"p" * 16))
    one.hears(topic(partition(isr=(1, 2), version=1)), topic(LED, name="paid", topic_id=b"p" * 16))
    one.hears(topic(configs={"retention.ms": "7"}))
    one.hears(topic(LED, COPIED, LED))
    one.hears(topic(name="paid", topic_id=b"p" * 16, deleted=True))
    assert heard == [{"orders": 2, "paid": 1}, {"orders": 3, "paid": 1}, {"orders": 3}]
    one.hears(topic(partition(), topic_id=b"n" * 16))
    assert (heard[-1], one.led.topic("orders").id) == ({"orders": 1}, b"n" * 16), "made again under its name"


def test_a_private_topic_is_none() -> None:
    one = side()
    one.hears(topic(LED, name="__security", topic_id=b"s" * 16))
    assert "__security" not in one.led.topics()
    with pytest.raises(UnknownTopicOrPartition):
        one.led.log("__security", 0)
    assert [log.partition for log in one.led.logs()] == [("orders", 0)]


# -- logs -------------------------------------------------------------------------------------------------


def test_a_log_is_its_leader_s() -> None:
    one = side()
    assert one.led.log("orders", 0) is one.log()
    with pytest.raises(NotLeaderOrFollower, match="led by node 2") as refused:
        one.led.log("orders", 1)
    assert (refused.value.code, refused.value.leader, refused.value.leader_epoch) == (6, THERE, 5)
    for name, number in (("orders", 2), ("orders", -1), ("nowhere", 0)):
        with pytest.raises(UnknownTopicOrPartition):
            one.led.log(name, number)


def test_who_was_shown_a_later_epoch_leads_no_more() -> None:
    """CL-L9; it does not know who leads, but that is not itself."""
    one = side()
    one.replicas.led[ORDERS].leader.over = True
    with pytest.raises(NotLeaderOrFollower, match="no more") as refused:
        one.led.log("orders", 0)
    assert (refused.value.leader, refused.value.leader_epoch) == (-1, -1)
    assert list(one.led.logs()) == []


def test_logs_that_go_while_somebody_looks_at_all_are_passed_over() -> None:
    """Fences look in a thread of their own."""
    one = LedSide(topic(LED, LED, LED))
    looked_at = one.led.logs()
    seen = [next(looked_at).partition]
    one.hears(topic(LED, COPIED, LED))
    seen += [log.partition for log in looked_at]
    assert seen == [("orders", 0), ("orders", 2)]


def test_what_nobody_leads_is_asked_for_again() -> None:
    one = side()
    one.hears(topic(partition(leader=-1, epoch=4)))
    with pytest.raises(NotLeaderOrFollower, match="Nobody leads") as refused:
        one.led.log("orders", 0)
    assert (refused.value.leader, refused.value.leader_epoch) == (-1, 4)


def test_a_leader_s_log_that_is_broken_says_so() -> None:
    """CL-F9."""
    one = side()
    one.replicas.broke(ORDERS, "errno 5")
    with pytest.raises(StorageError, match="errno 5") as refused:
        one.led.log("orders", 0)
    assert refused.value.code == 56


def test_who_measures_is_told_of_any_copy() -> None:
    one = side()
    copied = TopicPartition("orders", 1)
    assert one.led.ends([ORDERS, copied, ("nowhere", 0)]) == [0, 0, -1]
    assert one.led.starts([copied]) == [0]
    assert one.led.sizes([copied]) == [0]
    assert (one.led.high_watermark(*copied), one.led.start_offset(*copied), one.led.end_offset(*copied)) == (0, 0, 0)
    assert one.led.leader_of(*copied) == (THERE, 5)
    assert one.led.leader_of("nowhere", 0) == (-1, -1)


def test_the_node_s_own_writers_ask_for_all_too() -> None:
    """CL-L2: fences and staged batches."""
    one = side()
    one.hears(topic(partition(isr=(HERE,), version=1)))
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas"):
        one.led.append("orders", 0, batch(b"a"), T0, origin=AppendOrigin.COORDINATOR)
    assert one.log().end_offset == 0


def test_markers_ask_for_all_too_and_end_what_is_open() -> None:
    """CL-L2, TX-L5."""
    one = side()
    marker = MarkerToWrite(9, 0, commit=True, coordinator_epoch=3)
    sent = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    one.led.append("orders", 0, sent, T0, guard=guard_for(one.log(), sent))
    assert one.led.append_marker("orders", 0, marker, T0).base_offset == 1
    assert not one.log().open_transactions()
    one.hears(topic(partition(isr=(HERE,), version=1)))
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas"):
        one.led.append_marker("orders", 0, marker, T0)
    assert one.log().end_offset == 2


def test_who_reads_committed_records_hears_that_records_were_given_up() -> None:
    """TX-L8."""
    one = side()
    one.led.append("orders", 0, batch(b"a"), T0)
    one.log().flush()
    one.log().tell_high_watermark(1)
    heard: list[tuple[str, int]] = []
    one.led.on_append(lambda name, number: heard.append((name, number)))
    assert one.led.delete_records("orders", 0, 1) == 1
    assert heard == [("orders", 0)]


def test_producer_ids_come_from_whom_the_cluster_names() -> None:
    """CL-A4."""
    one = side()
    assert [one.led.next_producer_id(), one.broker.next_producer_id()] == [(0, 0), (1, 0)]
    elsewhere = ReplicatedLog(one.broker, one, lambda known, epoch: (5000, epoch + 1))
    assert elsewhere.next_producer_id(7, 3) == (5000, 4)
    assert one.led.next_fence_id() != one.led.next_fence_id()


def test_a_copy_is_there_for_tools_that_look_at_one_and_for_nobody_else() -> None:
    one = side()
    assert one.led.hosted_log("orders", 0) is one.led.log("orders", 0)
    assert one.led.hosted_log("orders", 1).partition == ("orders", 1)
    with pytest.raises(NotLeaderOrFollower):
        one.led.log("orders", 1)
    with pytest.raises(UnknownTopicOrPartition):
        one.led.hosted_log("orders", 7)
    one.hears(topic(LED, name="__security", topic_id=b"s" * 16))
    with pytest.raises(UnknownTopicOrPartition):
        one.led.hosted_log("__security", 0)
