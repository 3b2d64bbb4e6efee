"""Who calls, by what a gRPC call or an HTTP request brings: an API token, a signed token, a client's certificate."""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from math import inf
from typing import Final, TypeAlias

from muster.coordinator.errors import NotAuthenticated
from muster.coordinator.security.api_tokens import TOKEN_PREFIX, hash_token, token_id
from muster.coordinator.security.identity import Identity, Principal, parse_principal
from muster.coordinator.security.limits import MOST_KEPT_CHARS, MOST_KNOWN_CALLERS, MOST_TOKEN_BYTES
from muster.coordinator.security.state import SecurityState

BEARER: Final = "bearer "
TOKEN: Final = "TOKEN"
BEARER_TOKEN: Final = "OAUTHBEARER"
MTLS: Final = "mTLS"

MISSING: Final = (
    "this node asks who calls: send the header 'authorization: Bearer TOKEN' with a token that "
    "'muster tokens create' made, or come with a client's certificate"
)
UNNAMED: Final = "by the rules of this node (ssl.principal.mapping.rules) your certificate is nobody's"
REFUSED: Final = "the token is not known here, has ended or was revoked; 'muster tokens create' makes another one"
ENDED: Final = "the token by which this was begun has ended or was revoked; come again with another one"

KnownCaller: TypeAlias = Callable[[str, str, str, str], None]
"""Of a login that failed: the address, the door, the mechanism, and why, in a word for the log."""


class SignedIdentity:
    """Who a signed token speaks of: the name, and when it ends by the wall clock."""

    __slots__ = ("name", "until_s")

    def __init__(self, name: str, until_s: float) -> None:
        self.name = name
        self.until_s = until_s


VerifyToken: TypeAlias = Callable[[str], Awaitable[SignedIdentity]]
"""Raises ValueError for a token that is not to be believed."""


