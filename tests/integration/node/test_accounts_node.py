"""Users and tokens of a running node, by gRPC and by Kafka's own requests: made, used, and gone within a second."""

import asyncio
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.admin import UserScramCredentialDeletion as Deletion

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import security_service_pb2 as pb
from tests.integration.conftest import Run
from tests.support.grpc_node import connected, serving
from tests.support.kafka.client import KafkaClient
from tests.support.logins import bearer, give_token, user
from tests.support.stubs import GroupCoordinatorStub, SecurityStub

pytestmark = pytest.mark.integration
SECURED = {
    "authorizer": "acl", "super_users": "User:admin", "kafka_listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "SCRAM-SHA-256,PLAIN", "sasl_plain_allow_plaintext": "true",
    "connection_failed_authentication_delay_ms": "0",
}  # fmt: skip
PASSWORD = "correct horse"


async def refusal(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def plain(connection: KafkaClient, name: str, password: str) -> int:
    await connection.ask("SaslHandshake", 1, mechanism="PLAIN")
    answer = await connection.ask("SaslAuthenticate", 2, auth_bytes=f"\0{name}\0{password}".encode())
    return int(answer.error_code)


def test_a_token_is_made_and_revoked_by_who_may(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **SECURED) as node, connected(node, apart=True) as channel:
            assert node._security is not None
            admin = bearer(await give_token(node._security.store, 1, "User:admin"))
            stub, groups = SecurityStub(channel), GroupCoordinatorStub(channel)
            made = await stub.CreateToken(pb.CreateTokenRequest(name="ci", lifetime_ms=60_000), metadata=admin)
            assert (made.error_code, made.description.principal) == (0, "User:ci")
            ci = bearer(made.token)
            assert (await groups.ListGroups(group_pb.ListGroupsRequest(), metadata=ci)).error_code == 0
            for call in (
                stub.CreateToken(pb.CreateTokenRequest(name="more"), metadata=ci),
                stub.DescribeTokens(pb.DescribeTokensRequest(), metadata=ci),
                stub.AlterUsers(pb.AlterUsersRequest(deletions=["admin"]), metadata=ci),
            ):
                assert (await call).error_code == 31
            listed = await stub.DescribeTokens(pb.DescribeTokensRequest(principals=["User:ci"]), metadata=admin)
            assert [each.token_id for each in listed.tokens] == [made.description.token_id]
            assert made.token not in str(listed)
            request = pb.RevokeTokensRequest(token_ids=[made.description.token_id, "x"])
            revoked = await stub.RevokeTokens(request, metadata=admin)
            assert [each.error_code for each in revoked.results] == [0, 91]
            ended = await refusal(groups.ListGroups(group_pb.ListGroupsRequest(), metadata=ci))
            assert ended is grpc.StatusCode.UNAUTHENTICATED
            assert node._security.failures.by_address == {("grpc", "127.0.0.1"): 1}

    run(story)


def test_a_user_logs_in_until_it_is_deleted(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **SECURED) as node, connected(node, apart=True) as channel:
            assert node._security is not None
            assert node.kafka_bound is not None
            admin = bearer(await give_token(node._security.store, 1, "User:admin"))
            stub = SecurityStub(channel)
            put = pb.AlterUsersRequest(upsertions=[pb.UserUpsertion(name="alice", password=PASSWORD)])
            assert [each.error_code for each in (await stub.AlterUsers(put, metadata=admin)).results] == [0]
            seen = await stub.DescribeUsers(pb.DescribeUsersRequest(), metadata=admin)
            assert [(each.name, list(each.mechanisms), each.iterations) for each in seen.users] == [
                ("alice", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"], 4096)
            ]
            async with KafkaClient(*node.kafka_bound) as here, KafkaClient(*node.kafka_bound) as wrong:
                assert await plain(here, "alice", PASSWORD) == 0
                assert await plain(wrong, "alice", "wrong horse") == 58
                await stub.AlterUsers(pb.AlterUsersRequest(deletions=["alice"]), metadata=admin)
                async with asyncio.timeout(1):
                    assert await here.closed_by_node()
            async with KafkaClient(*node.kafka_bound) as gone:
                assert await plain(gone, "alice", PASSWORD) == 58

    run(story)


def test_kafka_s_admin_makes_users_who_log_in(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **SECURED) as node:
            assert node._security is not None
            assert node.kafka_bound is not None
            await node._security.store.write([user("admin", PASSWORD)])
            host, port = node.kafka_bound
            answers = await asyncio.to_thread(by_confluent, f"{host}:{port}")
            assert answers == ["bob", (4096, "SCRAM_SHA_256"), 91]
            salted = pbkdf2_hmac("sha256", b"x", b"saltsalt", 4096)
            async with KafkaClient(host, port) as connection:
                assert await plain(connection, "admin", PASSWORD) == 0
                upsertion = {"mechanism": 1, "iterations": 4096, "salt": b"saltsalt", "salted_password": salted}
                row = struct("AlterUserScramCredentialsRequest.upsertions")(name="admin", **upsertion)
                altered = await connection.ask("AlterUserScramCredentials", 0, upsertions=[row])
                assert [(each.user, each.error_code) for each in altered.results] == [("admin", 0)]
                assert node._security.store.state.users["admin"].password is None
                told = await connection.ask("DescribeUserScramCredentials", 0, users=None)
                assert b"saltsalt" not in repr(told).encode()

    run(story)


def by_confluent(address: str) -> list[Any]:
    """Makes bob, looks at him, and lets him go."""
    common = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    admin = AdminClient(common | {"sasl.username": "admin", "sasl.password": PASSWORD})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion("bob", info, b"battery staple")
    admin.alter_user_scram_credentials([wanted])["bob"].result(10)
    bob = AdminClient(common | {"sasl.username": "bob", "sasl.password": "battery staple"})
    bob.list_topics(timeout=10)
    seen = admin.describe_user_scram_credentials(["bob"])["bob"].result(10).scram_credential_infos[0]
    gone = Deletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["bob"].result(10)
    with pytest.raises(KafkaException) as unknown:
        admin.describe_user_scram_credentials(["bob"])["bob"].result(10)
    return ["bob", (seen.iterations, seen.mechanism.name), unknown.value.args[0].code()]
