"""Metadata and DescribeCluster (KIP-700) of a node on its own: the one node there is, and its topics.

A topic that a client names may be created by the request (auto-create). Nodes of a cluster answer by
`handlers/cluster_backend.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from muster.coordinator.edge.cluster_view import NodeAddress
from muster.coordinator.edge.large_answers import SharedAnswers
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall, encode_aside
from muster.coordinator.kafka.protocol import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
    TOPIC_OPERATIONS,
    UnknownTopicId,
)
from muster.long_work import AT_ONCE, FEW, LoopSlice, iterate_in_turns
from muster.storage.broker.requests import LogRequests, NewTopic
from muster.storage.errors import InvalidRequest, StorageError, UnknownTopicOrPartition
from muster.storage.topics.catalog import check_topic_name, format_id

NO_ID = bytes(16)
LEADER_NOT_AVAILABLE = 5
NO_LEADER = -1
UNNAMED_TOPIC = 12
"""Topics may be asked for by id alone from this version on (KIP-516)."""

Row = TypeVar("Row")


class AdvertisedEndpoint(NamedTuple):
    """Where clients are told to connect."""

    node_id: int
    host: str
    port: int


class RowPacer:
    """Of one long answer: its rows are made in slices, and counted."""

    def __init__(self) -> None:
        self.made = 0
        self._breath = LoopSlice()

    async def of(self, rows: Iterable[Row]) -> list[Row]:
        """All of them, in order; they are made as they are taken."""
        found = []
        for row in rows:
            found.append(row)
            self.made += 1
            if self.made > FEW:
                await self._breath.yield_if_used()
        return found


class MetadataHandlers:
    """`auto_create` says whether a topic that a client asks for by name is made when there is none.

    Never one that is `elsewhere`, with another node of the same ensemble: a topic of its name here would be another.
    """

    def __init__(
        self,
        requests: LogRequests,
        endpoint: Callable[[], AdvertisedEndpoint],
        *,
        auto_create: bool,
        elsewhere: Callable[[str], bool],
    ) -> None:
        self._requests = requests
        self._broker = requests.broker
        self._endpoint = endpoint
        self._auto_create = auto_create
        self._shared: SharedAnswers[tuple[int, tuple[bool, bool]], Any] = SharedAnswers()
        self._elsewhere = elsewhere

    async def metadata(self, request: Any, call: KafkaCall) -> Any:
        """The topics asked for, or all. Callers who ask for all of many at the same time share an answer."""
        if not asks_for_all(request, call.api_version) or not self._has_many():
            return await self._answer(request, call)
        key = call.api_version, call_operations(request)
        return await self._shared.get(key, lambda: self._answer(request, call))

    async def _answer(self, request: Any, call: KafkaCall) -> Any:
        here, rows = self._here(call.api_version), RowPacer()
        asked = request.topics
        if asks_for_all(request, call.api_version):
            topics = [await self._described(topic, here, rows) for topic in list(self._topics().values())]
        else:
            may_create = self._auto_create and request.allow_auto_topic_creation
            by_id = any(each.name is None for each in asked)
            ids = self._ids() if by_id else {}
            once = {(each.name, each.topic_id): each for each in asked}.values()
            refused = await self._make([each.name for each in once if each.name is not None]) if may_create else {}
            topics = []
            async for each in iterate_in_turns(once):
                topics.append(await self._asked(each, refused, here, call.api_version, ids, rows))
        if request.include_topic_authorized_operations:
            for topic in topics:
                topic.topic_authorized_operations = OPERATIONS_NOT_REQUESTED if topic.error_code else TOPIC_OPERATIONS
        answer = struct("MetadataResponse")(
            brokers=self.nodes(),
            cluster_id=self._broker.cluster_id,
            controller_id=self.controller(),
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else OPERATIONS_NOT_REQUESTED,
        )
        return await encode_aside("MetadataResponse", call.api_version, lambda: answer, rows.made)

    def _has_many(self) -> bool:
        """Whether the answer about all topics is a large one."""
        left = AT_ONCE
        for topic in self._topics().values():
            left -= self._partition_count(topic)
            if left < 0:
                return True
        return False

    def _partition_count(self, topic: Any) -> int:
        found: int = topic.partitions
        return found

    def _here(self, version: int) -> Any:
        """What is looked up once for an answer."""
        return self._endpoint()

    def _topics(self) -> Mapping[str, Any]:
        """All there are, by name."""
        return self._broker.topics()

    def _ids(self) -> Mapping[bytes, Any]:
        return {topic.id: topic for topic in self._broker.topics().values()}

    def nodes(self) -> list[NodeAddress]:
        """Those that clients are told of."""
        return [NodeAddress(*self._endpoint())]

    def controller(self) -> int:
        """This node: clients look for it among those they are told of."""
        return self._endpoint().node_id

    async def _make(self, names: Sequence[str]) -> dict[str, StorageError]:
        """Make the topics that are missing; why some could not be made."""
        missing = [
            NewTopic(name, self._broker.settings.num_partitions)
            for name in names
            if name not in self._broker.topics() and not self._elsewhere(name)
        ]
        made = await self._requests.topics.create(missing) if missing else []
        return {
            topic.name: result for topic, result in zip(missing, made, strict=True) if isinstance(result, StorageError)
        }

    async def _asked(
        self,
        asked: Any,
        refused: Mapping[str, StorageError],
        here: Any,
        version: int,
        ids: Mapping[bytes, Any],
        rows: RowPacer,
    ) -> Any:
        name = asked.name
        try:
            if name is None and version < UNNAMED_TOPIC:
                name = ""  # It may not be null in such an answer.
                raise InvalidRequest(f"Metadata version {version} asks for topics by name; expected one.")
            topic = self._by_id(asked.topic_id, ids) if name is None else self._by_name(name, refused)
        except StorageError as error:
            made = struct("MetadataResponse.topics")
            return made(error_code=error.code, name=name, topic_id=asked.topic_id)
        return await self._described(topic, here, rows)

    def _by_id(self, topic_id: bytes, ids: Mapping[bytes, Any]) -> Any:
        topic = ids.get(topic_id)
        if topic is not None:
            return topic
        raise UnknownTopicId(f"No topic has the id {format_id(topic_id)}.")

    def _by_name(self, name: str, refused: Mapping[str, StorageError]) -> Any:
        try:
            return self._broker.topic(name)
        except UnknownTopicOrPartition:
            if name in refused:
                raise refused[name] from None
            check_topic_name(name, {})  # Clients ask again and again for a topic that might come to be.
            raise

    async def _described(self, topic: Any, here: Any, rows: RowPacer) -> Any:
        partitions = await rows.of(self._partitions(topic, here))
        return struct("MetadataResponse.topics")(
            name=topic.name, topic_id=self._id_of(topic), is_internal=topic.internal, partitions=partitions
        )

    def _id_of(self, topic: Any) -> bytes:
        found: bytes = topic.id
        return found

    def _partitions(self, topic: Any, endpoint: Any) -> "Iterator[DescribedPartition]":
        node_id = endpoint.node_id
        here = (node_id,)
        for number in range(topic.partitions):
            try:
                epoch = self._broker.log(topic.name, number).leader_epoch
            except StorageError:
                # Its directory is gone, which the node's log says: no leader until that is mended.
                yield DescribedPartition(LEADER_NOT_AVAILABLE, number, NO_LEADER, -1, here, (), here)
            else:
                yield DescribedPartition(0, number, node_id, epoch, here, here, ())


def asks_for_all(request: Any, version: int) -> bool:
    """Whether a Metadata request is about all topics."""
    return request.topics is None or (version == 0 and not request.topics)


def call_operations(request: Any) -> tuple[bool, bool]:
    """Whether a Metadata request asks for authorized operations, of topics and of the cluster."""
    return request.include_topic_authorized_operations, request.include_cluster_authorized_operations


@dataclass(slots=True)
class DescribedPartition:
    """One partition of a MetadataResponse; there may be a hundred thousand."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]


