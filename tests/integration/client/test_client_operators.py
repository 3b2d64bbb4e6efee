"""What operators do by `Admin`: topics, groups, a look at what goes on."""

import pytest

from muster.client import Admin, Consumer, TopicPartition
from muster.client.errors import GroupNotEmpty, GroupNotFound, InvalidTopic, Refused, TopicExists, UnknownTopic
from tests.support.client_stories import fill, member, poll_until, read
from tests.support.node import NodeProcess

pytestmark = pytest.mark.integration


def test_topics_are_made_found_grown_and_deleted(admin: Admin) -> None:
    made = admin.create_topic("admin-topic", 3, {"retention.ms": "1000"})
    assert (made.name, made.partitions) == ("admin-topic", 3)
    with pytest.raises(TopicExists, match="admin-topic"):
        admin.create_topic("admin-topic", 3)
    with pytest.raises(InvalidTopic):
        admin.create_topic("no spaces allowed")
    described = admin.describe_topic("admin-topic")
    assert (described.topic_id, described.configs["retention.ms"]) == (made.topic_id, "1000")
    assert admin.create_partitions("admin-topic", 5) == 5
    assert admin.list_topics()["admin-topic"] == 5
    admin.delete_topics(["admin-topic"])
    assert "admin-topic" not in admin.list_topics()
    with pytest.raises(UnknownTopic, match="admin-topic"):
        admin.describe_topic("admin-topic")


def test_records_below_an_offset_can_be_dropped(node: NodeProcess, admin: Admin, topic: str) -> None:
    fill(node, topic, 10)
    assert admin.delete_records({(topic, 0): 4}) == {TopicPartition(topic, 0): 4}
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 1)[0].offset == 4


def test_groups_are_seen_and_removed_only_when_empty(node: NodeProcess, admin: Admin, topic: str) -> None:
    fill(node, topic, 10)
    consumer = member(node, topic, client_id="seen")
    consumer.subscribe([topic])
    read(consumer, 10)
    consumer.commit()
    found = admin.describe_group(topic)
    assert (found.state, found.assignor, len(found.members)) == ("Stable", "range", 1)
    assert (found.members[0].client_id, found.members[0].topics) == ("seen", (topic,))
    assert len(found.members[0].assignment) == 4
    lags = {lag.partition.partition: (lag.committed, lag.log_end, lag.lag) for lag in admin.group_lag(topic)}
    assert lags[0] == (10, 10, 0)
    with pytest.raises(GroupNotEmpty):
        admin.delete_groups([topic])
    with pytest.raises(Refused):
        admin.alter_offsets(topic, {(topic, 0): 1})
    consumer.close()

    assert [g.state for g in admin.list_groups() if g.group_id == topic] == ["Empty"]
    admin.alter_offsets(topic, {(topic, 0): 3})
    assert admin.group_offsets(topic)[TopicPartition(topic, 0)].offset == 3
    admin.delete_offsets(topic, [(topic, 0)])
    for absent in (("absent", 0), (topic, 4)):
        with pytest.raises(UnknownTopic):
            admin.delete_offsets(topic, [absent])
    assert TopicPartition(topic, 0) not in admin.group_offsets(topic)
    admin.delete_groups([topic])
    with pytest.raises(GroupNotFound, match=topic):
        admin.describe_group(topic)


def test_a_watcher_hears_of_a_rebalance(node: NodeProcess, admin: Admin, topic: str) -> None:
    changes = admin.watch(topic)
    with member(node, topic) as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="assigned")
        consumer.commit(offsets={(topic, 0): 0})
        changes_seen = [next(changes)]
        while changes_seen[-1].group_state != "Stable":
            changes_seen.append(next(changes))
    changes.close()  # type: ignore[attr-defined]
    assert changes_seen[-1].generation_id == 1
