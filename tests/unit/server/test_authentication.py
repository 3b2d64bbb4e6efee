"""Who calls, by what a call brings."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from muster.coordinator.errors import NotAuthenticated
from muster.coordinator.security.access_model import Identity, Principal
from muster.coordinator.security.login import MOST_TOKEN_BYTES
from muster.coordinator.security.state import SecurityState
from muster.coordinator.server.driver.clock import WallClock
from muster.coordinator.server.security import authentication as gate_module
from muster.coordinator.server.security.authentication import CallerAuthenticator, SignedIdentity
from tests.support.logins import api_token

FAILED = list[tuple[str, str, str, str]]


def story(told: Callable[[SecurityState, CallerAuthenticator, FAILED], Awaitable[None]]) -> None:
    async def run() -> None:
        state, failed = SecurityState(), FAILED()
        await told(state, CallerAuthenticator(state, failed=lambda *what: failed.append(what)), failed)

    asyncio.run(run())


async def ask(gate: CallerAuthenticator, token: str, host: str = "10.0.0.1") -> Identity:
    return await gate.identify(host=host, authorization=f"Bearer {token}", certificate=None, door="grpc")


def test_a_token_is_a_principal_at_an_address_and_one_object() -> None:
    async def told(state: SecurityState, gate: CallerAuthenticator, failed: FAILED) -> None:
        token, change = api_token(1, "User:ci")
        state.apply([change])
        identity = await ask(gate, token)
        assert (str(identity.principal), identity.host, identity.mechanism) == ("User:ci", "10.0.0.1", "TOKEN")
        assert await ask(gate, token) is identity
        assert gate.known("10.0.0.1", f"Bearer {token}") is identity
        assert gate.known("10.0.0.2", f"Bearer {token}") is None
        assert failed == []

    story(told)


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "muster_1",
        "Bearer muster_1",
        "Bearer a.b.c",
        f"Bearer {'x' * (MOST_TOKEN_BYTES + 1)}",
    ],
)
def test_what_is_no_token_known_here_is_refused_with_a_sentence(authorization: str) -> None:
    async def told(state: SecurityState, gate: CallerAuthenticator, failed: FAILED) -> None:
        with pytest.raises(NotAuthenticated, match="muster tokens create"):
            await gate.identify(host="h", authorization=authorization, certificate=None, door="http")
        assert [each[:2] for each in failed] == ([("h", "http")] if authorization else [])

    story(told)


def test_a_token_of_a_known_id_with_another_secret_is_as_unknown_as_any() -> None:
    async def told(state: SecurityState, gate: CallerAuthenticator, failed: FAILED) -> None:
        token, change = api_token(1)
        state.apply([change])
        said = []
        for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), api_token(2)[0]):
            with pytest.raises(NotAuthenticated) as refusal:
                await ask(gate, wrong)
            said.append(str(refusal.value))
        assert said[0] == said[1]
        assert token not in said[0]

    story(told)


def test_a_revoked_token_is_unknown_at_once_and_ends_what_lasts() -> None:
    async def told(state: SecurityState, gate: CallerAuthenticator, failed: FAILED) -> None:
        (token, change), (other, kept) = api_token(1), api_token(2)
        state.apply([change, kept])
        identity, stays = await ask(gate, token), await ask(gate, other)
        begun = asyncio.Event()

        async def lasts(who: Identity) -> None:
            async with gate.lasting(who):
                begun.set()
                await asyncio.Event().wait()

        going, on = asyncio.create_task(lasts(identity)), asyncio.create_task(lasts(stays))
        await begun.wait()
        await asyncio.sleep(0)
        state.apply([change._replace(value=None)])
        gate.changed()
        with pytest.raises(NotAuthenticated, match="revoked"):
            await going
        assert not on.done()
        on.cancel()
        with pytest.raises(NotAuthenticated):
            await ask(gate, token)
        with pytest.raises(NotAuthenticated):
            await lasts(identity)

    story(told)


def test_a_token_ends_when_its_time_is_over() -> None:
    async def told(state: SecurityState, gate: CallerAuthenticator, failed: FAILED) -> None:
        ended, change = api_token(1, until_ms=int(time.time() * 1000) - 1)
        ending, soon = api_token(2, until_ms=int(time.time() * 1000) + 30)
        state.apply([change, soon])
        with pytest.raises(NotAuthenticated):
            await ask(gate, ended)
        identity = await ask(gate, ending)
        with pytest.raises(NotAuthenticated, match="ended"):
            async with gate.lasting(identity):
                await asyncio.Event().wait()
        assert gate.known("10.0.0.1", f"Bearer {ending}") is None
        assert failed[0][3] == "ended"

    story(told)


def test_a_cancelled_stream_is_cancelled_and_a_timeout_inside_is_its_own() -> None:
    async def told(state: SecurityState, gate: CallerAuthenticator, failed: FAILED) -> None:
        identity = Identity(Principal("User", "a"), "h")
        with pytest.raises(TimeoutError):
            async with gate.lasting(identity):
                raise TimeoutError

    story(told)


def test_a_certificate_and_a_signed_token_are_believed_where_somebody_checks_them() -> None:
    async def run() -> None:
        async def verify(text: str) -> SignedIdentity:
            if text != "a.b.c":
                raise ValueError("signature")
            return SignedIdentity("robot", time.time() + 60)

        gate = CallerAuthenticator(
            SecurityState(), verify=verify, principal_of=lambda pem, door: Principal("User", pem.decode())
        )
        by_certificate = await gate.identify(host="h", authorization="", certificate=b"CN=x")
        assert (str(by_certificate.principal), by_certificate.mechanism) == ("User:CN=x", "mTLS")
        assert await gate.identify(host="h", authorization="", certificate=b"CN=x") is by_certificate
        by_token = await gate.identify(host="h", authorization="Bearer a.b.c", certificate=b"CN=x")
        assert (str(by_token.principal), by_token.mechanism) == ("User:robot", "OAUTHBEARER")
        assert 50 < by_token.until_s - time.monotonic() < 61
        with pytest.raises(NotAuthenticated):
            await gate.identify(host="h", authorization="Bearer a.b.d", certificate=b"CN=x")

    asyncio.run(run())


def test_no_more_callers_are_kept_than_the_limit_and_none_by_a_long_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "MOST_KNOWN_CALLERS", 3)

    async def run() -> None:
        async def verify(text: str) -> SignedIdentity:
            return SignedIdentity("robot", time.time() + 60)

        gate = CallerAuthenticator(
            SecurityState(), verify=verify, principal_of=lambda pem, door: Principal("User", "x")
        )
        for number in range(9):
            await gate.identify(host="h", authorization=f"Bearer {number}", certificate=None)
            await gate.identify(host="h", authorization="", certificate=bytes([number]))
        assert (len(gate._known), len(gate._certified)) == (3, 3)
        for number in range(9):
            await gate.identify(host=f"h{number}", authorization="Bearer same")
        assert [gate.known(f"h{number}", "Bearer same") is not None for number in (5, 6, 7, 8)] == [
            False,
            True,
            True,
            True,
        ]
        assert gate._pairs == 3
        await gate.identify(host="h", authorization="Bearer " + "x" * 5_000, certificate=None)
        assert gate.known("h", "Bearer " + "x" * 5_000) is None

    asyncio.run(run())


def test_a_signed_token_is_looked_at_anew_once_other_keys_count() -> None:
    """A key that was lost is taken out of the set: whoever had shown a token of it was believed until its end."""

    async def run() -> None:
        believed, entered, go_on = {"a.b.c"}, asyncio.Event(), asyncio.Event()

        async def verify(text: str) -> SignedIdentity:
            found = text in believed
            entered.set()
            await go_on.wait()
            if not found:
                raise ValueError("key")
            return SignedIdentity("robot", time.time() + 3_600)

        gate = CallerAuthenticator(SecurityState(), verify=verify)
        asking = asyncio.create_task(gate.identify(host="h", authorization="Bearer a.b.c"))
        await entered.wait()
        gate.keys_changed()
        go_on.set()
        await asking
        assert gate.known("h", "Bearer a.b.c") is None, "it was looked at before the keys changed"
        await gate.identify(host="h", authorization="Bearer a.b.c")
        assert gate.known("h", "Bearer a.b.c")
        believed.clear()
        gate.keys_changed()
        assert "Bearer a.b.c" not in gate.seen
        with pytest.raises(NotAuthenticated):
            await gate.identify(host="h", authorization="Bearer a.b.c")

    asyncio.run(run())


async def as_long_as(gate: CallerAuthenticator, identity: Identity) -> None:
    async with gate.lasting(identity):
        await asyncio.sleep(30)


def test_a_token_that_is_known_ends_by_the_clock_however_it_is_set() -> None:
    """One of 90 days was believed a year later, as long as the node had seen it before the clock was set."""

    async def run() -> None:
        state, now = SecurityState(), {"wall": time.time(), "monotonic": 0.0}
        text, change = api_token(1, until_ms=round((now["wall"] + 3_600) * 1_000))
        endless, other = api_token(2)
        state.apply([change, other])
        gate = CallerAuthenticator(state, wall_s=lambda: now["wall"])
        clock = WallClock(gate.clock_moved, lambda: now["wall"], lambda: now["monotonic"])
        identity = await gate.identify(host="h", authorization=f"Bearer {text}")
        await gate.identify(host="h", authorization=f"Bearer {endless}")
        clock.detect_clock_set()
        now["wall"] += 1.9
        clock.detect_clock_set()
        assert gate.known("h", f"Bearer {text}") is identity
        stream = asyncio.create_task(as_long_as(gate, identity))
        await asyncio.sleep(0)
        now["wall"] += 7_200
        clock.detect_clock_set()
        with pytest.raises(NotAuthenticated):
            await stream
        assert gate.known("h", f"Bearer {text}") is None
        assert gate.known("h", f"Bearer {endless}") is not None
        with pytest.raises(NotAuthenticated):
            await gate.identify(host="h", authorization=f"Bearer {text}")
        now["wall"] -= 7_200
        clock.detect_clock_set()
        again = await gate.identify(host="h", authorization=f"Bearer {text}")
        assert 3_590 < again.until_s - time.monotonic() < 3_600
        now["wall"], now["monotonic"] = now["wall"] + 60, 60.0
        clock.detect_clock_set()
        assert gate.known("h", f"Bearer {text}") is again, "time has passed, and the clock with it"

    asyncio.run(run())
