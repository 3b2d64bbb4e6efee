"""Heartbeats and commits to a node that asks who may do what, against one that does not, by both doors, round by round.

A user who logged in by PLAIN, an API token for gRPC, a thousand entries of others in the lists. No TLS: what that
costs is the cipher's.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from muster.coordinator.config import load_settings
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.security.api_tokens import (
    TOKEN_ID_BYTES,
    TOKEN_SECRET_BYTES,
    format_token,
    hash_token,
    token_id,
)
from muster.coordinator.security.facts import AclKey, ApiToken, SecurityRecord, TokenKey, User, UserKey
from muster.coordinator.security.model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.users import hash_plain_password
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from muster.workshop.bench import heartbeat
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.metrics import (
    COMPARED_MEMBERS,
    COMPARED_SETTINGS,
    Load,
    comparison_row,
    interleave_servers,
    send_steady_heartbeats,
)
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.wire_members import KafkaMember

SECURED_GOAL: Final = 0.95
"""At most 5 % dearer."""
STRANGERS: Final = 1_000
TOPIC: Final = "bench"
PARTITIONS: Final = 10
SECURED: Final = {
    "authorizer": "acl",
    "kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.plain.allow.plaintext": "true",
}
USER: Final = "bench"

Made = Callable[[ServerProcess, bool], Awaitable[Load]]
"""Of a server, and whether it asks who calls."""


def measure_access_control_cost(name: str, home: str) -> Iterator[BenchRow]:
    token, password = format_token(os.urandom(TOKEN_ID_BYTES), os.urandom(TOKEN_SECRET_BYTES)), secrets.token_hex(16)
    homes = [str(Path(home) / each) for each in ("plain", "secured")]
    prepare_secured_node(homes[0], [])
    prepare_secured_node(homes[1], secured_facts(token, password))
    with (
        pinned(LOAD_CORE),
        run_node(homes[0], COMPARED_SETTINGS) as off,
        run_node(homes[1], COMPARED_SETTINGS | SECURED) as on,
    ):
        cases: dict[str, Made] = {
            "a heartbeat by gRPC": lambda server, asks: make_secured_grpc_load(server, token if asks else ""),
            "a heartbeat by Kafka's door": lambda server, asks: make_secured_kafka_load(
                server, password if asks else "", send_heartbeat
            ),
            "a commit of ten by Kafka's door": lambda server, asks: make_secured_kafka_load(
                server, password if asks else "", send_commit
            ),
        }
        for case, made in cases.items():
            costs = asyncio.run(interleave_servers((off, on), partial(make_secured_load, made, on)))
            yield comparison_row(f"{name}: {case}", costs, "not asked", SECURED_GOAL)


async def make_secured_load(made: Made, on: ServerProcess, server: ServerProcess) -> Load:
    return await made(server, server is on)


def prepare_secured_node(home: str, changes: Sequence[SecurityRecord]) -> None:
    """What a node finds when it starts: the topic, who is who, and who may do what."""
    broker = Broker(home, load_settings(None, {"log.dirs": home}), node_id=1)
    try:
        broker.create_topic(TOPIC, PARTITIONS)
        if changes:
            asyncio.run(write_changes(SecurityStore(broker), changes))
    finally:
        broker.close()


async def write_changes(store: SecurityStore, changes: Sequence[SecurityRecord]) -> None:
    store.load()
    await store.write(changes)


def secured_facts(token: str, password: str) -> list[SecurityRecord]:
    principal = f"User:{USER}"
    entries = [make_acl(ResourceType.GROUP, "*", principal), make_acl(ResourceType.TOPIC, TOPIC, principal)]
    entries += [make_acl(ResourceType.GROUP, f"group-{number}", f"User:{number}") for number in range(STRANGERS)]
    user = User(USER, {}, hash_plain_password(password, secrets.randbits(128)))
    kept = ApiToken(token_id(token), USER, principal, hash_token(token), 0, 0)
    changes = [SecurityRecord(UserKey(USER), user), SecurityRecord(TokenKey(kept.id), kept)]
    return changes + [SecurityRecord(AclKey(each), each) for each in entries]


def make_acl(kind: ResourceType, name: str, principal: str) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, principal, "*", Operation.READ, Permission.ALLOW)


async def make_secured_grpc_load(server: ServerProcess, token: str) -> Load:
    members = (await heartbeat.join_target(server, token)).members[:COMPARED_MEMBERS]

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(heartbeat.send_heartbeats(member, watch, seconds) for member in members)))

    return load


async def make_secured_kafka_load(server: ServerProcess, password: str, said: Callable[[KafkaMember], bytes]) -> Load:
    members = [
        KafkaMember(await log_in(kafka_address(server), password), f"kafka-{said.__name__}-{number}")
        for number in range(COMPARED_MEMBERS)
    ]
    await asyncio.gather(*(member.join() for member in members))
    for member in members:
        await member.committed(TOPIC, PARTITIONS)

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(send_steady_heartbeats(member, watch, seconds, said) for member in members)))

    return load


def send_heartbeat(member: KafkaMember) -> bytes:
    return member.beat()


def send_commit(member: KafkaMember) -> bytes:
    return member.commit(TOPIC, PARTITIONS)


async def log_in(address: str, password: str) -> LoadConnection:
    """A connection whose user has shown who it is, where that is asked."""
    line = await LoadConnection.to(address)
    if password:
        await line.ask("SaslHandshake", 1, struct("SaslHandshakeRequest")(mechanism="PLAIN"))
        proof = f"\0{USER}\0{password}".encode()
        answer = await line.ask("SaslAuthenticate", 2, struct("SaslAuthenticateRequest")(auth_bytes=proof))
        if answer.error_code:
            raise BenchFailed(f"the login was refused: {answer.error_message}")
    return line
