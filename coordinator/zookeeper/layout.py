"""Paths and contents of znodes, in the layout that every tool of the ZooKeeper era expects.

Pure. Paths are relative to the chroot. Readers accept what any writer of that era wrote (unknown keys are skipped) and
raise MalformedZnode for anything else. Times are milliseconds since 1970, as decimal strings in the JSON. What only a
cluster of Muster nodes keeps is in `zookeeper/cluster/cluster_layout.py`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast, get_args

from muster.coordinator.zookeeper.errors import MalformedZnode

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CONSUMERS = "/consumers"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CONFIG_TOPICS = "/config/topics"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
CLUSTER_NODE_MARK = "/muster/cluster/version"
"""There as soon as a cluster has written anything: nodes that are on their own leave its chroot alone."""

PERSISTENT_ROOTS = (
    *(BROKER_IDS, BROKER_TOPICS, CONSUMERS, CONFIG_TOPICS, CONFIG_CHANGES, DELETE_TOPICS),
    *("/config/brokers", "/config/clients", "/config/users"),
)
"""Directories that a node makes, so that tools find them from the start."""

Pattern = Literal["static", "white_list", "black_list"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)

CENTRAL_COORDINATOR = "/muster/central/coordinator"
CENTRAL_EPOCH = "/muster/central/epoch"
CENTRAL_GROUP = b"central"
"""What the znode of a group holds that a central coordinator publishes; those of consumers' own groups hold nothing."""
ZOOKEEPER_ALONE = ("zookeeper",)
"""Where a consumer of that era commits unless it says more."""

