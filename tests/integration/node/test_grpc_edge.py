"""The gRPC edge by behaviour: how calls end, and the traps of grpcio that its options and registration avoid."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.grpc.adapter import DETAILS_KEY, GrpcMethods
from muster.coordinator.server.grpc.listener import AddressTaken, GrpcListener, TransportLimits, find_bind_error
from muster.coordinator.server.rpc_dispatch import MethodKind, RpcCall, ServiceMethod
from tests.support import stubs as pb_grpc

pytestmark = pytest.mark.integration

HEARTBEAT = "/coordinator.rpc.v1.GroupCoordinator/Heartbeat"
WATCH = "/coordinator.rpc.v1.GroupCoordinator/WatchGroup"
QUICK = TransportLimits(
    max_message_bytes=1 << 20,
    max_pending_calls=20_000,
    max_streams_per_connection=10_000,
    keepalive_time_ms=1_000,
    keepalive_timeout_ms=1_000,
    min_ping_interval_ms=500,
)
Run = Callable[[Callable[[], Any]], None]


@dataclass
class Handlers:
    """Answers each heartbeat as its group id asks; a watch goes on until its client is gone."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    watching: asyncio.Event = field(default_factory=asyncio.Event)
    watch_ended: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[RpcCall] = field(default_factory=list)
    arrived: int = 0

    async def heartbeat(self, request: pb.HeartbeatRequest, call: RpcCall) -> pb.HeartbeatResponse:
        self.arrived += 1
        match request.group_id:
            case "malformed":
                raise MalformedGroupRequest("group_id is 'malformed'; expected anything else")
            case "overloaded":
                raise Overloaded("the node is full; try again shortly", retry_after_ms=250)
            case "bug":
                raise ZeroDivisionError("secret")
            case "wait":
                self.waiting.set()
                await self.release.wait()
            case "large":
                return pb.HeartbeatResponse(error_message="x" * (2 << 20))
        self.calls.append(call)
        return pb.HeartbeatResponse(error_message=f"{call.peer_host} {call.metadata.get('x-who', '')}")

    async def watch_group(self, request: pb.WatchGroupRequest, call: RpcCall) -> AsyncIterator[pb.WatchGroupResponse]:
        try:
            yield pb.WatchGroupResponse(group_id=request.group_id)
            self.watching.set()
            await asyncio.Event().wait()
        finally:
            self.watch_ended.set()


@dataclass
class Edge:
    handlers: Handlers
    methods: GrpcMethods
    listener: GrpcListener
    port: int

    @asynccontextmanager
    async def channel(self, options: Sequence[tuple[str, int]] = ()) -> AsyncIterator[grpc.aio.Channel]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
            yield channel


@asynccontextmanager
async def edge(limits: TransportLimits = QUICK, spare_methods: int = 0) -> AsyncIterator[Edge]:
    handlers = Handlers()
    beat = ServiceMethod(HEARTBEAT, MethodKind.UNARY, pb.HeartbeatRequest, pb.HeartbeatResponse, handlers.heartbeat)
    table = {
        HEARTBEAT: beat,
        WATCH: ServiceMethod(
            WATCH, MethodKind.SERVER_STREAM, pb.WatchGroupRequest, pb.WatchGroupResponse, handlers.watch_group
        ),
    }
    spares = (f"{HEARTBEAT}{number}" for number in range(spare_methods))
    methods = GrpcMethods(table | {name: replace(beat, full_name=name) for name in spares}, (MalformedGroupRequest,))
    listener = GrpcListener(limits, [""])
    port = listener.bind("127.0.0.1", 0)
    await listener.start(methods)
    try:
        yield Edge(handlers, methods, listener, port)
    finally:
        handlers.release.set()
        await listener.stop(0)


def details(error: grpc.aio.AioRpcError, *kinds: type[Message]) -> list[Message]:
    """The google.rpc details of a status, which must be of these types."""
    packed = dict(error.trailing_metadata())[DETAILS_KEY]
    status = status_pb2.Status.FromString(packed)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    return [unpacked(box, kind) for box, kind in zip(status.details, kinds, strict=True)]


def unpacked(box: AnyMessage, kind: type[Message]) -> Message:
    message = kind()
    assert box.Unpack(message), f"{box.type_url} is no {kind.DESCRIPTOR.full_name}"
    return message


async def refused(channel: grpc.aio.Channel, group_id: str) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await pb_grpc.GroupCoordinatorStub(channel).Heartbeat(pb.HeartbeatRequest(group_id=group_id))
    return refusal.value


