"""What the proxy makes of the upstream's answers: in every version it tells of, no address of a broker is left."""

from typing import Any

import pytest

from muster.coordinator.config import Address
from muster.coordinator.edge.cluster_view import NodeAddress
from muster.coordinator.kafka.codec.codec import MalformedFrame, decode_frame, encode, struct
from muster.coordinator.kafka_backend.proxy import response_rewriting
from muster.coordinator.kafka_backend.proxy.allowed_apis import GROUPS_HERE, TABLE, RequestRoute, offered_versions
from muster.coordinator.kafka_backend.proxy.broker_addresses import BrokerHosts, BrokerPorts, ProxyAddresses
from muster.coordinator.kafka_backend.proxy.client_connection import LONGEST, acks_of, change_of, edit_of, group_of
from muster.coordinator.kafka_backend.proxy.request_splitting import groups_by_name
from muster.coordinator.kafka_backend.proxy.response_rewriting import Edit
from tests.support.kafka.client import KEYS, frame

REAL = "broker.of.somebody"
KEYS_PASSED = {api.name: api.key for api, _ in TABLE.values()}
BASE = 1_000


def places(ports: int = 3) -> ProxyAddresses:
    brokers = BrokerPorts(lambda: "here", range(9100, 9100 + ports), 1)
    return ProxyAddresses(7, BASE, lambda: Address("here", 9092), brokers, 2)


class PortLike:
    """As much of a `Port` as edits look at."""

    places = places()
    broker = 1

    def ours(self, group: str) -> bool:
        return group.startswith("ours")


def versions(name: str) -> list[tuple[str, int]]:
    api = next(api for api, _ in TABLE.values() if api.name == name)
    return [(name, version) for version in range(api.first, api.last + 1)]


def bytes_of(name: str, version: int, message: Any) -> bytes:
    return b"".join(encode(name, version, message))


def edited(edit: Edit | None, body: bytes) -> bytes:
    """As a leg does: with more and more of the body, until the edit is content; what is behind passes."""
    assert edit is not None
    for end in range(len(body) + 1):
        made = edit(body[:end], end == len(body))
        if made is not None:
            assert made.consumed <= end
            return made.new + body[made.consumed :]
    raise AssertionError("an edit needs more than there is")


def metadata_of(brokers: list[int]) -> Any:
    broker, topic = struct("MetadataResponse.brokers"), struct("MetadataResponse.topics")
    partition = struct("MetadataResponse.topics.partitions")
    parts = [partition(partition_index=n, leader_id=n, leader_epoch=3, replica_nodes=[1, 2]) for n in (1, 2)]
    return struct("MetadataResponse")(
        throttle_time_ms=5,
        brokers=[broker(node_id=each, host=REAL, port=4711, rack=f"r{each}" * 50) for each in brokers],
        cluster_id="c" * 22,
        controller_id=2,
        topics=[topic(name="orders", topic_id=bytes(range(16)), partitions=parts)],
    )


@pytest.mark.parametrize(("name", "version"), versions("Metadata"))
def test_metadata_names_ports_of_this_node_and_all_nodes(name: str, version: int) -> None:
    answer = metadata_of([1, 2, 3])
    body = edited(edit_of(PortLike(), 3, version), bytes_of("MetadataResponse", version, answer))  # type: ignore[arg-type]
    assert REAL.encode() not in body
    wanted = metadata_of([])
    rack = "r{}".format
    node = struct("MetadataResponse.brokers")
    racks = [rack(each) * 50 if version else None for each in (1, 2, 3)]
    wanted.brokers = [
        *(node(node_id=each, host="here", port=9099 + each, rack=racks[each - 1]) for each in (1, 2, 3)),
        node(node_id=BASE + 7, host="here", port=9092),
    ]
    expected = bytes_of("MetadataResponse", version, wanted)
    assert body == expected


def test_a_broker_without_a_port_is_left_out() -> None:
    body = edited(
        response_rewriting.edit_metadata(9, places(ports=1)), bytes_of("MetadataResponse", 9, metadata_of([1, 2, 0]))
    )
    told = decode_frame("MetadataResponse", 9, body).brokers
    assert [each.node_id for each in told] == [1, BASE + 7]
    assert REAL.encode() not in body


