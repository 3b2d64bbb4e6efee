"""What a heartbeat costs the server: against a bare echo server, with metrics, with TLS, and with access control.

Processor time of the server per call, interleaved: two servers take turns, and the one that begins changes from
round to round, so that both have the machine as it is at that moment. With access control a user logs in by PLAIN,
gRPC shows an API token, and the lists hold a thousand entries of others. The TLS case has no goal, because the
cipher's work is the cipher's; handshakes are not in it, because members keep their connections.
"""

import asyncio
import os
import secrets
import ssl
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from muster.coordinator.config import load_settings
from muster.coordinator.kafka.codec.codec import Frame, struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.login import TOKEN_ID_BYTES, TOKEN_SECRET_BYTES, format_token, hash_token, token_id
from muster.coordinator.security.passwords import hash_plain_password
from muster.coordinator.security.state import AclKey, ApiToken, SecurityRecord, TokenKey, User, UserKey
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from muster.workshop.bench.grpc_members import GrpcConnection, GrpcMember, make_share
from muster.workshop.bench.kafka_load import KafkaMember, LoadConnection, join_together, kafka_address
from muster.workshop.bench.processes import (
    LOAD_CORE,
    BenchFailed,
    ServerProcess,
    Stopwatch,
    pinned,
    run_node,
    run_server,
)
from muster.workshop.bench.report import BENCH, BenchRow, less_is_better

# Against an echo server
# ----------------------

HEARTBEAT_MEMBERS = 100
"""Connections with one call outstanding each: what many members look like."""
HEARTBEAT_WARM_UP_S = 0.7
HEARTBEAT_ROUND_S = 1.5
HEARTBEAT_ROUNDS = 5
HEARTBEAT_GOAL = 0.8
HEARTBEAT_SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.max.session.timeout.ms": "1800000"}


@dataclass(slots=True)
class HeartbeatTarget:
    """A server, the connections to it, and the heartbeats they send."""

    server: ServerProcess
    members: list[GrpcMember]


def measure_heartbeats(name: str, home: str) -> Iterator[BenchRow]:
    with (
        pinned(LOAD_CORE),
        run_node(home, HEARTBEAT_SETTINGS) as ours,
        run_server(["-m", "muster.workshop.bench.echo"]) as bare,
    ):
        costs = asyncio.run(interleave_with_echo(ours, bare))
    value, peer = (statistics.median(cost) for cost in costs)
    yield less_is_better(name, value, "us CPU/RPC", "bare grpc.aio echo of the same messages", peer, HEARTBEAT_GOAL)


async def interleave_with_echo(ours: ServerProcess, bare: ServerProcess) -> tuple[list[float], list[float]]:
    """Microseconds of processor time per call, of both servers, round by round; who begins changes each round."""
    return await interleave_targets((await join_target(ours), make_echo_target(bare)))


async def interleave_targets(targets: tuple[HeartbeatTarget, HeartbeatTarget]) -> tuple[list[float], list[float]]:
    """As above, of two targets whose members have joined; their connections are closed at the end."""
    costs: tuple[list[float], list[float]] = ([], [])
    for target in targets:
        await measure_round(target, HEARTBEAT_WARM_UP_S)
    for number in range(HEARTBEAT_ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            costs[which].append(await measure_round(targets[which], HEARTBEAT_ROUND_S))
    for target in targets:
        for member in target.members:
            await member.wire.close()
    return costs


async def join_target(ours: ServerProcess, token: str = "") -> HeartbeatTarget:
    wires = [GrpcConnection(ours.address, token) for _ in range(HEARTBEAT_MEMBERS)]
    members = [GrpcMember(wire, "bench", make_share, session_timeout_ms=600_000) for wire in wires]
    await asyncio.gather(*(member.join() for member in members))
    return HeartbeatTarget(ours, members)


def make_echo_target(bare: ServerProcess) -> HeartbeatTarget:
    """The echo server knows no groups: members of the same looks."""
    looks = "bench-00000000-0000-0000-0000-000000000000"
    return HeartbeatTarget(
        bare,
        [
            GrpcMember(GrpcConnection(bare.address), "bench", make_share, member_id=looks, generation=1)
            for _ in range(HEARTBEAT_MEMBERS)
        ],
    )


async def measure_round(target: HeartbeatTarget, seconds: float) -> float:
    watch, before = Stopwatch(), target.server.cpu_s()
    calls = sum(await asyncio.gather(*(send_heartbeats(member, watch, seconds) for member in target.members)))
    return (target.server.cpu_s() - before) / calls * 1e6


async def send_heartbeats(member: GrpcMember, watch: Stopwatch, seconds: float) -> int:
    """Heartbeats one after the other until the time is over; how many."""
    request = member.heartbeat_request()
    done = 0
    while watch.read() < seconds:
        answer = await member.wire.call("Heartbeat", request, pb.HeartbeatResponse)
        assert not answer.error_code, f"a heartbeat was refused: {answer}"
        done += 1
    return done


# With and without metrics
# ------------------------

COMPARED_MEMBERS = 50
COMPARED_WARM_UP_S = 0.5
COMPARED_ROUND_S = 0.25
COMPARED_ROUNDS = 40
"""Many short ones: what else goes on on the machine meets both alike."""
METRICS_GOAL: Final = 0.97
"""At most 3 % dearer."""
COMPARED_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "500",
    "group.max.session.timeout.ms": "1800000",
    "kafka.listeners": "127.0.0.1:0",
}

Load = Callable[[float], Awaitable[int]]
Sender = TypeVar("Sender")
"""Heartbeats for so many seconds; how many."""


