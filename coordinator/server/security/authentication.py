"""Who calls: by an API token, a signed token or a certificate at gRPC and HTTP, and by SASL at Kafka's listener.

`CallerAuthenticator` remembers callers until something of their credentials changes. `SigningKeyRing` holds the
public keys that check signed tokens, from a file or by HTTPS, and reads them again as they change. `KafkaLogins`
conducts the SASL exchanges of all Kafka connections; `NodeScramUsers` shows and changes the node's users for Kafka's
tools (KIP-554).

Hashing passwords and checking signatures takes long and strangers may ask for it, so it has threads of its own, apart
from those that flush the log, and a short queue: a flood of logins slows logins, and nothing else.
"""

import asyncio
import hmac
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, NoReturn, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import structlog

from muster.coordinator.config.security import AuthenticationSettings
from muster.coordinator.config.values import split_list
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.errors import NotAuthenticated, Overloaded
from muster.coordinator.kafka.connections.sasl_login import NONE, LoginQueueFull, SaslLogin
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.quotas_and_users import Alterations, Deletions
from muster.coordinator.security import passwords
from muster.coordinator.security.access_model import USER, Identity, Principal, parse_principal
from muster.coordinator.security.login import (
    LEAST_ITERATIONS,
    MOST_HASHING,
    MOST_JWKS_BYTES,
    MOST_KEPT_CHARS,
    MOST_KNOWN_CALLERS,
    MOST_TOKEN_BYTES,
    MOST_WAITING_TO_HASH,
    REFRESH_LEAST_S,
    TOKEN_PREFIX,
    LoginFailed,
    LoginWork,
    SaslChallenge,
    SaslMechanism,
    SaslSuccess,
    hash_token,
    token_id,
)
from muster.coordinator.security.oauth_bearer import (
    UNKNOWN_KEY,
    OauthBearerServer,
    SigningKeySet,
    TokenRequirements,
    TokenSubject,
    UnknownSigningKey,
    parse_key_set,
    verify_token,
)
from muster.coordinator.security.passwords import SCRAM_NUMBERS, PlainServer, ScramServer
from muster.coordinator.security.state import PasswordHash, ScramCredential, SecurityState
from muster.coordinator.server.security.accounts import Outcome, SaltedCredential, UserAccounts
from muster.coordinator.server.security.audit_log import AuditLog
from muster.storage.errors import DataDirectoryError

# Callers of gRPC and HTTP
# ------------------------

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
        """See `Authenticator.seen`."""
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
        """See `Authenticator.known`."""
        callers = self._known.get(authorization)
        identity = None if callers is None else callers.get(host)
        if identity is None or identity.until_s == inf or identity.until_s > time.monotonic():
            return identity
        self._forget(authorization)
        return None

    async def identify(
        self, *, host: str, authorization: str, certificate: bytes | None = None, door: str = "grpc"
    ) -> Identity:
        """See `Authenticator.identify`."""
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
        """See `Authenticator.lasting`."""
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


# Threads for hashing
# -------------------

T = TypeVar("T")


class HashingQueueFull(Exception):
    """No further one is taken for now."""


class HashingThreads:
    """Some threads; `name` is theirs in a list of threads."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(MOST_HASHING, name)
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Raises HashingQueueFull, and what the work raises."""
        if self._waiting >= MOST_WAITING_TO_HASH:
            raise HashingQueueFull
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


# Keys of signed tokens
# ---------------------

LOOK_S: Final = 1.0
"""How often it is looked whether a file has changed."""
FETCH_S: Final = 5.0

log = structlog.get_logger("muster.security")


class SigningKeysUnreadable(DataDirectoryError):
    """`sasl.oauthbearer.jwks.endpoint.url` leads to no keys: the node does not start."""


class NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *arguments: object) -> NoReturn:
        raise OSError("it leads somewhere else; name that place itself")


