"""Connections to other nodes: how one is made, what it asks, and whether a node refuses or is silent.

A machine that refuses a connection (ECONNREFUSED) says that no process listens there: it is gone (CL-C9). Silence
says nothing: the node may be slow, frozen or cut off.

Several requests may be in flight on one link, but a fetch or poll that waits there delays what is asked behind it:
each kind has links of its own. When a link breaks, all of its requests fail immediately; whether they were carried
out is unknown.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from muster.coordinator.config.values import Address, format_address
from muster.coordinator.edge.request_limits import LARGE_BYTES
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import Frame, MalformedFrame, decode_frame, struct
from muster.coordinator.kafka.connections.client import ClientConnection, ClientLimits, RequestFailures, body_position
from muster.coordinator.kafka.handlers import transaction_batches
from muster.coordinator.kafka.handlers.transaction_batches import NodeMarker, PartitionCodes
from muster.coordinator.replication.io.wire import node_codec
from muster.coordinator.replication.io.wire.node_api import (
    KEY_OF,
    MOST_REQUEST_BYTES,
    NODE_APIS,
    NOT_EVERYWHERE,
    PROVE_NODE,
    VERSION_OF,
    AbortRecord,
    AbortsQuery,
    AbortValues,
    ElectionEntry,
    EpochEnd,
    EpochQuery,
    GroupsWithSettings,
    LogEndsQuery,
    PartitionLogEnd,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
    client_id_of,
)
from muster.coordinator.replication.io.wire.node_proof import (
    CALLER,
    FOREIGN_SECRET,
    LISTENER,
    NONCE_BYTES,
    NodeProofs,
    ProofExchange,
)
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    ImageVersion,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    OfflineReplica,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer, FetchRequest
from muster.coordinator.transactions.events import PartitionAddition

if TYPE_CHECKING:
    from ssl import SSLContext


# Refused or silent: whether a node can be reached (CL-C9)
# --------------------------------------------------------

PROBES: Final = 3
PROBING_MS: Final = 300
PAUSE_MS: Final = 75
"""A node counts as gone once it has refused so often within so long, asked again after a pause."""


class LinkError(Exception):
    """No answer. Whether the request was heard is not known."""


class LinkRefused(LinkError):
    """Nobody listens there: the machine lives, and says so (ECONNREFUSED)."""


class LinkSilent(LinkError):
    """Nothing was heard in time."""


class LinkBroken(LinkError):
    """The connection ended, or what came is not what was asked for."""


async def connect_socket(address: Address) -> socket.socket:
    """A socket that is connected to the first address of the host that takes it. Raises LinkRefused, where all of them
    refuse, and LinkBroken. It may take as long as the kernel likes."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LinkBroken(f"{format_target(address)} is not known: {error.strerror or error}") from error
    failures: list[OSError] = []
    for family, kind, protocol, _, place in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, place)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            failures.append(error)
        else:
            return sock
    if all(error.errno == errno.ECONNREFUSED for error in failures):
        raise LinkRefused(f"{format_target(address)} refuses connections; nobody listens there")
    raise unreachable_error(address, failures[-1]) from failures[-1]


async def probe_refusals(
    address: Address,
    now_ms: Callable[[], int],
    *,
    times: int = PROBES,
    within_ms: int = PROBING_MS,
    pause_ms: int = PAUSE_MS,
) -> tuple[int, ...]:
    """When each of so many connections in a row was refused, by `now_ms`; empty if one of them was not, be it that it
    was taken or that nothing was heard. What is taken is closed without a word."""
    told: list[int] = []
    try:
        async with asyncio.timeout(within_ms / 1000):
            while True:
                try:
                    sock = await connect_socket(address)
                except LinkRefused:
                    told.append(now_ms())
                else:
                    sock.close()
                    return ()
                if len(told) == times:
                    return tuple(told)
                await asyncio.sleep(pause_ms / 1000)
    except (TimeoutError, LinkBroken):
        return ()


def unreachable_error(address: Address, error: OSError) -> LinkBroken:
    return LinkBroken(f"{format_target(address)} cannot be reached: {error.strerror or error}")


def format_target(address: Address) -> str:
    return format_address(*address)


# One connection
# --------------

MOST_UNDER_WAY: Final = 100
MOST_ANSWER_BYTES: Final = 128 << 20
"""Of one answer: far above replica.fetch.response.max.bytes; one batch may be larger than that."""

LONG_LISTS: Final = frozenset({"ClusterState"})
"""Answers that are read in a thread where they are large; records are not looked into, and cost nothing."""

GREETING_S: Final = 600.0
"""The greeting's time is `connect`'s."""

SOFTWARE: Final = "muster-node"
BELIEVED: Final = " before a word was said; its log says whether it believes this node's certificate"


