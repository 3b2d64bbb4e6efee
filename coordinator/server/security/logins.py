"""Who may log in at Kafka's door: the desk of all its connections. Passwords are hashed in threads, a few at a time."""

import secrets
import time
from collections.abc import Callable
from functools import partial
from math import inf

from muster.coordinator.config.authentication import AuthenticationSettings
from muster.coordinator.kafka.connections.login import NONE, LoginQueueFull, SaslLogin
from muster.coordinator.security import plain, scram
from muster.coordinator.security.conversation import LoginFailed, LoginWork, SaslChallenge, SaslMechanism, SaslSuccess
from muster.coordinator.security.facts import PasswordHash, ScramCredential
from muster.coordinator.security.identity import USER, Identity, Principal
from muster.coordinator.security.limits import LEAST_ITERATIONS
from muster.coordinator.security.oauth_bearer import OauthBearerServer
from muster.coordinator.security.plain import PlainServer
from muster.coordinator.security.scram import ScramServer
from muster.coordinator.security.signed_tokens import UNKNOWN_KEY
from muster.coordinator.security.state import SecurityState
from muster.coordinator.server.security.gate import KnownCaller
from muster.coordinator.server.security.hashing import HashingQueueFull, HashingThreads
from muster.coordinator.server.security.key_ring import SigningKeyRing

NONCE_BYTES = 24


class KafkaLogins:
    """Implements `muster.coordinator.kafka.connections.login.LoginService`. `secret`: of the node, the same after a
    restart.
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

    def begin(self, mechanism: str) -> SaslMechanism:
        """See `Desk`."""
        if mechanism == "PLAIN":
            return PlainServer(self._password_of, lambda name: plain.plain_stand_in(self._secret(), name))
        if mechanism == "OAUTHBEARER":
            assert self._keys is not None, "the settings say where they are"
            return OauthBearerServer(self._keys.believe)
        return ScramServer(
            mechanism,
            secrets.token_urlsafe(NONCE_BYTES),
            partial(self._credential_of, mechanism),
            lambda name: scram.scram_stand_in(self._secret(), mechanism, LEAST_ITERATIONS, name),
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