class SigningKeyRing:
    """The keys, and who a token speaks of by them. `verify_token` may run in a thread; all else on the node's loop."""

    def __init__(self, settings: AuthenticationSettings) -> None:
        self._url = settings.oauthbearer_jwks_url
        self._parts = urlsplit(self._url)
        self._refresh_s = settings.oauthbearer_refresh_ms / 1000
        self._expected = TokenRequirements(
            settings.oauthbearer_issuer,
            frozenset(split_list(settings.oauthbearer_audience)),
            settings.oauthbearer_sub_claim,
            settings.oauthbearer_skew_s,
        )
        self._checking = HashingThreads("muster-tokens")
        self._keys = SigningKeySet()
        self._document = b""
        self.changed: Callable[[], None] = lambda: None
        """Called on the loop when other keys count: what was believed by one that is gone is not any more."""
        self._seen: object = None
        self._tried_s = float("-inf")
        self._reading: asyncio.Task[bool] | None = None
        self._turning = RestartedTask("keys for signed tokens", self._turn)

    @property
    def _file(self) -> Path | None:
        return Path(unquote(self._parts.path)) if self._parts.scheme == "file" else None

    async def start(self) -> None:
        """Read the keys. Raises SigningKeysUnreadable for a file that has none; what is elsewhere may come later."""
        try:
            await asyncio.to_thread(self._read)
        except (OSError, ValueError) as error:
            if self._file is not None:
                raise SigningKeysUnreadable(
                    f"sasl.oauthbearer.jwks.endpoint.url is {self._url}, where no keys can be read: {error}"
                ) from error
            log.warning("no keys for signed tokens", url=self._url, why=str(error))
        self._turning.start()

    def close(self) -> None:
        self._checking.close()
        self._turning.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def believe(self, token: str) -> TokenSubject:
        """Raises TokenRefused; UnknownSigningKey where newer keys may help."""
        return verify_token(token, self._keys, self._expected, time.time())

    async def verify(self, token: str) -> SignedIdentity:
        """The same, for the gate: off the loop, and with newer keys where they help. Raises ValueError,
        Overloaded."""
        try:
            try:
                speaker = await self._checking.run(partial(self.believe, token))
            except UnknownSigningKey:
                if not await self.refreshed():
                    raise
                speaker = await self._checking.run(partial(self.believe, token))
        except HashingQueueFull:
            raise Overloaded("too many signed tokens wait to be checked; come again") from None
        return SignedIdentity(speaker.name, speaker.until_s)

    async def refreshed(self) -> bool:
        """Whether the keys were read anew: at most so often, however many tokens ask for it."""
        if self._reading is None or self._reading.done():
            if time.monotonic() - self._tried_s < REFRESH_LEAST_S:
                return False
            self._reading = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._reading)

    async def _turn(self) -> None:
        file = self._file
        while True:
            await asyncio.sleep(LOOK_S if file is not None else self._refresh_s)
            if file is None or await asyncio.to_thread(partial(stamp_file, file)) != self._seen:
                await self._refresh()

    async def _refresh(self) -> bool:
        self._tried_s, before = time.monotonic(), self._document
        try:
            await asyncio.to_thread(self._read)
        except (OSError, ValueError) as error:
            log.warning("no keys for signed tokens", url=self._url, why=str(error))
            return False
        if self._document != before:
            self.changed()
        return True

    def _read(self) -> None:
        """Blocks. What cannot be read leaves the keys as they are. Raises OSError, ValueError."""
        file = self._file
        if file is not None:
            self._seen = stamp_file(file)
            with file.open("rb") as opened:
                document = opened.read(MOST_JWKS_BYTES + 1)
        else:
            with build_opener(NoRedirect).open(self._url, timeout=FETCH_S) as answer:
                document = answer.read(MOST_JWKS_BYTES + 1)
        if len(document) > MOST_JWKS_BYTES:
            raise ValueError(f"it has more than {MOST_JWKS_BYTES} bytes")
        self._keys, self._document = parse_key_set(document), document


def stamp_file(file: Path) -> object:
    """What changes when the file does, by whatever way it was replaced."""
    try:
        found = os.stat(file)
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino


# Logins at Kafka's listener
# --------------------------

NONCE_BYTES = 24


