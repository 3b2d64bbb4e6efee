"""Whose call it is, where many come at once by one connection: it is noted when grpcio asks for a call's handler."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.state import SecurityRecord, SecurityState
from muster.coordinator.server.grpc.adapter import GrpcMethods
from muster.coordinator.server.rpc_dispatch import MethodKind, RpcCall, ServiceMethod
from muster.coordinator.server.security.authentication import CallerAuthenticator
from tests.integration.conftest import Run
from tests.support.logins import api_token, bearer

pytestmark = pytest.mark.integration
NAME = "/coordinator.rpc.v1.GroupCoordinator/Heartbeat"


async def whose(request: pb.HeartbeatRequest, call: RpcCall) -> pb.HeartbeatResponse:
    await asyncio.sleep(0)
    return pb.HeartbeatResponse(error_message=str(call.identity.principal))


@asynccontextmanager
async def served(gate: CallerAuthenticator) -> AsyncIterator[grpc.aio.Channel]:
    method = ServiceMethod(NAME, MethodKind.UNARY, pb.HeartbeatRequest, pb.HeartbeatResponse, whose)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((GrpcMethods({NAME: method}, (), gate=gate),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(0)


async def told(call: Any) -> str:
    try:
        return str(pb.HeartbeatResponse.FromString(await call).error_message)
    except grpc.aio.AioRpcError as error:
        return error.code().name


def test_each_of_many_calls_on_one_connection_is_its_own_caller_s(run: Run) -> None:
    """The headers of all are there before the message of any."""

    async def story() -> None:
        state, shown = SecurityState(), {"UNAUTHENTICATED": bearer("muster_wrong")}
        for number in range(1, 4):
            token, change = api_token(number, f"User:{number}")
            shown[f"User:{number}"] = bearer(token)
            state.apply([change])
        gate = CallerAuthenticator(state)

        async def all_at_once(channel: grpc.aio.Channel, *strangers: str) -> dict[str, str]:
            begun: dict[str, Any] = {who: channel.stream_unary(NAME)(metadata=shown[who]) for who in shown}
            await told(
                channel.unary_unary(NAME)(b"", metadata=shown["User:1"])
            )  # nobody's headers are to come any more
            for who in begun.keys() - set(
                strangers
            ):  # who are refused before that; gRPC calls it INTERNAL to write then
                await begun[who].write(b"")
                await begun[who].done_writing()
            return {who: await told(call) for who, call in begun.items()}

        async with served(gate) as channel:
            known = {who for who in shown if who.startswith("User")}
            assert {await told(channel.unary_unary(NAME)(b"", metadata=shown[who])) for who in known} == known
            answers = await all_at_once(channel, "UNAUTHENTICATED")
            assert answers == {who: who for who in shown}
            state.apply([SecurityRecord(change.key, None)])
            gate.changed()
            answers = await all_at_once(channel, "UNAUTHENTICATED", "User:3")
            assert answers == {who: who for who in shown} | {"User:3": "UNAUTHENTICATED"}

    run(story)
