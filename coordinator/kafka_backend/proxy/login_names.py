"""Which name a client's exchange with its broker is about, and from when on that counts (KB-X10). Pure.

Nobody is anybody before the broker has said yes: of PLAIN with its answer, of SCRAM with that to the second message, of
OAUTHBEARER with one that has nothing to complain of. What the name cannot be told of (a delegation token, whose id says
nothing of whose it is; a token that is no JWT) is refused before it is passed on.
"""

import json
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from typing import Any, Final

from muster.coordinator.security import oauth_bearer, plain, scram
from muster.coordinator.security.conversation import LoginFailed, LoginWork, SaslChallenge, SaslSuccess, decode_text
from muster.coordinator.security.limits import MOST_TOKEN_BYTES, MOST_USER_NAME_CHARS

MADE_OF: Final = 3
"""Parts of a signed token (RFC 7515), of one without a signature as well."""

PROOF: Final = b"v="
"""How a broker begins its last word of SCRAM, where it has found the client's proof good."""


class RelayedExchange:
    """One login. It is a `Mechanism` whose work the broker does: `parse_plain_message` is to be passed on to it, and
    `answered` says
    what its answer comes to."""

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
        """See `Mechanism`."""
        if self._waiting or self._over:
            raise LoginFailed("out of turn")
        self._over = True  # unless it is found good
        self._messages += 1
        if self._mechanism == "PLAIN":
            self._name = plain.parse_plain_message(data)[0]
        elif self._mechanism == "OAUTHBEARER":
            self._name = "" if data == b"\x01" and self._messages > 1 else name_in_message(data, self._claim)
        elif self._messages == 1:
            self._name = scram.parse_client_first(decode_text(data, scram.MAX_SCRAM_MESSAGE_BYTES)).name
        else:
            decode_text(data, scram.MAX_SCRAM_MESSAGE_BYTES)
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
