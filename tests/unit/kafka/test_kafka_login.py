"""Kafka's door where it asks who comes: what is taken before the login, how it goes, how it fails, and how it ends."""

import asyncio
import random
import struct as structs
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from scramp import ScramClient

from muster.coordinator.config import load_settings
from muster.coordinator.kafka.connections import sasl_login as login_module
from muster.coordinator.kafka.connections.listener import LONGEST_WAIT_S, AdmissionRate, ConnectionListener
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.security.login import MOST_BYTES_BEFORE_LOGIN, MOST_REQUESTS_BEFORE_LOGIN
from muster.coordinator.security.state import SecurityRecord, SecurityState, UserKey
from muster.coordinator.server.security import authentication
from muster.coordinator.server.security.authentication import KafkaLogins
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.listener import LIMITS, HeldHandlers, client, listening
from tests.support.kafka.memory_node import until
from tests.support.logins import user

NONE, UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 0, 33, 34, 58
PASSWORD = "correct horse"
ALL = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"


@cache
def users() -> tuple[SecurityRecord, ...]:
    """Hashed once for all."""
    return user("alice", PASSWORD), user("bob", PASSWORD)


class House:
    """A listener, its handlers, and what was told of logins that failed."""

    def __init__(
        self, listener: ConnectionListener, port: int, handlers: HeldHandlers, desk: KafkaLogins, told: list[Any]
    ) -> None:
        self.listener = listener
        self.handlers = handlers
        self.desk = desk
        self.told = told
        self._port = port

    def client(self) -> KafkaClient:
        return client(self._port)

    async def heartbeat(self, connection: KafkaClient) -> Any:
        """A request that somebody who is known may send; who the handler heard that it was."""
        number = len(self.handlers.begun)
        connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
        await self.handlers.until_begun(number + 1)
        self.handlers.answer(number)
        await connection.receive()
        return self.handlers.begun[number][2].identity


def told(story: Callable[[House], Awaitable[None]], **settings: str) -> None:
    """Settings with underscores for dots."""

    async def run() -> None:
        given = {"sasl.enabled.mechanisms": ALL, "connection.failed.authentication.delay.ms": "0"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        state, failures = SecurityState(), list[Any]()
        state.apply(users())
        loaded = load_settings(None, given)
        desk = KafkaLogins(loaded, state, lambda: b"secret", None, lambda *what: failures.append(what))
        desk._state = state
        handlers = HeldHandlers()
        async with listening(handlers, desk=desk) as (listener, port):
            await story(House(listener, port, handlers, desk, failures))
        desk.close()

    asyncio.run(run())


async def scram(
    connection: KafkaClient, name: str = "alice", password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256",
    version: int = 2, shake: int = 1,
) -> Any:  # fmt: skip
    """The last answer."""
    shaken = await connection.ask("SaslHandshake", shake, mechanism=mechanism)
    if shaken.error_code:
        return shaken
    talk = ScramClient([mechanism], name, password)
    first = await connection.ask("SaslAuthenticate", version, auth_bytes=talk.get_client_first().encode())
    assert first.error_code == NONE
    talk.set_server_first(bytes(first.auth_bytes).decode())
    last = await connection.ask("SaslAuthenticate", version, auth_bytes=talk.get_client_final().encode())
    if not last.error_code:
        talk.set_server_final(bytes(last.auth_bytes).decode())
    return last


async def plain(connection: KafkaClient, name: str = "alice", password: str = PASSWORD) -> Any:
    await connection.ask("SaslHandshake", 1, mechanism="PLAIN")
    return await connection.ask("SaslAuthenticate", 1, auth_bytes=f"\0{name}\0{password}".encode())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_scram_lets_in_whom_it_knows_and_handlers_hear_who(mechanism: str, version: int) -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            assert (await connection.ask("ApiVersions", 0)).error_code == NONE
            assert (await scram(connection, mechanism=mechanism, version=version)).error_code == NONE
            identity = await house.heartbeat(connection)
            assert (str(identity.principal), identity.mechanism) == ("User:alice", mechanism)
            assert identity.host == "127.0.0.1"

    told(story)


def test_plain_lets_in_whom_it_knows() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            assert (await plain(connection)).error_code == NONE
            assert str((await house.heartbeat(connection)).principal) == "User:alice"

    told(story)


def test_the_frames_of_old_clients_have_no_header() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            assert (await connection.ask("SaslHandshake", 0, mechanism="SCRAM-SHA-256")).error_code == NONE
            talk = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD)

            async def say(words: str) -> str:
                connection.writer.write(len(words).to_bytes(4, "big") + words.encode())
                size = int.from_bytes(await connection.reader.readexactly(4), "big")
                return (await connection.reader.readexactly(size)).decode()

            talk.set_server_first(await say(talk.get_client_first()))
            talk.set_server_final(await say(talk.get_client_final()))
            assert str((await house.heartbeat(connection)).principal) == "User:alice"
        async with house.client() as connection:
            await connection.ask("SaslHandshake", 0, mechanism="PLAIN")
            connection.writer.write(b"\0\0\0\x08\0alice\0x")
            assert await connection.closed_by_node()

    told(story)


