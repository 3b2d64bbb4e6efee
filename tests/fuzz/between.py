"""What is promised for any bytes at the door between nodes."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from structlog.testing import capture_logs

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import MalformedFrame, decode, decode_frame, encode, is_flexible, struct
from muster.coordinator.kafka.codec.messages import all_messages
from muster.coordinator.kafka.connections.received_requests import SHORTEST, ConnectionLimits
from muster.coordinator.kafka.dispatch import Dispatcher
from muster.coordinator.kafka.handlers.transaction_batches import PartitionCodes
from muster.coordinator.kafka.protocol import API_VERSIONS, Api
from muster.coordinator.replication.io.wire.node_api import (
    ADD_PARTITIONS_TO_TXN,
    KEY_OF,
    NAME_THE_CLUSTER,
    NODE_APIS,
    WRITE_TXN_MARKERS,
    AbortRecord,
    AbortsQuery,
    AbortValues,
    ElectionEntry,
    EpochEnd,
    EpochQuery,
    GroupsWithSettings,
    LogEndsQuery,
    NodeName,
    PartitionLogEnd,
    PeerFetch,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
    client_id_of,
    cluster_of,
)
from muster.coordinator.replication.io.wire.node_listener import NodeConnection, NodeHandlers
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterState,
    ImageVersion,
    NodeView,
    PartitionState,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    IsrResult,
    OfflineReplica,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer, FetchedPartition
from muster.coordinator.transactions.events import PartitionAddition
from muster.storage.logs.producer_state import MarkerToWrite
from tests.fuzz.targets import Bytes, Wire, cut, frames, tampered
from tests.support.kafka.messages import random_message

CLUSTER: Final = "c"
LIMITS: Final = ConnectionLimits(
    max_frame=1 << 16, max_in_flight=5, max_in_flight_bytes=1 << 14, max_unsent_bytes=1 << 16, max_idle_ms=60_000
)
BY_KEY: Final = {api.key: api for api in NODE_APIS}
ONE_BY_ONE: Final = {ADD_PARTITIONS_TO_TXN: "transactions", WRITE_TXN_MARKERS: "markers"}
"""Requests whose rows are each a question to the desk."""


class DrawnDesk:
    """Answers whatever it draws, at once or a few turns later."""

    def __init__(self) -> None:
        self._rng = random.Random(0)
        self.asked = 0
        self.under_way = 0

    async def _turns(self) -> random.Random:
        self.asked += 1
        self.under_way += 1
        try:
            for _ in range(self._rng.randrange(3)):
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        return self._rng

    def topic_name(self, topic_id: bytes) -> str | None:
        return topic_id.hex() if topic_id[-1] % 2 else None

    async def fetch(self, asked: PeerFetch) -> FetchAnswer:
        rng = await self._turns()
        parts = tuple(
            FetchedPartition(
                item.place,
                item.topic_id,
                rng.choice([0, 0, 6]),
                rng.randrange(9),
                diverging=rng.choice([None, (3, 4)]),
                records=rng.randbytes(rng.choice([0, 9])),
                leader_epoch=rng.choice([-1, 5]),
            )
            for item in asked.request.items
            if rng.random() < 0.7
        )
        return FetchAnswer(rng.choice([0, 0, 0, 71]), 5, parts)

    async def epochs(self, node: int, asked: tuple[EpochQuery, ...]) -> list[EpochEnd]:
        await self._turns()
        return [EpochEnd(one.topic, one.partition, ErrorCode.NONE, one.epoch, 5) for one in asked]

    async def alter_partition(self, node: NodeName, items: tuple[IsrItem, ...]) -> AlterPartitionResult:
        await self._turns()
        state = PartitionState(1, 2, (1, 2), partition_epoch=3)
        return AlterPartitionResult(
            ErrorCode.NONE, tuple(IsrResult(one.topic_id, one.partition, ErrorCode.NONE, state) for one in items)
        )

    async def controlled_shutdown(self, node: NodeName) -> ShutdownResult:
        await self._turns()
        return ShutdownResult(ErrorCode.NONE, (TopicPartition("a", 1),))

    async def cluster_state(
        self, node: NodeName, known: ImageVersion, offline: tuple[OfflineReplica, ...], max_wait_ms: int
    ) -> ClusterState:
        await self._turns()
        views = {each.partition: PartitionView(1, 2, 3, (1,), (), (1,)) for each in offline}
        return ClusterState(nodes=(NodeView(node.id, node.epoch),), topics=(TopicView(bytes(16), "a", {}, views),))

    async def note(self, records: tuple[ElectionEntry, ...]) -> ErrorCode:
        await self._turns()
        return ErrorCode.NONE if len(records) % 2 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def read_security(self, asked: SecurityQuery) -> SecurityRecords:
        rng = await self._turns()
        return SecurityRecords(ErrorCode.NONE, 0, 9, 9, bool(rng.randrange(2)), rng.randbytes(rng.choice([0, 9])))

    async def write_security(self, changed: SecurityUpdate) -> SecurityUpdateResult:
        await self._turns()
        return SecurityUpdateResult(ErrorCode.NONE if changed.base % 2 else ErrorCode.INVALID_UPDATE_VERSION, 9)

    async def note_aborts(self, records: tuple[AbortRecord, ...]) -> ErrorCode:
        await self._turns()
        return ErrorCode.NONE if len(records) % 2 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def read_aborts(self, asked: AbortsQuery) -> AbortValues:
        rng = await self._turns()
        return AbortValues(values=tuple(rng.randbytes(9) for _ in range(min(max(asked.most, 0), 3))))

    async def add_partitions(self, addition: PartitionAddition) -> PartitionCodes:
        rng = await self._turns()
        return {place: rng.choice([0, 0, 14, 120]) for place in addition.partitions}

    async def write_marker(
        self, marker: MarkerToWrite, partitions: Sequence[tuple[str, int]], topic_ids: Mapping[str, bytes]
    ) -> PartitionCodes:
        rng = await self._turns()
        return {place: rng.choice([0, 0, 6, 47]) for place in partitions}

    def log_ends(self, asked: LogEndsQuery) -> list[PartitionLogEnd]:
        self.asked += 1
        return [PartitionLogEnd(*place, 5) for place in asked.places if place[1] % 2]

    async def groups_with_settings(self) -> GroupsWithSettings:
        rng = await self._turns()
        return GroupsWithSettings(rng.choice([ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]), ("a", "b"))


class Talk:
    """Another node's connection. Promised: no bug shows, not even as a line of the log; never is more kept than the
    limits say; each answer is that of its request, in its order; nobody of another cluster is heard; after the end
    nothing is under way any more."""

    def __init__(self) -> None:
        self._desk = DrawnDesk()
        self._wire = Wire()
        self._arrived = bytearray()
        self._waiting = bytearray()
        dispatch = Dispatcher((NodeHandlers(self._desk, CLUSTER),), apis=NODE_APIS)
        self._connection = NodeConnection(CLUSTER, None, dispatch, LIMITS, lambda one: True, lambda one: None)
        self._wire.protocol = self._connection
        self._connection.connection_made(self._wire)  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        """Bytes reach the node while it reads."""
        self._waiting += data
        if self._wire.closed or not self._wire.reading or not self._waiting:
            return
        data = bytes(self._waiting)
        self._waiting.clear()
        self._arrived += data
        self._connection.data_received(data)
        assert self._connection.in_flight <= LIMITS.max_in_flight + len(list(frames(data))) + 1
        assert self._connection.in_flight_bytes <= LIMITS.max_in_flight_bytes + LIMITS.max_frame + len(data)

    async def end(self) -> None:
        self.send(b"")
        await quiet()
        self._wire.close()
        await quiet()
        assert all(self.answers())
        assert self._desk.asked <= sum(map(questions_in, frames(bytes(self._arrived)))), "somebody else was heard"
        assert not self._desk.under_way

    def answers(self) -> Iterator[Any]:
        """All that came, decoded. Fails where one is not that of the next request."""
        asked = frames(bytes(self._arrived))
        for answer in frames(bytes(self._wire.sent)):
            request = next(asked)
            key, version = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
            assert answer[:4] == request[4:8]
            yield decoded(key, version, answer)


def decoded(key: int, version: int, answer: bytes) -> Any:
    api = BY_KEY[key]
    if not api.serves(version):
        assert key == API_VERSIONS
        version = 0
    tagged = is_flexible(f"{api.name}Response", version) and key != API_VERSIONS
    return decode_frame(f"{api.name}Response", version, answer, 4 + tagged)


def questions_in(request: bytes) -> int:
    """How much it asks the desk, if it names this cluster, in itself or in its header; else nothing."""
    if len(request) < SHORTEST:
        return 0
    api, version = BY_KEY.get(int.from_bytes(request[:2], "big", signed=True)), int.from_bytes(request[2:4], "big")
    if api is None or api.key == API_VERSIONS or not api.serves(version):
        return 0
    try:
        header, begin = decode("RequestHeader", 2, request)
        if api.key not in NAME_THE_CLUSTER and cluster_of(header.client_id or "") != CLUSTER:
            return 0
        asked = None if api.key not in {*ONE_BY_ONE, *NAME_THE_CLUSTER} else decode_body(api, version, request, begin)
    except MalformedFrame:
        return 0
    if api.key in ONE_BY_ONE:
        return len(getattr(asked, ONE_BY_ONE[api.key]))
    return int(asked is None or asked.cluster_id == CLUSTER)


def decode_body(api: Api, version: int, request: bytes, begin: int) -> Any:
    return decode(f"{api.name}Request", version, request, begin)[0]


async def quiet() -> None:
    """Until the node has done what it can: the desk takes two turns, a connection a few for each of its requests."""
    for _ in range(60):
        await asyncio.sleep(0)


def between(data: bytes) -> None:
    """Whatever another node, or somebody who is none, sends in whatever pieces; see `Talk`."""
    asyncio.run(converse(Bytes(data)))


async def converse(given: Bytes) -> None:
    with capture_logs() as logged:
        talk = Talk()
        if given.number() % 8:
            talk.send(framed("ApiVersions", 3, greeting(), client_id_of(CLUSTER, 2)))
            await quiet()
        for step in steps(given):
            if step is None:
                await quiet()
            else:
                step(talk)
        await talk.end()
    failed = [line for line in logged if line["log_level"] == "error"]
    assert not failed, failed


def greeting() -> Any:
    return struct("ApiVersionsRequest")(client_software_name="a", client_software_version="1")


def framed(name: str, version: int, message: object, client_id: str | None) -> bytes:
    flexible = is_flexible(f"{name}Request", version)
    header = struct("RequestHeader")(
        request_api_key=KEY_OF[name], request_api_version=version, correlation_id=7, client_id=client_id
    )
    head = encode("RequestHeader", 1 + flexible, header)
    body = b"".join([*head, *encode(f"{name}Request", version, message)])
    return len(body).to_bytes(4, "big") + body


Step = Callable[[Talk], None]


def steps(given: Bytes) -> Iterator[Step | None]:
    while given:
        match given.number() % 16:
            case 13 | 14 | 15:
                yield None
            case 0:
                yield sending(given.piece(given.number()))
            case 1:
                yield asking(given, tampered)
            case 2:
                yield asking(given, cut)
            case _:
                yield asking(given, lambda data, where, value: data)


def sending(data: bytes) -> Step:
    return lambda talk: talk.send(data)


def asking(given: Bytes, change: Callable[[bytes, int, int], bytes]) -> Step:
    """A request in perfect form, mostly of this cluster and of a session that there may be, and what becomes of it."""
    api = NODE_APIS[given.number() % len(NODE_APIS)]
    version = api.first + given.number() % (api.last - api.first + 1)
    seed, how, where = given.number(2), given.number(), given.number(2)

    def step(talk: Talk) -> None:
        message = random_message(all_messages()[f"{api.name}Request"], version, random.Random(seed))
        if how % 64 and hasattr(message, "cluster_id"):
            message.cluster_id = CLUSTER
        if how % 64 and api.name == "Fetch":
            sensible(message, seed)
        if how % 64 and api.name == "OffsetForLeaderEpoch":
            message.replica_id = 2
        data = framed(api.name, version, message, client_id_of(CLUSTER, 2) if how % 64 else "consumer")
        talk.send(change(data, where % len(data), how))

    return step


def sensible(message: Any, seed: int) -> None:
    """A fetch of a node."""
    message.replica_state = struct("FetchRequest.replica_state")(replica_id=seed % 2, replica_epoch=1)


TARGETS: Final = {"between": between}
