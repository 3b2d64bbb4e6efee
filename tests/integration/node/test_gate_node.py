"""A node with authorizer=acl by gRPC: every method asks who calls."""

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.integration.conftest import Run
from tests.support.grpc_node import connected, serving
from tests.support.logins import bearer, give_token, revoke
from tests.support.signed import AUDIENCE, jwk, jwks, signed
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration
SECURED = {"authorizer": "acl", "super_users": "User:admin"}


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


def test_every_method_asks_who_calls_before_it_reads(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            serving(tmp_path, scaler_enable="true", **SECURED) as node,
            connected(node, apart=True) as channel,
        ):
            assert any("externalscaler" in name for name in node.methods.stats)
            for name in node.methods.stats:
                for data in (b"", b"\xff" * 9):
                    refused = await refusal(channel.unary_unary(name)(data))
                    assert refused.code() is grpc.StatusCode.UNAUTHENTICATED, name
                    assert "muster tokens create" in str(refused.details())
            assert node._security is not None
            token = await give_token(node._security.store, 1, "User:admin")
            stub = GroupCoordinatorStub(channel)
            listed = await stub.ListGroups(pb.ListGroupsRequest(), metadata=bearer(token))
            assert listed.error_code == 0

    run(story)


def test_a_directory_is_for_versions_that_ask_who_calls_while_its_node_does(run: Run, tmp_path: Path) -> None:
    """Earlier versions know `version=1` only."""

    async def story() -> None:
        for settings, version in ((SECURED, 2), ({}, 1)):
            async with serving(tmp_path / "data", **settings):
                assert (tmp_path / "data" / "meta.properties").read_text().startswith(f"version={version}\n")

    run(story)


def test_no_message_of_a_stranger_is_taken_in(run: Run, tmp_path: Path) -> None:
    """A call that says nothing, and does not end: who reads before asking would wait for ever, and keep what comes."""

    async def story() -> None:
        async with serving(tmp_path, **SECURED) as node, connected(node, apart=True) as channel:
            assert node._security is not None
            for name in node.methods.stats:
                silent = channel.stream_unary(name)()
                async with asyncio.timeout(20):
                    assert (await refusal(silent)).code() is grpc.StatusCode.UNAUTHENTICATED, name
            token = await give_token(node._security.store, 1, "User:admin")
            stub = GroupCoordinatorStub(channel)
            for _ in range(2):  # as a stranger, and as somebody who was seen before
                listed = await stub.ListGroups(pb.ListGroupsRequest(), metadata=bearer(token))
                assert listed.error_code == 0
                seen = await stub.WatchGroup(pb.WatchGroupRequest(group_id="g"), metadata=bearer(token)).read()
                assert seen is not grpc.aio.EOF
            await revoke(node._security.store, 1)
            silent = channel.stream_unary("/coordinator.rpc.v1.GroupCoordinator/ListGroups")(metadata=bearer(token))
            async with asyncio.timeout(20):
                assert (await refusal(silent)).code() is grpc.StatusCode.UNAUTHENTICATED

    run(story)


def test_a_session_ends_within_a_second_of_its_token(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **SECURED) as node, connected(node, apart=True) as channel:
            assert node._security is not None
            store = node._security.store
            token = await give_token(store, 1, "User:admin")
            session = GroupCoordinatorStub(channel).Session(metadata=bearer(token))
            await session.write(pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m")))
            assert (await session.read()).HasField("welcome")
            await revoke(store, 1)
            async with asyncio.timeout(1):
                refused = await refusal(session.read())
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "revoked" in str(refused.details())

    run(story)


def test_health_answers_everybody_and_reflection_those_who_are_known(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        async with serving(tmp_path, **SECURED) as node, connected(node, apart=True) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            refused = await refusal(reflection.ServerReflectionInfo(iter([question])).read())
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            assert node._security is not None
            token = await give_token(node._security.store, 1, "User:admin")
            told = await reflection.ServerReflectionInfo(iter([question]), metadata=bearer(token)).read()
            assert len(told.list_services_response.service) > 3
        closed = SECURED | {"http_probes_anonymous": "false", "grpc_reflection_anonymous": "true"}
        async with serving(tmp_path, **closed) as node, connected(node, apart=True) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            refused = await refusal(health.Check(health_pb2.HealthCheckRequest()))
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            refused = await refusal(health.Watch(health_pb2.HealthCheckRequest()).read())
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            assert (await health.Check(health_pb2.HealthCheckRequest(), metadata=bearer(token))).status == 1
            assert (await health.Watch(health_pb2.HealthCheckRequest(), metadata=bearer(token)).read()).status == 1
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            assert await reflection.ServerReflectionInfo(iter([question])).read()

    run(story)


def test_open_streams_end_within_a_second_of_their_token(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, http_listeners="127.0.0.1:0", **SECURED) as node:
            assert node._security is not None
            assert node.http_bound is not None
            store = node._security.store
            token = await give_token(store, 1, "User:admin")
            host, port = node.http_bound
            async with connected(node, apart=True) as channel, httpx.AsyncClient() as browser:
                watch = GroupCoordinatorStub(channel).WatchGroup(
                    pb.WatchGroupRequest(group_id="g"), metadata=bearer(token)
                )
                await watch.read()
                headers = {"authorization": f"Bearer {token}"}
                async with browser.stream("GET", f"http://{host}:{port}/events", headers=headers) as events:
                    assert events.status_code == 200
                    await revoke(store, 1)
                    async with asyncio.timeout(1):
                        refused = await refusal(watch.read())
                        assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
                        assert "revoked" in str(refused.details())
                        with pytest.raises(httpx.HTTPError):
                            async for _ in events.aiter_bytes():
                                pass
                again = await browser.get(f"http://{host}:{port}/api/v1/nodes", headers=headers)
                assert again.status_code == 401

    run(story)


def test_a_signed_token_is_believed_until_it_ends(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(jwks(jwk("EC", "k")))
    signing = {
        "sasl_oauthbearer_jwks_endpoint_url": f"file://{tmp_path / 'keys.json'}",
        "sasl_oauthbearer_expected_audience": AUDIENCE,
        "sasl_oauthbearer_clock_skew_seconds": "0",
    }

    async def story() -> None:
        async with serving(tmp_path / "data", **(SECURED | signing)) as node, connected(node, apart=True) as channel:
            stub = GroupCoordinatorStub(channel)
            soon = signed(sub="admin", exp=time.time() + 1)
            request = pb.WatchGroupRequest(group_id="g")
            watch = stub.WatchGroup(request, metadata=bearer(soon))
            await watch.read()
            ended = await refusal(watch.read())
            assert ended.code() is grpc.StatusCode.UNAUTHENTICATED
            for token in (soon, signed(sub="admin", number=1), signed(sub="admin", aud="elsewhere")):
                refused = await refusal(stub.ListGroups(pb.ListGroupsRequest(), metadata=bearer(token)))
                assert refused.code() is grpc.StatusCode.UNAUTHENTICATED

    run(story)
