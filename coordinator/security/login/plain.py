"""PLAIN on the server's side (RFC 4616), against scrypt (RFC 7914). To be spoken over TLS."""

import hmac
from collections.abc import Callable
from functools import partial
from hashlib import scrypt
from typing import Final

from muster.coordinator.security.facts import PasswordHash
from muster.coordinator.security.login.conversation import LoginFailed, Success, Work, text_of
from muster.coordinator.security.login.limits import MOST_PASSWORD_BYTES, MOST_USER_NAME_CHARS

N: Final = 1 << 14
R: Final = 8
P: Final = 1
"""16 MiB, and some 30 ms."""
MOST_MEMORY: Final = 64 << 20
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32


class PlainServer:
    """One conversation, of one message. `hash_of` and `stand_in` as of SCRAM."""

    def __init__(self, hash_of: Callable[[str], PasswordHash | None], stand_in: Callable[[str], PasswordHash]) -> None:
        self._hash_of = hash_of
        self._stand_in = stand_in

    def evaluate(self, data: bytes) -> Work:
        """See `Mechanism`."""
        name, password = said(data)
        known, stand_in = self._hash_of(name), self._stand_in(name)
        return Work(partial(checked, name, password, stand_in if known is None else known, known is not None))


def said(data: bytes) -> tuple[str, str]:
    """The name and the password of the client's message. Raises LoginFailed.

    >>> said(b"\\0alice\\0secret")
    ('alice', 'secret')
    """
    text = text_of(data, 2 * 4 * MOST_USER_NAME_CHARS + MOST_PASSWORD_BYTES + 2)
    parts = text.split("\0")
    if len(parts) != 3:
        raise LoginFailed("malformed")
    authzid, name, password = parts
    if not name or not password or len(name) > MOST_USER_NAME_CHARS:
        raise LoginFailed("malformed")
    if len(password.encode()) > MOST_PASSWORD_BYTES:
        raise LoginFailed("malformed")
    if authzid and authzid != name:
        raise LoginFailed("another's name")
    return name, password


def checked(name: str, password: str, kept: PasswordHash, known: bool) -> Success:
    right = hmac.compare_digest(hashed(password, kept.salt, kept.n, kept.r, kept.p), kept.hash)
    if not (right and known):
        raise LoginFailed("credentials")
    return Success(name)


def hashed(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=MOST_MEMORY, dklen=HASH_BYTES)


def password_hash(password: str, salt: bytes) -> PasswordHash:
    """What is kept of a password. Takes some 30 ms."""
    return PasswordHash(salt, hashed(password, salt, N, R, P), N, R, P)


def stand_in(secret: bytes, name: str) -> PasswordHash:
    """Of a name that nobody has: no password fits it."""
    seed = hmac.digest(secret, f"PLAIN:{name}".encode(), "sha512")
    return PasswordHash(seed[:SALT_BYTES], seed[-HASH_BYTES:], N, R, P)
