"""Changes of a cluster's topics before they are written: where partitions go (CL-A2), and what speaks against it
(CL-A1)."""

from collections.abc import Mapping

import pytest

from muster.coordinator.replication.io.admin.topic_admin import PlannedTopics, TopicPlanner, configs_size
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterNodeStatus,
    ClusterTopic,
    NodeView,
    PartitionView,
    ReplicaAssignment,
    TopicView,
)
from muster.storage.broker.requests import MorePartitions, NewTopic
from muster.storage.config import LogSettings
from muster.storage.errors import InvalidConfig, InvalidPartitions, StorageError

THREE = {node: NodeView(node, 10 + node) for node in (1, 2, 3)}


def image(nodes: Mapping[int, NodeView] = THREE, **topics: list[tuple[int, ...]]) -> ClusterImage:
    known = ClusterImage(nodes=dict(nodes))
    for number, (name, replicas) in enumerate(topics.items()):
        views = {each: PartitionView(ids[0], 0, 0, ids, (), ids) for each, ids in enumerate(replicas)}
        known.topics[name] = TopicView(bytes([number]) * 16, name, {}, views)
        known.names[bytes([number]) * 16] = name
    return known


def planning(known: ClusterImage, factor: int = 3, **settings: str) -> TopicPlanner:
    return TopicPlanner(
        known, LogSettings.from_properties({key.replace("_", "."): it for key, it in settings.items()}), factor
    )


def code_of(known: ClusterImage, wanted: NewTopic | MorePartitions, topic: ClusterTopic | None = None) -> int:
    plan = planning(known)

    def planned() -> object:
        if isinstance(wanted, NewTopic):
            return plan.new_topic(wanted, PlannedTopics.of(known))
        assert topic is not None
        return plan.growth(topic, wanted, PlannedTopics())

    with pytest.raises(StorageError) as refused:
        planned()
    return refused.value.code


def test_partitions_are_placed_by_the_factor_asked_for_or_the_default() -> None:
    plan = planning(image())
    assert plan.new_topic(NewTopic("t", 4), PlannedTopics()) == ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))
    assert plan.new_topic(NewTopic("t", 2, {}, 1), PlannedTopics()) == ((1,), (2,))


def test_where_they_begin_is_drawn() -> None:
    drawn = iter([1, 2])
    plan = TopicPlanner(image(), LogSettings(), 3, lambda below: next(drawn))
    assert plan.new_topic(NewTopic("t", 1), PlannedTopics()) == ((2, 3, 1),)


def test_two_underscores_are_nobody_s() -> None:
    """Monitors and connectors call their topics so."""
    planning = TopicPlanner(image(), LogSettings(), 3, lambda below: 0)
    assert planning.new_topic(NewTopic("__canary", 1, {}, 1), PlannedTopics()) == ((1,),)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewTopic("t", 1, {}, 4), 38),
        (NewTopic("t", 1, {}, 0), 38),
        (NewTopic("t", 0), 37),
        (NewTopic("__elections", 1), 17),
        (NewTopic("_.security", 1), 17),
        (NewTopic("no good", 1), 17),
        (NewTopic("a_b", 1), 17),
        (NewTopic("a.b", 1), 36),
        (NewTopic("t", 1, {"min.insync.replicas": "0"}), 40),
        (NewTopic("t", 1, {"leader.replication.throttled.replicas": "all of them"}), 40),
        (NewTopic("t", -1, {}, -1, {0: (1, 1)}), 39),
        (NewTopic("t", -1, {}, -1, {0: (1, 9)}), 39),
        (NewTopic("t", -1, {}, -1, {0: (1,), 1: (1, 2)}), 39),
        (NewTopic("t", -1, {}, -1, {0: (1,), 2: (1,)}), 39),
        (NewTopic("t", -1, {}, -1, {}), 39),
    ],
)
def test_what_speaks_against_a_new_topic(wanted: NewTopic, code: int) -> None:
    assert code_of(image(**{"a.b": [(1,)]}), wanted) == code


def test_the_clusters_own_settings_are_taken() -> None:
    configs = {
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true",
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "*",
    }
    assert planning(image()).new_topic(NewTopic("t", 1, configs), PlannedTopics())


def test_nodes_that_are_gone_get_nothing_and_those_that_stop_only_what_nobody_else_takes() -> None:
    nodes = {**THREE, 2: NodeView(2, 12, ClusterNodeStatus.GONE), 3: NodeView(3, 13, ClusterNodeStatus.SHUTTING_DOWN)}
    assert planning(image(nodes), 1).new_topic(NewTopic("t", 2), PlannedTopics()) == ((1,), (1,))
    assert code_of(image(nodes), NewTopic("t", 1, {}, 2)) == 38
    assert code_of(image(nodes), NewTopic("t", -1, {}, -1, {0: (2,)})) == 39


def test_of_two_alike_in_one_request_the_second_is_refused() -> None:
    plan, beside = planning(image()), PlannedTopics()
    plan.new_topic(NewTopic("a.b", 1), beside)
    with pytest.raises(StorageError, match="collides"):
        plan.new_topic(NewTopic("a_b", 1), beside)


