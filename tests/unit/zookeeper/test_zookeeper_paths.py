"""The layout: what is written is what tools of that era read, and what they write is read."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import MalformedZnode
from muster.coordinator.zookeeper.group_observer import consumer_host
from muster.coordinator.zookeeper.layout import BrokerZnode, ConsumerZnode, PartitionStateZnode

ids = st.integers(min_value=-1, max_value=2**31 - 1)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


def test_each_path() -> None:
    assert layout.broker_path(7) == "/brokers/ids/7"
    assert layout.topic_path("t") == "/brokers/topics/t"
    assert layout.topic_partitions_path("t") == "/brokers/topics/t/partitions"
    assert layout.partition_path("t", 3) == "/brokers/topics/t/partitions/3"
    assert layout.partition_state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert layout.group_path("g") == "/consumers/g"
    assert layout.consumer_ids_path("g") == "/consumers/g/ids"
    assert layout.consumer_path("g", "c") == "/consumers/g/ids/c"
    assert layout.owners_path("g") == "/consumers/g/owners"
    assert layout.topic_owners_path("g", "t") == "/consumers/g/owners/t"
    assert layout.owner_path("g", "t", 3) == "/consumers/g/owners/t/3"
    assert layout.offsets_path("g") == "/consumers/g/offsets"
    assert layout.topic_offsets_path("g", "t") == "/consumers/g/offsets/t"
    assert layout.offset_path("g", "t", 3) == "/consumers/g/offsets/t/3"
    assert layout.topic_config_path("t") == "/config/topics/t"
    assert layout.topic_deletion_path("t") == "/admin/delete_topics/t"


def test_a_broker_as_kafka_writes_it_is_read() -> None:
    written = (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://box:9092"],'
        b'"jmx_port":9999,"features":{},"host":"box","timestamp":"1700000000000","port":9092,"version":5}'
    )
    found = layout.read_broker("/brokers/ids/0", written)
    assert found == BrokerZnode("box", 9092, ("PLAINTEXT://box:9092",), 1_700_000_000_000, 9999)
    assert found.grpc is None
    assert found.door("PLAINTEXT") == ("box", 9092)


def test_the_first_brokers_wrote_less() -> None:
    found = layout.read_broker("/brokers/ids/0", b'{"host":"box","jmx_port":-1,"port":9092,"version":1}')
    assert found == BrokerZnode("box", 9092)


@given(st.lists(st.tuples(names, st.integers(0, 65_535)), max_size=3, unique=True), ids)
def test_a_broker_reads_what_it_wrote(doors: list[tuple[str, int]], at_ms: int) -> None:
    endpoints = tuple(layout.format_endpoint(listener, "::1", port) for listener, port in doors)
    wrote = BrokerZnode("::1", 9290, endpoints, at_ms)
    found = layout.read_broker("/brokers/ids/1", wrote.to_json())
    assert sorted(found.endpoints) == sorted(endpoints)
    assert replace(found, endpoints=endpoints) == wrote


def test_an_address_of_ipv6_comes_back_bare() -> None:
    endpoint = layout.format_endpoint(layout.GRPC_ENDPOINT, "::1", 9290)
    assert BrokerZnode("::1", 9290, (endpoint,)).grpc == ("::1", 9290)


@given(st.dictionaries(st.integers(0, 99), st.lists(ids, max_size=3), max_size=5))
def test_a_topic_reads_what_it_wrote(assignment: dict[int, list[int]]) -> None:
    expected = {number: tuple(replicas) for number, replicas in assignment.items()}
    assert layout.read_topic("/t", layout.topic_json(assignment)) == expected


@given(ids, st.lists(ids, max_size=3), ids, ids)
def test_a_state_reads_what_it_wrote(leader: int, isr: list[int], epoch: int, controller: int) -> None:
    wrote = PartitionStateZnode(leader, tuple(isr), epoch, controller)
    assert layout.read_partition_state("/s", wrote.to_json()) == wrote


@given(st.dictionaries(names, st.integers(1, 9), max_size=3), st.sampled_from(layout.PATTERNS), ids)
def test_a_consumer_reads_what_it_wrote(subscription: dict[str, int], pattern: layout.Pattern, at_ms: int) -> None:
    wrote = ConsumerZnode(subscription, pattern, at_ms)
    assert layout.read_consumer("/c", wrote.to_json()) == wrote
    assert set(json.loads(wrote.to_json())) == {"version", "subscription", "pattern", "timestamp"}


def test_controller_and_cluster() -> None:
    assert layout.read_controller("/controller", layout.controller_json(3, 17)) == 3
    assert json.loads(layout.cluster_id_json("x")) == {"version": "1", "id": "x"}
    assert layout.read_cluster_id("/cluster/id", b'{"version":1,"id":"abc"}') == "abc"
    assert layout.read_epoch("/controller_epoch", b"12") == 12


def test_an_owner_is_a_consumer_and_a_stream() -> None:
    assert layout.read_owner("/o", layout.owner_text("g_box-1-c0ffee00", 2)) == ("g_box-1-c0ffee00", 2)
    assert layout.read_owner("/o", b"box:1234-0") == ("box:1234", 0)
    assert layout.read_offset("/f", layout.offset_text(17)) == 17
    assert layout.read_offset("/f", b"-1") == -1


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (layout.read_broker, b"{"),
        (layout.read_broker, b"[]"),
        (layout.read_broker, b'{"host":"box","port":"no"}'),
        (layout.read_topic, b'{"version":1}'),
        (layout.read_topic, b'{"partitions":[]}'),
        (layout.read_topic, b'{"partitions":{"a":[1]}}'),
        (layout.read_partition_state, b'{"leader":1}'),
        (layout.read_consumer, b'{"subscription":{},"pattern":"odd"}'),
        (layout.read_consumer, b'{"subscription":{"t":null},"pattern":"static"}'),
        (layout.read_controller, b"7"),
        (layout.read_cluster_id, b'{"version":"1"}'),
        (layout.read_owner, b"nobody"),
        (layout.read_owner, b"-1"),
        (layout.read_owner, b"a-x"),
        (layout.read_offset, b""),
        (layout.read_offset, b"1.5"),
        (layout.read_offset, "٣".encode()),
        (layout.read_epoch, b"-1"),
        (layout.read_broker, b"[" * 100_000),
        (layout.read_broker, b"\xff"),
    ],
)
def test_what_is_something_else_is_named_with_its_path(read, data: bytes) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MalformedZnode, match=r"^/some/where holds .*; expected .*; mend or delete it$"):
        read("/some/where", data)


@given(st.binary(max_size=60))
def test_no_reader_is_broken_by_what_it_finds(data: bytes) -> None:
    for read in (
        layout.read_broker,
        layout.read_topic,
        layout.read_partition_state,
        layout.read_consumer,
        layout.read_owner,
    ):
        try:
            read("/p", data)
        except MalformedZnode:
            continue


def test_a_consumer_id_names_its_host() -> None:
    made = layout.new_consumer_id("my_group", "box-7.example", 1_700_000_000_000, "c0ffee00aabb")
    assert consumer_host("my_group", made) == "box-7.example"
    assert consumer_host("my_group", "anything") == ""
