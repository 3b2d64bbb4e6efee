"""Rewrites the upstream's answers: Muster's addresses in place of the brokers'. Pure.

An edit receives what has arrived of an answer's body, and whether that is all; it returns the replacement, or None
while it needs more. Of Metadata only the beginning is read: what follows the brokers may be megabytes, and streams
through.
"""

from collections.abc import Callable, Collection
from struct import Struct, error
from typing import Any, Final, NamedTuple, TypeAlias

from muster.coordinator.edge.cluster_view import NodeAddress
from muster.coordinator.kafka.codec.codec import (
    DecodeFailure,
    MalformedFrame,
    decode,
    encode,
    is_flexible,
    read_uvarint,
    skip_tags,
    struct,
)
from muster.coordinator.kafka.codec.codec import encode_uvarint as written_uvarint
from muster.coordinator.kafka.protocol import API_VERSIONS
from muster.coordinator.kafka_backend.proxy.allowed_apis import offered_versions
from muster.coordinator.kafka_backend.proxy.broker_addresses import ProxyAddresses


class Edited(NamedTuple):
    """new: what stands in place of the first `consumed` bytes of a body."""

    new: bytes
    consumed: int


Edit: TypeAlias = Callable[[bytes, bool], Edited | None]
INT: Final = Struct(">i")
SHORT: Final = Struct(">h")
THROTTLED: Final = 3
RACKS: Final = 1
MOST_BROKERS: Final = 10_000
MOST_TAGS: Final = 10_000
UNSUPPORTED_VERSION: Final = 35
BROKER, GROUP = 4, 32
"""Types of what has settings."""
OF_EACH: Final = frozenset({"DescribeLogDirs", "ListTransactions"})
"""What brokers tell of themselves alone."""
NO_LOG_DIR: Final = "none"
HIDDEN: Final = frozenset(
    {"listeners", "advertised.listeners", "controller.quorum.voters", "controller.quorum.bootstrap.servers",
     "zookeeper.connect", "host.name", "advertised.host.name"}
)  # fmt: skip
"""A broker's settings with addresses in them."""


def edit_whole(name: str, version: int, change: Callable[[Any], Any]) -> Edit:
    """An edit of a message that is read as a whole."""

    def edit(body: bytes, all_here: bool) -> Edited | None:
        if not all_here:
            return None
        message = decode(name, version, body)[0]
        return Edited(b"".join(encode(name, version, change(message))), len(body))

    return edit


# -- who there is -------------------------------------------------------------------------------------------------


def edit_metadata(version: int, places: ProxyAddresses) -> Edit:
    """Metadata with other brokers."""

    def edit(body: bytes, all_here: bool) -> Edited | None:
        try:
            brokers, begin, end = brokers_of(version, body)
        except (IndexError, error):
            if all_here:
                raise MalformedFrame(f"Metadata {version} ends within its brokers") from None
            return None
        except (DecodeFailure, UnicodeDecodeError) as broken:
            raise MalformedFrame(f"Metadata {version}: {broken}") from None
        return Edited(body[:begin] + encode_brokers(version, places.everyone(brokers)), end)

    return edit


def brokers_of(version: int, body: bytes) -> tuple[list[tuple[int, str | None]], int, int]:
    """Ids and racks of a MetadataResponse's brokers, and where their array begins and ends. Raises IndexError and
    struct.error where the body is cut, Broken for what is none."""
    flexible = is_flexible("MetadataResponse", version)
    position = begin = INT.size if version >= THROTTLED else 0
    if flexible:
        count, position = read_uvarint(body, position)
        count -= 1
    else:
        (count,) = INT.unpack_from(body, position)
        position += INT.size
    if not 0 <= count <= MOST_BROKERS:
        raise DecodeFailure(f"it has {count} brokers; expected at most {MOST_BROKERS}")
    found: list[tuple[int, str | None]] = []
    for _ in range(count):
        (broker,) = INT.unpack_from(body, position)
        _, position = read_string(body, position + INT.size, flexible)
        position += INT.size
        rack = None
        if version >= RACKS:
            rack, position = read_string(body, position, flexible)
        if flexible:
            position, _ = skip_tags(body, position, len(body), MOST_TAGS)
        found.append((broker, rack))
    if position > len(body):
        raise IndexError
    return found, begin, position


def read_string(body: bytes, position: int, compact: bool) -> tuple[str | None, int]:
    if compact:
        size, position = read_uvarint(body, position)
        size -= 1
    else:
        (size,) = SHORT.unpack_from(body, position)
        position += SHORT.size
    if size < 0:
        return None, position
    if position + size > len(body):
        raise IndexError
    return body[position : position + size].decode(), position + size