def measure_metrics_cost(name: str, home: str) -> Iterator[BenchRow]:
    plain = run_node(str(Path(home) / "plain"), COMPARED_SETTINGS)
    counting = run_node(str(Path(home) / "counting"), COMPARED_SETTINGS | {"http.listeners": "127.0.0.1:0"})
    with pinned(LOAD_CORE), plain as off, counting as on:
        for door, made in (("gRPC", make_grpc_load), ("Kafka's door", make_kafka_load)):
            costs = asyncio.run(interleave_servers((off, on), made))
            yield comparison_row(f"{name}: a heartbeat by {door}", costs)


def comparison_row(
    case: str, costs: tuple[list[float], list[float]], against: str = "without", goal: float = METRICS_GOAL
) -> BenchRow:
    """The ratio is the median over the rounds: each had the machine as it was just then for both."""
    off, on = costs
    ratio = statistics.median(one / other for one, other in zip(off, on, strict=True))
    value, peer = statistics.median(on), statistics.median(off)
    return BenchRow(
        BENCH, case, round(value, 3), "us CPU/RPC", against, round(peer, 3), round(ratio, 4), goal, ratio >= goal
    )


async def interleave_servers(
    servers: Sequence[ServerProcess], made: Callable[[ServerProcess], Awaitable[Load]]
) -> tuple[list[float], list[float]]:
    """Microseconds of processor time per call, of both, round by round; who begins changes each round."""
    loads = [await made(each) for each in servers]
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(-1, COMPARED_ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            before = servers[which].cpu_ns()
            calls = await loads[which](COMPARED_ROUND_S if number >= 0 else COMPARED_WARM_UP_S)
            if number >= 0:
                costs[which].append((servers[which].cpu_ns() - before) / calls / 1e3)
    return costs


def make_load(members: Sequence[Sender], send: Callable[[Sender, Stopwatch, float], Awaitable[int]]) -> Load:
    """All members send for so many seconds, side by side."""

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(send(member, watch, seconds) for member in members)))

    return load


async def make_grpc_load(server: ServerProcess) -> Load:
    members = (await join_target(server)).members[:COMPARED_MEMBERS]
    return make_load(members, send_heartbeats)


async def make_kafka_load(server: ServerProcess) -> Load:
    members = await join_together(kafka_address(server), [f"kafka-{number}" for number in range(COMPARED_MEMBERS)])
    return make_load(members, send_steady_heartbeats)


async def send_steady_heartbeats(
    member: KafkaMember, watch: Stopwatch, seconds: float, said: Callable[[KafkaMember], bytes] = KafkaMember.beat
) -> int:
    """Heartbeats one after the other until the time is over; the next one leaves as soon as one is answered."""
    request, done = said(member), 0
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(frame: Frame) -> None:
        nonlocal done
        done += 1
        if watch.read() < seconds:
            member.line.send(request, answered)
        else:
            over.set_result(None)

    member.line.send(request, answered)
    await over
    return done


# With and without TLS
# --------------------

NO_GOAL: Final = 0.0


def measure_tls_cost(name: str, home: str) -> Iterator[BenchRow]:
    certificates = Path(home) / "certificates"
    made = [sys.executable, "-m", "muster.cli", "certs", "init", str(certificates), "--hosts", "127.0.0.1"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    encrypted = {
        "kafka.listeners": "SSL://127.0.0.1:0",
        "listener.name.kafka.ssl.keystore.location": str(certificates / "server.pem"),
    }
    plain, over_tls = str(Path(home) / "plain"), str(Path(home) / "encrypted")
    with (
        pinned(LOAD_CORE),
        run_node(plain, COMPARED_SETTINGS) as off,
        run_node(over_tls, COMPARED_SETTINGS | encrypted) as on,
    ):
        costs = asyncio.run(interleave_servers((off, on), partial(make_tls_load, on, certificates / "ca.pem")))
        yield comparison_row(f"{name}: a heartbeat by Kafka's door", costs, "plaintext", NO_GOAL)


async def make_tls_load(encrypted: ServerProcess, authority: Path, server: ServerProcess) -> Load:
    context = ssl.create_default_context(cafile=authority) if server is encrypted else None
    members = [
        KafkaMember(await LoadConnection.to(kafka_address(server), context), f"kafka-{number}")
        for number in range(COMPARED_MEMBERS)
    ]
    await asyncio.gather(*(member.join() for member in members))
    return make_load(members, send_steady_heartbeats)


# With and without access control
# -------------------------------

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
    members = (await join_target(server, token)).members[:COMPARED_MEMBERS]
    return make_load(members, send_heartbeats)


async def make_secured_kafka_load(server: ServerProcess, password: str, said: Callable[[KafkaMember], bytes]) -> Load:
    members = [
        KafkaMember(await log_in(kafka_address(server), password), f"kafka-{said.__name__}-{number}")
        for number in range(COMPARED_MEMBERS)
    ]
    await asyncio.gather(*(member.join() for member in members))
    for member in members:
        await member.committed(TOPIC, PARTITIONS)
    return make_load(members, partial(send_steady_heartbeats, said=said))


def send_heartbeat(member: KafkaMember) -> bytes:
    return member.beat()


def send_commit(member: KafkaMember) -> bytes:
    return member.commit(TOPIC, PARTITIONS)


async def log_in(address: str, password: str) -> LoadConnection:
    """A connection whose user has shown who it is, where that is asked."""
    line = await LoadConnection.to(address)
    if password:
        await line.send_request("SaslHandshake", 1, struct("SaslHandshakeRequest")(mechanism="PLAIN"))
        proof = f"\0{USER}\0{password}".encode()
        answer = await line.send_request("SaslAuthenticate", 2, struct("SaslAuthenticateRequest")(auth_bytes=proof))
        if answer.error_code:
            raise BenchFailed(f"the login was refused: {answer.error_message}")
    return line
