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

from muster.coordinator.bench import heartbeat
from muster.coordinator.bench.observed.metrics import MEMBERS, SETTINGS, Load, beats, interleaved, row
from muster.coordinator.bench.processes import LOAD_CORE, BenchFailed, Server, Stopwatch, node, pinned
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.bench.wire.members import WireMember
from muster.coordinator.bench.wire.records import kafka_address
from muster.coordinator.config import load_settings
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.security.acl.model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.facts import AclKey, ApiToken, Change, TokenKey, User, UserKey
from muster.coordinator.security.login.api_tokens import ID_BYTES, SECRET_BYTES, hash_of, id_of, token_of
from muster.coordinator.security.login.users import plain_hash
from muster.coordinator.server.security.store import SecurityStore
from muster.storage.broker.broker import Broker

GOAL: Final = 0.95
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

Made = Callable[[Server, bool], Awaitable[Load]]
"""Of a server, and whether it asks who calls."""


def measure(name: str, home: str) -> Iterator[Row]:
    token, password = token_of(os.urandom(ID_BYTES), os.urandom(SECRET_BYTES)), secrets.token_hex(16)
    homes = [str(Path(home) / each) for each in ("plain", "secured")]
    prepare(homes[0], [])
    prepare(homes[1], facts(token, password))
    with pinned(LOAD_CORE), node(homes[0], SETTINGS) as off, node(homes[1], SETTINGS | SECURED) as on:
        cases: dict[str, Made] = {
            "a heartbeat by gRPC": lambda server, asks: by_grpc(server, token if asks else ""),
            "a heartbeat by Kafka's door": lambda server, asks: by_kafka(server, password if asks else "", beat),
            "a commit of ten by Kafka's door": lambda server, asks: by_kafka(server, password if asks else "", commit),
        }
        for case, made in cases.items():
            costs = asyncio.run(interleaved((off, on), partial(of_server, made, on)))
            yield row(f"{name}: {case}", costs, "not asked", GOAL)


async def of_server(made: Made, on: Server, server: Server) -> Load:
    return await made(server, server is on)


def prepare(home: str, changes: Sequence[Change]) -> None:
    """What a node finds when it starts: the topic, who is who, and who may do what."""
    broker = Broker(home, load_settings(None, {"log.dirs": home}), node_id=1)
    try:
        broker.create_topic(TOPIC, PARTITIONS)
        if changes:
            asyncio.run(written(SecurityStore(broker), changes))
    finally:
        broker.close()


async def written(store: SecurityStore, changes: Sequence[Change]) -> None:
    store.load()
    await store.write(changes)


def facts(token: str, password: str) -> list[Change]:
    principal = f"User:{USER}"
    entries = [entry(ResourceType.GROUP, "*", principal), entry(ResourceType.TOPIC, TOPIC, principal)]
    entries += [entry(ResourceType.GROUP, f"group-{number}", f"User:{number}") for number in range(STRANGERS)]
    user = User(USER, {}, plain_hash(password, secrets.randbits(128)))
    kept = ApiToken(id_of(token), USER, principal, hash_of(token), 0, 0)
    changes = [Change(UserKey(USER), user), Change(TokenKey(kept.id), kept)]
    return changes + [Change(AclKey(each), each) for each in entries]


def entry(kind: ResourceType, name: str, principal: str) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, principal, "*", Operation.READ, Permission.ALLOW)


async def by_grpc(server: Server, token: str) -> Load:
    members = (await heartbeat.joined(server, token)).members[:MEMBERS]

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(heartbeat.beats(member, watch, seconds) for member in members)))

    return load


async def by_kafka(server: Server, password: str, said: Callable[[WireMember], bytes]) -> Load:
    members = [
        WireMember(await logged_in(kafka_address(server), password), f"kafka-{said.__name__}-{number}")
        for number in range(MEMBERS)
    ]
    await asyncio.gather(*(member.join() for member in members))
    for member in members:
        await member.committed(TOPIC, PARTITIONS)

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(beats(member, watch, seconds, said) for member in members)))

    return load


def beat(member: WireMember) -> bytes:
    return member.beat()


def commit(member: WireMember) -> bytes:
    return member.commit(TOPIC, PARTITIONS)


async def logged_in(address: str, password: str) -> Line:
    """A connection whose user has shown who it is, where that is asked."""
    line = await Line.to(address)
    if password:
        await line.ask("SaslHandshake", 1, struct("SaslHandshakeRequest")(mechanism="PLAIN"))
        proof = f"\0{USER}\0{password}".encode()
        answer = await line.ask("SaslAuthenticate", 2, struct("SaslAuthenticateRequest")(auth_bytes=proof))
        if answer.error_code:
            raise BenchFailed(f"the login was refused: {answer.error_message}")
    return line
