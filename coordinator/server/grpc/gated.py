"""Services of gRPC's own packages, health and reflection, behind a gate: they are no rows of our table."""

import inspect
from collections.abc import Callable
from typing import Any

import grpc

from muster.coordinator.edge.gate import Authenticator
from muster.coordinator.errors import NotAuthenticated
from muster.coordinator.server.grpc import status
from muster.coordinator.server.grpc.adapter import Context, abort_call, identify_caller

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
                ending = status.unauthenticated_status(error)
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
                ending = status.unauthenticated_status(error)
            else:
                return
            await abort_call(context, ending)

        return served