GRPC_ENDPOINT = "GRPC"
PLAINTEXT = "PLAINTEXT"
KAFKA_LISTENERS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Names of listeners that every client of Kafka can read. Those of 0.9 fail at any other; those of 0.10 to 1.1 connect
to the first one that is mapped to PLAINTEXT, whatever its name."""

Value = TypeVar("Value")

COMPACT: Final = json.JSONEncoder(separators=(",", ":"))
"""Made once: a controller writes thousands of states in a row."""


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(name: str) -> str:
    return f"{BROKER_TOPICS}/{name}"


def topic_partitions_path(name: str) -> str:
    return f"{BROKER_TOPICS}/{name}/partitions"


def partition_path(name: str, number: int) -> str:
    return f"{BROKER_TOPICS}/{name}/partitions/{number}"


def partition_state_path(name: str, partition: int) -> str:
    return f"{BROKER_TOPICS}/{name}/partitions/{partition}/state"


def group_path(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}"


def consumer_ids_path(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}/ids"


def consumer_path(group_id: str, consumer_id: str) -> str:
    return f"{CONSUMERS}/{group_id}/ids/{consumer_id}"


def owners_path(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}/owners"


def topic_owners_path(group_id: str, name: str) -> str:
    return f"{CONSUMERS}/{group_id}/owners/{name}"


def owner_path(group_id: str, name: str, partition: int) -> str:
    return f"{CONSUMERS}/{group_id}/owners/{name}/{partition}"


def offsets_path(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}/offsets"


def topic_offsets_path(group_id: str, name: str) -> str:
    return f"{CONSUMERS}/{group_id}/offsets/{name}"


def offset_path(group_id: str, name: str, partition: int) -> str:
    return f"{CONSUMERS}/{group_id}/offsets/{name}/{partition}"


def topic_config_path(name: str) -> str:
    return f"{CONFIG_TOPICS}/{name}"


def topic_deletion_path(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def new_consumer_id(group_id: str, hostname: str, now_ms: int, uuid_hex: str) -> str:
    """The transient id of one consumer.

    >>> new_consumer_id("orders", "box", 1700000000000, "c0ffee00aabbccdd")
    'orders_box-1700000000000-c0ffee00'
    """
    return f"{group_id}_{hostname}-{now_ms}-{uuid_hex[:8]}"


def owner_text(consumer_id: str, stream: int) -> bytes:
    """What an owner znode holds.

    >>> owner_text("orders_box-1-c0ffee00", 0)
    b'orders_box-1-c0ffee00-0'
    """
    return f"{consumer_id}-{stream}".encode()


def read_owner(path: str, data: bytes) -> tuple[str, int]:
    """(consumer id, stream number) of an owner znode."""
    consumer_id, dash, stream = data.decode(errors="replace").rpartition("-")
    if not dash or not consumer_id or not is_decimal(stream):
        raise MalformedZnode(path, data, "[consumer id]-[stream number]")
    return consumer_id, int(stream)


MAX_OFFSET = 2**63 - 1
MAX_OFFSET_DIGITS = MOST_DIGITS = 32
"""With the zeros that a tool may put before it."""


def offset_text(value: int) -> bytes:
    return str(value).encode()


def read_offset(path: str, data: bytes) -> int:
    text = data.decode(errors="replace")
    if not is_decimal(text.removeprefix("-")) or len(text) > MAX_OFFSET_DIGITS or int(text) > MAX_OFFSET:
        raise MalformedZnode(path, data, "an offset in decimal")
    return int(text)


def read_epoch(path: str, data: bytes) -> int:
    """The controller epoch, or another counter that a znode holds in decimal."""
    text = data.decode(errors="replace")
    if not is_decimal(text):
        raise MalformedZnode(path, data, "an epoch in decimal")
    return int(text)


@dataclass(frozen=True, slots=True)
class BrokerZnode:
    """`/brokers/ids/[id]`. `host` and `port` are those of Kafka's plaintext door; "" and -1 where there is none.

    `endpoints` names every door as LISTENER://HOST:PORT; ours is GRPC, Kafka's is PLAINTEXT. In the JSON those that
    clients of Kafka cannot use stand below `muster`.
    """

    host: str = ""
    port: int = -1
    endpoints: tuple[str, ...] = ()
    timestamp_ms: int = 0
    jmx_port: int = -1

    @property
    def grpc(self) -> tuple[str, int] | None:
        """Where the node answers gRPC, if it says so."""
        return self.door(GRPC_ENDPOINT)

    @property
    def address(self) -> str:
        """One of its doors, HOST:PORT, for people."""
        return f"{self.host}:{self.port}" if self.host else "".join(self.endpoints[:1]).rpartition("/")[2]

    def door(self, listener: str) -> tuple[str, int] | None:
        for endpoint in self.endpoints:
            name, _, address = endpoint.partition("://")
            host, _, port = address.rpartition(":")
            if name == listener and host and is_decimal(port):
                return host.removeprefix("[").removesuffix("]"), int(port)
        return None

    def to_json(self) -> bytes:
        kafka, others = split_endpoints(self.endpoints)
        body: dict[str, object] = {
            "listener_security_protocol_map": {name: name for name in sorted(map(listener_of, kafka))},
            "endpoints": kafka,
            "jmx_port": self.jmx_port,
            "host": self.host or None,
            "timestamp": str(self.timestamp_ms),
            "port": self.port,
            "version": 4,
        }
        return as_json(**body, muster={"endpoints": others}) if others else as_json(**body)


def listener_of(endpoint: str) -> str:
    return endpoint.partition("://")[0]


def split_endpoints(endpoints: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those for clients of Kafka, plaintext first; and those that are not Kafka's.

    >>> split_endpoints(["GRPC://h:1", "SASL_SSL://h:2", "PLAINTEXT://h:3", "REPLICATION://h:4"])
    (['PLAINTEXT://h:3', 'SASL_SSL://h:2'], ['GRPC://h:1', 'REPLICATION://h:4'])
    """
    given = list(endpoints)
    kafka = [endpoint for endpoint in given if listener_of(endpoint) in KAFKA_LISTENERS]
    kafka.sort(key=lambda endpoint: KAFKA_LISTENERS.index(listener_of(endpoint)))
    return kafka, [endpoint for endpoint in given if endpoint not in kafka]


def format_endpoint(listener: str, host: str, port: int) -> str:
    """
    >>> format_endpoint("GRPC", "::1", 9290)
    'GRPC://[::1]:9290'
    """
    return f"{listener}://[{host}]:{port}" if ":" in host else f"{listener}://{host}:{port}"


