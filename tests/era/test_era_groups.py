"""Consumers of five old releases and ours in one group of the ZooKeeper era: who owns what, and each record once."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from muster.client import Admin
from muster.client.members.zookeeper_assignment import ZookeeperStrategy, find_era_rules
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.era.mixed_group import ALLOWED_MS, MixedGroup, RecordStream
from tests.era.releases import SCALA, OldProgram
from tests.support.cluster_nodes import running_cluster
from tests.support.node import NodeProcess, running_node
from tests.support.zookeeper.consumers import create, plain

pytestmark = pytest.mark.integration

Told: TypeAlias = Callable[[str, object], None]


PARTITIONS = 6
names = (f"t{number}" for number in count())


@pytest.fixture(scope="module")
def connect(zookeeper_server: LocalEnsemble) -> str:
    return f"{zookeeper_server.connect}/era-groups"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, connect: str) -> Iterator[NodeProcess]:
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": connect}
    with running_node(tmp_path_factory.mktemp("era") / "node", settings) as node:
        yield node


@pytest.fixture
def group(tmp_path: Path, node: NodeProcess, connect: str) -> Iterator[MixedGroup]:
    with plain(connect) as client, MixedGroup(tmp_path, connect, client) as group:
        yield group


@pytest.fixture
def topic(node: NodeProcess) -> str:
    create(node, **{(name := next(names)): PARTITIONS})
    return name


@pytest.mark.parametrize("release", SCALA)
def test_members_come_and_go_and_every_record_is_read_once(
    node: NodeProcess, group: MixedGroup, topic: str, release: str
) -> None:
    """Range. Ours sorts before, between and behind the old ones; the topic grows in between."""
    group.begin_at(topic, 8)
    with RecordStream(node, **{topic: PARTITIONS}) as stream:
        group.start_old(release, "m", "--topic", topic)
        assert set(group.settle(6)) == {"m"}
        group.start_own("a", topic)
        assert group.settle(6) == ["a"] * 3 + ["m"] * 3
        group.start_old(release, "x", "--topic", topic)
        group.settle(6)
        with Admin({"bootstrap.servers": node.address}) as admin:
            admin.create_partitions(topic, 8)
        group.settle(8)
        stream.spread(**{topic: 8})
        group.close_own("a")
        group.settle(8)
        group.start_own("z", topic)
        group.settle(8)
        group.stop_old("m")
        assert group.settle(8) == ["x"] * 4 + ["z"] * 4
    assert group.drain(stream.sent) == [], "read more than once"
    group.close_own("z")
    group.stop_old("x")
    assert sum(group.positions().values()) == stream.sent


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "0.11.0.3", "1.1.1"])
def test_round_robin_follows_the_release_of_the_old_members(
    tmp_path: Path, node: NodeProcess, connect: str, topic: str, release: str
) -> None:
    """With the rules of another release they would claim the same partitions. One topic's order differs from 1.0 on."""
    create(node, **{(other := next(names)): 11})
    rules = find_era_rules(release)
    with plain(connect) as client:
        group = MixedGroup(tmp_path, connect, client, ZookeeperStrategy.ROUNDROBIN, rules)
        with group:
            group.begin_at(topic, PARTITIONS)
            group.begin_at(other, 11)
            with RecordStream(node, **{topic: PARTITIONS, other: 11}) as stream:
                # Console consumers read one topic, or those of a list.
                group.start_old(release, "m", "--whitelist", f"{topic}|{other}")
                group.start_own("p", f"^{topic}$", f"^{other}$", zookeeper_consumer_version=release)
                assert set(group.settle(17)) == {"m", "p"}
                group.close_own("p")
                assert set(group.settle(17)) == {"m"}
                group.start_own("b", f"^{topic}$", f"^{other}$", zookeeper_consumer_version=release)
                assert set(group.settle(17)) == {"b", "m"}
            assert group.drain(stream.sent) == []


@pytest.mark.parametrize("release", ["0.9.0.1", "0.10.2.2"])
def test_lists_follow_new_topics(tmp_path: Path, zookeeper: str, release: str) -> None:
    """A white list of an old consumer, a black list of ours: each resolves that of the other."""
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": zookeeper}
    with running_node(tmp_path / "node", settings) as node, plain(zookeeper) as client:
        create(node, orders=4, tmp=2)
        with MixedGroup(tmp_path, zookeeper, client, rules=find_era_rules(release)) as group:
            group.begin_at("orders", 4)
            group.begin_at("orders.eu", 2)
            with RecordStream(node, orders=4) as stream:
                group.start_old(release, "m", "--whitelist", "orders.*,bills")
                group.start_own("p", "^tmp", "^__", black_list=True, zookeeper_consumer_version=release)
                assert group.settle(4) == ["m"] * 2 + ["p"] * 2
                create(node, **{"orders.eu": 2})
                stream.spread(**{"orders": 4, "orders.eu": 2})
                assert group.settle(6) == ["m", "m", "p", "p", "m", "p"]
                group.start_old(release, "x", "--blacklist", "tmp|__.*")
                assert group.settle(6) == ["m", "m", "p", "x", "m", "p"]
                group.stop_old("m")
                assert group.settle(6) == ["p", "p", "x", "x", "p", "x"]
            assert group.drain(stream.sent) == []