@pytest.mark.parametrize("cut", [1, 3, 5, 9])
def test_metadata_that_ends_within_its_brokers_is_refused(cut: int) -> None:
    body = bytes_of("MetadataResponse", 9, metadata_of([1]))[:cut]
    with pytest.raises(MalformedFrame):
        response_rewriting.edit_metadata(9, places())(body, True)


@pytest.mark.parametrize(("name", "version"), versions("DescribeCluster"))
def test_described_clusters_name_the_same(name: str, version: int) -> None:
    broker = struct("DescribeClusterResponse.brokers")
    answer = struct("DescribeClusterResponse")(
        cluster_id="c", controller_id=2, brokers=[broker(broker_id=2, host=REAL, port=1, rack="r")]
    )
    body = edited(edit_of(PortLike(), 60, version), bytes_of("DescribeClusterResponse", version, answer))  # type: ignore[arg-type]
    told = decode_frame("DescribeClusterResponse", version, body)
    assert (told.cluster_id, told.controller_id) == ("c", 2)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in told.brokers] == [
        (2, "here", 9101, "r"),
        (BASE + 7, "here", 9092, None),
    ]


@pytest.mark.parametrize(("name", "version"), versions("FindCoordinator"))
@pytest.mark.parametrize(("node", "place"), [(2, (2, "here", 9101, 0)), (9, (-1, "", -1, 15)), (-1, (-1, "", -1, 15))])
def test_coordinators_of_the_upstream_are_at_their_ports(
    name: str, version: int, node: int, place: tuple[int, str, int, int]
) -> None:
    said = {"node_id": node, "host": REAL if node >= 0 else "", "port": 1 if node >= 0 else -1}
    said["error_code"] = 0 if node >= 0 else 15
    made = struct("FindCoordinatorResponse")
    if version >= 4:
        answer = made(coordinators=[struct("FindCoordinatorResponse.coordinators")(key="g", **said)])
    else:
        answer = made(**said)
    change = change_of(PortLike(), name, version)  # type: ignore[arg-type]
    assert change is not None
    whole = response_rewriting.edit_whole("FindCoordinatorResponse", version, change)
    body = edited(whole, bytes_of("FindCoordinatorResponse", version, answer))
    assert REAL.encode() not in body
    told = decode_frame("FindCoordinatorResponse", version, body)
    row = told.coordinators[0] if version >= 4 else told
    assert (row.node_id, row.host, row.port, row.error_code) == place


class OwnPortLike(PortLike):
    broker = None  # type: ignore[assignment]


@pytest.mark.parametrize(("name", "version"), [*versions("DescribeLogDirs"), *versions("ListTransactions")])
def test_what_each_broker_has_for_itself_is_told_once(name: str, version: int) -> None:
    """Tools ask every node of the cluster in turn, and ours are among them (KB-X4)."""
    field = {"DescribeLogDirs": "results", "ListTransactions": "transaction_states"}[name]
    row = struct(f"{name}Response.{field}")
    answer = struct(f"{name}Response")(throttle_time_ms=7, **{field: [row(), row()]})
    key, body = KEYS_PASSED[name], bytes_of(f"{name}Response", version, answer)
    assert edit_of(PortLike(), key, version) is None  # type: ignore[arg-type]
    told = decode_frame(f"{name}Response", version, edited(edit_of(OwnPortLike(), key, version), body))  # type: ignore[arg-type]
    assert told.throttle_time_ms == 7
    dirs = [(each.log_dir, each.topics) for each in getattr(told, field)]
    assert dirs == ([("none", [])] if name == "DescribeLogDirs" else [])


