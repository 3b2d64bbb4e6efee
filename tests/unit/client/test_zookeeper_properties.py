"""The properties of a consumer of the ZooKeeper era: defaults of that time, and what means nothing there."""

import subprocess
import sys

import pytest

from muster.client import Consumer
from muster.client.config import ConsumerConfig, WorkerConfig, load
from muster.client.errors import ConfigError, IllegalState
from muster.client.members.zookeeper_assignment import (
    OWN_RULES,
    WHITE_LIST,
    ConsumerGroupView,
    EraRules,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperStrategy,
    build_registration,
    check_retry_time,
    compute_share,
    find_era_rules,
)
from muster.client.membership.zookeeper_membership import build_zookeeper_settings
from muster.client.records.positions import TopicSubscription

ERA = {"group.protocol": "zookeeper", "group.id": "g", "zookeeper.connect": "zk1:2181,zk2/kafka"}


def consumer(**more: object) -> ConsumerConfig:
    return load(ConsumerConfig, ERA, more)


def test_defaults_are_those_of_that_era() -> None:
    config = consumer()
    assert config.zookeeper_connect == "zk1:2181,zk2:2181/kafka"
    assert (config.auto_commit_interval_ms, config.partition_assignment_strategy) == (60_000, "range")
    assert (config.offsets_storage, config.commits_twice, config.auto_offset_reset) == ("zookeeper", False, "latest")
    assert build_zookeeper_settings(config, "g") == ZookeeperMemberSettings("g", "range", 4, 2_000, 6_000, True, 1)


def test_the_back_off_follows_the_sync_time_unless_it_is_given() -> None:
    assert consumer(zookeeper_sync_time_ms=500).backoff_ms == 500
    assert consumer(zookeeper_sync_time_ms=500, rebalance_backoff_ms=700).backoff_ms == 700


