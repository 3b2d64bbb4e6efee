"""The gRPC server of a node: its options, its port, its TLS credentials, health and reflection.

Health and reflection come from gRPC's own packages and are no rows of the dispatch table, so they are wrapped to ask
who calls. Credentials are looked up for each handshake, so that certificates change without a restart. Why an address
cannot be listened on is found out by a probe, since grpcio does not say.
"""

import errno
import inspect
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from muster.coordinator.config.values import format_address
from muster.coordinator.edge.listener_base import Authenticator
from muster.coordinator.errors import NotAuthenticated
from muster.coordinator.server.grpc import adapter
from muster.coordinator.server.grpc.adapter import Context, GrpcMethods, abort_call, identify_caller

# Health and reflection for known callers
# ---------------------------------------

Serve = Callable[[Any, Any], Any]


class AuthenticatedHandlers(grpc.GenericRpcHandler):
    """The same methods, for those who have shown who they are."""

    def __init__(self, inner: grpc.GenericRpcHandler, gate: Authenticator) -> None:
        self._inner = inner
        self._gate = gate

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        handler = self._inner.service(handler_call_details)
        if handler is None:
            return None
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._one(handler.unary_unary), **coders)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._many(handler.unary_stream), **coders)
        assert handler.stream_stream is not None, f"{handler_call_details.method} streams requests only"
        return grpc.stream_stream_rpc_method_handler(self._many(handler.stream_stream), **coders)

    def _one(self, serve: Serve) -> Serve:
        async def served(request: Any, context: Context) -> Any:
            try:
                await identify_caller(self._gate, context)
            except NotAuthenticated as error:
                ending = adapter.unauthenticated_status(error)
            else:
                return await serve(request, context)
            return await abort_call(context, ending)

        return served

    def _many(self, serve: Serve) -> Serve:
        async def served(request: Any, context: Any) -> None:
            try:
                async with self._gate.lasting(await identify_caller(self._gate, context)):
                    answers = serve(request, context)
                    if inspect.isasyncgen(answers):
                        async for answer in answers:
                            await context.write(answer)
                    else:
                        await answers
            except NotAuthenticated as error:
                ending = adapter.unauthenticated_status(error)
            else:
                return
            await abort_call(context, ending)

        return served


STATUS_SERVING = health_pb2.HealthCheckResponse.SERVING
STATUS_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class AddressTaken(Exception):
    """The address cannot be listened on; the text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """What one server bears. Times in milliseconds."""

    max_message_bytes: int
    max_pending_calls: int
    max_streams_per_connection: int
    keepalive_time_ms: int
    keepalive_timeout_ms: int
    min_ping_interval_ms: int
    setup_timeout_ms: int = 10_000
    """For TLS, and for HTTP/2 to be agreed on."""

    def options(self) -> list[tuple[str, Any]]:
        """Channel arguments for grpcio. Two documented names do nothing; the ones that work stand here.

        - A second server on the same port must fail, so the port is not shared.
        - Calls that the application has not accepted yet are thrown away at random above `max_pending_requests`, with
          the misleading status CANCELLED; a burst of joins is no reason for that.
        - `keepalive_timeout_ms` is overridden by the 60 s of `http2.ping_timeout_ms`, so both are set.
        - The interval at which clients may ping goes by the name `min_ping_interval_without_data_ms`.
        """
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.server.max_pending_requests", self.max_pending_calls),
            ("grpc.server.max_pending_requests_hard_limit", 2 * self.max_pending_calls),
            ("grpc.max_concurrent_streams", self.max_streams_per_connection),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.server_handshake_timeout_ms", self.setup_timeout_ms),
            ("grpc.keepalive_time_ms", self.keepalive_time_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.ping_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", self.min_ping_interval_ms),
            ("grpc.http2.max_ping_strikes", 3),
        ]


class GenericOnly:
    """Stands in for the server where generated code registers its methods: only the generic handler gets through.

    With a gate it asks who calls first.
    """

    def __init__(self, server: grpc.aio.Server, gate: Authenticator | None) -> None:
        self._server = server
        self._gate = gate

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        if self._gate is not None:
            handlers = [AuthenticatedHandlers(handler, self._gate) for handler in handlers]
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Left out on purpose: see muster.coordinator.server.grpc.adapter."""