class KafkaLogins:
    """Implements `muster.coordinator.kafka.connections.sasl_login.LoginService`. `secret`: of the node, the same after
    a restart.
    """

    def __init__(
        self,
        settings: AuthenticationSettings,
        state: SecurityState,
        secret: Callable[[], bytes],
        keys: SigningKeyRing | None,
        failed: KnownCaller,
    ) -> None:
        self.mechanisms = settings.mechanisms
        self.max_frame = settings.sasl_server_max_receive_size
        self.setup_s = settings.connection_setup_timeout_ms / 1000
        self.delay_s = settings.connection_failed_authentication_delay_ms / 1000
        self._max_reauth_s = settings.connections_max_reauth_ms / 1000
        self._state = state
        self._secret = secret
        self._keys = keys
        self._failed = failed
        self._hashing = HashingThreads("muster-login")
        self._here: dict[str, set[SaslLogin]] = {}
        self._by_token: set[SaslLogin] = set()

    def begin_exchange(self, mechanism: str) -> SaslMechanism:
        """See `Desk`."""
        if mechanism == "PLAIN":
            return PlainServer(self._password_of, lambda name: passwords.plain_stand_in(self._secret(), name))
        if mechanism == "OAUTHBEARER":
            assert self._keys is not None, "the settings say where they are"
            return OauthBearerServer(self._keys.believe)
        return ScramServer(
            mechanism,
            secrets.token_urlsafe(NONCE_BYTES),
            partial(self._credential_of, mechanism),
            lambda name: passwords.scram_stand_in(self._secret(), mechanism, LEAST_ITERATIONS, name),
        )

    async def offers(self, mechanism: str) -> int:
        """See `Desk`: all that the settings allow."""
        return NONE

    async def perform(self, mechanism: SaslMechanism, work: LoginWork) -> SaslChallenge | SaslSuccess:
        """See `Desk`."""
        try:
            try:
                return await self._hashing.run(work.run)
            except LoginFailed as failure:
                if str(failure) != UNKNOWN_KEY or self._keys is None or not await self._keys.refreshed():
                    raise
                return await self._hashing.run(work.run)
        except HashingQueueFull:
            raise LoginQueueFull from None
        except LoginFailed as failure:
            if isinstance(mechanism, OauthBearerServer):
                return mechanism.refused(str(failure))
            raise

    def identity(self, success: SaslSuccess, mechanism: str, host: str) -> Identity:
        """See `Desk`. What a login was compared with may have gone since: it is looked at when it is through."""
        if mechanism != "OAUTHBEARER" and success.name not in self._state.users:
            raise LoginFailed("deleted")
        now_s = time.monotonic()
        until_s = now_s + self._max_reauth_s if self._max_reauth_s else inf
        if success.until_s != inf:
            until_s = min(until_s, now_s + success.until_s - time.time())
        return Identity(Principal(USER, success.name), host, mechanism, until_s)

    def failed(self, host: str, mechanism: str, why: str) -> None:
        """See `Desk`."""
        self._failed(host, "kafka", mechanism, why)

    def came(self, login: SaslLogin) -> None:
        """See `Desk`."""
        if login.identity.mechanism == "OAUTHBEARER":
            self._by_token.add(login)
        else:
            self._here.setdefault(login.identity.principal.name, set()).add(login)

    def left(self, login: SaslLogin) -> None:
        """See `Desk`."""
        self._by_token.discard(login)
        name = login.identity.principal.name
        if logins := self._here.get(name):
            logins.discard(login)
            if not logins:
                del self._here[name]

    def clock_moved(self, by_s: float) -> None:
        """By so much the wall clock has gone on more (see `WallClock`): tokens end so much earlier. What clients were
        told stands where it was set back."""
        for login in self._by_token:
            login.ends_earlier(max(0.0, by_s))

    def changed(self) -> None:
        """Users may have gone: their connections go with them."""
        for name in [name for name in self._here if name not in self._state.users]:
            for login in tuple(self._here[name]):
                login.ended("its user was deleted")

    def close(self) -> None:
        self._hashing.close()

    def _credential_of(self, mechanism: str, name: str) -> ScramCredential | None:
        user = self._state.users.get(name)
        return user.scram.get(mechanism) if user is not None else None

    def _password_of(self, name: str) -> PasswordHash | None:
        user = self._state.users.get(name)
        return user.password if user is not None else None


# SCRAM users for Kafka's tools
# -----------------------------


class NodeScramUsers:
    """Implements `muster.coordinator.kafka.handlers.quotas_and_users.ScramUserStore`."""

    def __init__(self, accounts: UserAccounts, audit: AuditLog) -> None:
        self._accounts = accounts
        self._audit = audit

    def names(self) -> list[str]:
        return [name for name, user in self._accounts.users().items() if user.scram]

    def scram_of(self, name: str) -> Sequence[tuple[int, int]]:
        user = self._accounts.users().get(name)
        scram = {} if user is None else user.scram
        return sorted((SCRAM_NUMBERS[mechanism], each.iterations) for mechanism, each in scram.items())

    async def alter(
        self,
        call: KafkaCall,
        upsertions: Alterations,
        deletions: Deletions,
    ) -> Mapping[str, Outcome]:
        outcomes = await self._accounts.alter_scram([SaltedCredential(*each) for each in upsertions], deletions)
        for name, (code, _) in outcomes.items():
            outcome = f"refused: {code}" if code else "done"
            self._audit.acted(call.identity, "kafka", "AlterUserScramCredentials", name, outcome)
        return outcomes