# DescribeCluster
# ---------------

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Kinds of doors that a client may take this for (KIP-919)."""

MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115


class DescribeClusterHandlers:
    """Nodes as Metadata tells of them."""

    def __init__(self, requests: LogRequests, metadata: MetadataHandlers) -> None:
        self._broker = requests.broker
        self._metadata = metadata

    def describe_cluster_now(self, request: Any, call: KafkaCall) -> Any:
        made, node = struct("DescribeClusterResponse"), struct("DescribeClusterResponse.brokers")
        if request.endpoint_type != BROKERS:
            return made(**endpoint_type_refusal(request.endpoint_type))
        return made(
            error_code=ErrorCode.NONE,
            error_message=None,
            cluster_id=self._broker.cluster_id,
            controller_id=self._metadata.controller(),
            brokers=[
                node(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in self._metadata.nodes()
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else OPERATIONS_NOT_REQUESTED,
        )


def endpoint_type_refusal(kind: int) -> dict[str, Any]:
    """The refusal of who takes this door for another."""
    if kind == CONTROLLERS:
        why = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return {"error_code": MISMATCHED_ENDPOINT_TYPE, "error_message": why}
    return {"error_code": UNSUPPORTED_ENDPOINT_TYPE, "error_message": f"Unsupported endpoint type {kind}"}