Answer = TypeVar("Answer")


class LinkCaller(NamedTuple):
    """Who calls: the cluster that is meant, and the node's id. proofs: what it shows of itself, and wants to see, where
    nodes show no certificates."""

    cluster_id: str
    node: int
    proofs: NodeProofs | None = None


class NodeLink(ClientConnection[LinkError]):
    """Build it with `connect`. What it raises is a LinkError, whatever happened."""

    def __init__(self, me: LinkCaller, most_answer_bytes: int = MOST_ANSWER_BYTES, called: int | None = None) -> None:
        super().__init__(
            client_id_of(me.cluster_id, me.node),
            ClientLimits(MOST_UNDER_WAY, MOST_REQUEST_BYTES, most_answer_bytes),
            RequestFailures(unsent=LinkError, silent=LinkSilent, broken=LinkBroken),
        )
        self._me = me
        self._called = called
        self._unserved: frozenset[str] = frozenset()

    @classmethod
    async def connect(
        cls,
        address: Address,
        me: LinkCaller,
        *,
        timeout_s: float,
        tls: "SSLContext | None" = None,
        most_answer_bytes: int = MOST_ANSWER_BYTES,
        called: int | None = None,
    ) -> Self:
        """Connect and greet within `timeout_s`. With `tls` the other end has to be who it says at that host. An answer
        of more than `most_answer_bytes` ends the link. called: the node that is to be there, where that is known.

        Raises LinkRefused where every address of the host refuses, LinkSilent where nothing is heard in time, else
        LinkBroken.
        """
        try:
            async with asyncio.timeout(timeout_s):
                link: Self = await open_connection(lambda: cls(me, most_answer_bytes, called), address, tls)
                try:
                    await link._greet()
                except BaseException:
                    link.close()
                    raise
                return link
        except TimeoutError as error:
            raise LinkSilent(f"{format_target(address)} did not answer within {timeout_s:g} s") from error

    @property
    def other_end(self) -> str:
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return format_target(Address(*name[:2])) if name else "the other node"

    # -- what nodes ask ---------------------------------------------------------------------------------------------

    def fetch_then(
        self,
        fetch: FetchRequest,
        name_of: node_codec.NameOf,
        told: Callable[[FetchAnswer | LinkError], None],
        *,
        max_wait_ms: int,
        min_bytes: int,
        deadline_s: float,
    ) -> None:
        """By calls alone, for it is asked some hundred times a second. told: called once, with the answer as soon as
        it is read, or later with why there is none. name_of: of the topics that are fetched, whose names are not on
        the wire."""
        request = node_codec.fetch_request(self._me.cluster_id, fetch, max_wait_ms=max_wait_ms, min_bytes=min_bytes)

        def came(frame: Frame | LinkError) -> None:
            if isinstance(frame, LinkError):
                told(frame)
                return
            try:
                said = self._read("Fetch", frame, lambda said: node_codec.parse_fetch_response(said, name_of))
            except LinkError as error:
                told(error)
            else:
                told(said)

        try:
            self.exchange_then(KEY_OF["Fetch"], "Fetch", VERSION_OF["Fetch"], request, deadline_s, came)
        except LinkError as error:
            asyncio.get_running_loop().call_soon(told, error)

    async def epochs(self, asked: Iterable[EpochQuery], *, deadline_s: float) -> list[EpochEnd]:
        """The ends, those of one topic together."""
        request = node_codec.epochs_request(self._me.node, asked)
        return await self.send_request("OffsetForLeaderEpoch", request, deadline_s, node_codec.parse_epochs_response)

    async def alter_partition(
        self, node_epoch: int, items: Iterable[IsrItem], *, deadline_s: float
    ) -> AlterPartitionResult:
        """The results, those of one topic together."""
        request = node_codec.alter_request(self._me.node, node_epoch, items)
        return await self.send_request("AlterPartition", request, deadline_s, node_codec.parse_alter_response)

    async def controlled_shutdown(self, node_epoch: int, *, deadline_s: float) -> ShutdownResult:
        request = node_codec.shutdown_request(self._me.node, node_epoch)
        return await self.send_request("ControlledShutdown", request, deadline_s, node_codec.parse_shutdown_response)

    async def cluster_state(
        self,
        node_epoch: int,
        known: ImageVersion,
        offline: Iterable[OfflineReplica],
        *,
        max_wait_ms: int,
        deadline_s: float,
    ) -> ClusterState:
        me = self._me
        request = node_codec.state_request(me.cluster_id, me.node, node_epoch, known, offline, max_wait_ms)
        return await self.send_request("ClusterState", request, deadline_s, node_codec.parse_state_response)

    async def note(self, records: Iterable[ElectionEntry], *, deadline_s: float) -> ErrorCode:
        return await self.send_request(
            "NoteElections",
            node_codec.note_request(records),
            deadline_s,
            node_codec.parse_note_response,
        )

    async def note_aborts(self, records: Iterable[AbortRecord], *, deadline_s: float) -> ErrorCode:
        request = node_codec.note_aborts_request(records)
        return await self.send_request("NoteAborts", request, deadline_s, node_codec.parse_note_response)

    async def read_aborts(self, asked: AbortsQuery, *, deadline_s: float) -> AbortValues:
        request = node_codec.read_aborts_request(asked)
        return await self.send_request("ReadAborts", request, deadline_s, node_codec.parse_read_aborts_response)

    async def read_security(self, asked: SecurityQuery, *, deadline_s: float) -> SecurityRecords:
        request = node_codec.security_read_request(asked)
        return await self.send_request("ReadSecurity", request, deadline_s, node_codec.parse_security_read_response)

    async def write_security(self, changed: SecurityUpdate, *, deadline_s: float) -> SecurityUpdateResult:
        request = node_codec.security_write_request(changed)
        return await self.send_request("WriteSecurity", request, deadline_s, node_codec.parse_security_write_response)

    async def log_ends(self, asked: LogEndsQuery, *, deadline_s: float) -> Sequence[PartitionLogEnd]:
        return await self.send_request(
            "LogEnds", node_codec.ends_request(asked), deadline_s, node_codec.parse_ends_response
        )

    async def groups_with_settings(self, *, deadline_s: float) -> GroupsWithSettings:
        answer = node_codec.parse_groups_response
        return await self.send_request("GroupsWithSettings", node_codec.groups_request(), deadline_s, answer)

    async def add_partitions(
        self, additions: Iterable[PartitionAddition], *, deadline_s: float
    ) -> Mapping[str, PartitionCodes]:
        """What the coordinators say, by transactional id, of which each is named once."""
        request = transaction_batches.make_additions_request(additions)
        parse = transaction_batches.read_additions_response
        return await self.send_request("AddPartitionsToTxn", request, deadline_s, parse)

    async def write_markers(
        self, markers: Iterable[tuple[NodeMarker, Sequence[tuple[str, int]]]], *, deadline_s: float
    ) -> Mapping[int, PartitionCodes]:
        """What became of them, by producer id, of which each has one marker at most."""
        request = transaction_batches.make_markers_request(markers)
        parse = transaction_batches.read_markers_response
        return await self.send_request("WriteTxnMarkers", request, deadline_s, parse)

    async def send_request(
        self, api: str, request: object, deadline_s: float, meaning: Callable[[Any], Answer]
    ) -> Answer:
        """What the answer to one request means; see `exchange`. A node of an earlier version is not asked for what it
        lacks: it would end the link."""
        if api in self._unserved:
            raise LinkError(f"{self.other_end} is a node of an earlier version, without {api}; upgrade it")
        frame = await self.exchange(KEY_OF[api], api, VERSION_OF[api], request, deadline_s)
        if len(frame) > LARGE_BYTES and api in LONG_LISTS:
            try:
                return await asyncio.to_thread(parse_answer, api, frame, meaning)
            except MalformedFrame as error:
                raise self._no_answer(api, error) from error
        return self._read(api, frame, meaning)

    def _read(self, api: str, frame: Frame, meaning: Callable[[Any], Answer]) -> Answer:
        """Raises Broken, and the link is at its end."""
        try:
            return parse_answer(api, frame, meaning)
        except MalformedFrame as error:
            raise self._no_answer(api, error) from error

    async def _greet(self) -> None:
        greeting = struct("ApiVersionsRequest")(client_software_name=SOFTWARE, client_software_version="1")
        answer = await self.send_request("ApiVersions", greeting, GREETING_S, lambda said: said.api_keys)
        served = {one.api_key: one for one in answer}
        self._unserved = frozenset(api.name for api in NODE_APIS if api.key not in served)
        for api in NODE_APIS:
            found = served.get(api.key)
            if api.key in NOT_EVERYWHERE:
                continue
            if found is None or not found.min_version <= api.last <= found.max_version:
                why = LinkBroken(
                    f"{self.other_end} does not speak {api.name} {api.last}; is it a node of this version?"
                )
                self._end(why)
                raise why
        if self._me.proofs is not None:
            await self._prove(self._me.proofs, offered=PROVE_NODE in served)

    async def _prove(self, proofs: NodeProofs, *, offered: bool) -> None:
        """Show that this is a node, and see that the other end is one (CL-N4). Raises LinkBroken."""
        if not offered:  # a node of an earlier version, unless it has registered as one that can
            if proofs.expects(self._called):
                raise self._doubted(proofs, "asks for no proof, and gives none; does something else listen there?")
            return
        me, nonce = self._me.node, proofs.nonce()
        request, parse = node_codec.prove_request(me, nonce), node_codec.parse_prove_response
        answer = await self.send_request("ProveNode", request, GREETING_S, parse)
        exchange = ProofExchange(proofs.cluster_id, me, nonce + answer.nonce)
        if len(answer.nonce) != NONCE_BYTES or not exchange.is_proof(proofs.secret, LISTENER, answer.proof):
            raise self._doubted(proofs, f"does not prove that it is a node of this cluster: {FOREIGN_SECRET}")
        request = node_codec.prove_request(me, proof=exchange.proof(proofs.secret, CALLER))
        answer = await self.send_request("ProveNode", request, GREETING_S, parse)
        if answer.error is not ErrorCode.NONE:
            raise self._doubted(proofs, f"does not take this node's proof: {FOREIGN_SECRET}")

    def _doubted(self, proofs: NodeProofs, why: str) -> LinkError:
        broken = LinkBroken(f"{self.other_end} {why}")
        proofs.doubt_called(self._called, self.other_end, str(broken))
        self._end(broken)
        return broken

    def _why_lost(self, exc: Exception | None) -> str:
        why = super()._why_lost(exc)
        if not self._heard and self._transport is not None and self._transport.get_extra_info("sslcontext") is not None:
            why += BELIEVED  # By TLS 1.3 whoever calls learns only now whether its certificate is.
        return why


