"""What a conversation of SASL comes to, step by step (RFC 4422). A mechanism is an object with `evaluate(data)`."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeAlias


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