@pytest.mark.parametrize("api", [api.name for api in APIS if api.key not in login_module.BEFORE_LOGIN])
def test_anything_else_before_the_login_ends_the_connection_unread(api: str) -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            connection.send(api, next(each.last for each in APIS if each.name == api))
            assert await connection.closed_by_node()
            assert house.handlers.begun == []

    told(story)


def test_a_large_frame_many_bytes_and_many_requests_end_it_before_the_login_and_not_after() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            connection.writer.write((65_537).to_bytes(4, "big"))
            assert await connection.closed_by_node()
        async with house.client() as connection:
            with suppress(ConnectionError):
                for _ in range(MOST_BYTES_BEFORE_LOGIN // 60_000 + 1):
                    connection.send("SaslHandshake", 1, mechanism="x" * 30_000)
                    connection.writer.write(structs.pack(">ihhih", 60_000, 18, 99, 1, -1) + bytes(59_990))
            with suppress(ConnectionError):
                await connection.reader.read()
            assert house.listener.connections == 0
        async with house.client() as connection:
            for _ in range(MOST_REQUESTS_BEFORE_LOGIN + 1):
                connection.send("ApiVersions", 0)
            await connection.reader.read()
            assert connection.reader.at_eof()
        async with house.client() as connection:
            await scram(connection)
            for _ in range(MOST_REQUESTS_BEFORE_LOGIN + 1):
                await connection.ask("ApiVersions", 0)
            connection.writer.write(structs.pack(">ihhih", 300_000, 18, 99, 1, -1) + bytes(299_990))
            connection._asked.append(("ApiVersions", 0, 1))
            assert (await connection.receive()).error_code == 35

    told(story)


def test_who_says_nothing_is_not_waited_for() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection, house.client() as known:
            await scram(known)
            assert await connection.closed_by_node()
            await house.heartbeat(known)

    told(story, connection_setup_timeout_ms="200")


@pytest.mark.parametrize("way", ["scram", "plain"])
def test_a_wrong_password_and_an_unknown_name_hear_the_same_and_are_sent_away(way: str) -> None:
    async def story(house: House) -> None:
        answers = []
        for name, password in (("alice", "wrong"), ("nobody", PASSWORD), ("nobody", "wrong")):
            async with house.client() as connection:
                answer = await (scram if way == "scram" else plain)(connection, name, password)
                answers.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes)))
                assert await connection.closed_by_node()
        assert set(answers) == {(FAILED, "authentication failed", b"")}
        assert [each[0:2] + each[3:] for each in house.told] == [("127.0.0.1", "kafka", "credentials")] * 3

    told(story)


def test_a_login_that_failed_waits_and_nobody_waits_for_it() -> None:
    async def story(house: House) -> None:
        house.desk.delay_s = 3_600
        async with house.client() as refused, house.client() as connection:
            await refused.ask("SaslHandshake", 1, mechanism="PLAIN")
            refused.send("SaslAuthenticate", 1, auth_bytes=b"\0alice\0wrong")
            await refused.writer.drain()
            assert (await scram(connection)).error_code == NONE
            await house.heartbeat(connection)
            await until(lambda: bool(house.told))
            refused.send("ApiVersions", 0)  # It waits behind the answer.
            await house.heartbeat(connection)

    told(story)


def test_a_mechanism_that_is_not_spoken_here_is_told_which_are() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            answer = await connection.ask("SaslHandshake", 1, mechanism="GSSAPI")
            assert (answer.error_code, answer.mechanisms) == (UNSUPPORTED_MECHANISM, ALL.split(","))
            assert await connection.closed_by_node()

    told(story)


