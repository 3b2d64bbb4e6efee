"""How long a login takes that fails tells nothing of why: an unknown name, and a known one with a wrong password.

500 tries of each, in random order, through a real connection; compared by Mann and Whitney's test. The margin is five
and a half times the spread that chance gives to so many, so that only a difference makes it fail; a login that fails a
round trip earlier, which is also tried, is eight times as far away (0.93 beside 0.51 and 0.49).
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import pytest
from scramp import ScramClient

from muster.coordinator.config import load_settings
from muster.coordinator.security import passwords
from muster.coordinator.security.state import SecurityState
from muster.coordinator.server.security.authentication import KafkaLogins
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.listener import HeldHandlers, client, listening
from tests.support.logins import user

pytestmark = pytest.mark.integration
TRIES = 500
MARGIN = 0.1
PASSWORD = "correct horse"
FAILED = 58

Try = Callable[[KafkaClient, str, str], Awaitable[float]]


async def by_plain(connection: KafkaClient, name: str, password: str) -> float:
    """How long it took, in seconds."""
    await connection.ask("SaslHandshake", 1, mechanism="PLAIN")
    began_s = time.perf_counter()
    answer = await connection.ask("SaslAuthenticate", 2, auth_bytes=f"\0{name}\0{password}".encode())
    assert answer.error_code == FAILED
    return time.perf_counter() - began_s


async def by_scram(connection: KafkaClient, name: str, password: str) -> float:
    await connection.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
    talk = ScramClient(["SCRAM-SHA-256"], name, password)
    took_s = -time.perf_counter()
    first = await connection.ask("SaslAuthenticate", 2, auth_bytes=talk.get_client_first().encode())
    took_s += time.perf_counter()
    if not first.error_code:
        talk.set_server_first(bytes(first.auth_bytes).decode())
        last = talk.get_client_final().encode()
        took_s -= time.perf_counter()
        assert (await connection.ask("SaslAuthenticate", 2, auth_bytes=last)).error_code == FAILED
        took_s += time.perf_counter()
    return took_s


def superiority(left: list[float], right: list[float]) -> float:
    """How often one of the left takes longer than one of the right (U / n m): 0.5 where nothing tells them apart."""
    order = sorted([(each, 0) for each in left] + [(each, 1) for each in right])
    ranks = sum(rank for rank, (_, side) in enumerate(order, 1) if side == 0)
    return (ranks - len(left) * (len(left) + 1) / 2) / (len(left) * len(right))


def timed(attempt: Try, others: tuple[str, str], tries: int = TRIES) -> float:
    """The first name against the second, `tries` times each."""
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN", "connection.failed.authentication.delay.ms": "0"}

    async def story() -> float:
        state = SecurityState()
        state.apply([user("alice", PASSWORD)])
        desk = KafkaLogins(load_settings(None, settings), state, lambda: b"secret", None, lambda *what: None)
        names = [others[0]] * tries + [others[1]] * tries
        random.Random(1).shuffle(names)
        found: dict[str, list[float]] = {name: [] for name in others}
        async with listening(HeldHandlers(), desk=desk) as (_, port):
            for name in names:
                async with client(port) as connection:
                    found[name].append(await attempt(connection, name, "wrong horse"))
        desk.close()
        return superiority(found[others[0]], found[others[1]])

    return asyncio.run(story())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("attempt", [by_plain, by_scram])
def test_an_unknown_name_takes_as_long_as_a_wrong_password(attempt: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "SCRYPT_N", 1 << 8)  # Less of what both do shows better what one does alone.
    assert abs(timed(attempt, ("alice", "nobody")) - 0.5) < MARGIN


def test_what_fails_a_round_trip_earlier_would_show() -> None:
    too_long = "x" * 300
    assert timed(by_scram, ("alice", too_long), 200) > 0.5 + 3 * MARGIN