def read_broker(path: str, data: bytes) -> BrokerZnode:
    def parse(body: Mapping[str, Any]) -> BrokerZnode:
        # The first versions of Muster had all endpoints in one list.
        ours = body.get("muster") or {}
        return BrokerZnode(
            host=str(body.get("host") or ""),
            port=int(body["port"]),
            endpoints=tuple(map(str, dict.fromkeys((*body.get("endpoints", ()), *ours.get("endpoints", ()))))),
            timestamp_ms=int(body.get("timestamp", 0)),
            jmx_port=int(body.get("jmx_port", -1)),
        )

    return read_json(path, data, "a broker's registration: JSON with host, port, endpoints", parse)


def topic_json(assignment: Mapping[int, Iterable[int]], own_id: str = "") -> bytes:
    """`/brokers/topics/[topic]`: partition -> replicas. own_id: by what a node on its own knows it as its own.

    >>> topic_json({0: [1], 1: [2]})
    b'{"version":1,"partitions":{"0":[1],"1":[2]}}'
    """
    body: dict[str, object] = {
        "version": 1,
        "partitions": {str(p): list(replicas) for p, replicas in sorted(assignment.items())},
    }
    return as_json(**body, muster={"topic_id": own_id}) if own_id else as_json(**body)


def read_topic(path: str, data: bytes) -> dict[int, tuple[int, ...]]:
    """Partition -> the ids of its replicas, by partition."""

    def parse(body: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
        partitions = {int(number): tuple(int(each) for each in ids) for number, ids in body["partitions"].items()}
        return dict(sorted(partitions.items()))

    return read_json(path, data, 'a topic: JSON like {"version":1,"partitions":{"0":[1]}}', parse)


def read_own_id(data: bytes) -> str:
    """The id under which a node on its own has published a topic; "" in what another program wrote.

    >>> read_own_id(topic_json({0: [1]}, "AAAA")), read_own_id(topic_json({0: [1]})), read_own_id(b"rubbish")
    ('AAAA', '', '')
    """
    try:
        body = json.loads(data)
    except ValueError:
        return ""
    ours = body.get("muster") if isinstance(body, dict) else None
    return str(ours.get("topic_id") or "") if isinstance(ours, dict) else ""


def config_json(configs: Mapping[str, str]) -> bytes:
    """`/config/topics/[topic]`, `/config/brokers/[id]`.

    >>> config_json({"min.insync.replicas": "2"})
    b'{"version":1,"config":{"min.insync.replicas":"2"}}'
    """
    return as_json(version=1, config=dict(configs))


def read_config(path: str, data: bytes) -> dict[str, str]:
    return read_json(
        path,
        data,
        'settings: JSON like {"version":1,"config":{}}',
        lambda body: {str(name): str(value) for name, value in (body.get("config") or {}).items()},
    )


def config_change_json(entity_path: str) -> bytes:
    """
    >>> config_change_json("topics/orders")
    b'{"version":2,"entity_path":"topics/orders"}'
    """
    return as_json(version=2, entity_path=entity_path)


def read_config_change(path: str, data: bytes) -> str:
    """Whose settings have changed, such as `topics/orders`, as each version of Kafka says it.

    >>> read_config_change("/c", b'"orders"')  # 0.8
    'topics/orders'
    >>> read_config_change("/c", b'{"version":1,"entity_type":"topics","entity_name":"orders"}')  # 0.9, 0.10.0
    'topics/orders'
    >>> read_config_change("/c", b'{"version":2,"entity_path":"topics/orders"}')
    'topics/orders'
    """
    if data.startswith(b'"'):
        data = b'{"version":1,"entity_type":"topics","entity_name":' + data + b"}"

    def parse(body: Mapping[str, Any]) -> str:
        path = body["entity_path"] if "entity_path" in body else f"{body['entity_type']}/{body['entity_name']}"
        return str(path)

    return read_json(path, data, 'a change of settings: JSON with "entity_path"', parse)


@dataclass(frozen=True, slots=True)
class PartitionStateZnode:
    """`/brokers/topics/[topic]/partitions/[p]/state`. `leader` -1: the partition is offline."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int

    def to_json(self) -> bytes:
        return as_json(
            controller_epoch=self.controller_epoch,
            leader=self.leader,
            version=1,
            leader_epoch=self.leader_epoch,
            isr=list(self.isr),
        )


def read_partition_state(path: str, data: bytes) -> PartitionStateZnode:
    def parse(body: Mapping[str, Any]) -> PartitionStateZnode:
        isr = tuple(int(each) for each in body["isr"])
        return PartitionStateZnode(int(body["leader"]), isr, int(body["leader_epoch"]), int(body["controller_epoch"]))

    return read_json(path, data, "a partition's state: JSON with leader, isr, leader_epoch, controller_epoch", parse)


@dataclass(frozen=True, slots=True)
class ConsumerZnode:
    """`/consumers/[group]/ids/[consumer id]`. `subscription` is topic -> streams, or the one pattern -> streams.

    `offsets_path` names where it commits, if that is not ZooKeeper alone; tools of that era pass over what they do not
    know.
    """

    subscription: Mapping[str, int] = field(default_factory=dict)
    pattern: Pattern = "static"
    timestamp_ms: int = 0
    offsets: tuple[str, ...] = ZOOKEEPER_ALONE

    def to_json(self) -> bytes:
        body: dict[str, object] = {
            "version": 1,
            "subscription": dict(self.subscription),
            "pattern": self.pattern,
            "timestamp": str(self.timestamp_ms),
        }
        return as_json(**body) if self.offsets == ZOOKEEPER_ALONE else as_json(**body, offsets=list(self.offsets))


def read_consumer(path: str, data: bytes) -> ConsumerZnode:
    def parse(body: Mapping[str, Any]) -> ConsumerZnode:
        pattern = body.get("pattern", "static")
        if pattern not in PATTERNS:
            raise ValueError
        subscription = {str(name): int(streams) for name, streams in body["subscription"].items()}
        offsets = tuple(str(each) for each in body.get("offsets", ZOOKEEPER_ALONE))
        return ConsumerZnode(subscription, cast(Pattern, pattern), int(body.get("timestamp", 0)), offsets)

    return read_json(path, data, f"a consumer: JSON with subscription and pattern ({', '.join(PATTERNS)})", parse)


def controller_json(broker_id: int, timestamp_ms: int) -> bytes:
    return as_json(version=1, brokerid=broker_id, timestamp=str(timestamp_ms))


def coordinator_json(node_id: int, host: str, port: int) -> bytes:
    return as_json(version=1, nodeid=node_id, host=host, port=port)


def read_coordinator(path: str, data: bytes) -> tuple[int, str, int]:
    """Node id, host and port of whoever coordinates central groups."""
    return read_json(
        path,
        data,
        'a coordinator: JSON like {"version":1,"nodeid":1,"host":"h","port":9290}',
        lambda b: (int(b["nodeid"]), str(b["host"]), int(b["port"])),
    )


def read_controller(path: str, data: bytes) -> int:
    """The broker id of whoever was elected."""
    return read_json(
        path, data, 'an elected broker: JSON like {"version":1,"brokerid":1}', lambda b: int(b["brokerid"])
    )


def cluster_id_json(cluster_id: str) -> bytes:
    return as_json(version="1", id=cluster_id)


def read_cluster_id(path: str, data: bytes) -> str:
    return read_json(path, data, 'the cluster\'s id: JSON like {"version":"1","id":"..."}', lambda b: str(b["id"]))


def as_json(**body: object) -> bytes:
    return COMPACT.encode(body).encode()


def read_json(path: str, data: bytes, expected: str, parse: Callable[[Mapping[str, Any]], Value]) -> Value:
    try:
        body = json.loads(data)
        if not isinstance(body, dict):
            raise ValueError
        if b"\\u" in data:
            json.dumps(body, ensure_ascii=False).encode()  # a ValueError for half a character: no message could say it
        return parse(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise MalformedZnode(path, data, expected) from error


def read_int32(value: Any) -> int:
    """A number as messages have it. Raises ValueError, TypeError, OverflowError (JSON knows infinity) for others."""
    number = int(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError
    return number


def is_decimal(text: str) -> bool:
    """Of as many digits as a number of ZooKeeper's has at most: Python refuses to read those of thousands."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