def test_words_without_a_handshake_and_a_handshake_in_the_middle_end_it() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            answer = await connection.ask("SaslAuthenticate", 2, auth_bytes=b"x")
            assert answer.error_code == ILLEGAL_STATE
            assert await connection.closed_by_node()
        async with house.client() as connection:
            await connection.ask("SaslHandshake", 1, mechanism="PLAIN")
            connection.send("SaslHandshake", 1, mechanism="PLAIN")
            assert await connection.closed_by_node()

    told(story)


def test_a_login_ends_when_it_was_not_shown_again_but_never_while_an_answer_is_held() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            assert 0 < (await scram(connection)).session_lifetime_ms <= 60_000
            connection.send("JoinGroup", 7, group_id="g", session_timeout_ms=10_000)
            await house.handlers.until_begun(1)
            peer = next(iter(house.listener._connections)).peer
            peer.identity = replace(peer.identity, until_s=time.monotonic() - 1)
            house.handlers.answer(0, throttle_time_ms=7)
            assert (await connection.receive()).throttle_time_ms == 7
            connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
            assert await connection.closed_by_node()
            assert len(house.handlers.begun) == 1

    told(story, connections_max_reauth_ms="60000")


def test_a_login_by_a_token_ends_earlier_when_the_clock_was_set_forward_and_no_other_does() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection, house.client() as other:
            await scram(connection)
            await scram(other, "bob")
            (login,) = house.desk._here["alice"]
            login._peer.identity = replace(login.identity, mechanism="OAUTHBEARER", until_s=time.monotonic() + 3_600)
            house.desk.came(login)
            house.desk.clock_moved(-7_200)
            await house.heartbeat(connection)
            house.desk.clock_moved(7_200)
            connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
            assert await connection.closed_by_node()
            await house.heartbeat(other)

    told(story, connections_max_reauth_ms="600000")


def test_who_is_known_may_show_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(house: House) -> None:
        async with house.client() as connection:
            await scram(connection)
            assert (await scram(connection)).error_code == ILLEGAL_STATE  # within a second
            monkeypatch.setattr(login_module, "LEAST_BETWEEN_S", 0.0)
            before = await house.heartbeat(connection)
            peer = next(iter(house.listener._connections)).peer
            peer.identity = replace(peer.identity, until_s=time.monotonic() - 1)
            assert (await scram(connection)).error_code == NONE
            after = await house.heartbeat(connection)
            assert (after.principal, after.mechanism) == (before.principal, before.mechanism)

    told(story, connections_max_reauth_ms="60000")


@pytest.mark.parametrize("how", ["another name", "another mechanism", "a wrong password"])
def test_again_as_somebody_else_ends_it(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "LEAST_BETWEEN_S", 0.0)

    async def story(house: House) -> None:
        async with house.client() as connection:
            await scram(connection)
            match how:
                case "another name":
                    assert (await scram(connection, "bob")).error_code == FAILED
                case "another mechanism":
                    assert (await scram(connection, mechanism="SCRAM-SHA-512")).error_code == ILLEGAL_STATE
                case _:
                    assert (await scram(connection, password="wrong")).error_code == FAILED
            assert await connection.closed_by_node()

    told(story)


def test_connections_go_with_their_user() -> None:
    async def story(house: House) -> None:
        async with house.client() as connection, house.client() as other:
            await scram(connection)
            await scram(other, "bob")
            house.desk._state.apply([SecurityRecord(UserKey("alice"), None)])
            house.desk.changed()
            assert await connection.closed_by_node()
            assert str((await house.heartbeat(other)).principal) == "User:bob"

    told(story)


def test_a_login_that_was_begun_before_its_user_was_deleted_comes_to_nothing() -> None:
    """Its proof fits what was read at the beginning; nobody would have ended the connection afterwards."""

    async def story(house: House) -> None:
        async with house.client() as connection:
            await connection.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
            talk = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD)
            first = await connection.ask("SaslAuthenticate", 2, auth_bytes=talk.get_client_first().encode())
            house.desk._state.apply([SecurityRecord(UserKey("alice"), None)])
            house.desk.changed()
            talk.set_server_first(bytes(first.auth_bytes).decode())
            last = await connection.ask("SaslAuthenticate", 2, auth_bytes=talk.get_client_final().encode())
            assert last.error_code == FAILED
            assert await connection.closed_by_node()

    told(story)


