"""SASL conversations step by step (RFC 4422), API tokens, and every limit on users, tokens and unauthenticated clients.

A mechanism is an object with `evaluate(data)`, which returns a challenge, success, or work to be done off the event
loop. Pure: the owner of a conversation provides randomness, clocks and threads. A client never learns which part of a
login was wrong; the exception's word is for the audit log.

An API token is `muster_ID_SECRET`: secret scanners find it by its first word. The id is no secret; only one round of
SHA-256 over the token is kept.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from typing import Final, Protocol, TypeAlias

# Limits
# ------

MOST_USERS: Final = 100_000
"""That `__security` keeps."""
MOST_TOKENS: Final = 10_000
"""API tokens that `__security` keeps, ended ones included until they are taken away."""
MOST_USER_NAME_CHARS: Final = 255
MOST_TOKEN_NAME_CHARS: Final = 100
MOST_PRINCIPAL_CHARS: Final = 1_024
MOST_PASSWORD_BYTES: Final = 1_024
MOST_LIFETIME_MS: Final = 10 * 366 * 86_400_000
"""Of an API token that has an end: ten years."""

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384
"""Of PBKDF2 for SCRAM (RFC 7677, 4), as in Kafka."""
MOST_ALTERATIONS: Final = 100
"""Of SCRAM credentials in one request: each takes the node some milliseconds of hashing."""
LEAST_SALT_BYTES: Final = 8
MOST_SALT_BYTES: Final = 64

MOST_HASHING: Final = 2
"""Passwords that are hashed at once (scrypt: 16 MiB and some 30 ms each), in threads."""
MOST_WAITING_TO_HASH: Final = 200
"""Logins that wait for that; further ones are refused at once."""

MOST_TOKEN_BYTES: Final = 16 << 10
"""Of a token in a header, or in OAUTHBEARER's message."""
MOST_KNOWN_CALLERS: Final = 10_000
"""Pairs of an address and a token that were looked at, and need not be again."""

MOST_KEPT_CHARS: Final = 4_096
"""Of such a token; a longer one is looked at each time."""

MOST_BYTES_BEFORE_LOGIN: Final = 128 << 10
"""That a connection may send before it has shown who it is."""
MOST_REQUESTS_BEFORE_LOGIN: Final = 50
MOST_NONCE_CHARS: Final = 256
MOST_ADDRESSES_COUNTED: Final = 100
"""Whose failed logins are counted one by one; those of further addresses are counted together."""

MOST_KEYS: Final = 100
"""Of a set of keys (JWKS)."""
MOST_JWKS_BYTES: Final = 1 << 20
REFRESH_LEAST_S: Final = 10.0
"""A key that is not known makes the set be read again at most so often."""


# SASL conversations (RFC 4422)
# -----------------------------


class LoginFailed(Exception):
    """The text is a word for the audit: which part was wrong is never told to the client."""


@dataclass(frozen=True, slots=True)
class SaslChallenge:
    """The client is to say more."""

    data: bytes


@dataclass(frozen=True, slots=True)
class SaslSuccess:
    """The client has shown that it is `name`."""

    name: str
    data: bytes = b""
    """What it is told at the end."""
    until_s: float = inf
    """When that ends, by the wall clock."""


@dataclass(frozen=True, slots=True)
class LoginWork:
    """What has to be computed first, and takes too long for an event loop. A pure function; raises LoginFailed."""

    run: Callable[[], SaslSuccess]


LoginStep: TypeAlias = SaslChallenge | SaslSuccess | LoginWork


class SaslMechanism(Protocol):
    """One conversation, on the server's side."""

    def evaluate(self, data: bytes) -> LoginStep:
        """What follows from the client's next words. Raises LoginFailed, for any bytes that are none of the mechanism.

        It is not asked again after that, or after a Success.
        """


def decode_text(data: bytes, most: int) -> str:
    """Words in UTF-8. Raises LoginFailed."""
    if len(data) > most:
        raise LoginFailed("malformed")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise LoginFailed("malformed") from None


def unescape_saslname(name: str) -> str:
    """A name as it is, of what RFC 5801 calls a saslname. Raises LoginFailed.

    >>> unescape_saslname("a=2Cb=3Dc")
    'a,b=c'
    """
    pieces = name.split("=")
    found = pieces[0]
    for piece in pieces[1:]:
        if piece[:2] not in ("2C", "3D"):
            raise LoginFailed("malformed")
        found += ("," if piece[:2] == "2C" else "=") + piece[2:]
    if not found or "," in name or "\0" in found:
        raise LoginFailed("malformed")
    return found


# API tokens
# ----------

TOKEN_PREFIX: Final = "muster_"
TOKEN_ID_BYTES: Final = 8
TOKEN_SECRET_BYTES: Final = 32
TOKEN_PATTERN: Final = re.compile(r"muster_([0-9a-f]{16})_([0-9a-f]{64})")


def format_token(id_: bytes, secret: bytes) -> str:
    """
    >>> format_token(bytes(8), bytes(32))[:30]
    'muster_0000000000000000_000000'
    """
    assert (len(id_), len(secret)) == (TOKEN_ID_BYTES, TOKEN_SECRET_BYTES)
    return f"{TOKEN_PREFIX}{id_.hex()}_{secret.hex()}"


def token_id(text: str) -> str:
    """Empty where it is no API token.

    >>> token_id(format_token(bytes(8), bytes(32))), token_id("muster_1_2")
    ('0000000000000000', '')
    """
    found = TOKEN_PATTERN.fullmatch(text)
    return found[1] if found else ""


def hash_token(text: str) -> bytes:
    """All that is kept. A secret of 256 random bits cannot be guessed, so that one round is enough."""
    return sha256(text.encode()).digest()
