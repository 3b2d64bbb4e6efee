"""Paths and contents of a cluster's znodes: Kafka's layout, with Muster's own facts below `muster`.

Pure. Tools of that era read all of it: they skip keys that they do not know. What such a tool wrote lacks Muster's
keys, which then have defaults: no eligible leader replicas, and unknown directories (which are not compared).
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_TOPIC_ID,
    ClusterNode,
    ClusterTopic,
    NodeEndpoint,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import MalformedZnode
from muster.coordinator.zookeeper.layout import as_json, is_decimal, read_broker, read_int32, read_json

CLUSTER_VERSION = layout.CLUSTER_NODE_MARK
CONFIG_BROKERS = "/config/brokers"
CONFIG_CHANGE = f"{layout.CONFIG_CHANGES}/config_change_"
"""Sequential znodes begin so."""
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
UNCLEAN_ELECTION = "/muster/cluster/unclean_election"
"""Like `/admin/preferred_replica_election`, for a partition that is to be led whatever it costs: no tool of that era
asks for it."""
DRAINED = "/muster/cluster/drained"
"""Below it, by their ids, the nodes that are to lead nothing; they hold nothing."""
SESSIONS = "/muster/cluster/sessions"
"""Below it, by their ids, by how long a session each node leads in its latest life, or may have led in another."""
SECRET = "/muster/cluster/secret"
"""What nodes prove to each other that they know (CL-N4)."""
SECRET_BYTES = 32

REPLICATION = "REPLICATION"
"""The listener between nodes."""
FEATURES = 1
"""What a node of this cluster must be able to do; one that says another number is no node of it."""
PRODUCER_IDS = 1_000
"""How many a node takes at once."""
LAST_PORT = 65_535
MAX_CACHED_STATES: Final = 256
"""Kinds of states that are kept in words; one is below a kilobyte."""
TOPIC_VERSION = 3
TOPIC_ID_BYTES = 16


def broker_config_path(node_id: int) -> str:
    return f"{CONFIG_BROKERS}/{node_id}"


def drained_path(node_id: int) -> str:
    return f"{DRAINED}/{node_id}"


class SessionLength(NamedTuple):
    """By how long a session a node leads, and the data directory that it has."""

    session_ms: int
    directory: str

    def to_json(self) -> bytes:
        """
        >>> SessionLength(6000, "a").to_json()
        b'{"version":1,"session_ms":6000,"directory":"a"}'
        """
        return as_json(version=1, session_ms=self.session_ms, directory=self.directory)


def read_session_length(path: str, data: bytes) -> SessionLength:
    return read_json(
        path,
        data,
        "how long a node's session is: JSON with session_ms and directory",
        lambda body: SessionLength(read_int32(body["session_ms"]), str(body["directory"])),
    )


def secret_json(secret: bytes) -> bytes:
    """
    >>> secret_json(bytes(32))
    b'{"version":1,"secret":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}'
    """
    return as_json(version=1, secret=base64.b64encode(secret).decode())


def read_secret(path: str, data: bytes) -> bytes:
    """Raises MalformedZnode, which does not show what is there."""

    def parse(body: Mapping[str, Any]) -> bytes:
        found = base64.b64decode(body["secret"], validate=True)
        if len(found) != SECRET_BYTES:
            raise ValueError
        return found

    expected = f"JSON with a secret of {SECRET_BYTES} bytes in base64"
    try:
        return read_json(path, data, expected, parse)
    except MalformedZnode:
        raise MalformedZnode(path, b"...", expected) from None


def registration_json(node: ClusterNode, *, timestamp_ms: int, for_earlier: bool = False) -> bytes:
    """`/brokers/ids/[id]`, version 4. Host and port are those of Kafka's plaintext door, null and -1 where there is
    none; doors that clients of Kafka cannot use stand below `muster`. for_earlier: and behind Kafka's as well, where
    nodes look for them whose registrations are earlier ones.

    >>> doors = (NodeEndpoint("GRPC", "h", 9290), NodeEndpoint("PLAINTEXT", "h", 9092))
    >>> node = ClusterNode(1, 0, "aaaaaaaaaaaaaaaaaaaaaa", endpoints=doors, rack="r1")
    >>> print(registration_json(node, timestamp_ms=5).decode())
    ... # doctest: +NORMALIZE_WHITESPACE
    {"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"host":"h","timestamp":"5","port":9092,"version":4,"rack":"r1","muster":{"directory":"aaaaaaaaaaaaaaaaaaaaaa","unclean":false,"features":1,"endpoints":["GRPC://h:9290"]}}
    """
    plaintext = next((each for each in node.endpoints if each.listener == layout.PLAINTEXT), None)
    kafka, others = layout.split_endpoints(
        f"{each.listener}://{bracketed(each.host)}:{each.port}" for each in node.endpoints
    )
    listed = [*kafka, *others] if for_earlier else kafka
    protocols = {
        name: name if name in layout.KAFKA_LISTENERS else layout.PLAINTEXT for name in map(layout.listener_of, listed)
    }
    body: dict[str, object] = {
        "listener_security_protocol_map": dict(sorted(protocols.items())),
        "endpoints": listed,
        "jmx_port": -1,
        "host": None if plaintext is None else plaintext.host,
        "timestamp": str(timestamp_ms),
        "port": -1 if plaintext is None else plaintext.port,
        "version": 4,
    }
    if node.rack is not None:
        body["rack"] = node.rack
    ours: dict[str, object] = {"directory": node.directory, "unclean": node.unclean, "features": FEATURES}
    if others:
        ours["endpoints"] = others
    if node.session_ms:
        ours["session_ms"] = node.session_ms
    if node.proves:
        ours["proves"] = True
    body["muster"] = ours
    return as_json(**body)


def is_earlier_registration(data: bytes) -> bool:
    """Whether a node of a cluster registered as the first versions did, with all its doors in one list: it looks for
    those of others there. What cannot be read is none."""
    try:
        body = json.loads(data)
        ours = body["muster"]
        return "directory" in ours and "endpoints" not in ours and bool(layout.split_endpoints(body["endpoints"])[1])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def read_registration(path: str, data: bytes, epoch: int) -> ClusterNode | None:
    """A node as it registered; None for what is no node of a cluster (one beside others), or has other features."""
    old = read_broker(path, data)

    def parse(body: Mapping[str, Any]) -> ClusterNode | None:
        ours = body.get("muster")
        if not isinstance(ours, dict) or "directory" not in ours or ours.get("features") != FEATURES:
            return None
        rack = body.get("rack")
        return ClusterNode(
            id=read_int32(path.rpartition("/")[2]),
            epoch=epoch,
            directory=str(ours["directory"]),
            unclean=bool(ours.get("unclean", False)),
            endpoints=tuple(filter(None, map(read_endpoint, old.endpoints))),
            rack=None if rack is None else str(rack),
            session_ms=read_int32(ours.get("session_ms", 0)),
            proves=bool(ours.get("proves", False)),
        )

    return read_json(path, data, "a node's registration: JSON with muster.directory and muster.features", parse)


def read_endpoint(text: str) -> NodeEndpoint | None:
    """
    >>> read_endpoint("REPLICATION://[::1]:9094")
    NodeEndpoint(listener='REPLICATION', host='::1', port=9094)
    """
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    if not listener or not host or not is_decimal(port) or int(port) > LAST_PORT:
        return None
    return NodeEndpoint(listener, host.removeprefix("[").removesuffix("]"), int(port))


def topic_json(topic: ClusterTopic) -> bytes:
    """`/brokers/topics/[topic]`.

    >>> topic_json(ClusterTopic("t", bytes(16), (ReplicaAssignment((1, 2)), ReplicaAssignment((2, 3, 1), adding=(1,)))))
    b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[1,2],"1":[2,3,1]},"adding_replicas":{"1":[1]},"removing_replicas":{}}'
    """
    each = list(enumerate(topic.partitions))
    return as_json(
        version=TOPIC_VERSION,
        topic_id=topic_id_text(topic.topic_id),
        partitions={str(number): list(assignment.replicas) for number, assignment in each},
        adding_replicas={str(number): list(it.adding) for number, it in each if it.adding},
        removing_replicas={str(number): list(it.removing) for number, it in each if it.removing},
    )


def read_topic(
    path: str, data: bytes, configs: Mapping[str, str] | None = None, *, needs_id: bool = True
) -> ClusterTopic:
    """A topic, with what `/config/topics` sets for it. Raises MalformedZnode, too where a partition is left out.

    needs_id: a topic without `topic_id` is malformed; else its id is NO_TOPIC_ID.

    >>> read_topic("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}', needs_id=False).topic_id
    b''
    """

    def parse(body: Mapping[str, Any]) -> ClusterTopic:
        replicas = ids_by_partition(body["partitions"])
        adding = ids_by_partition(body.get("adding_replicas") or {})
        removing = ids_by_partition(body.get("removing_replicas") or {})
        if sorted(replicas) != list(range(len(replicas))) or not replicas:
            raise ValueError
        partitions = tuple(
            ReplicaAssignment(replicas[number], adding.get(number, ()), removing.get(number, ()))
            for number in range(len(replicas))
        )
        has_id = needs_id or "topic_id" in body
        topic_id = read_topic_id(str(body["topic_id"])) if has_id else NO_TOPIC_ID
        return ClusterTopic(path.rpartition("/")[2], topic_id, partitions, configs or {})

    return read_json(path, data, "a topic: JSON with topic_id and partitions 0, 1, ... as lists of node ids", parse)


def ids_by_partition(body: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    found = {int(number): tuple(read_int32(each) for each in ids) for number, ids in body.items()}
    if any(not ids or len(set(ids)) != len(ids) or min(ids) < 0 for ids in found.values()):
        raise ValueError
    return found


def topic_id_text(topic_id: bytes) -> str:
    """Kafka's form of a UUID: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def read_topic_id(text: str) -> bytes:
    try:
        found = base64.urlsafe_b64decode(text + "==")
    except binascii.Error as error:
        raise ValueError from error
    if len(found) != TOPIC_ID_BYTES:
        raise ValueError
    return found


def state_json(state: PartitionState) -> bytes:
    """`/brokers/topics/[topic]/partitions/[p]/state`.

    >>> state_json(PartitionState(2, 7, (2,), (1,), {1: "a"}, controller_epoch=4, cause="died"))
    b'{"controller_epoch":4,"leader":2,"version":1,"leader_epoch":7,"isr":[2],"muster":{"elr":[1],"dirs":{"1":"a"},"cause":"died"}}'
    """
    ours = muster_state_json(state.elr, tuple(sorted(state.directories.items())), state.cause, state.unclean_epoch)
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}],"muster":{ours}}}'
    ).encode()


