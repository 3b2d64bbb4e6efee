"""One connection to another node's door: requests out, answers back in their order.

Several requests may be under way, but a fetch or a poll that waits there holds up what is asked behind it: give each
its own link. When it breaks, all that is under way fails at once; whether that was done there is not known.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from muster.coordinator.config import Address
from muster.coordinator.edge.limits import LARGE_BYTES
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import MalformedFrame, decode_frame, struct
from muster.coordinator.kafka.codec.emitter import Frame
from muster.coordinator.kafka.connections.client import ClientConnection, ClientLimits, RequestFailures, body_position
from muster.coordinator.replication.io.wire import about_ends, about_security, translate, translate_controller
from muster.coordinator.replication.io.wire.apis import KEY_OF, MOST_REQUEST_BYTES, NODE_APIS, VERSION_OF, client_id_of
from muster.coordinator.replication.io.wire.reaching import (
    LinkBroken,
    LinkError,
    LinkSilent,
    connect_socket,
    format_target,
    unreachable_error,
)
from muster.coordinator.replication.io.wire.words import (
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
)
from muster.coordinator.replication.protocol.controller.effects import AlterPartitionResult, ShutdownResult
from muster.coordinator.replication.protocol.controller.events import IsrItem, OfflineReplica
from muster.coordinator.replication.protocol.image import ClusterState, ImageVersion
from muster.coordinator.replication.protocol.messages import FetchAnswer, FetchRequest

if TYPE_CHECKING:
    from ssl import SSLContext

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
    """Who calls: the cluster that is meant, and the node's id."""

    cluster_id: str
    node: int


class NodeLink(ClientConnection[LinkError]):
    """Build it with `connect`. What it raises is a LinkError, whatever happened."""

    def __init__(self, me: LinkCaller, most_answer_bytes: int = MOST_ANSWER_BYTES) -> None:
        super().__init__(
            client_id_of(me.cluster_id, me.node),
            ClientLimits(MOST_UNDER_WAY, MOST_REQUEST_BYTES, most_answer_bytes),
            RequestFailures(unsent=LinkError, silent=LinkSilent, broken=LinkBroken),
        )
        self._me = me

    @classmethod
    async def connect(
        cls,
        address: Address,
        me: LinkCaller,
        *,
        timeout_s: float,
        tls: "SSLContext | None" = None,
        most_answer_bytes: int = MOST_ANSWER_BYTES,
    ) -> Self:
        """Connect and greet within `timeout_s`. With `tls` the other end has to be who it says at that host. An answer
        of more than `most_answer_bytes` ends the link.

        Raises Refused where every address of the host refuses, Silent where nothing is heard in time, else Broken.
        """
        try:
            async with asyncio.timeout(timeout_s):
                link: Self = await open_connection(lambda: cls(me, most_answer_bytes), address, tls)
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
        name_of: translate.NameOf,
        told: Callable[[FetchAnswer | LinkError], None],
        *,
        max_wait_ms: int,
        min_bytes: int,
        deadline_s: float,
    ) -> None:
        """By calls alone, for it is asked some hundred times a second. told: called once, later, with the answer, or
        with why there is none. name_of: of the topics that are fetched, whose names are not on the wire."""
        request = translate.fetch_request(self._me.cluster_id, fetch, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        loop = asyncio.get_running_loop()
        try:
            asked = self.send(KEY_OF["Fetch"], "Fetch", VERSION_OF["Fetch"], request)
        except LinkError as error:
            loop.call_soon(told, error)
            return
        late = loop.call_later(deadline_s, self._too_late, asked, "Fetch", deadline_s)

        def came(answer: "asyncio.Future[Frame]") -> None:
            late.cancel()
            if answer.cancelled():
                return
            why = answer.exception()
            if why is not None:
                assert isinstance(why, LinkError), "see `_end`"
                told(why)
                return
            try:
                said = self._read("Fetch", answer.result(), lambda said: translate.parse_fetch_response(said, name_of))
            except LinkError as error:
                told(error)
            else:
                told(said)

        asked.add_done_callback(came)

    async def epochs(self, asked: Iterable[EpochQuery], *, deadline_s: float) -> list[EpochEnd]:
        """The ends, those of one topic together."""
        request = translate.epochs_request(self._me.node, asked)
        return await self.ask("OffsetForLeaderEpoch", request, deadline_s, translate.parse_epochs_response)

    async def alter_partition(
        self, node_epoch: int, items: Iterable[IsrItem], *, deadline_s: float
    ) -> AlterPartitionResult:
        """The results, those of one topic together."""
        request = translate_controller.alter_request(self._me.node, node_epoch, items)
        return await self.ask("AlterPartition", request, deadline_s, translate_controller.parse_alter_response)

    async def controlled_shutdown(self, node_epoch: int, *, deadline_s: float) -> ShutdownResult:
        request = translate_controller.shutdown_request(self._me.node, node_epoch)
        return await self.ask("ControlledShutdown", request, deadline_s, translate_controller.parse_shutdown_response)

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
        request = translate_controller.state_request(me.cluster_id, me.node, node_epoch, known, offline, max_wait_ms)
        return await self.ask("ClusterState", request, deadline_s, translate_controller.parse_state_response)

    async def note(self, records: Iterable[ElectionEntry], *, deadline_s: float) -> ErrorCode:
        return await self.ask(
            "NoteElections",
            translate_controller.note_request(records),
            deadline_s,
            translate_controller.parse_note_response,
        )

    async def read_security(self, asked: SecurityQuery, *, deadline_s: float) -> SecurityRecords:
        request = about_security.security_read_request(asked)
        return await self.ask("ReadSecurity", request, deadline_s, about_security.parse_security_read_response)

    async def write_security(self, changed: SecurityUpdate, *, deadline_s: float) -> SecurityUpdateResult:
        request = about_security.security_write_request(changed)
        return await self.ask("WriteSecurity", request, deadline_s, about_security.parse_security_write_response)

    async def log_ends(self, asked: LogEndsQuery, *, deadline_s: float) -> Sequence[PartitionLogEnd]:
        return await self.ask("LogEnds", about_ends.ends_request(asked), deadline_s, about_ends.parse_ends_response)

    async def groups_with_settings(self, *, deadline_s: float) -> GroupsWithSettings:
        answer = about_ends.parse_groups_response
        return await self.ask("GroupsWithSettings", about_ends.groups_request(), deadline_s, answer)

    async def ask(self, api: str, request: object, deadline_s: float, meaning: Callable[[Any], Answer]) -> Answer:
        """What the answer to one request means; see `exchange`."""
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
        answer = await self.ask("ApiVersions", greeting, GREETING_S, lambda said: said.api_keys)
        served = {one.api_key: one for one in answer}
        for api in NODE_APIS:
            found = served.get(api.key)
            if found is None or not found.min_version <= api.last <= found.max_version:
                why = LinkBroken(
                    f"{self.other_end} does not speak {api.name} {api.last}; is it a node of this version?"
                )
                self._end(why)
                raise why

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
    """A connection to the first address of the host that takes one. Raises Refused, Broken."""
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
