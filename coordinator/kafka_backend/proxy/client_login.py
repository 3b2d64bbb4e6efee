"""Logs a client in at its broker: the SASL exchange passes through, and the broker's yes tells under which name
(KB-X10).

No client has a name before the broker has accepted it: of PLAIN with its answer, of SCRAM with the answer to the
second message, of OAUTHBEARER with one that has nothing to complain of. A credential that does not tell its name (a
delegation token, whose id does not say whose it is; a token that is no JWT) is refused before it is passed on.
"""

import json
import time
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.connections.received_requests import FrameBuffer
from muster.coordinator.kafka.connections.sasl_login import UNSUPPORTED_SASL_MECHANISM, LoginConnection, SaslLogin
from muster.coordinator.kafka.dispatch import ClientPeer
from muster.coordinator.security import oauth_bearer, passwords
from muster.coordinator.security.access_model import USER, Identity, Principal
from muster.coordinator.security.login import (
    MOST_TOKEN_BYTES,
    MOST_USER_NAME_CHARS,
    LoginFailed,
    LoginWork,
    SaslChallenge,
    SaslMechanism,
    SaslSuccess,
    decode_text,
)

# Which name an exchange is about. Pure
# -------------------------------------

MADE_OF: Final = 3
"""Parts of a signed token (RFC 7515), of one without a signature as well."""

PROOF: Final = b"v="
"""How a broker begins its last word of SCRAM, where it has found the client's proof good."""


class RelayedExchange:
    """One login. It is a `SaslMechanism` whose work the broker does: `parse_plain_message` is to be passed on to it,
    and `answered` says what its answer comes to."""

    def __init__(self, mechanism: str, claim: str = "sub") -> None:
        """claim: the one of a token that names whom it speaks of."""
        self._mechanism = mechanism
        self._claim = claim
        self._messages = 0
        self._over = False
        self._name = ""
        self._waiting = False
        self.said = b""

    def evaluate(self, data: bytes) -> LoginWork:
        """See `SaslMechanism`."""
        if self._waiting or self._over:
            raise LoginFailed("out of turn")
        self._over = True  # unless it is found good
        self._messages += 1
        if self._mechanism == "PLAIN":
            self._name = passwords.parse_plain_message(data)[0]
        elif self._mechanism == "OAUTHBEARER":
            self._name = "" if data == b"\x01" and self._messages > 1 else name_in_message(data, self._claim)
        elif self._messages == 1:
            self._name = passwords.parse_client_first(decode_text(data, passwords.MAX_SCRAM_MESSAGE_BYTES)).name
        else:
            decode_text(data, passwords.MAX_SCRAM_MESSAGE_BYTES)
        self._over, self._waiting, self.said = False, True, data
        return LoginWork(broker_mechanisms)

    def answered(self, code: int, data: bytes) -> SaslChallenge | SaslSuccess:
        """The broker's answer to what was passed on last. Raises LoginFailed where that is no."""
        if not self._waiting or self._over:
            raise LoginFailed("an answer to nothing")
        self._waiting = False
        if code:
            self._over = True
            raise LoginFailed("credentials")
        if not self._is_yes(data):
            return SaslChallenge(data)
        self._over = True
        return SaslSuccess(self._name, data)

    def _is_yes(self, data: bytes) -> bool:
        if self._mechanism == "PLAIN":
            return True
        if self._mechanism == "OAUTHBEARER":
            return not data and bool(self._name)
        return self._messages > 1 and data.startswith(PROOF)


def broker_mechanisms() -> SaslSuccess:
    raise AssertionError("the broker decides")


def name_in_message(data: bytes, claim: str) -> str:
    """Whom the token of OAUTHBEARER's message speaks of. The broker, not this, finds out whether it is to be believed.
    Raises LoginFailed."""
    token, authzid = oauth_bearer.parse_bearer_message(decode_text(data, MOST_TOKEN_BYTES))
    name = name_in_token(token, claim)
    if authzid and authzid != name:
        raise LoginFailed("another's name")
    return name


def name_in_token(token: str, claim: str) -> str:
    """
    >>> name_in_token("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.", "sub")
    'alice'
    """
    parts = token.split(".")
    if len(parts) != MADE_OF:
        raise LoginFailed("a token that names nobody")
    try:
        payload = urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = json.loads(payload, object_pairs_hook=require_unique_claims)
    except (NotBase64, ValueError, RecursionError):
        raise LoginFailed("a token that names nobody") from None
    name = claims.get(claim) if isinstance(claims, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= MOST_USER_NAME_CHARS or "\0" in name:
        raise LoginFailed("a token that names nobody")
    return name


def require_unique_claims(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two claims of one name nobody knows which the broker takes. Raises ValueError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found


# The login of one connection, relayed to its broker
# --------------------------------------------------

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

    def begin_exchange(self, mechanism: str) -> SaslMechanism:
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