@lru_cache(MAX_CACHED_STATES)
def muster_state_json(
    elr: tuple[int, ...], directories: tuple[tuple[int, str], ...], cause: str, unclean_epoch: int
) -> str:
    """What of a state is Muster's own: of the thousands that a node led when it died it is the same."""
    ours: dict[str, object] = {"elr": elr, "dirs": {str(node): text for node, text in directories}, "cause": cause}
    if unclean_epoch != NO_EPOCH:
        ours["unclean_epoch"] = unclean_epoch
    return as_json(**ours).decode()


def read_state(path: str, data: bytes, version: int) -> PartitionState:
    """The state of a partition; `version`: of its znode, which is the partition epoch."""

    def parse(body: Mapping[str, Any]) -> PartitionState:
        ours = body.get("muster") or {}
        return PartitionState(
            leader=read_int32(body["leader"]),
            leader_epoch=read_int32(body["leader_epoch"]),
            isr=tuple(read_int32(each) for each in body["isr"]),
            elr=tuple(read_int32(each) for each in ours.get("elr", ())),
            directories={read_int32(node): str(directory) for node, directory in ours.get("dirs", {}).items()},
            controller_epoch=read_int32(body["controller_epoch"]),
            partition_epoch=version,
            unclean_epoch=read_int32(ours.get("unclean_epoch", NO_EPOCH)),
            cause=str(ours.get("cause", "")),
        )

    return read_json(path, data, "a partition's state: JSON with leader, isr, leader_epoch, controller_epoch", parse)