def parse_answer(api: str, frame: Frame, meaning: Callable[[Any], Answer]) -> Answer:
    """What an answer means. Raises MalformedFrame."""
    version = VERSION_OF[api]
    return meaning(decode_frame(f"{api}Response", version, frame, body_position(api, version, frame)))


async def open_connection(make: "Callable[[], NodeLink]", address: Address, tls: "SSLContext | None") -> Any:
    """A connection to the first address of the host that takes one. Raises LinkRefused, LinkBroken."""
    sock = await connect_socket(address)
    try:
        _, link = await asyncio.get_running_loop().create_connection(
            make, sock=sock, ssl=tls, server_hostname=address.host if tls is not None else None
        )
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError):  # ssl.SSLError is one
            raise unreachable_error(address, error) from error
        raise
    return link


# One connection per node
# -----------------------

REPLICATION = "REPLICATION"
"""The listener between nodes, in a node's registration."""

AddressOf: TypeAlias = Callable[[int], Address | None]


class LinkSettings(NamedTuple):
    """How this node calls others."""

    me: LinkCaller
    timeout_s: float = 2.0
    """Within which a link is made."""
    tls: "Callable[[], SSLContext] | None" = None
    """What the next link shows and believes; None: they are in the clear."""


def address_in(image: ClusterImage, node: int) -> Address | None:
    """Where the other nodes reach it; None where the image knows none that is there."""
    view = image.nodes.get(node)
    if view is None or view.status is ClusterNodeStatus.GONE:
        return None
    for each in view.endpoints:
        if each.listener == REPLICATION:
            return Address(each.host, each.port)
    return None


