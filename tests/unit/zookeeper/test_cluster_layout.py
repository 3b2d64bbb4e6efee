"""What a cluster writes into ZooKeeper comes back as it was, what tools wrote is taken, what is neither is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterNode,
    ClusterTopic,
    NodeEndpoint,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.errors import MalformedZnode

IDS = st.integers(0, 2**31 - 1)
SETS = st.lists(IDS, min_size=1, max_size=5, unique=True).map(tuple)
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
STATES = st.builds(
    PartitionState,
    leader=IDS,
    leader_epoch=IDS,
    isr=SETS,
    elr=SETS,
    directories=st.dictionaries(IDS, NAMES, max_size=4),
    controller_epoch=IDS,
    partition_epoch=IDS,
    unclean_epoch=st.just(NO_EPOCH) | IDS,
    cause=st.text(max_size=20),
)


@given(STATES)
def test_a_state_comes_back(state: PartitionState) -> None:
    assert cluster_layout.read_state("/s", cluster_layout.state_json(state), state.partition_epoch) == state


@given(
    st.lists(st.builds(ReplicaAssignment, SETS, SETS, SETS), min_size=1, max_size=5),
    st.binary(min_size=16, max_size=16),
)
def test_a_topic_comes_back(partitions: list[ReplicaAssignment], topic_id: bytes) -> None:
    topic = ClusterTopic("t", topic_id, tuple(partitions), {"a": "b"})
    assert cluster_layout.read_topic("/brokers/topics/t", cluster_layout.topic_json(topic), {"a": "b"}) == topic


@pytest.mark.parametrize("host", ["box", "127.0.0.1", "::1"])
def test_a_node_comes_back_with_the_epoch_of_its_znode(host: str) -> None:
    doors = (
        NodeEndpoint("PLAINTEXT", host, 9092),
        NodeEndpoint("SASL_SSL", host, 9093),
        NodeEndpoint("REPLICATION", host, 9094),
    )
    node = ClusterNode(3, 77, "d" * 22, unclean=True, endpoints=doors, rack="east", proves=True)
    data = cluster_layout.registration_json(node, timestamp_ms=1)
    assert cluster_layout.read_registration("/brokers/ids/3", data, 77) == node


def test_clients_of_kafka_see_no_door_that_they_cannot_use() -> None:
    """Kafka 0.9 fails at a listener called REPLICATION, and reads no broker at all then."""
    doors = tuple(NodeEndpoint(name, "h", 9000) for name in ("GRPC", "SASL_SSL", "PLAINTEXT", "REPLICATION"))
    body = json.loads(cluster_layout.registration_json(ClusterNode(3, 77, "d", endpoints=doors), timestamp_ms=1))
    assert body["endpoints"] == ["PLAINTEXT://h:9000", "SASL_SSL://h:9000"]
    assert body["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SASL_SSL"}
    assert (body["host"], body["port"]) == ("h", 9000)
    assert body["muster"]["endpoints"] == ["GRPC://h:9000", "REPLICATION://h:9000"]
    bare = cluster_layout.registration_json(ClusterNode(3, 77, "d", endpoints=doors[-1:]), timestamp_ms=1)
    assert (json.loads(bare)["host"], json.loads(bare)["port"]) == (None, -1)


def test_a_node_that_registered_as_before_is_read() -> None:
    before = (
        b'{"host":"h","port":1,"version":4,"endpoints":["GRPC://h:1","REPLICATION://h:2"],'
        b'"muster":{"directory":"d","unclean":false,"features":1}}'
    )
    node = cluster_layout.read_registration("/brokers/ids/1", before, 5)
    assert node is not None
    assert node.endpoints == (NodeEndpoint("GRPC", "h", 1), NodeEndpoint("REPLICATION", "h", 2))
    assert cluster_layout.is_earlier_registration(before)


@pytest.mark.parametrize("for_earlier", [False, True])
def test_a_node_that_registers_beside_earlier_ones_is_found_by_them(for_earlier: bool) -> None:
    doors = (NodeEndpoint("PLAINTEXT", "h", 1), NodeEndpoint("GRPC", "h", 2), NodeEndpoint("REPLICATION", "h", 3))
    node = ClusterNode(3, 5, "d", endpoints=doors)
    data = cluster_layout.registration_json(node, timestamp_ms=1, for_earlier=for_earlier)
    assert cluster_layout.read_registration("/brokers/ids/3", data, 5) == node
    assert not cluster_layout.is_earlier_registration(data)
    assert len(json.loads(data)["endpoints"]) == (3 if for_earlier else 1)
    assert not any(map(cluster_layout.is_earlier_registration, (b"", b"[]", b"{}", b'{"muster":1}')))


def test_a_registration_that_is_no_node_of_this_cluster_is_none() -> None:
    """CL-Z2: one without `muster.directory`, or with other features, is not counted."""
    beside = b'{"host":"h","port":1,"version":4,"endpoints":[]}'
    newer = b'{"host":"h","port":1,"version":4,"endpoints":[],"muster":{"directory":"d","unclean":false,"features":2}}'
    assert cluster_layout.read_registration("/brokers/ids/1", beside, 5) is None
    assert cluster_layout.read_registration("/brokers/ids/1", newer, 5) is None


def test_a_state_that_a_tool_of_that_era_wrote_has_defaults() -> None:
    """CL-Z1: no eligible leader replicas, and directories unknown."""
    data = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":3,"isr":[2,3],"later":{}}'
    assert cluster_layout.read_state("/s", data, 9) == PartitionState(
        2, 3, (2, 3), controller_epoch=1, partition_epoch=9
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"topic_id":"AAAA","partitions":{"0":[1]}}',
        b'{"partitions":{"0":[1]}}',
        b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{}}',
        b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"1":[1]}}',
        b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[1,1]}}',
        b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[]}}',
        b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[-1]}}',
    ],
)
def test_what_is_no_topic_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(MalformedZnode, match="/brokers/topics/t"):
        cluster_layout.read_topic("/brokers/topics/t", data)


@given(st.dictionaries(st.builds(TopicPartition, NAMES, IDS), SETS, max_size=4))
def test_what_is_asked_of_the_controller_comes_back(wanted: dict[TopicPartition, tuple[int, ...]]) -> None:
    assert cluster_layout.read_reassignment("/r", cluster_layout.reassignment_json(wanted)) == wanted
    assert cluster_layout.read_preferred("/p", cluster_layout.preferred_json(list(wanted))) == tuple(wanted)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**40))
def test_the_version_of_the_cluster_comes_back(epoch: int, sequence: int) -> None:
    version = cluster_layout.ClusterVersionZnode(epoch, sequence)
    assert cluster_layout.read_cluster_version(cluster_layout.CLUSTER_VERSION, version.to_json()) == version


def test_blocks_of_producer_ids_follow_each_other() -> None:
    """CL-A4: blocks of 1,000, both ends included, as Kafka writes them."""
    first = cluster_layout.ProducerIdBlock.after(None, 1)
    second = cluster_layout.ProducerIdBlock.after(cluster_layout.read_producer_ids("/l", first.to_json()), 2)
    assert (first, second) == (cluster_layout.ProducerIdBlock(1, 0, 999), cluster_layout.ProducerIdBlock(2, 1000, 1999))
    with pytest.raises(MalformedZnode):
        cluster_layout.read_producer_ids("/l", b'{"version":1,"broker":2,"block_start":"9","block_end":"3"}')


def test_settings_and_their_changes_come_back() -> None:
    assert layout.read_config("/c", layout.config_json({"min.insync.replicas": "2"})) == {"min.insync.replicas": "2"}
    changed = layout.read_config_change("/n", layout.config_change_json("topics/orders"))
    assert cluster_layout.parse_config_entity("/n", changed) == ("topics", "orders")
    with pytest.raises(MalformedZnode):
        cluster_layout.parse_config_entity("/n", "users/bob")


REGISTERED = b'{"host":"h","port":1,"version":4,"endpoints":[],"muster":{"directory":"d","features":1,"session_ms":%b}}'
HAS_STATE = b'{"controller_epoch":1,"leader":%b,"version":1,"leader_epoch":3,"isr":[2,3]}'
HAS_TOPIC = b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[%b]}}'
OTHERS = [b"Infinity", b"1e999", b"NaN", b"2147483648", b"-2147483649", b"9" * 400, b'"\\ud800"', b"{}"]


@pytest.mark.parametrize("number", OTHERS)
def test_a_number_that_no_message_has_room_for_is_refused_like_anything_that_is_none(number: bytes) -> None:
    """CL-C13: one such znode would end the looks of every controller at all of them, or each answer that tells of
    it."""
    with pytest.raises(MalformedZnode, match="/brokers/ids/1"):
        cluster_layout.read_registration("/brokers/ids/1", REGISTERED % number, 5)
    with pytest.raises(MalformedZnode, match="/state"):
        cluster_layout.read_state("/state", HAS_STATE % number, 5)
    with pytest.raises(MalformedZnode, match="/brokers/topics/t"):
        cluster_layout.read_topic("/brokers/topics/t", HAS_TOPIC % number)


def test_a_node_whose_id_is_no_number_of_a_message_is_refused() -> None:
    with pytest.raises(MalformedZnode, match="/brokers/ids/2147483648"):
        cluster_layout.read_registration("/brokers/ids/2147483648", REGISTERED % b"1", 5)


def test_a_door_without_a_port_is_none() -> None:
    assert cluster_layout.read_endpoint("REPLICATION://h:65535") == NodeEndpoint("REPLICATION", "h", 65535)
    assert cluster_layout.read_endpoint("REPLICATION://h:65536") is None
    assert cluster_layout.read_endpoint("REPLICATION://h:" + "9" * 400) is None


def test_what_no_message_can_say_is_refused() -> None:
    """Half a character: it is in JSON, and in no text that is sent."""
    with pytest.raises(MalformedZnode, match="/brokers/ids/1"):
        cluster_layout.read_registration("/brokers/ids/1", (REGISTERED % b"1").replace(b'"d"', b'"\\ud800"'), 5)
    whole = cluster_layout.read_registration(
        "/brokers/ids/1", (REGISTERED % b"1").replace(b'"d"', b'"\\ud83d\\ude00"'), 5
    )
    assert whole is not None
    assert whole.directory == "\U0001f600"