@pytest.mark.parametrize("release", SCALA)
def test_after_a_kill_what_was_not_committed_is_read_again_and_nothing_else(
    node: NodeProcess, group: MixedGroup, topic: str, release: str, record_property: Told
) -> None:
    """A member of each kind dies; its nodes stay until its session ends, and the others retry for as long."""
    group.begin_at(topic, PARTITIONS)
    again: list[int] = []
    with RecordStream(node, **{topic: PARTITIONS}) as stream:
        group.start_own("a", topic)
        group.start_old(release, "m", "--topic", topic)
        group.start_process("p", topic)
        assert group.settle(6) == ["a"] * 2 + ["m"] * 2 + ["p"] * 2
        for victim in ("m", "p"):
            seen = len(group.read)
            group.wait_for(lambda until=seen + 100: len(group.read) > until, "all read for a while")
            had, died_ms = group.owned_by(victim), group.mark()
            read = group.kill(victim)
            places = group.positions()
            again += [n for n in read if n // PARTITIONS >= places[topic, n % PARTITIONS]]
            group.settle(6)
            unread_ms = group.claimed_after_ms(died_ms, had)
            assert 0 <= unread_ms <= ALLOWED_MS, f"{victim} was dead for so long until its partitions were claimed"
            record_property(f"claimed after ms: {victim}", unread_ms)
    assert group.drain(stream.sent) == sorted(again)
    record_property("repeats", len(again))


@pytest.mark.parametrize("release", SCALA)
def test_a_member_whose_session_ended_gives_up_its_share_and_comes_back(
    node: NodeProcess, group: MixedGroup, topic: str, release: str, record_property: Told
) -> None:
    """First it ends while the member runs, then while it is frozen: on waking it reads what it had fetched.

    Until it registers anew, it may read what others have claimed meanwhile: the era knows no fencing.
    """
    group.begin_at(topic, PARTITIONS)
    with RecordStream(node, **{topic: PARTITIONS}) as stream:
        group.start_old(release, "m", "--topic", topic)
        group.start_process("p", topic)
        assert group.settle(6) == ["m"] * 3 + ["p"] * 3
        for name in ("m", "p"):
            since_ms = group.mark()
            group.end_session(name)
            twice_ms = group.registered_after_ms(name, since_ms)
            assert 0 <= twice_ms <= ALLOWED_MS, f"so long {name} had not heard that its session was over"
            record_property(f"may have read for ms: {name}", twice_ms)
            assert group.settle(6) == ["m"] * 3 + ["p"] * 3
        thawed = stream.sent
        for name, program in (("m", group.old["m"]), ("p", group.processes["p"])):
            had, since_ms = group.owned_by(name), group.mark()
            program.freeze()
            assert name not in group.settle(6, without=name)
            assert 0 <= group.claimed_after_ms(since_ms, had) <= ALLOWED_MS
            since_ms = group.mark()
            program.thaw() if isinstance(program, OldProgram) else program.wake()
            assert group.settle(6) == ["m"] * 3 + ["p"] * 3
            twice_ms = group.registered_after_ms(name, since_ms)
            assert 0 <= twice_ms <= ALLOWED_MS, f"so long {name} had not heard that its session was over"
            record_property(f"may have read for ms, thawed: {name}", twice_ms)
        settled = stream.sent
        seen = len(group.read)
        group.wait_for(lambda: len(group.read) > seen + 200, "both read on")
    again = group.drain(stream.sent)
    assert [number for number in again if number >= settled] == [], "each has its own again"
    record_property("repeats", (sum(number < thawed for number in again), sum(number >= thawed for number in again)))


@pytest.mark.parametrize("release", ["0.9.0.1"])
def test_a_broker_that_dies_and_returns_wakes_the_group_and_no_record_is_read_twice(
    tmp_path: Path, zookeeper: str, release: str
) -> None:
    """Three nodes with three copies of each partition. Both kinds of consumer watch the registrations of brokers."""
    with running_cluster(tmp_path, zookeeper) as cluster, plain(zookeeper) as client:
        admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(60)
        with MixedGroup(tmp_path, zookeeper, client) as group:
            group.begin_at("t", PARTITIONS)
            with RecordStream(cluster, t=PARTITIONS) as stream:
                group.start_old(release, "m", "--topic", "t")
                group.start_own("p", "t")
                assert group.settle(6) == ["m"] * 3 + ["p"] * 3
                cluster.nodes[2].kill()
                group.wait_for(lambda: client.exists("/brokers/ids/2") is None, "its session is over")
                assert group.settle(6) == ["m"] * 3 + ["p"] * 3
                seen = len(group.read)
                group.wait_for(lambda: len(group.read) > seen + 200, "both read on from the other two")
                cluster.nodes[2].start()
                group.wait_for(lambda: client.exists("/brokers/ids/2") is not None, "it registers again")
                assert group.settle(6) == ["m"] * 3 + ["p"] * 3
            assert group.drain(stream.sent) == []
