"""The listener between nodes: reads requests, authorizes them, and hands their meaning to a `PeerDesk`.

A connection begins with ApiVersions, and in the clear with a proof that its caller is a node (CL-N4). One that means
another cluster, or that asks what only clients ask, is closed.
Limits are those of every listener of Kafka's protocol, and hold before anything is built. Requests need
CLUSTER_ACTION on CLUSTER, as in Kafka.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from muster.coordinator.config import Address
from muster.coordinator.edge.listener_base import ListenerTls
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import Buffer, Frame, encode, struct
from muster.coordinator.kafka.connections.connection import ServerConnection
from muster.coordinator.kafka.connections.listener import ConnectionListener, ListenerLimits
from muster.coordinator.kafka.connections.received_requests import HEAD, ConnectionLimits, DecodedHeader, RequestSlot
from muster.coordinator.kafka.dispatch import (
    Dispatcher,
    EncodedAnswer,
    FutureAnswer,
    Handler,
    HangUp,
    Immediate,
    KafkaCall,
    ServedVersion,
    fields_of,
)
from muster.coordinator.kafka.handlers import transaction_batches
from muster.coordinator.kafka.handlers.transaction_batches import NodeMarker, PartitionCodes
from muster.coordinator.kafka.protocol import API_VERSIONS
from muster.coordinator.replication.io.wire import node_codec
from muster.coordinator.replication.io.wire.node_api import (
    BEFORE_PROOF,
    MOST_REQUEST_BYTES,
    NAME_THE_CLUSTER,
    NODE_APIS,
    PROVE_NODE,
    VERSION_OF,
    NodeName,
    PeerDesk,
    PeerFetch,
    cluster_of,
)
from muster.coordinator.replication.io.wire.node_proof import ListenerProof, NodeProofs, ProofAnswer
from muster.coordinator.replication.protocol.cluster_metadata import ClusterState, ImageVersion
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer
from muster.coordinator.security.access_model import Identity

# Authorization: CLUSTER_ACTION on CLUSTER
# ----------------------------------------

PeerIdentity: TypeAlias = Callable[[Identity], bool]

GREETING: Final = "ApiVersions"


class NodeGuard:
    """Stands before each handler but ApiVersions'."""

    def __init__(self, may: PeerIdentity) -> None:
        self._may = may

    def guarded(
        self, api: str, version: int, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """See `RequestAuthorizer`."""
        if api == GREETING:
            return handler, immediate
        name, told = f"{api}Response", "error_code" in fields_of(f"{api}Response", version)

        def refusal(call: KafkaCall) -> Any:
            """None where it may ask."""
            if self._may(call.identity):
                return None
            if not told:
                raise HangUp(f"{call.identity.principal} may not ask for {api}: it needs CLUSTER_ACTION on CLUSTER")
            return struct(name)(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        return guard_handler(handler, refusal), guard_immediate(immediate, refusal)


def guard_handler(handler: Handler | None, refusal: Callable[[KafkaCall], Any]) -> Handler | None:
    if handler is None:
        return None

    async def answered(request: Any, call: KafkaCall) -> Any:
        refused = refusal(call)
        return await handler(request, call) if refused is None else refused

    return answered


def guard_immediate(immediate: Immediate | None, refusal: Callable[[KafkaCall], Any]) -> Immediate | None:
    if immediate is None:
        return None

    def answered(request: Any, call: KafkaCall) -> Any:
        refused = refusal(call)
        return immediate(request, call) if refused is None else refused

    return answered


# The listener and its handlers
# -----------------------------

LIMITS: Final = ListenerLimits(
    max_connections=1_000,
    max_connections_per_host=1_000,
    connection=ConnectionLimits(
        max_frame=MOST_REQUEST_BYTES,
        max_in_flight=100,
        max_in_flight_bytes=32 << 20,
        max_unsent_bytes=1 << 20,
        max_idle_ms=600_000,
    ),
    max_unread_bytes=1 << 30,
)
"""A fetch that names 100,000 partitions has 4 MB. A slow follower of each of ten nodes may leave 100 MB unread."""

MAX_BEFORE_GREETING: Final = 1 << 12
"""Bytes of the first request, ApiVersions, and of those that prove who asks."""

MANY_PARTITIONS: Final = 500
"""An answer about more of them is written in a thread: of 10,000 that takes 75 ms."""

GREETING_S: Final = 10.0
"""Within which they have come."""

MAX_NODE_DIGITS: Final = 10
"""Of a node id, in the name by which a node calls itself."""


class ClosingAnswer:
    """An answer after which the connection is closed. why: for the node's log."""

    __slots__ = ("answer", "why")

    def __init__(self, answer: Any, why: str = "") -> None:
        self.answer = answer
        self.why = why


class NodeConnection(ServerConnection):
    """See `ServerConnection`. Its peer is another node of the cluster.

    proofs: whom it believes; None: whoever comes has shown a certificate.
    """

    def __init__(self, cluster_id: str, proofs: NodeProofs | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._cluster_id = cluster_id
        self._proofs = proofs
        self._greeted = False
        self._known = False
        """Its peer is a node: that need not be looked at any more."""
        self._most = self._frames.limit
        self._frames.limit = min(self._most, MAX_BEFORE_GREETING)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._late = self._loop.call_later(GREETING_S, self._drop, f"nothing was asked within {GREETING_S:g} s")
        if self._proofs is not None:
            self._peer.login = ListenerProof(self._proofs, self._peer.host, self._proven)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)

    def _start(self, frame: Frame) -> None:
        if not self._known:
            self._admit(HEAD.unpack_from(frame)[0])
        super()._start(frame)

    def _admit(self, key: int) -> None:
        """Whether somebody who has not shown yet that it is a node may ask for this API. Raises HangUp."""
        if not self._greeted:
            if key != API_VERSIONS:
                raise HangUp(f"API {key} was asked for before ApiVersions")
            self._greeted = True
            self._known = self._proofs is None
            if self._proofs is None or not self._proofs.required:
                self._let_talk()
        elif self._proofs is not None and key not in BEFORE_PROOF and self._proofs.required:
            self._proofs.doubt(None, self._peer.host, "")
            raise HangUp(
                f"API {key} was asked for without a proof that a node of this cluster asks; clients are answered at "
                "listeners and kafka.listeners"
            )

    def _proven(self) -> None:
        self._known = True
        self._let_talk()

    def _let_talk(self) -> None:
        """What it sends may be as large as nodes' requests are, and come when it likes."""
        self._frames.limit = self._most
        self._late.cancel()

    def _meet(self, form: ServedVersion, frame: Frame) -> DecodedHeader:
        caller = super()._meet(form, frame)
        named = cluster_of(caller.call.client_id)
        if named != self._cluster_id and form.api.key not in NAME_THE_CLUSTER:
            raise HangUp(f"it is for cluster {named!r}; this one is {self._cluster_id!r}")
        return caller

    def _fill(self, slot: RequestSlot, response: Any) -> None:
        if isinstance(response, ClosingAnswer):
            self.fault = response.why
            response, self._draining = response.answer, True
            self._backlog.clear()
        super()._fill(slot, response)


class NodeListener:
    """Bound first, then served once the cluster's id is known, drained when the node stops."""

    def __init__(self, address: Address, limits: ListenerLimits = LIMITS) -> None:
        self._listener = ConnectionListener(limits)
        self._bound = address

    @property
    def bound(self) -> Address:
        """Where it listens; the port is known once it is bound."""
        return self._bound

    @property
    def connections(self) -> int:
        return self._listener.connections

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return self._listener.in_flight

    def bind(self) -> Address:
        """Take the port. Raises OSError. Who connects from now on waits."""
        host, port = self._bound
        self._bound = Address(host, self._listener.bind(host, port))
        return self._bound

    def give_back(self) -> None:
        """Free a port that was never served."""
        self._listener.give_back()

    async def start(
        self,
        desk: PeerDesk,
        cluster_id: str,
        *,
        tls: ListenerTls | None = None,
        may: PeerIdentity | None = None,
        proofs: NodeProofs | None = None,
    ) -> None:
        """Answer other nodes. `may` says of who asks whether it has the right to (CLUSTER_ACTION on CLUSTER). proofs:
        by which they show that they are nodes; None: by certificates."""
        handlers = NodeHandlers(desk, cluster_id)
        apis = NODE_APIS if proofs is not None else [api for api in NODE_APIS if api.key != PROVE_NODE]
        dispatch = Dispatcher((handlers,), guard=None if may is None else NodeGuard(may), apis=apis)
        await self._listener.start(dispatch, partial(NodeConnection, cluster_id, proofs), tls)

    def drain(self) -> None:
        """Take no further requests; connections close as soon as what they asked is answered."""
        self._listener.drain()

    async def close(self, grace_s: float) -> None:
        await self._listener.close(grace_s)


class NodeHandlers:
    """One for each API of the door: from messages to what they mean, and back."""

    def __init__(self, desk: PeerDesk, cluster_id: str) -> None:
        self._desk = desk
        self._cluster_id = cluster_id
        self._marker_order = MarkerOrder()

    def fetch_now(self, request: Any, call: KafkaCall) -> Any:
        """No task waits for the answer: followers ask some hundred times a second."""
        replica = request.replica_state
        if request.cluster_id != self._cluster_id:
            return ClosingAnswer(node_codec.fetch_response(FetchAnswer(ErrorCode.INCONSISTENT_CLUSTER_ID)))
        if replica is None or replica.replica_id < 0:
            raise HangUp("a fetch names no replica; consumers are answered at kafka.listeners and listeners")
        asked, unknown = node_codec.parse_fetch_request(request, self._desk.topic_name)
        # What is refused is told at once.
        wait_ms = 0 if unknown else max(request.max_wait_ms, 0)
        answer = asyncio.ensure_future(self._desk.fetch(PeerFetch(asked, wait_ms, request.min_bytes)))

        def respond() -> Any:
            told = answer.result()
            return node_codec.fetch_response(told, () if told.code else unknown)

        return FutureAnswer(answer, respond)

    def prove_node_now(self, request: Any, call: KafkaCall) -> Any:
        login: ListenerProof | None = call.peer.login
        if login is None:
            raise HangUp("a proof was sent, and none is asked for here")
        answer: ProofAnswer = login.answer(request.node_id, bytes(request.nonce), bytes(request.proof))
        response = node_codec.prove_response(answer)
        return ClosingAnswer(response, answer.why) if answer.error else response

    async def offset_for_leader_epoch(self, request: Any, call: KafkaCall) -> Any:
        if request.replica_id < 0:
            raise HangUp("epochs are asked for without a replica id")
        return node_codec.epochs_response(
            await self._desk.epochs(request.replica_id, node_codec.parse_epochs_request(request))
        )

    async def alter_partition(self, request: Any, call: KafkaCall) -> Any:
        node = NodeName(request.broker_id, request.broker_epoch)
        return node_codec.alter_response(
            await self._desk.alter_partition(node, node_codec.parse_alter_request(request))
        )

    async def controlled_shutdown(self, request: Any, call: KafkaCall) -> Any:
        node = NodeName(request.broker_id, request.broker_epoch)
        return node_codec.shutdown_response(await self._desk.controlled_shutdown(node))

    async def cluster_state(self, request: Any, call: KafkaCall) -> Any:
        if request.cluster_id != self._cluster_id:
            return ClosingAnswer(struct("ClusterStateResponse")(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        known = ImageVersion(request.controller_epoch, request.sequence)
        node = NodeName(request.node_id, request.node_epoch)
        wait_ms = max(request.max_wait_ms, 0)
        answer = await self._desk.cluster_state(node, known, node_codec.parse_offline(request), wait_ms)
        if sum(len(topic.partitions) for topic in answer.topics) > MANY_PARTITIONS:
            return EncodedAnswer(await asyncio.to_thread(encode_answer, answer))
        return node_codec.state_response(answer)

    async def read_security(self, request: Any, call: KafkaCall) -> Any:
        asked = node_codec.parse_security_read(request)
        return node_codec.security_read_response(await self._desk.read_security(asked))

    async def write_security(self, request: Any, call: KafkaCall) -> Any:
        changed = node_codec.parse_security_write(request)
        return node_codec.security_write_response(await self._desk.write_security(changed))

    async def log_ends(self, request: Any, call: KafkaCall) -> Any:
        asked = node_codec.parse_ends_request(request)
        return node_codec.ends_refusal() if asked is None else node_codec.ends_response(self._desk.log_ends(asked))

    async def groups_with_settings(self, request: Any, call: KafkaCall) -> Any:
        return node_codec.groups_response(await self._desk.groups_with_settings(), request.most)

    async def add_partitions_to_txn(self, request: Any, call: KafkaCall) -> Any:
        additions = transaction_batches.read_additions(request)
        told = await transaction_batches.ask_about_each(additions, self._desk.add_partitions)
        return transaction_batches.make_additions_response(told)

    async def write_txn_markers(self, request: Any, call: KafkaCall) -> Any:
        """What a node has sent by a connection that it has given up is not performed (TX-N24). Raises HangUp."""
        markers, caller, connection = transaction_batches.read_node_markers(request), node_of(call), call.peer.number
        if not self._marker_order.take(caller, connection):
            raise HangUp(f"markers of node {caller} were overtaken by those of a newer connection")

        async def write(marker: NodeMarker, places: Sequence[tuple[str, int]]) -> PartitionCodes:
            if not self._marker_order.take(caller, connection):  # others may have had their turn since
                return dict.fromkeys(places, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return await self._desk.write_marker(marker.content, places, dict(marker.topic_ids))

        told = await transaction_batches.write_each_marker(markers, write)
        return transaction_batches.make_markers_response(told)

    async def note_elections(self, request: Any, call: KafkaCall) -> Any:
        return node_codec.note_response(await self._desk.note(node_codec.parse_note_request(request)))

    async def note_aborts(self, request: Any, call: KafkaCall) -> Any:
        records = node_codec.parse_note_aborts(request)
        return node_codec.note_aborts_response(await self._desk.note_aborts(records))

    async def read_aborts(self, request: Any, call: KafkaCall) -> Any:
        asked = node_codec.parse_read_aborts(request)
        return node_codec.read_aborts_response(await self._desk.read_aborts(asked))


class MarkerOrder:
    """By which connection each node has sent its last markers (TX-N24)."""

    def __init__(self, most: int = LIMITS.max_connections) -> None:
        self._most = most
        self._newest: dict[int, int] = {}
        """By node, those with newer connections last."""

    def take(self, node: int, connection: int) -> bool:
        """The node sends markers by this connection. False if it has done so by a newer one."""
        newest = self._newest.get(node)
        if newest is not None and connection <= newest:
            return connection == newest
        self._newest.pop(node, None)
        self._newest[node] = connection
        if len(self._newest) > self._most:
            del self._newest[next(iter(self._newest))]
        return True


def node_of(call: KafkaCall) -> int:
    """The node that asks, by its name in the header. Raises HangUp."""
    name = call.client_id.rpartition("/")[2]
    if not (name.isascii() and name.isdigit() and len(name) <= MAX_NODE_DIGITS):
        raise HangUp(f"client id {call.client_id!r} names no node; expected CLUSTER/NODE")
    return int(name)


def encode_answer(answer: ClusterState) -> list[Buffer]:
    return encode("ClusterStateResponse", VERSION_OF["ClusterState"], node_codec.state_response(answer))