class CallerAuthenticator:
    """Keeps whom it knows until something of that changes. It lives on the node's event loop."""

    def __init__(
        self,
        state: SecurityState,
        *,
        verify: VerifyToken | None = None,
        principal_of: Callable[[bytes, str], Principal] | None = None,
        failed: KnownCaller | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._verify = verify
        self._principal_of = principal_of
        self._failed = failed
        self._wall_s = wall_s
        self._known: dict[str, dict[str, Identity]] = {}
        """By what was shown, then by address."""
        self.seen: Container[str] = self._known
        """See `AsksWho.seen`."""
        self._pairs = 0
        """How many there are of both together."""
        self._keys = 0
        """How often those of signed tokens have changed."""
        self._certified: dict[tuple[str, str, bytes], Identity] = {}
        self._lasting: dict[asyncio.Timeout, str] = {}

    def changed(self) -> None:
        """Tokens may have been revoked: nobody is known by one any more that is not there."""
        tokens = self._state.tokens
        self._forget_if(lambda caller: bool(caller.token_id) and caller.token_id not in tokens)
        now_s = asyncio.get_running_loop().time()
        for timeout, held_id in self._lasting.items():
            if held_id and held_id not in tokens and not timeout.expired():
                timeout.reschedule(now_s)

    def clock_moved(self, by_s: float) -> None:
        """By so much the wall clock has gone on more than the time that passed (see `WallClock`)."""
        self._forget_if(lambda caller: caller.until_s != inf)
        now_s = asyncio.get_running_loop().time()
        for timeout in self._lasting:
            if (end_s := timeout.when()) is not None and not timeout.expired():
                timeout.reschedule(max(now_s, end_s - by_s))

    def believed(self, identity: Identity) -> bool:
        """Whether its token, if it came by one that can be revoked, was not."""
        return not identity.token_id or identity.token_id in self._state.tokens

    def keys_changed(self) -> None:
        """Keys have come or gone: signed tokens are looked at anew when shown next. What one opened goes on."""
        self._keys += 1
        self._forget_if(lambda caller: caller.mechanism == BEARER_TOKEN)

    def known(self, host: str, authorization: str) -> Identity | None:
        """See `AsksWho.known`."""
        callers = self._known.get(authorization)
        identity = None if callers is None else callers.get(host)
        if identity is None or identity.until_s == inf or identity.until_s > time.monotonic():
            return identity
        self._forget(authorization)
        return None

    async def identify(
        self, *, host: str, authorization: str, certificate: bytes | None = None, door: str = "grpc"
    ) -> Identity:
        """See `AsksWho.identify`."""
        if authorization:
            if (known := self.known(host, authorization)) is not None:
                return known
            keys = self._keys
            identity = await self._of_token(host, authorization, door)
            if keys == self._keys:
                self._keep(host, authorization, identity)
            return identity
        if certificate is not None and self._principal_of is not None:
            return self._of_certificate(self._principal_of, host, certificate, door)
        raise NotAuthenticated(MISSING)

    @asynccontextmanager
    async def lasting(self, identity: Identity) -> AsyncIterator[None]:
        """See `AsksWho.lasting`."""
        timeout = asyncio.timeout_at(None if identity.until_s == inf else identity.until_s)
        try:
            async with timeout:
                self._lasting[timeout] = identity.token_id
                if identity.token_id and identity.token_id not in self._state.tokens:
                    raise NotAuthenticated(ENDED)
                yield
        except TimeoutError:
            if timeout.expired():
                raise NotAuthenticated(ENDED) from None
            raise
        finally:
            self._lasting.pop(timeout, None)

    async def _of_token(self, host: str, authorization: str, door: str) -> Identity:
        text = authorization[len(BEARER) :].strip()
        if authorization[: len(BEARER)].lower() != BEARER or not text or len(text) > MOST_TOKEN_BYTES:
            raise self._refused(host, door, "", "malformed", MISSING)
        if text.startswith(TOKEN_PREFIX):
            return self._of_api_token(host, text, door)
        if self._verify is None:
            raise self._refused(host, door, TOKEN, "unknown")
        try:
            signed = await self._verify(text)
        except ValueError as error:
            raise self._refused(host, door, BEARER_TOKEN, str(error)) from None
        return Identity(Principal("User", signed.name), host, BEARER_TOKEN, self._monotonic_s(signed.until_s))

    def _of_certificate(
        self, principal_of: Callable[[bytes, str], Principal], host: str, certificate: bytes, door: str
    ) -> Identity:
        key = host, door, certificate
        if (known := self._certified.get(key)) is not None:
            return known
        try:
            identity = Identity(principal_of(certificate, door), host, MTLS)
        except ValueError as error:
            raise self._refused(host, door, MTLS, str(error), UNNAMED) from None
        while len(self._certified) >= MOST_KNOWN_CALLERS:
            del self._certified[next(iter(self._certified))]
        self._certified[key] = identity
        return identity

    def _of_api_token(self, host: str, text: str, door: str) -> Identity:
        token = self._state.tokens.get(token_id(text))
        if token is None or not hmac.compare_digest(hash_token(text), token.hash):
            raise self._refused(host, door, TOKEN, "unknown")
        until_s = inf
        if token.until_ms:
            until_s = self._monotonic_s(token.until_ms / 1000)
            if until_s <= time.monotonic():
                raise self._refused(host, door, TOKEN, "ended")
        return Identity(parse_principal(token.principal), host, TOKEN, until_s, token.id)

    def _monotonic_s(self, wall_s: float) -> float:
        return time.monotonic() + wall_s - self._wall_s()

    def _keep(self, host: str, authorization: str, identity: Identity) -> None:
        if len(authorization) > MOST_KEPT_CHARS:
            return
        while self._pairs >= MOST_KNOWN_CALLERS:
            self._forget(next(iter(self._known)))
        callers = self._known.setdefault(authorization, {})
        self._pairs += host not in callers
        callers[host] = identity

    def _forget_if(self, gone: Callable[[Identity], bool]) -> None:
        """Callers who have shown the same are alike in all but their addresses."""
        for authorization, callers in tuple(self._known.items()):
            if gone(next(iter(callers.values()))):
                self._forget(authorization)

    def _forget(self, authorization: str) -> None:
        self._pairs -= len(self._known.pop(authorization))

    def _refused(self, host: str, door: str, mechanism: str, why: str, text: str = REFUSED) -> NotAuthenticated:
        if self._failed is not None:
            self._failed(host, door, mechanism, why)
        return NotAuthenticated(text)