class NodeLinks:
    """Requests that wait hold up what comes behind them: each kind of them has links of its own."""

    def __init__(self, calling: LinkSettings, address_of: AddressOf) -> None:
        self._calling = calling
        self._address_of = address_of
        self._made: dict[int, tuple[Address, NodeLink]] = {}
        self._making: dict[int, asyncio.Lock] = {}
        self._closed = False

    async def to(self, node: int) -> NodeLink:
        """Raises LinkError."""
        address = self._address_of(node)
        if address is None:
            raise LinkBroken(f"node {node} is not there, as far as this one knows")
        link = self._standing(node, address)
        if link is not None:
            return link
        async with self._making.setdefault(node, asyncio.Lock()):
            link = self._standing(node, address)
            if link is not None:
                return link
            calling = self._calling
            tls = None if calling.tls is None else calling.tls()
            link = await NodeLink.connect(address, calling.me, timeout_s=calling.timeout_s, tls=tls, called=node)
            if self._closed:
                link.close()
                raise LinkBroken("this node stops")
            self._made[node] = address, link
            return link

    def close(self) -> None:
        self._closed = True
        for _, link in self._made.values():
            link.close()
        self._made.clear()

    def let_go(self, node: int) -> None:
        """The node is not there any more: what it has not answered fails."""
        made = self._made.pop(node, None)
        if made is not None:
            made[1].close()

    def standing(self, node: int) -> NodeLink | None:
        """One that is made already."""
        address = self._address_of(node)
        return None if address is None else self._standing(node, address)

    def _standing(self, node: int, address: Address) -> NodeLink | None:
        made = self._made.get(node)
        if made is None:
            return None
        if made[0] == address and made[1].open:
            return made[1]
        del self._made[node]
        made[1].close()
        return None
