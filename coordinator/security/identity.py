"""Who speaks on a connection, or in a call."""

from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

USER = "User"
"""The only kind of principal that Kafka's own authenticators make."""


class Principal(NamedTuple):
    """Somebody, as access control lists name them: `User:alice` (KIP-11)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Who has not said who they are."""

ANYONE = Principal(USER, "*")
"""Everybody, in an access control list."""


def parse_principal(text: str) -> Principal:
    """Raises ValueError.

    >>> parse_principal("User:CN=worker-1,O=Example")
    Principal(kind='User', name='CN=worker-1,O=Example')
    """
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is no principal; expected KIND:NAME, such as User:alice")
    return Principal(kind, name)


def check_principal(text: str) -> str:
    """One that somebody may come as. Raises ValueError: what names nobody is a mistake, and bad where it denies.

    >>> check_principal("User:alice")
    'User:alice'
    """
    kind, name = parse_principal(text)
    if kind != USER and kind.strip().lower() == USER.lower():
        raise ValueError(f"{text!r} names nobody: kinds of principals are written as they are, {USER}:{name}")
    if name != name.strip():
        raise ValueError(f"{text!r} names nobody: expected no spaces before or behind the name")
    return text


@dataclass(slots=True)
class KnownTopicRights:
    """What somebody's rights to topics were when they were asked for last, and in which moment of the lists."""

    moment: object = None
    rights: Any = None
    """A `core.rights.Rights`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A principal, from where it speaks and how it has shown who it is. One object as long as nothing of it changes."""

    principal: Principal
    host: str
    """Its address, without the port."""
    mechanism: str = ""
    """Such as `SCRAM-SHA-256`, `mTLS`, `TOKEN`; empty for who has shown nothing."""
    until_s: float = inf
    """When it ends, by the monotonic clock: a token's end, or the next re-authentication."""
    token_id: str = ""
    """Of the API token by which it came, to be looked up when tokens are revoked."""
    cleared: dict[tuple[int, str], object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What it was found to have a right to, and in which moment of the lists; the doors' judges'."""
    told: KnownTopicRights = field(default_factory=KnownTopicRights, init=False, repr=False, compare=False)
    """Of this one only: whoever is made from it is asked for anew (`edge/rights.py`)."""

    @property
    def anonymous(self) -> bool:
        return self.principal == ANONYMOUS


UNAUTHENTICATED = Identity(ANONYMOUS, "")
"""Whoever asks, where nobody is asked who they are."""
