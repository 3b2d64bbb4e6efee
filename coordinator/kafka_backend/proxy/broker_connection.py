"""The upstream half of a client's connection: answers stream through as they arrive, each when it is due.

Held in memory are a few bytes at the beginning of an answer, what is rewritten (bounded), and one piece as it was
read while the client does not read or an earlier answer is missing; then nothing more is read from the upstream.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final, Protocol, cast

import structlog

from muster.coordinator.config import Address
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.kafka.codec.codec import Buffer, DecodeFailure, MalformedFrame, skip_tags
from muster.coordinator.kafka.connections.received_requests import RequestSlot, keep_alive
from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka_backend.proxy.response_rewriting import Edit, Edited
from muster.coordinator.kafka_backend.upstream.connection import open_connection
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamError, describe_address
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

log = structlog.get_logger("muster.engine")

ANSWER: Final = Struct(">ii")
"""How an answer begins: length, correlation id."""

HEADER_BYTES: Final = 8
LENGTH_BYTES: Final = 4
MOST_HELD: Final = 64 << 20
"""Of an answer that is rewritten or joined with another, in bytes."""

AT_ONCE: Final = 64 << 10
"""Bytes of an answer that are rewritten on the loop, in a few milliseconds; more are by a thread, and what comes after
them waits."""

HIGH, LOW = 1 << 20, 1 << 18
"""Of requests that have not left: above the first nothing is read from the client, until it is below the second."""

LINGERS_S: Final = 10.0
"""How long a connection may take to send what its client left behind."""

MOST_TAGS: Final = 1_000


class ProxyTraffic:
    """What has passed a node, in bytes: to the upstream and from it."""

    __slots__ = ("down", "up")

    def __init__(self) -> None:
        self.up = 0
        self.down = 0


class ExpectedAnswer:
    """An answer that is due: it belongs to a client's `slot`, or to whoever waits for all of it (`answer`)."""

    __slots__ = ("answer", "correlation", "edit", "slot", "tagged")

    def __init__(
        self,
        correlation: int,
        slot: RequestSlot | None,
        edit: Edit | None = None,
        tagged: bool = False,
        answer: "asyncio.Future[bytes] | None" = None,
    ) -> None:
        self.correlation = correlation
        self.slot = slot
        self.edit = edit
        self.tagged = tagged
        """Whether its header has tagged fields, where that matters."""
        self.answer = answer


class ClientHalf(Protocol):
    """The other half."""

    @property
    def choked(self) -> bool:
        """Whether it takes no more for now."""

    def is_due(self, slot: RequestSlot) -> bool:
        """Whether this one's answer is the next to leave."""

    def pass_on(self, piece: Buffer) -> None: ...

    def passed(self, slot: RequestSlot) -> None:
        """All of its answer has been passed on."""

    def leg_stands(self, leg: "BrokerConnection") -> None: ...

    def leg_full(self, full: bool) -> None:
        """Whether it takes no more requests for now."""

    def leg_ends(self, leg: "BrokerConnection") -> None:
        """Its login is good for a while yet, for what is under way."""

    def leg_lost(self, leg: "BrokerConnection", why: str) -> None: ...