def test_more_logins_than_can_be_hashed_are_sent_away_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "MOST_WAITING_TO_HASH", 0)

    async def story(house: House) -> None:
        async with house.client() as connection:
            await connection.ask("SaslHandshake", 1, mechanism="PLAIN")
            connection.send("SaslAuthenticate", 1, auth_bytes=f"\0alice\0{PASSWORD}".encode())
            assert await connection.closed_by_node()

    told(story)


def test_without_a_login_to_be_asked_for_sasl_is_out_of_place() -> None:
    async def story() -> None:
        async with listening(HeldHandlers()) as (_, port), client(port) as connection:
            assert (await connection.ask("SaslHandshake", 1, mechanism="PLAIN")).error_code == ILLEGAL_STATE
            assert (await connection.ask("SaslAuthenticate", 2, auth_bytes=b"")).error_code == ILLEGAL_STATE

    asyncio.run(story())


def test_who_comes_too_fast_waits_and_who_would_wait_long_is_refused() -> None:
    pace = AdmissionRate(2)
    assert [pace.wait_s(100.0) for _ in range(5)] == [-0.5, 0.0, 0.5, 1.0, 1.5]
    assert pace.wait_s(101.5) == 0.5
    for _ in range(20):
        pace.wait_s(101.5)
    assert pace.wait_s(101.5) == pace.wait_s(101.5) > LONGEST_WAIT_S

    async def story() -> None:
        async with listening(HeldHandlers(), replace(LIMITS, max_creation_rate=60)) as (_, port):
            clients = [client(port) for _ in range(90)]
            for each in clients:
                await each.__aenter__()
            for each in clients:
                assert (await each.ask("ApiVersions", 0)).error_code == NONE
                await each.__aexit__()

    asyncio.run(story())


def rubbish(chance: random.Random) -> bytes:
    """What a stranger may send: noise, frames of noise, requests with noise in them, and half of that."""
    kind = chance.randrange(6)
    noise = chance.randbytes(chance.randrange(200))
    key = chance.choice([17, 18, 36, chance.randrange(-5, 100)])
    head = structs.pack(
        ">hhih", key, chance.randrange(-1, 5), chance.randrange(1 << 31), chance.choice([-1, 0, 3, 500])
    )
    match kind:
        case 0:
            return noise
        case 1:
            return len(noise).to_bytes(4, "big") + noise
        case 2:
            return (len(head) + len(noise)).to_bytes(4, "big") + head + noise
        case 3:
            return chance.choice([-1, 0, 7, 65_536, 65_537, 1 << 30]).to_bytes(4, "big", signed=True) + noise
        case 4:
            words = chance.choice([b"PLAIN", b"SCRAM-SHA-256", b"OAUTHBEARER", noise[:20]])
            body = structs.pack(">hhih", 17, chance.randrange(2), 1, -1) + len(words).to_bytes(2, "big") + words
        case _:
            words = chance.choice([b"n,,n=alice,r=x", b"\0alice\0x", b"c=biws,r=x,p=AAAA", noise])
            body = structs.pack(">hhih", 36, chance.randrange(2), 1, -1) + len(words).to_bytes(4, "big") + words
    whole = len(body).to_bytes(4, "big") + body
    return whole if chance.random() < 0.9 else whole[: chance.randrange(len(whole))]


@pytest.mark.parametrize("seed", range(8))
def test_no_bytes_of_strangers_reach_a_handler_or_stay(seed: int) -> None:
    """Whatever they send, the node goes on, keeps nothing of it, and lets in whom it knows."""
    chance = random.Random(seed)

    async def stranger(house: House) -> None:
        async with house.client() as connection:
            with suppress(ConnectionError):
                for _ in range(chance.randrange(1, 12)):
                    connection.writer.write(rubbish(chance))
                    await connection.writer.drain()
                if chance.random() < 0.5:
                    connection.writer.write_eof()
                    await connection.reader.read()

    async def story(house: House) -> None:
        for _ in range(6):
            await asyncio.gather(*(stranger(house) for _ in range(10)))
        assert house.handlers.begun == []
        async with house.client() as connection:
            assert (await scram(connection)).error_code == NONE
            await house.heartbeat(connection)
        await until(lambda: not house.listener.connections)
        assert house.desk._here == {}

    told(story, connection_setup_timeout_ms="2000")