class GrpcListener:
    """A bound port, then a running server. `services` are the full names that health and reflection speak of."""

    def __init__(self, limits: TransportLimits, services: Sequence[str]) -> None:
        self._server = grpc.aio.server(options=limits.options())
        self._services = tuple(services)
        self._health = health.aio.HealthServicer()

    def bind(self, host: str, port: int, credentials: grpc.ServerCredentials | None = None) -> int:
        """Take the port (0: any free one) and return it; nobody is answered yet. Raises AddressTaken."""
        find_bind_error(host, port)
        address = format_address(host, port)
        try:
            if credentials is not None:
                return self._server.add_secure_port(address, credentials)
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise AddressTaken(f"cannot listen on {address}: {error}") from error

    async def give_back(self) -> None:
        """Free a port that was bound but never served."""
        # grpcio closes the ports of started servers only.
        await self._server.start()
        await self._server.stop(0)

    async def start(
        self,
        methods: GrpcMethods,
        *,
        health_gate: Authenticator | None = None,
        reflection_gate: Authenticator | None = None,
    ) -> None:
        """Answer calls, and report SERVING. The gates, where there are any, ask who asks for health and reflection."""
        self._server.add_generic_rpc_handlers((methods,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, GenericOnly(self._server, health_gate))
        names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection.aio.ReflectionServicer(names), GenericOnly(self._server, reflection_gate)
        )
        for service in self._services:
            await self._health.set(service, STATUS_SERVING)
        await self._server.start()

    async def report(self, service: str, serving: bool) -> None:
        """Say of one service, or of something the node leans on, whether it serves."""
        await self._health.set(service, STATUS_SERVING if serving else STATUS_NOT_SERVING)

    async def announce_shutdown(self) -> None:
        """Report NOT_SERVING to whoever asks or watches; calls are still answered."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Close the port; calls still under way after the grace are cancelled."""
        await self._server.stop(grace_s)


def find_bind_error(host: str, port: int) -> None:
    """Find out why an address cannot be listened on, which grpcio does not tell. Raises AddressTaken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(address)
    except OSError as error:
        raise AddressTaken(f"cannot listen on {host}:{port}: {describe_remedy(error)}") from error


def describe_remedy(error: OSError, setting: str = "listeners") -> str:
    """What is wrong with the address, and what to do about the setting that names it."""
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"another process listens there; stop it, or choose another port in '{setting}' (0 takes any free one)"
            )
        case errno.EACCES:
            return f"this user may not use the port; choose one above 1023 in '{setting}'"
        case errno.EADDRNOTAVAIL:
            return f"the host is none of this machine's addresses; name one of them in '{setting}', or 0.0.0.0 for all"
    return f"{error.strerror}; expected a host and port of this machine in '{setting}'"


# TLS credentials
# ---------------


class GrpcTlsMaterial(Protocol):
    """All as PEM."""

    @property
    def chain(self) -> bytes: ...

    @property
    def key(self) -> bytes: ...

    @property
    def trusted(self) -> bytes: ...


def make_server_credentials(current: Callable[[], GrpcTlsMaterial], *, asks: bool) -> grpc.ServerCredentials:
    """`current` is what is shown now, called in threads of gRPC's; `asks`: clients have to show a certificate."""
    told = current()

    def fetch() -> Any:
        nonlocal told
        now = current()
        if now is told:
            return None  # as before
        told = now
        return make_certificate_configuration(now)

    return grpc.dynamic_ssl_server_credentials(
        make_certificate_configuration(told), fetch, require_client_authentication=asks
    )


def make_certificate_configuration(shown: GrpcTlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(shown.key, shown.chain)], root_certificates=shown.trusted or None
    )
