"""Channels to nodes: made on first use, kept, reconnected by gRPC; calls with deadlines, retried where that is safe.

Lives on one event loop. Channel options are the ones whose effect was measured: without `http2.ping_timeout_ms` a
frozen node would be noticed only after a minute.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from coordinator.client.config import ClientConfig
from coordinator.client.errors import IllegalState, TransportRefused, Unreachable, WrongProcess
from coordinator.client.methods import Method
from coordinator.member.backoff import Backoff

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        # A server in a storm cancels calls that it has not accepted yet.
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
MAX_CHANNELS = 256


def channel_options(config: ClientConfig) -> list[tuple[str, Any]]:
    return [
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", config.reconnect_backoff_ms),
        ("grpc.min_reconnect_backoff_ms", config.reconnect_backoff_ms),
        ("grpc.max_reconnect_backoff_ms", max(config.reconnect_backoff_max_ms, config.reconnect_backoff_ms)),
        ("grpc.max_receive_message_length", config.receive_message_max_bytes),
        ("grpc.max_send_message_length", config.receive_message_max_bytes),
        # Nodes are inside the network; a web proxy of the environment is not the way to them.
        ("grpc.enable_http_proxy", 0),
    ]


def now_ms() -> int:
    """This process's steady clock; never compared with another process's."""
    return time.monotonic_ns() // 1_000_000


class Transport:
    """The calls of one client. `close()` it on the loop that used it."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._pid = os.getpid()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[tuple[str, str], Callable[..., Any]] = {}
        self._servers = config.servers
        self._closed = False

    @property
    def bootstrap(self) -> str:
        """The bootstrap server in use; the next one after a failure."""
        return self._servers[0]

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        doing: str,
        address: str | None = None,
        timeout_ms: int | None = None,
    ) -> Response:
        """One attempt. Unreachable when trying again may help, TransportRefused when not."""
        target = address or self.bootstrap
        patience_ms = timeout_ms or self.config.request_timeout_ms
        started_ms = now_ms()
        call = self._stub(target, method)(request, timeout=patience_ms / 1000)
        try:
            return await call  # type: ignore[no-any-return]
        except grpc.aio.AioRpcError as error:
            raise self.translated(error, target, doing, now_ms() - started_ms) from None
        finally:
            if not call.done():
                call.cancel()

    async def retried(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        doing: str,
        address: str | None = None,
        timeout_ms: int | None = None,
    ) -> Response:
        """Attempts with back-off until `timeout_ms` (default.api.timeout.ms). Only for idempotent calls."""
        if not method.idempotent:
            return await self.call(method, request, doing=doing, address=address, timeout_ms=timeout_ms)
        started_ms = now_ms()
        deadline_ms = started_ms + (timeout_ms or self.config.default_api_timeout_ms)
        backoff = self.backoff()
        while True:
            left_ms = max(1, deadline_ms - now_ms())
            attempt_ms = min(left_ms, self.config.request_timeout_ms)
            try:
                return await self.call(method, request, doing=doing, address=address, timeout_ms=attempt_ms)
            except Unreachable as error:
                wait_ms = backoff.next_ms()
                if now_ms() + wait_ms >= deadline_ms:
                    raise Unreachable(error.address, now_ms() - started_ms, doing) from error
                await asyncio.sleep(wait_ms / 1000)

    async def stream(
        self, method: Method[Request, Response], request: Request, *, doing: str, address: str | None = None
    ) -> AsyncIterator[Response]:
        """The answers of a server stream, until either side ends it."""
        target = address or self.bootstrap
        started_ms = now_ms()
        call = self._stub(target, method, streaming=True)(request)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self.translated(error, target, doing, now_ms() - started_ms) from None
        finally:
            call.cancel()

    def converse(
        self, method: Method[Request, Response], address: str
    ) -> "grpc.aio.StreamStreamCall[Request, Response]":
        """A stream both ways; whoever asked for it ends it. Errors come as gRPC's: see `translated`."""
        self._usable(method)
        make: Callable[..., Any] = self._channel(address).stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return make()  # type: ignore[no-any-return]

    def backoff(self) -> Backoff:
        return Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)

    async def close(self) -> None:
        self._closed = True
        channels, self._channels = self._channels, {}
        self._stubs.clear()
        for channel in channels.values():
            await channel.close()

    def _stub(self, address: str, method: Method[Any, Any], streaming: bool = False) -> Callable[..., Any]:
        self._usable(method)
        key = (address, method.path)
        if key not in self._stubs:
            channel = self._channel(address)
            make: Callable[..., Any] = channel.unary_stream if streaming else channel.unary_unary
            self._stubs[key] = make(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return self._stubs[key]

    def _usable(self, method: Method[Any, Any]) -> None:
        if self._closed:
            raise IllegalState(f"{method.name}: this client is closed")
        if os.getpid() != self._pid:
            raise WrongProcess("gRPC does not survive a fork: create the client in the process that uses it")

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            if len(self._channels) >= MAX_CHANNELS:
                raise IllegalState(f"one client talks to at most {MAX_CHANNELS} nodes; {address} would be one more")
            self._channels[address] = grpc.aio.insecure_channel(address, options=channel_options(self.config))
        return self._channels[address]

    def translated(self, error: grpc.aio.AioRpcError, address: str, doing: str, waited_ms: int) -> Exception:
        status, detail = error.code(), error.details() or ""
        too_large = status is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in detail
        if status not in TRANSIENT or too_large:
            return TransportRefused(address, doing, status.name, detail)
        if address == self._servers[0] and len(self._servers) > 1:
            self._servers.append(self._servers.pop(0))
        return Unreachable(address, waited_ms, doing, f"{status.name}: {detail}")
