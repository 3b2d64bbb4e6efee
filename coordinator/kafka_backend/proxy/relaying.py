"""The desk at which one connection's client logs in: its own broker, which is asked on its own way there (KB-X10)."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.connections.frames import FrameBuffer
from muster.coordinator.kafka.connections.login import UNSUPPORTED_SASL_MECHANISM, LoginConnection, SaslLogin
from muster.coordinator.kafka.dispatch import ClientPeer
from muster.coordinator.kafka_backend.proxy.login_names import RelayedExchange
from muster.coordinator.security.conversation import LoginFailed, LoginWork, SaslChallenge, SaslMechanism, SaslSuccess
from muster.coordinator.security.identity import USER, Identity, Principal

HANDSHAKE: Final = 1
"""The version of SaslHandshake after which words come in requests of their own."""

AskBroker = Callable[[str, int, Any], Awaitable[Any]]
"""An API, its version and a request, to the broker; its answer."""


@dataclass(frozen=True, slots=True)
class RelayRules:
    """What all connections of a listener have in common. mechanisms: those that may pass. claim: see `RelayedExchange`.
    failed: hears of logins that were refused: the address, the mechanism and why."""

    mechanisms: Sequence[str]
    claim: str
    max_frame: int
    setup_s: float
    delay_s: float
    failed: Callable[[str, str, str], None]


class RelayedDesk:
    """A `Desk` of one connection."""

    def __init__(self, rules: RelayRules, ask: AskBroker) -> None:
        self._rules = rules
        self._ask = ask
        self.mechanisms = rules.mechanisms
        self.max_frame = rules.max_frame
        self.setup_s = rules.setup_s
        self.delay_s = rules.delay_s
        self.version = 1
        """Of SaslAuthenticate, as the client speaks it: to one of version 0 a broker tells no end of its login."""

    def begin(self, mechanism: str) -> SaslMechanism:
        """See `Desk`."""
        return RelayedExchange(mechanism, self._rules.claim)

    async def offers(self, mechanism: str) -> int:
        """See `Desk`: the broker's code."""
        answer = await self._ask("SaslHandshake", HANDSHAKE, struct("SaslHandshakeRequest")(mechanism=mechanism))
        if answer.error_code == UNSUPPORTED_SASL_MECHANISM:
            self._rules.failed("", mechanism, "the upstream does not speak it")
        return int(answer.error_code)

    async def perform(self, mechanism: SaslMechanism, work: LoginWork) -> SaslChallenge | SaslSuccess:
        """See `Desk`."""
        assert isinstance(mechanism, RelayedExchange), "it was begun here"
        request = struct("SaslAuthenticateRequest")(auth_bytes=mechanism.said)
        answer = await self._ask("SaslAuthenticate", self.version, request)
        step = mechanism.answered(answer.error_code, bytes(answer.auth_bytes))
        if isinstance(step, SaslSuccess) and answer.session_lifetime_ms > 0:
            return SaslSuccess(step.name, step.data, time.time() + answer.session_lifetime_ms / 1000)
        return step

    def identity(self, success: SaslSuccess, mechanism: str, host: str) -> Identity:
        """See `Desk`. Until when the broker believes it is the broker's to say."""
        if not success.name:
            raise LoginFailed("nobody")
        until_s = inf if success.until_s == inf else time.monotonic() + success.until_s - time.time()
        return Identity(Principal(USER, success.name), host, mechanism, until_s)

    def failed(self, host: str, mechanism: str, why: str) -> None:
        """See `Desk`."""
        self._rules.failed(host, mechanism, why)

    def came(self, login: SaslLogin) -> None:
        """See `Desk`. Users that go are the upstream's: it ends their connections, and with them the client's."""

    def left(self, login: SaslLogin) -> None:
        """See `Desk`."""


class ClientLogin(SaslLogin):
    """A `SaslLogin` at a broker; `ask` asks the one to which the client's connection leads."""

    def __init__(
        self, rules: RelayRules, ask: AskBroker, peer: ClientPeer, frames: FrameBuffer, connection: LoginConnection
    ) -> None:
        self.relay = RelayedDesk(rules, ask)
        super().__init__(self.relay, peer, frames, connection)