@pytest.mark.parametrize(("name", "version"), versions("DescribeConfigs"))
def test_settings_of_brokers_are_told_without_their_addresses(name: str, version: int) -> None:
    entry, synonym = (
        struct("DescribeConfigsResponse.results.configs"),
        struct("DescribeConfigsResponse.results.configs.synonyms"),
    )
    listens = f"PLAINTEXT://{REAL}:9092"
    entries = [
        entry(name="advertised.listeners", value=listens, synonyms=[synonym(name="listeners", value=listens)]),
        entry(name="listeners", value=listens),
        entry(name="controller.quorum.voters", value=f"1@{REAL}:9093"),
        entry(name="num.io.threads", value="8"),
    ]
    result = struct("DescribeConfigsResponse.results")(resource_type=4, resource_name="1", configs=entries)
    body = bytes_of("DescribeConfigsResponse", version, struct("DescribeConfigsResponse")(results=[result]))
    change = change_of(PortLike(), name, version)  # type: ignore[arg-type]
    assert change is not None
    body = edited(response_rewriting.edit_whole("DescribeConfigsResponse", version, change), body)
    assert REAL.encode() not in body
    told = decode_frame("DescribeConfigsResponse", version, body).results[0].configs
    assert [(each.value, each.is_sensitive) for each in told] == [*[(None, True)] * 3, ("8", False)]


@pytest.mark.parametrize(("name", "version"), versions("ListGroups"))
def test_each_group_is_listed_once_by_whoever_coordinates_it(name: str, version: int) -> None:
    row = struct("ListGroupsResponse.groups")
    answer = struct("ListGroupsResponse")(groups=[row(group_id=each) for each in ("ours-1", "theirs", "ours-2")])
    body = edited(edit_of(PortLike(), 16, version), bytes_of("ListGroupsResponse", version, answer))  # type: ignore[arg-type]
    assert [each.group_id for each in decode_frame("ListGroupsResponse", version, body).groups] == ["theirs"]


# -- ApiVersions ----------------------------------------------------------------------------------------------------


def offered(rows: dict[int, tuple[int, int]]) -> Any:
    row = struct("ApiVersionsResponse.api_keys")
    feature = struct("ApiVersionsResponse.finalized_features")(name="transaction.version", max_version_level=2)
    return struct("ApiVersionsResponse")(
        api_keys=[row(api_key=key, min_version=first, max_version=last) for key, (first, last) in rows.items()],
        finalized_features_epoch=9,
        finalized_features=[feature],
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_only_what_both_have_is_told_and_no_feature(version: int) -> None:
    everything = offered(dict.fromkeys(range(100), (0, 99)))
    body = edited(
        response_rewriting.edit_versions(version, False), bytes_of("ApiVersionsResponse", version, everything)
    )
    answer = decode_frame("ApiVersionsResponse", version, body)
    assert not answer.finalized_features
    assert answer.finalized_features_epoch == -1
    rows = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert rows == {key: (api.first, api.last) for key, (api, _) in TABLE.items()}
    assert (rows[0], rows[1], rows[3], rows[10]) == ((0, 9), (0, 15), (0, 12), (0, 4))
    assert not rows.keys() & {4, 5, 6, 7, 27, 52, 53, 54, 55, 56, 58, 59, 62, 63, 71, 72, 75, 76, 77, 78, 79, 80}


def test_an_older_upstream_is_believed_but_for_groups_at_the_node_s_own_port() -> None:
    some = offered({0: (3, 7), 12: (0, 2), 1: (16, 17)})
    at_broker = {
        row.api_key: (row.min_version, row.max_version) for row in offered_versions(some.api_keys, own_port=False)
    }
    assert at_broker == {0: (3, 7), 12: (0, 2)}
    own = {row.api_key: (row.min_version, row.max_version) for row in offered_versions(some.api_keys, own_port=True)}
    assert own[12] == (0, 4)
    assert {TABLE[key][0].name for key in own} == GROUPS_HERE | {"Produce"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_upstream_that_does_not_know_the_version_has_the_client_ask_again_in_the_first(version: int) -> None:
    body = edited(
        response_rewriting.edit_versions(version, False), b"\0\x23\1\0\x12\0\0\0\2\0"
    )  # as librdkafka's mock cluster says it
    answer = decode_frame("ApiVersionsResponse", 0, body)
    assert answer.error_code == 35
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, 0)]


