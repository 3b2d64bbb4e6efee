"""OAUTHBEARER on the server's side (RFC 7628): a signed token, said by SASL."""

import json
import re
from collections.abc import Callable
from typing import Final

from muster.coordinator.security.conversation import (
    LoginFailed,
    LoginStep,
    LoginWork,
    SaslChallenge,
    SaslSuccess,
    decode_text,
    unescape_saslname,
)
from muster.coordinator.security.limits import MOST_TOKEN_BYTES
from muster.coordinator.security.signed_tokens import TokenRefused, TokenSubject

PAIR: Final = re.compile(r"([A-Za-z]+)=([\x20-\x7e\t\r\n]*)")
REFUSAL: Final = json.dumps({"status": "invalid_token"}).encode()
"""What the client is told (RFC 7628, 3.2.2); it answers with one byte, and hears then that it has failed."""


class OauthBearerServer:
    """One conversation. `verify` says whom a token speaks of; raises Unbelieved. It is called off the loop."""

    def __init__(self, verify: Callable[[str], TokenSubject]) -> None:
        self._verify = verify
        self._refused = ""

    def evaluate(self, data: bytes) -> LoginStep:
        """See `Mechanism`."""
        if self._refused:
            raise LoginFailed(self._refused)
        token, authzid = parse_bearer_message(decode_text(data, MOST_TOKEN_BYTES))

        def check() -> SaslSuccess:
            try:
                speaker = self._verify(token)
            except TokenRefused as error:
                raise LoginFailed(str(error)) from None
            if authzid and authzid != speaker.name:
                raise LoginFailed("another's name")
            return SaslSuccess(speaker.name, until_s=speaker.until_s)

        return LoginWork(check)

    def refused(self, why: str) -> SaslChallenge:
        """After its Work has failed: what the client is told first."""
        self._refused = why
        return SaslChallenge(REFUSAL)


def parse_bearer_message(text: str) -> tuple[str, str]:
    """The token, and the name that is asked for, of the client's message. Raises LoginFailed.

    >>> parse_bearer_message("n,a=me,\\x01auth=Bearer a.b.c\\x01host=x\\x01\\x01")
    ('a.b.c', 'me')
    """
    header, *pairs = text.split("\x01")
    flag, _, rest = header.partition(",")
    authzid, comma, left = rest.partition(",")
    if flag not in ("n", "y") or not comma or left or len(pairs) < 3 or pairs[-1] or pairs[-2]:
        raise LoginFailed("malformed")
    if authzid and authzid[:2] != "a=":
        raise LoginFailed("malformed")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        match = PAIR.fullmatch(pair)
        if match is None or match[1] in found:
            raise LoginFailed("malformed")
        found[match[1]] = match[2]
    kind, _, token = found.get("auth", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise LoginFailed("malformed")
    return token.strip(), unescape_saslname(authzid[2:]) if authzid else ""