@pytest.mark.parametrize(
    ("storage", "dual", "twice"),
    [("kafka", None, True), ("kafka", False, False), ("zookeeper", None, False), ("zookeeper", True, True)],
)
def test_storing_with_the_coordinator_commits_to_both_unless_told_otherwise(
    storage: str, dual: bool | None, twice: bool
) -> None:
    given = {} if dual is None else {"dual.commit.enabled": dual}
    assert load(ConsumerConfig, ERA | {"offsets.storage": storage} | given, {}).commits_twice is twice


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"group.protocol": "zookeeper", "group.id": "g"}, r"needs zookeeper\.connect"),
        ({**ERA, "zookeeper.connect": "zk1:port"}, r"zookeeper\.connect='zk1:port': expected HOST:PORT"),
        ({k: v for k, v in ERA.items() if k != "group.id"}, r"needs a group\.id"),
        *(
            ({**ERA, "group.id": name}, r"name of a znode, without / and control characters, and neither \. nor \.\.;")
            for name in ("a/b", ".", "..", "a\x01")
        ),
        ({**ERA, "consumer.id": "a/b"}, r"consumer\.id='a/b': expected a name without /"),
        ({**ERA, "consumer.id": "a\x01"}, r"consumer\.id='a\\x01': expected a name without / and control characters"),
        ({**ERA, "session.timeout.ms": 9_000}, r"session\.timeout\.ms cannot be set.*zookeeper\.session\.timeout\.ms"),
        ({**ERA, "group.instance.id": "i"}, r"group\.instance\.id cannot be set.*consumer\.id"),
        ({**ERA, "group.remote.assignor": "lag"}, r"no coordinator has a hand"),
        ({**ERA, "partition.assignment.strategy": "sticky"}, r"knows range and roundrobin"),
        ({**ERA, "offsets.storage": "disk"}, r"offsets\.storage='disk': expected one of zookeeper, kafka"),
        ({"group.id": "g", "zookeeper.connect": "zk"}, r"zookeeper\.connect belongs to group\.protocol=zookeeper"),
        ({"group.id": "g", "group.protocol": "consumer", "consumer.id": "x"}, r"consumer\.id belongs to"),
    ],
)
def test_what_means_nothing_is_refused_with_the_reason(properties: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(ConsumerConfig, properties, {})


def test_workers_are_not_of_that_era() -> None:
    with pytest.raises(ConfigError, match=r"is for consumers; use classic"):
        load(WorkerConfig, {"group.protocol": "zookeeper", "group.id": "g"}, {})


def test_retries_that_end_before_a_session_are_warned_about_with_the_arithmetic() -> None:
    def said(**more: object) -> str:
        return check_retry_time(build_zookeeper_settings(consumer(**more), "g"))

    assert "4 x rebalance.backoff.ms=1000 = 4000 ms is shorter than zookeeper.session.timeout.ms=6000" in said(
        rebalance_backoff_ms=1_000
    )
    assert "4 x rebalance.backoff.ms=2000 = 8000 ms is near zookeeper.session.timeout.ms=6000" in said()
    assert said(rebalance_max_retries=5) == ""


def test_the_rules_of_a_release_follow_a_property() -> None:
    def rules(version: str) -> EraRules:
        return build_zookeeper_settings(consumer(zookeeper_consumer_version=version), "g").rules

    assert build_zookeeper_settings(consumer(), "g").rules == OWN_RULES
    assert rules("0.8.2.2") == rules("0.9.0.1") == EraRules(frozenset({"__consumer_offsets"}))
    assert rules("0.10.2.2").unequal_round_robin
    assert not rules("0.11.0.3").dashed_order
    assert rules("1.1.1") == EraRules(frozenset({"__consumer_offsets", "__transaction_state"}), True, True)
    for version in ("0.7.2", "2.0.0", "1", "latest", "0.8.2.2.2"):
        with pytest.raises(ConfigError, match=r"zookeeper\.consumer\.version=.*: expected a release of Kafka"):
            consumer(zookeeper_consumer_version=version)


@pytest.mark.parametrize(("version", "numbers"), [("0.11", [1, 3, 5, 7, 9, 10]), ("1.0", [0, 2, 4, 6, 8, 10])])
def test_round_robin_orders_partitions_as_the_release_did(version: str, numbers: list[int]) -> None:
    """By the hashes of "[t,10]" and "[t,9]", or of "t-10" and "t-9": the other one comes first."""
    view = ConsumerGroupView({name: GroupRegistration({"t": 1}) for name in ("g_a", "g_b")}, {"t": 11}, (1,))
    share = compute_share("g_a", view, ZookeeperStrategy.ROUNDROBIN, True, find_era_rules(version))
    assert sorted(number for _, number in share) == numbers


def test_from_0_10_on_the_turn_passes_over_who_does_not_read_a_topic() -> None:
    members = {"g_a": GroupRegistration({"t": 1}), "g_b": GroupRegistration({"t": 1, "u": 1})}
    view = ConsumerGroupView(members, {"t": 3, "u": 2}, (1,))
    with pytest.raises(ValueError, match="the same number of streams"):
        compute_share("g_a", view, ZookeeperStrategy.ROUNDROBIN, True, find_era_rules("0.9"))
    shares = [compute_share(name, view, ZookeeperStrategy.ROUNDROBIN, True, find_era_rules("0.10")) for name in members]
    assert shares == [{("t", 0): 0, ("t", 2): 0}, {("t", 1): 0, ("u", 0): 0, ("u", 1): 0}]


def test_expressions_and_internal_topics_are_read_as_the_release_did() -> None:
    members = {
        "g_a": GroupRegistration({"orders, bills": 1}, WHITE_LIST),
        "g_b": GroupRegistration({"_.*": 1}, WHITE_LIST),
    }
    view = ConsumerGroupView(members, {"orders": 1, "bills": 1, "__mine": 1, "__transaction_state": 1}, (1,))
    assert set(compute_share("g_a", view, ZookeeperStrategy.RANGE)) == {("orders", 0), ("bills", 0)}
    assert compute_share("g_b", view, ZookeeperStrategy.RANGE) == {}
    share = compute_share("g_b", view, ZookeeperStrategy.RANGE, True, find_era_rules("1.1"))
    assert set(share) == {("__mine", 0)}
    share = compute_share("g_b", view, ZookeeperStrategy.RANGE, True, find_era_rules("0.9"))
    assert set(share) == {("__mine", 0), ("__transaction_state", 0)}


def test_names_and_patterns_do_not_go_together() -> None:
    with Consumer(ERA) as made:
        with pytest.raises(IllegalState, match=r"by names or by patterns, not by both: 't', '\^u'"):
            made.subscribe(["t", "^u"])
        with pytest.raises(IllegalState, match=r"a topic is a znode in ZooKeeper, without / .*; got '\.\.'"):
            made.subscribe(["t", ".."])
        with pytest.raises(IllegalState, match=r"black_list=True takes patterns"):
            made.subscribe(["t"], black_list=True)
        with pytest.raises(IllegalState, match=r"'\^\(\?!x\)' is not a regular expression in RE2 syntax"):
            made.subscribe(["^(?!x)"])
        with pytest.raises(IllegalState, match=r"'\^a\{1,2\}' contains ',': consumers of the ZooKeeper era read"):
            made.subscribe(["^a{1,2}"])
    with pytest.raises(ValueError, match="not by both"):
        build_registration(("t",), "u.*", False, 1)


def test_a_black_list_is_for_that_era_alone() -> None:
    config = load(ConsumerConfig, {"group.id": "g"}, {})
    subscribed = TopicSubscription(None, config, resolved_there=False)  # type: ignore[arg-type]
    with pytest.raises(IllegalState, match=r"with group\.protocol=zookeeper; got '\^u' with classic"):
        subscribed.change(["^u"], black_list=True)


def test_the_other_generations_do_not_load_kazoo() -> None:
    program = (
        "import sys; from muster.client import Consumer; c = Consumer({'group.id': 'g'}); c.close(); "
        "print([name for name in sys.modules if 'kazoo' in name or name.startswith('muster.coordinator.zookeeper')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
