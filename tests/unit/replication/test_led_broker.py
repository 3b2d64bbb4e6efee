"""The log as doors of a cluster's node see it: topics of the image, the records that this node leads."""

import pytest

from muster.coordinator.replication.io.replicated_broker import MOST_PARTITIONS, ReplicatedBroker
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.storage.broker.broker import Broker
from muster.storage.errors import (
    InvalidPartitions,
    InvalidTopicName,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutsideLog,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from tests.support.led_side import HERE, NO_CONFIGS, ORDERS, THERE, LedSide, partition, topic
from tests.unit.storage.logs import T0, batch

LED, COPIED = partition(), partition(leader=THERE, epoch=5)

THE_DISK_S = frozenset(
    {
        *("host", "drop", "set_aside", "strays", "truncate", "truncate_all", "begin_anew", "reopen"),
        *("held_topics", "held_log", "no_room", "is_gone"),
        *("checkpoint_high_watermarks", "forget_unclean", "recovered", "checkpoint", "change", "use"),
        *("create_topic", "add_partitions", "plan_topic", "plan_growth", "make", "delete_topic", "hide", "clear_away"),
    }
)
"""What is done to a node's disk by who holds the broker itself: nobody at a door asks for it."""

AS_THEY_ARE = frozenset(
    {
        *("append_each", "walked", "fetch", "list_offset", "delete_records", "topic_settings", "plan_change"),
        *(
            "cluster_id",
            "node_id",
            "unclean",
            "ahead",
            "check_writable",
            "on_append",
            "on_topics_changed",
            "tell_topics",
        ),
    }
)
"""What rests on `log` and `topic`, or says who this node is."""


def side() -> LedSide:
    return LedSide(topic(LED, COPIED))


def public(one: type) -> set[str]:
    return {name for name in dir(one) if not name.startswith("_")}


def test_each_word_of_a_broker_has_its_meaning_here() -> None:
    own = {name for name in vars(ReplicatedBroker) if not name.startswith("_")}
    assert public(Broker) - own == THE_DISK_S | AS_THEY_ARE


@pytest.mark.parametrize("name", sorted(THE_DISK_S - {"recovered", "checkpoint_high_watermarks", "forget_unclean"}))
def test_what_is_the_disk_s_is_not_done_from_a_door(name: str) -> None:
    led = side().led
    arguments = {
        "plan_growth": ("orders", 9), "add_partitions": ("orders", 9), "strays": (), "clear_away": (), "checkpoint": (),
        "make": ([],), "hide": ([],), "truncate_all": ({("orders", 0): 0},),
        "host": ([],), "change": ([],), "use": (led.plan_change("orders", {"retention.ms": "5"}), 0),
        "create_topic": ("new", 1), "plan_topic": ("new", 1), "delete_topic": ("orders",), "truncate": ("orders", 0, 0),
        "begin_anew": ("orders", 0, 0), "drop": ("orders", [0]), "set_aside": ("orders", [0]), "reopen": ("orders", 0),
        "held_topics": (), "held_log": ("orders", 0), "no_room": (4096,), "is_gone": ("orders", 0),
    }  # fmt: skip
    with pytest.raises(AttributeError, match="changed by the cluster's side of a node"):
        getattr(led, name)(*arguments[name])


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


@pytest.mark.parametrize(
    ("name", "count", "error"),
    [
        ("orders", 1, TopicAlreadyExists),
        ("__security", 1, InvalidTopicName),
        ("a/b", 1, InvalidTopicName),
        ("ord.ers", 1, None),
        ("new", 0, InvalidPartitions),
        ("new", MOST_PARTITIONS + 1, InvalidPartitions),
        ("new", MOST_PARTITIONS, None),
    ],
)
def test_a_new_topic_is_held_against_those_of_the_cluster(
    name: str, count: int, error: type[StorageError] | None
) -> None:
    one = side()
    if error is None:
        assert one.led.check_new_topic(name, count, {"retention.ms": "5"}).retention_ms == 5
        return
    with pytest.raises(error):
        one.led.check_new_topic(name, count, NO_CONFIGS)


def test_a_topic_grows_and_does_not_shrink() -> None:
    one = side()
    one.led.check_more_partitions("orders", 3)
    for count in (1, 2, MOST_PARTITIONS + 1):
        with pytest.raises(InvalidPartitions):
            one.led.check_more_partitions("orders", count)


def test_names_that_are_alike_count_as_the_same() -> None:
    one = LedSide(topic(LED, name="a.b"))
    with pytest.raises(InvalidTopicName, match="collides"):
        one.led.check_new_topic("a_b", 1, NO_CONFIGS)
    one.hears(topic(name="a.b", deleted=True))
    one.led.check_new_topic("a_b", 1, NO_CONFIGS)


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


def test_who_waits_for_records_is_woken_when_they_are_committed_or_led_elsewhere_and_not_before() -> None:
    one, woken = side(), []
    one.led.on_append(lambda name, number: woken.append((name, number)))
    one.led.append("orders", 0, batch(b"a"), T0)
    one.grown([ORDERS])
    one.flushes()
    assert woken == []
    one.follows()
    assert woken == [ORDERS]
    one.hears(topic(partition(leader=THERE, epoch=4)))
    assert woken == [ORDERS, ORDERS]


def test_the_node_s_own_writers_ask_for_all_too() -> None:
    """CL-L2: fences and staged batches."""
    one = side()
    one.hears(topic(partition(isr=(HERE,), version=1)))
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas"):
        one.led.append("orders", 0, batch(b"a"), T0, trusted=True)
    assert one.log().end_offset == 0


def test_records_are_given_up_as_far_as_they_are_committed() -> None:
    one = side()
    one.led.append("orders", 0, batch(b"a", b"b"), T0)
    one.grown([ORDERS])
    one.flushes()
    one.follows(end=1)
    with pytest.raises(OffsetOutsideLog):
        one.led.delete_records("orders", 0, 2)
    assert one.led.delete_records("orders", 0, -1) == 1
    with pytest.raises(NotLeaderOrFollower):
        one.led.delete_records("orders", 1, 0)


def test_producer_ids_come_from_whom_the_cluster_names() -> None:
    """CL-A4."""
    one = side()
    assert [one.led.next_producer_id(), one.broker.next_producer_id()] == [(0, 0), (1, 0)]
    elsewhere = ReplicatedBroker(one.broker, one, lambda known, epoch: (5000, epoch + 1))
    assert elsewhere.next_producer_id(7, 3) == (5000, 4)
    assert one.led.next_fence_id() != one.led.next_fence_id()