@dataclass(frozen=True, slots=True)
class ClusterVersionZnode:
    """`/muster/cluster/version`: what the last write of states and topics was."""

    controller_epoch: int
    sequence: int

    def to_json(self) -> bytes:
        """
        >>> ClusterVersionZnode(4, 1882).to_json()
        b'{"version":1,"controller_epoch":4,"sequence":1882}'
        """
        return as_json(version=1, controller_epoch=self.controller_epoch, sequence=self.sequence)


def read_cluster_version(path: str, data: bytes) -> ClusterVersionZnode:
    return read_json(
        path,
        data,
        "the cluster's version: JSON with controller_epoch and sequence",
        lambda body: ClusterVersionZnode(int(body["controller_epoch"]), int(body["sequence"])),
    )


def preferred_json(places: Sequence[TopicPartition]) -> bytes:
    """
    >>> preferred_json([TopicPartition("t", 0)])
    b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    """
    return as_json(version=1, partitions=[{"topic": each.topic, "partition": each.partition} for each in places])


def read_preferred(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    def parse(body: Mapping[str, Any]) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(str(each["topic"]), read_int32(each["partition"])) for each in body["partitions"])

    return read_json(path, data, "an election that is asked for: JSON with partitions", parse)


def reassignment_json(wanted: Mapping[TopicPartition, Sequence[int] | None]) -> bytes:
    """None cancels, which tools of that era cannot ask for.

    >>> reassignment_json({TopicPartition("t", 0): (4, 5)})
    b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[4,5]}]}'
    """
    return as_json(
        version=1,
        partitions=[
            {"topic": place.topic, "partition": place.partition, "replicas": None if ids is None else list(ids)}
            for place, ids in wanted.items()
        ],
    )