def test_a_handler_sees_who_calls(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            stub = pb_grpc.GroupCoordinatorStub(channel)
            answer = await stub.Heartbeat(pb.HeartbeatRequest(), metadata=(("x-who", "me"),))
            assert answer.error_message == "127.0.0.1 me"
            assert served.handlers.calls[0].client_software == f"grpc-python-asyncio {grpc.__version__}"

    run(story)


def test_a_malformed_request_is_an_invalid_argument_with_details(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            error = await refused(channel, "malformed")
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error.details() == "group_id is 'malformed'; expected anything else"
            info, bad = details(error, error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)
            assert (info.reason, info.domain) == ("MALFORMED_REQUEST", "coordinator.rpc.v1")
            assert [(v.field, v.description) for v in bad.field_violations] == [("group_id", error.details())]

    run(story)


def test_bytes_that_are_no_message_are_the_clients_fault(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await channel.unary_unary(HEARTBEAT)(b"\xff\xff\xff")
            assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert refusal.value.details() == "the bytes sent are no coordinator.rpc.v1.HeartbeatRequest"

    run(story)


def test_a_reached_limit_says_when_to_try_again(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            error = await refused(channel, "overloaded")
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            _, retry = details(error, error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo)
            assert retry.retry_delay.ToMilliseconds() == 250

    run(story)


def test_a_bug_leaks_nothing_but_a_reference_into_the_log(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            error = await refused(channel, "bug")
            assert error.code() is grpc.StatusCode.INTERNAL
            (info,) = details(error, error_details_pb2.ErrorInfo)
            assert "secret" not in error.details()
            printed = "".join(capsys.readouterr())
            assert "ZeroDivisionError: secret" in printed
            assert info.metadata["reference"] in printed
            assert served.methods.stats[HEARTBEAT].refused == {"INTERNAL": 1}

    run(story)


def test_messages_above_the_limit_are_refused_both_ways(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            assert (await refused(channel, "x" * (2 << 20))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert served.handlers.arrived == 0
            assert (await refused(channel, "large")).code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(story)


def test_an_unknown_method_is_unimplemented(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await channel.unary_unary("/coordinator.rpc.v1.GroupCoordinator/Nonsense")(b"")
            assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED

    run(story)


def test_a_burst_of_two_thousand_waiting_calls_is_answered_whole(run: Run) -> None:
    """By default grpcio throws away calls at random above 1,000 pending ones, with the status CANCELLED."""

    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            stub = pb_grpc.GroupCoordinatorStub(channel)
            calls = [stub.Heartbeat(pb.HeartbeatRequest(group_id="wait")) for _ in range(2_000)]
            served.handlers.release.set()
            answers = await asyncio.gather(*calls)
            assert len(answers) == 2_000
            assert served.methods.stats[HEARTBEAT].finished == 2_000
            assert served.methods.in_flight == 0

    run(story)


FROZEN_CLIENT = """
import asyncio, sys, grpc
from coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support import stubs as pb_grpc

async def main():
    async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
        stream = pb_grpc.GroupCoordinatorStub(channel).WatchGroup(pb.WatchGroupRequest(group_id="g"))
        await stream.read()
        print("watching", flush=True)
        await stream.read()

asyncio.run(main())
"""


def test_a_frozen_peer_is_noticed(run: Run) -> None:
    """`keepalive_timeout_ms` alone does nothing before 60 s; the ping timeout is what counts."""

    async def story() -> None:
        async with edge() as served:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", FROZEN_CLIENT, f"127.0.0.1:{served.port}", stdout=asyncio.subprocess.PIPE
            )
            try:
                assert child.stdout is not None
                assert await child.stdout.readline() == b"watching\n"
                await served.handlers.watching.wait()
                os.kill(child.pid, signal.SIGSTOP)
                async with asyncio.timeout(15):
                    await served.handlers.watch_ended.wait()
                    await served.methods.quiet()
                assert served.methods.stats[WATCH].refused == {"CANCELLED": 1}
            finally:
                child.kill()
                await child.wait()

    run(story)


def test_clients_may_ping_as_often_as_the_limit_says(run: Run) -> None:
    """The option's name in grpcio's documentation does nothing; an idle stream then ends with "too many pings".

    Two servers with the same eager client: by the time the strict one has hung up, the lenient one has not.
    """
    eager = [
        ("grpc.keepalive_time_ms", 1_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    patient = replace(QUICK, keepalive_time_ms=60_000)

    async def story() -> None:
        async with (
            edge(replace(patient, min_ping_interval_ms=500)) as lenient,
            edge(replace(patient, min_ping_interval_ms=60_000)) as strict,
            lenient.channel(eager) as to_lenient,
            strict.channel(eager) as to_strict,
        ):
            kept = pb_grpc.GroupCoordinatorStub(to_lenient).WatchGroup(pb.WatchGroupRequest())
            lost = pb_grpc.GroupCoordinatorStub(to_strict).WatchGroup(pb.WatchGroupRequest())
            await asyncio.gather(kept.read(), lost.read())
            assert await lost.code() is grpc.StatusCode.UNAVAILABLE
            assert not kept.done()
            kept.cancel()

    run(story)


def test_a_second_server_on_the_same_port_is_refused(run: Run) -> None:
    """grpcio shares ports by default, and a second server would take half of the connections."""

    async def story() -> None:
        async with edge() as served:
            with pytest.raises(AddressTaken, match=rf"cannot listen on 127\.0\.0\.1:{served.port}: another process"):
                GrpcListener(QUICK, [""]).bind("127.0.0.1", served.port)
            with pytest.raises(RuntimeError, match="Failed to bind"):
                grpc.aio.server().add_insecure_port(f"127.0.0.1:{served.port}")

    run(story)


async def futures_waited_on(methods: int, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """How many futures grpcio's server loop looks at for each call it accepts, when there are so many methods."""
    sizes: set[int] = set()
    real_wait = asyncio.wait

    async def counting_wait(futures: Any, **options: Any) -> Any:
        waited_on = list(futures)
        sizes.add(len(waited_on))
        return await real_wait(waited_on, **options)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "wait", counting_wait)
        async with edge(spare_methods=methods) as served, served.channel() as channel:
            for _ in range(10):
                await pb_grpc.GroupCoordinatorStub(channel).Heartbeat(pb.HeartbeatRequest())
    return sizes


def test_accepting_a_call_costs_the_same_however_many_methods_there_are(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With registered methods grpcio waits on one future per method for every call that it accepts."""

    async def story() -> None:
        few = await futures_waited_on(0, monkeypatch)
        many = await futures_waited_on(60, monkeypatch)
        assert few == many

    run(story)


def test_draining_refuses_new_calls_and_lets_the_others_finish(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            stub = pb_grpc.GroupCoordinatorStub(channel)
            under_way = asyncio.ensure_future(stub.Heartbeat(pb.HeartbeatRequest(group_id="wait")))
            await served.handlers.waiting.wait()
            served.methods.drain()
            error = await refused(channel, "late")
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert error.details() == "the node is shutting down; find the coordinator again"
            quiet = asyncio.ensure_future(served.methods.quiet())
            assert not under_way.done()
            served.handlers.release.set()
            assert (await under_way).error_message == "127.0.0.1 "
            await quiet
            assert served.methods.in_flight == 0

    run(story)


def test_health_turns_to_not_serving_before_the_port_closes(run: Run) -> None:
    async def story() -> None:
        async with edge() as served, served.channel() as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            await served.listener.announce_shutdown()
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            check = await stub.Check(health_pb2.HealthCheckRequest(service=""))
            assert check.status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()

    run(story)


@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("192.0.2.1", 0, "the host is none of this machine's addresses"),
        ("no.such.host.invalid", 9290, "expected a host"),
    ],
)
def test_an_address_that_cannot_be_used_is_explained(host: str, port: int, why: str) -> None:
    with pytest.raises(AddressTaken, match=f"cannot listen on {host}:{port}: .*{why}"):
        find_bind_error(host, port)


def test_a_connection_has_so_many_calls_under_way_and_others_do_not_wait_for_the_rest(run: Run) -> None:
    """What a flood has under way is what others wait for, since calls are taken in their order."""

    async def story() -> None:
        async with edge(replace(QUICK, max_streams_per_connection=3)) as server, server.channel() as channel:
            ask = channel.unary_unary(HEARTBEAT)
            await ask(pb.HeartbeatRequest().SerializeToString())  # the connection has been told its limit
            flood = [ask(pb.HeartbeatRequest(group_id="wait").SerializeToString()) for _ in range(10)]
            await server.handlers.waiting.wait()
            async with server.channel([("grpc.use_local_subchannel_pool", 1)]) as other:
                for _ in range(10):
                    await other.unary_unary(HEARTBEAT)(pb.HeartbeatRequest().SerializeToString())
            assert server.handlers.arrived == 1 + 3 + 10
            server.handlers.release.set()
            for each in await asyncio.gather(*flood, return_exceptions=True):
                refused = isinstance(each, grpc.aio.AioRpcError)
                assert not refused or each.code() is grpc.StatusCode.UNAVAILABLE, "safe to send again"

    run(story)
