"""PLAIN on the server's side (RFC 4616), against scrypt (RFC 7914). To be spoken over TLS."""

import hmac
from collections.abc import Callable
from functools import partial
from hashlib import scrypt
from typing import Final

from muster.coordinator.security.conversation import LoginFailed, LoginWork, SaslSuccess, decode_text
from muster.coordinator.security.facts import PasswordHash
from muster.coordinator.security.limits import MOST_PASSWORD_BYTES, MOST_USER_NAME_CHARS

SCRYPT_N: Final = 1 << 14
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
"""16 MiB, and some 30 ms."""
SCRYPT_MAX_MEMORY: Final = 64 << 20
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32


class PlainServer:
    """One conversation, of one message. `hash_of` and `plain_stand_in` as of SCRAM."""

    def __init__(self, hash_of: Callable[[str], PasswordHash | None], stand_in: Callable[[str], PasswordHash]) -> None:
        self._hash_of = hash_of
        self._stand_in = stand_in

    def evaluate(self, data: bytes) -> LoginWork:
        """See `Mechanism`."""
        name, password = parse_plain_message(data)
        known, stand_in = self._hash_of(name), self._stand_in(name)
        return LoginWork(
            partial(check_plain_password, name, password, stand_in if known is None else known, known is not None)
        )


def parse_plain_message(data: bytes) -> tuple[str, str]:
    """The name and the password of the client's message. Raises LoginFailed.

    >>> parse_plain_message(b"\\0alice\\0secret")
    ('alice', 'secret')
    """
    text = decode_text(data, 2 * 4 * MOST_USER_NAME_CHARS + MOST_PASSWORD_BYTES + 2)
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


def check_plain_password(name: str, password: str, kept: PasswordHash, known: bool) -> SaslSuccess:
    right = hmac.compare_digest(scrypt_password(password, kept.salt, kept.n, kept.r, kept.p), kept.hash)
    if not (right and known):
        raise LoginFailed("credentials")
    return SaslSuccess(name)


def scrypt_password(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=SCRYPT_MAX_MEMORY, dklen=HASH_BYTES)


def make_password_hash(password: str, salt: bytes) -> PasswordHash:
    """What is kept of a password. Takes some 30 ms."""
    return PasswordHash(
        salt, scrypt_password(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P), SCRYPT_N, SCRYPT_R, SCRYPT_P
    )


def plain_stand_in(secret: bytes, name: str) -> PasswordHash:
    """Of a name that nobody has: no password fits it."""
    seed = hmac.digest(secret, f"PLAIN:{name}".encode(), "sha512")
    return PasswordHash(seed[:SALT_BYTES], seed[-HASH_BYTES:], SCRYPT_N, SCRYPT_R, SCRYPT_P)