class BrokerConnection(asyncio.Protocol):
    __slots__ = ("_carry", "_client", "_closed", "_editing", "_ends", "_gathered", "_kept", "_left", "_pending",
                 "_resting", "_traffic", "_transport", "_tried", "_unsent", "where")  # fmt: skip

    def __init__(self, client: ClientHalf, traffic: ProxyTraffic, where: str) -> None:
        self.where = where
        """Whom it leads to, for people."""
        self._client = client
        self._traffic = traffic
        self._pending: deque[ExpectedAnswer] = deque()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[Buffer] = []
        self._carry = b""
        self._kept = b""
        self._left = 0
        self._gathered: bytearray | None = None
        self._tried = 0
        """How much of it was shown to whoever rewrites it."""
        self._editing: asyncio.Future[Edited | None] | None = None
        self._resting = False
        self._closed = False
        self._ends: asyncio.TimerHandle | None = None

    @property
    def under_way(self) -> int:
        """Answers that are due."""
        return len(self._pending)

    @property
    def kept(self) -> bool:
        """Whether something was read whose turn has not come."""
        return bool(self._kept)

    def expect(self, expected: ExpectedAnswer) -> None:
        """Before its request is written."""
        self._pending.append(expected)

    def write(self, piece: Buffer) -> None:
        """A piece of a request; what is written before the connection stands leaves once it does."""
        self._traffic.up += len(piece)
        if self._transport is None:
            self._unsent.append(piece)
        elif not self._closed:
            self._transport.write(piece)

    def close(self) -> None:
        """The client is gone; what it has sent leaves yet."""
        if self._closed:
            return
        self._closed = True
        if self._ends is not None:
            self._ends.cancel()
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(LINGERS_S, self._transport.abort)
        for each in self._pending:
            if each.answer is not None:
                each.answer.cancel()
        self._pending.clear()

    def ends_at(self, when_s: float | None) -> None:
        """By the loop's clock: when the client is told that its login ends; None: that does not end."""
        if when_s is not None and not self._closed:
            self._ends = asyncio.get_running_loop().call_at(when_s, self._client.leg_ends, self)

    def failed(self, why: str) -> None:
        """It could not be made, or ended."""
        if not self._closed:
            self._client.leg_lost(self, why)
            self.close()

    def resume_reading(self) -> None:
        """It may be its turn now, or the client reads again."""
        if self._kept and not self._client.choked and self._editing is None:
            data, self._kept = self._kept, b""
            self._cut_frames(data)
        self.rest()

    def rest(self) -> None:
        """Read from the upstream, or not for now."""
        rest = bool(self._kept) or self._client.choked or self._editing is not None
        if rest != self._resting and self._transport is not None and not self._closed:
            self._resting = rest
            (self._transport.pause_reading if rest else self._transport.resume_reading)()

    # -- asyncio.Protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=HIGH, low=LOW)
        unsent, self._unsent = self._unsent, []
        for piece in unsent:
            self._transport.write(piece)
        if self._closed:
            self._transport.close()
            return
        self._client.leg_stands(self)
        self.rest()

    def data_received(self, data: bytes) -> None:
        self._traffic.down += len(data)
        if self._kept or self._editing is not None:
            self._kept += data
        else:
            self._cut_frames(data)
            if self._kept or self._editing is not None:
                self.rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self.failed(f"{self.where} closed the connection" + (f": {exc}" if exc is not None else ""))

    def pause_writing(self) -> None:
        self._client.leg_full(True)

    def resume_writing(self) -> None:
        self._client.leg_full(False)

    # -- answers ----------------------------------------------------------------------------------------------------

    def _cut_frames(self, data: bytes) -> None:
        try:
            self._cut(data)
        except MalformedFrame as error:
            self.failed(f"{self.where} sent an invalid answer: {error}")

    def _cut(self, data: bytes) -> None:
        if self._carry:
            data, self._carry = self._carry + data, b""
        at, end = 0, len(data)
        while at < end and not self._closed:
            if not self._left:
                if end - at < HEADER_BYTES:
                    self._carry = data[at:]
                    return
                expected = self._next(*ANSWER.unpack_from(data, at))
                if expected.slot is not None and not self._client.is_due(expected.slot):
                    self._kept = data[at:]
                    return
                passes = expected.slot is not None and expected.edit is None
                self._gathered, self._tried = None if passes else bytearray(), 0
                self._left = ANSWER.unpack_from(data, at)[0] + LENGTH_BYTES
            size = min(self._left, end - at)
            piece = data if size == len(data) else memoryview(data)[at : at + size]
            at += size
            self._left -= size
            if self._gathered is None:
                self._client.pass_on(piece)
            else:
                self._gather(piece)
                if self._editing is not None:
                    self._kept = data[at:]
                    return
            if not self._left:
                self._finish()

    def _next(self, size: int, correlation: int) -> ExpectedAnswer:
        """The answer that begins here. Raises MalformedFrame."""
        if not self._pending:
            raise MalformedFrame("nothing was asked")
        expected = self._pending[0]
        if correlation != expected.correlation:
            raise MalformedFrame(f"correlation id {correlation}; expected {expected.correlation}")
        if size < LENGTH_BYTES:
            raise MalformedFrame(f"an answer of {size} bytes; expected at least {LENGTH_BYTES}")
        if size > MOST_HELD and (expected.slot is None or expected.edit is not None):
            raise MalformedFrame(f"an answer of {size} bytes that is to be read; at most {MOST_HELD} are")
        return expected

    def _gather(self, piece: Buffer) -> None:
        """Of an answer that is read. Once it is rewritten the rest of it streams by.

        What is there is shown once it is twice as much as the last time: it is copied for that.
        """
        expected, gathered = self._pending[0], self._gathered
        assert gathered is not None
        gathered += piece
        if expected.edit is None or len(gathered) < HEADER_BYTES + expected.tagged:
            return
        if self._left and len(gathered) < 2 * self._tried:
            return
        self._tried = len(gathered)
        head = behind_tags(gathered) if expected.tagged else HEADER_BYTES
        body = bytes(gathered[head:])
        if self._left or len(body) <= AT_ONCE:
            self._edited(head, expected.edit(body, not self._left))
            return
        self._editing = asyncio.get_running_loop().run_in_executor(None, expected.edit, body, True)
        self._editing.add_done_callback(partial(self._edited_aside, head))

    def _edited(self, head: int, edited: Edited | None) -> None:
        """This stands in place of what begins behind the header; None: there is more of it to be seen."""
        gathered = self._gathered
        if edited is None or gathered is None:
            return
        was, correlation = ANSWER.unpack_from(gathered)
        size = was - edited.consumed + len(edited.new)
        start = ANSWER.pack(size, correlation) + gathered[HEADER_BYTES:head] + edited.new
        self._client.pass_on(start + gathered[head + edited.consumed :])
        self._gathered = None

    def _edited_aside(self, head: int, editing: "asyncio.Future[Edited | None]") -> None:
        self._editing = None
        if self._closed:
            return
        try:
            self._edited(head, editing.result())
            self._finish()
        except MalformedFrame as error:
            self.failed(f"{self.where} sent an invalid answer: {error}")
        except Exception as error:
            log.error("an answer could not be rewritten", where=self.where, exc_info=error)
            self.failed("an answer could not be rewritten")
        self.resume_reading()

    def _finish(self) -> None:
        expected = self._pending.popleft()
        if expected.slot is not None:
            if self._gathered is not None:
                raise MalformedFrame("an answer ends before all of it is there that has to be read")
            self._client.passed(expected.slot)
        elif expected.answer is not None and not expected.answer.done():
            assert self._gathered is not None
            expected.answer.set_result(bytes(self._gathered[LENGTH_BYTES:]))
        self._gathered = None