OLD_ONES = image(old=[(1, 2), (1, 2)])


def test_max_partitions_is_a_limit_of_each_node() -> None:
    """Replicas elsewhere do not count, those planned beside do."""
    plan, beside = planning(OLD_ONES, max_partitions="3"), PlannedTopics.of(OLD_ONES)
    plan.new_topic(NewTopic("one", -1, {}, -1, {0: (1, 3)}), beside)
    plan.new_topic(NewTopic("two", -1, {}, -1, {0: (3,), 1: (3,)}), beside)
    with pytest.raises(StorageError, match="node 1 to 4 partitions"):
        plan.new_topic(NewTopic("three", -1, {}, -1, {0: (1, 2)}), beside)


OLD = ClusterTopic("old", bytes(16), (ReplicaAssignment((2, 1)), ReplicaAssignment((3, 2, 1), adding=(3,))))


def test_new_partitions_go_on_where_the_first_one_begins() -> None:
    """As many copies as the first has, those that only come left out."""
    grown = planning(image()).growth(OLD, MorePartitions("old", 4), PlannedTopics())
    assert grown == ((1, 3), (2, 3))
    assert planning(image()).growth(OLD, MorePartitions("old", 3, [(3, 1)]), PlannedTopics()) == ((3, 1),)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (MorePartitions("old", 2), 37),
        (MorePartitions("old", 4, [(3, 1)]), 39),
        (MorePartitions("old", 3, [(3,)]), 39),
        (MorePartitions("old", 3, [(3, 7)]), 39),
    ],
)
def test_what_speaks_against_growth(wanted: MorePartitions, code: int) -> None:
    assert code_of(image(), wanted, OLD) == code


def test_what_was_not_written_counts_no_more() -> None:
    plan, beside = planning(image()), PlannedTopics()
    grown = plan.growth(OLD, MorePartitions("old", 3), beside)
    beside.give_back("old", grown)
    assert plan.growth(OLD, MorePartitions("old", 3), beside) == grown


def test_settings_change_by_what_is_set() -> None:
    plan = planning(image())
    assert plan.change("t", {"flush.ms": "1", "retention.ms": "5"}, {"flush.ms": None, "min.insync.replicas": "2"}) == {
        "retention.ms": "5",
        "min.insync.replicas": "2",
    }
    with pytest.raises(StorageError, match="compaction leaves gaps"):
        plan.change("t", {"cleanup.policy": "compact"}, {"cleanup.policy": "delete"})
    with pytest.raises(StorageError, match="not a setting of a log"):
        plan.change("t", {}, {"no.such": "1"})


LIST = "leader.replication.throttled.replicas"
TOO_MUCH = ",".join(f"{each}:1" for each in range(150_000))


@pytest.mark.parametrize("more", [{}, {"retention.ms": "5"}])
def test_settings_that_zookeeper_does_not_take_at_once_are_refused_by_name_with_both_sizes(
    more: dict[str, str],
) -> None:
    """It would close the connection, and the node be out of touch for a moment."""
    plan = planning(image())
    says = rf"'{LIST}' of topic 't' is {len(TOO_MUCH)} bytes long: .* {configs_size({**more, LIST: TOO_MUCH})} bytes"
    with pytest.raises(InvalidConfig, match=rf"{says}.* at most 1000000 at once"):
        plan.change("t", more, {LIST: TOO_MUCH})
    with pytest.raises(InvalidConfig, match=says):
        plan.new_topic(NewTopic("t", 1, {**more, LIST: TOO_MUCH}), PlannedTopics())
    assert plan.change("t", {LIST: TOO_MUCH}, {LIST: None}) == {}
    assert plan.change("t", {}, {LIST: TOO_MUCH[:900_000].rpartition(",")[0]})


def test_partitions_that_zookeeper_does_not_take_at_once_are_refused_with_what_is_there() -> None:
    plan = planning(image(), max_partitions="1000000")
    with pytest.raises(InvalidPartitions, match=r"45000 more partitions: .* ZooKeeper takes at most 1000000 at once"):
        plan.new_topic(NewTopic("t", 45_000, {LIST: TOO_MUCH[:500_000].rpartition(",")[0]}), PlannedTopics())
    there = ClusterTopic("t", bytes(16), (ReplicaAssignment((1, 2, 3)),) * 45_000)
    with pytest.raises(InvalidPartitions, match="45000 more partitions"):
        plan.growth(there, MorePartitions("t", 90_000), PlannedTopics())


def test_a_boolean_of_a_topic_is_true_or_false() -> None:
    plan, given = planning(image()), {"unclean.leader.election.enable": "yes"}
    with pytest.raises(InvalidConfig, match="expected true or false"):
        plan.new_topic(NewTopic("t", 1, given), PlannedTopics())
    with pytest.raises(InvalidConfig, match="expected true or false"):
        plan.change("t", {}, given)
    assert plan.change("t", given, {"retention.ms": "5"}), "what an older version took stays until it is changed"