def test_every_api_that_names_a_group_is_looked_at() -> None:
    ways = {api.name: way for api, way in TABLE.values()}
    passing = {name for name, way in ways.items() if way in (RequestRoute.PASS, RequestRoute.LOGIN)}
    from muster.coordinator.kafka.codec.messages import all_messages

    for name in passing & {each.removesuffix("Request") for each in all_messages() if each.endswith("Request")}:
        message = all_messages()[f"{name}Request"]
        for fields in message.structs.values():
            assert not {"group_id", "groups", "group_ids"} & {each.name for each in fields}, name


# -- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 10))
@pytest.mark.parametrize("transaction", [None, "t" * 200])
def test_acks_are_found_as_soon_as_they_are_there(version: int, transaction: str | None) -> None:
    for acks in (0, 1, -1):
        message = struct("ProduceRequest")(transactional_id=transaction, acks=acks)
        data = b"xx" + frame("Produce", version, 1, message, client_id="c" * 150)
        found = [acks_of(version, data[:end], 2) for end in range(14, len(data) + 1)]
        known = found.index(acks)
        assert set(found[:known]) <= {None}
        assert set(found[known:]) == {acks}


def test_a_produce_that_never_comes_to_its_acks_is_none() -> None:
    assert acks_of(9, frame("Produce", 9, 1, struct("ProduceRequest")())[:14], 0) is None
    begin = b"\0\0\0\0" + b"\0\0\0\x09" + b"\0\0\0\1" + b"\0\1x" + b"\1\0" + b"\xff\xff\xff\x0f"
    with pytest.raises(MalformedFrame):
        acks_of(9, begin + bytes(LONGEST), 0)


GROUPED = [
    (api.name, version)
    for api, way in TABLE.values()
    if way is RequestRoute.GROUP or api.name == "OffsetFetch"
    for version in range(api.first, (7 if api.name == "OffsetFetch" else api.last) + 1)
]


@pytest.mark.parametrize(("name", "version"), GROUPED)
def test_a_request_s_group_is_found(name: str, version: int) -> None:
    KEYS.update({api.name: api.key for api, _ in TABLE.values()})
    for client_id in ("c" * 300, None):
        message = struct(f"{name}Request")(group_id="näher", **SAID.get(name, {}))
        whole = frame(name, version, 1, message, client_id=client_id)[4:]
        group, end = group_of(name, version, whole)
        assert group == "näher"
        assert whole[:end].endswith("näher".encode())
        with pytest.raises(MalformedFrame):
            group_of(name, version, whole[: end - 1])


SAID: dict[str, dict[str, Any]] = {
    "AddOffsetsToTxn": {"transactional_id": "t" * 140, "producer_id": 1 << 40, "producer_epoch": 3},
    "TxnOffsetCommit": {"transactional_id": "t" * 140, "producer_id": 1 << 40, "producer_epoch": 3},
}


# -- names ----------------------------------------------------------------------------------------------------------


def test_groups_are_ours_by_their_whole_names_and_never_the_nodes_group() -> None:
    all_but = groups_by_name(".*", "x|y", "blue")
    assert [name for name in ("x", "xy", "y", "", "blue.nodes", "muster.nodes") if all_but(name)] == [
        "xy",
        "",
        "muster.nodes",
    ]
    with pytest.raises(ValueError, match="missing"):
        groups_by_name("(", "", "m")


def test_hosts_name_brokers() -> None:
    hosts = BrokerHosts("b$(id).example", lambda: 9093)
    assert hosts(12) == Address("b12.example", 9093)
    assert [hosts.broker(name) for name in ("b12.example", "B3.Example", "b.example", "b01.example", "x")] == [
        12,
        3,
        None,
        None,
        None,
    ]


def test_a_broker_that_has_a_node_s_id_is_told_of_to_nobody() -> None:
    assert places(ports=2_000).broker(BASE) is None
    assert places().nodes() == [NodeAddress(BASE + 7, "here", 9092)]