def behind_tags(answer: bytearray) -> int:
    """Where an answer's body begins, behind the tagged fields of its header. Raises MalformedFrame."""
    try:
        return skip_tags(answer, HEADER_BYTES, len(answer), MOST_TAGS)[0]
    except (IndexError, DecodeFailure) as error:
        raise MalformedFrame(f"an answer's header: {error}") from None


OpensBrokerConnection = Callable[[BrokerConnection], None]
"""Begins to make a leg's connection: it is told by `connection_made`, or by `failed`."""


# Opening these connections
# -------------------------

LOOKS_S: Final = 1.0
"""Who the brokers are is asked for at most so often when a client wants one that is not there."""


class BrokerConnector:
    """`upstream` knows who the brokers are. logged_in: as whom connections are let in there before anything of a client
    passes; None: clients show that themselves, where anybody asks."""

    def __init__(self, upstream: Upstream, logged_in: UpstreamAddress | None = None) -> None:
        self._upstream = upstream
        self._logged_in = logged_in
        self._tasks = SupervisedTasks()
        self._looked_s = -LOOKS_S
        self._turn = 0

    def to(self, broker: int) -> tuple[str, OpensBrokerConnection]:
        """Raises HangUp where there is no such broker."""
        address = self._upstream.view.brokers.get(broker)
        if address is None:
            self._refresh_if_due()
            raise HangUp(f"the upstream has no broker {broker}, as far as is known")
        return f"broker {broker} of the upstream", lambda leg: self._start_connecting(leg, [address])

    def to_any(self) -> tuple[str, OpensBrokerConnection]:
        """Each time another one comes first; those that could not be reached last come last."""
        upstream = self._upstream
        found = list(dict.fromkeys((*upstream.view.brokers.values(), *upstream.reach.servers)))
        self._turn = (self._turn + 1) % len(found)
        found = found[self._turn :] + found[: self._turn]
        return "the upstream", lambda leg: self._start_connecting(leg, sorted(found, key=upstream.lines.failures))

    def close(self) -> None:
        self._tasks.stop()

    def _start_connecting(self, leg: BrokerConnection, addresses: list[Address]) -> None:
        self._tasks.start(self._connect(leg, addresses), "connections of clients to the upstream")

    async def _connect(self, leg: BrokerConnection, addresses: list[Address]) -> None:
        why = ""
        for address in addresses:
            try:
                await self._to_address(leg, address)
                return
            except TimeoutError:
                why = f"{describe_address(address)} cannot be reached within {self._upstream.reach.connect_s:g} s"
            except OSError as error:  # ssl.SSLError is one
                why = f"{describe_address(address)} cannot be reached: {error.strerror or error}"
            except UpstreamError as error:
                why = str(error)
            except Exception as error:  # its client must not wait for ever
                leg.failed(f"{describe_address(address)} cannot be reached: {error!r}")
                raise
        self._refresh_if_due()
        leg.failed(why)

    async def _to_address(self, leg: BrokerConnection, address: Address) -> None:
        if self._logged_in is not None:
            line = await open_connection(address, self._logged_in)
            line.hand_over(leg)
            leg.ends_at(line.stale_s)
            return
        reach = self._upstream.reach
        tls = None if reach.certificates is None else reach.certificates.context()
        async with asyncio.timeout(reach.connect_s):
            await asyncio.get_running_loop().create_connection(
                lambda: leg, *address, ssl=tls, server_hostname=None if tls is None else address.host
            )

    def _refresh_if_due(self) -> None:
        """A broker may have come, or moved."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_s >= LOOKS_S:
            self._looked_s = loop.time()
            self._tasks.start(self._refresh(), "search for brokers of the upstream")

    async def _refresh(self) -> None:
        try:
            await self._upstream.refresh([])
        except UpstreamError:
            return  # Its own failures tell of that.