def encode_brokers(version: int, nodes: list[NodeAddress]) -> bytes:
    """The array of brokers."""
    flexible = is_flexible("MetadataResponse", version)

    def string(value: str | None) -> bytes:
        raw = b"" if value is None else value.encode()
        if flexible:
            return b"\0" if value is None else written_uvarint(len(raw) + 1) + raw
        return SHORT.pack(-1 if value is None else len(raw)) + raw

    out = [written_uvarint(len(nodes) + 1) if flexible else INT.pack(len(nodes))]
    for node in nodes:
        out += [INT.pack(node.node_id), string(node.host), INT.pack(node.port)]
        if version >= RACKS:
            out.append(string(node.rack))
        if flexible:
            out.append(b"\0")
    return b"".join(out)


def edit_described_cluster(version: int, places: ProxyAddresses) -> Edit:
    def change(answer: Any) -> Any:
        if not answer.error_code:
            made = struct("DescribeClusterResponse.brokers")
            everyone = places.everyone([(each.broker_id, each.rack) for each in answer.brokers])
            answer.brokers = [
                made(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack) for each in everyone
            ]
        return answer

    return edit_whole("DescribeClusterResponse", version, change)


def rewrite_coordinators(answer: Any, version: int, places: ProxyAddresses) -> Any:
    """FindCoordinator of the upstream's: whoever it names, at his place here."""
    for row in answer.coordinators if version >= 4 else (answer,):
        place = places.broker(row.node_id) if row.node_id >= 0 else None
        if place is not None:
            row.host, row.port = place
        elif row.node_id >= 0 or row.host:
            row.node_id, row.host, row.port, row.error_code = -1, "", -1, row.error_code or 15
            row.error_message = row.error_message or "the coordinator's broker has no port here"
    return answer


# -- what else has to be left out -----------------------------------------------------------------------------------


def edit_versions(version: int, own_port: bool, untold: Collection[int] = ()) -> Edit:
    """ApiVersions, without some. An upstream that does not know this version of it says so in whatever form: the client
    asks again in the first one, as KIP-511 has it."""
    name, made = "ApiVersionsResponse", struct("ApiVersionsResponse")

    def edit(body: bytes, all_here: bool) -> Edited | None:
        if not all_here:
            return None
        if int.from_bytes(body[:2], "big") == UNSUPPORTED_VERSION:
            itself = struct(f"{name}.api_keys")(api_key=API_VERSIONS)
            answer, shown = made(error_code=UNSUPPORTED_VERSION, api_keys=[itself]), 0
        else:
            seen, shown = decode(name, version, body)[0], version
            rows = offered_versions(seen.api_keys, own_port=own_port, untold=untold)
            answer = made(error_code=seen.error_code, api_keys=rows, throttle_time_ms=seen.throttle_time_ms)
        return Edited(b"".join(encode(name, shown, answer)), len(body))

    return edit


def edit_listed_groups(version: int, ours: Callable[[str], bool]) -> Edit:
    """ListGroups without the groups that are ours: the nodes of Muster tell of those (KB-X8)."""

    def change(answer: Any) -> Any:
        answer.groups = [row for row in answer.groups if not ours(row.group_id)]
        return answer

    return edit_whole("ListGroupsResponse", version, change)


def empty_answer(name: str, version: int) -> Edit:
    """What a node of Muster's tells where tools ask each node in turn for what it alone has: it has none. Passed on, it
    would be the same as a broker's, twice."""

    def change(answer: Any) -> Any:
        if name == "DescribeLogDirs":  # an empty list is a refusal to Kafka's admin client
            answer.results = [struct("DescribeLogDirsResponse.results")(log_dir=NO_LOG_DIR)]
        else:
            answer.transaction_states = []
        return answer

    return edit_whole(f"{name}Response", version, change)


def rewrite_listed_resources(answer: Any, ours: Callable[[str], bool]) -> Any:
    """ListConfigResources without the groups that are ours: what is set for those is not the upstream's to know."""
    answer.config_resources = [
        row for row in answer.config_resources if row.resource_type != GROUP or not ours(row.resource_name)
    ]
    return answer


def rewrite_described_configs(answer: Any) -> Any:
    """DescribeConfigs without the brokers' addresses, which are told as secrets are: without a value."""
    for result in answer.results:
        if result.resource_type != BROKER:
            continue
        for entry in result.configs:
            if entry.name in HIDDEN or entry.name.endswith(tuple(f".{name}" for name in HIDDEN)):
                entry.value, entry.is_sensitive, entry.synonyms = None, True, []
    return answer
