"""Nodes that are not there: what is said meanwhile, when it ends, and in which words."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import grpc
import pytest

from muster.client.calls import transport as transports
from muster.client.calls.group_calls import MAX_GROUP_ID_CHARS, GroupCalls
from muster.client.calls.methods import METADATA
from muster.client.calls.transport import CallRetry, Transport, describe_outage
from muster.client.config import ClientConfig
from muster.client.errors import ConfigError, Unreachable, WrongPort
from muster.storage.rpc.v1 import broker_service_pb2 as pb

ADDRESS = "10.0.0.1:9290"


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def attempted(address: str, ask: Callable[[Transport], Awaitable[object]]) -> Unreachable:
    """The error of a call that goes on trying for a moment."""
    config = ClientConfig.model_validate(
        {"bootstrap.servers": address, "default.api.timeout.ms": 120, "retry.backoff.ms": 10}
    )

    async def story() -> Unreachable:
        transport = Transport(config)
        try:
            with pytest.raises(Unreachable) as raised:
                await ask(transport)
            return raised.value
        finally:
            await transport.close()

    return asyncio.run(story())


async def list_topics(transport: Transport) -> object:
    return await transport.retried(METADATA, pb.MetadataRequest(all_topics=True), doing="listing topics")


async def find_group(transport: Transport) -> object:
    async def attempt(address: str) -> str:
        return address

    return await GroupCalls(transport, "g").patiently(attempt)


@pytest.mark.parametrize(
    ("ask", "doing"), [(list_topics, "listing topics"), (find_group, "finding the coordinator of group 'g'")]
)
def test_whoever_waits_is_told_once_and_hears_at_the_end_how_long_it_was(
    ask: Callable[[Transport], Awaitable[object]],
    doing: str,
    nobody: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(transports, "QUIET_MS", 0)
    with caplog.at_level(logging.WARNING, "muster.client"):
        error = attempted(nobody, ask)
    assert [record.message for record in caplog.records] == [f"{doing}: {nobody} cannot be reached; trying again"]
    assert error.waited_ms > 0
    assert f"{doing}: no answer from {nobody} for {error.waited_ms} ms (UNAVAILABLE: failed to connect" in str(error)


def test_a_short_silence_is_not_worth_a_word(nobody: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "muster.client"):
        attempted(nobody, list_topics)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("status", "detail", "said"),
    [
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: Connection refused",
            f"asking: {ADDRESS} cannot be reached",
        ),
        (grpc.StatusCode.UNAVAILABLE, "DNS resolution failed for nowhere", f"asking: {ADDRESS} cannot be reached"),
        (grpc.StatusCode.UNAVAILABLE, "errors resolving nowhere:1: []", f"asking: {ADDRESS} cannot be reached"),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", f"asking: the connection to {ADDRESS} broke"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", f"asking: no answer from {ADDRESS} for 70 ms"),
        (grpc.StatusCode.CANCELLED, "", f"asking: {ADDRESS} gave the call up"),
    ],
)
def test_what_happened_is_said_as_far_as_it_is_known(status: grpc.StatusCode, detail: str, said: str) -> None:
    error = Unreachable(ADDRESS, 70, "asking", detail, describe_outage(status, detail, ADDRESS))
    assert error.brief == said
    assert str(error).startswith(said)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "takes connections, but what listens there does not speak gRPC"),
        (b"\0\0\0\x10\0musabcdefghijkl", "speaks Kafka's protocol and not gRPC"),
    ],
)
def test_a_port_that_is_no_node_s_is_told_at_once_as_what_it_is(answer: bytes, said: str) -> None:
    """The second answers ApiVersions and hangs up on anything else, as a broker does on gRPC's first words."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read(1_000)
        if not answer.startswith(b"\0") or asked[4:6] == b"\0\x12":
            writer.write(answer)
            await writer.drain()
        writer.close()

    async def story() -> WrongPort:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = Transport(ClientConfig.model_validate({"bootstrap.servers": f"127.0.0.1:{port}"}))
        try:
            with pytest.raises(WrongPort, match=rf"^listing topics: 127.0.0.1:{port} {said}") as raised:
                await list_topics(transport)
            return raised.value
        finally:
            await transport.close()
            server.close()

    assert asyncio.run(story()).waited_ms < ClientConfig().default_api_timeout_ms


def test_of_several_servers_one_that_is_none_does_not_end_a_call(nobody: str) -> None:
    """It is announced, and the others are tried as long as there is time."""

    async def story() -> bool:
        transport = Transport(ClientConfig.model_validate({"bootstrap.servers": f"{ADDRESS},{nobody}"}))
        try:
            return await CallRetry(transport).another_try(WrongPort(Unreachable(ADDRESS, 1, "asking"), "is none"))
        finally:
            await transport.close()

    assert asyncio.run(story())


def test_no_time_is_told_where_none_was_waited() -> None:
    assert Unreachable(ADDRESS, 0, "asking").brief == f"asking: no answer from {ADDRESS}"


def test_a_group_id_that_no_node_takes_is_named_shortly() -> None:
    transport = Transport(ClientConfig.model_validate({}))
    GroupCalls(transport, "g" * MAX_GROUP_ID_CHARS)
    with pytest.raises(ConfigError, match=r"the group id 'g{20}\.\.\.' has 4,097 characters; expected at most 4,096"):
        GroupCalls(transport, "g" * (MAX_GROUP_ID_CHARS + 1))