def read_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...] | None]:
    def parse(body: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, ...] | None]:
        return {
            TopicPartition(str(each["topic"]), read_int32(each["partition"])): None
            if each["replicas"] is None
            else tuple(read_int32(node) for node in each["replicas"])
            for each in body["partitions"]
        }

    return read_json(path, data, "a reassignment that is asked for: JSON with partitions and replicas", parse)


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """`/latest_producer_id_block`: who took the last block, and which it is; both ends belong to it."""

    node: int
    first: int
    last: int

    @classmethod
    def after(cls, taken: "ProducerIdBlock | None", node: int) -> "ProducerIdBlock":
        """The next block, for a node."""
        first = 0 if taken is None else taken.last + 1
        return cls(node, first, first + PRODUCER_IDS - 1)

    def to_json(self) -> bytes:
        """
        >>> ProducerIdBlock(2, 3000, 3999).to_json()
        b'{"version":1,"broker":2,"block_start":"3000","block_end":"3999"}'
        """
        return as_json(version=1, broker=self.node, block_start=str(self.first), block_end=str(self.last))


def read_producer_ids(path: str, data: bytes) -> ProducerIdBlock:
    def parse(body: Mapping[str, Any]) -> ProducerIdBlock:
        found = ProducerIdBlock(int(body["broker"]), int(body["block_start"]), int(body["block_end"]))
        if not 0 <= found.first <= found.last:
            raise ValueError
        return found

    return read_json(path, data, "a block of producer ids: JSON with broker, block_start and block_end", parse)


def parse_config_entity(path: str, entity_path: str) -> tuple[str, str]:
    """(`topics` or `brokers`, name) of a change of settings."""
    kind, _, name = entity_path.partition("/")
    if kind not in ("topics", "brokers") or not name:
        raise MalformedZnode(path, entity_path.encode(), "topics/[name] or brokers/[id]")
    return kind, name
