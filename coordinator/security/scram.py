"""SCRAM on the server's side (RFC 5802, RFC 7677), and what is kept of a password for it.

A name that nobody has gets a salt and a count of iterations that look like anybody's, and the same answer at the same
point as a wrong password. Names and passwords are UTF-8 as they come, as in Kafka: SASLprep is the client's.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import new, pbkdf2_hmac
from typing import Final, NamedTuple

from muster.coordinator.security.conversation import (
    LoginFailed,
    SaslChallenge,
    SaslSuccess,
    decode_text,
    unescape_saslname,
)
from muster.coordinator.security.facts import ScramCredential
from muster.coordinator.security.limits import MOST_NONCE_CHARS, MOST_USER_NAME_CHARS

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SCRAM_KEY_BYTES: Final = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
"""Bytes of a key."""
SCRAM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's (KIP-554)."""
MAX_SCRAM_MESSAGE_BYTES: Final = 4_096
"""Of one message of the client's."""
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramServer:
    """One conversation. `nonce`: the server's half, printable, never used before.

    `credential_of` gives what is kept of a user by name, `scram_stand_in` the like of a name that nobody has.
    """

    def __init__(
        self,
        mechanism: str,
        nonce: str,
        credential_of: Callable[[str], ScramCredential | None],
        stand_in: Callable[[str], ScramCredential],
    ) -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self._size = SCRAM_KEY_BYTES[mechanism]
        self._own_nonce = nonce
        self._credential_of = credential_of
        self._stand_in = stand_in
        self._begun = False

    def evaluate(self, data: bytes) -> SaslChallenge | SaslSuccess:
        """See `Mechanism`."""
        text = decode_text(data, MAX_SCRAM_MESSAGE_BYTES)
        if self._begun:
            return self._final(text)
        self._begun = True
        return self._first(text)

    def _first(self, text: str) -> SaslChallenge:
        said = parse_client_first(text)
        self._name = said.name
        known, stand_in = self._credential_of(self._name), self._stand_in(self._name)
        self._known = known is not None
        self._credential = stand_in if known is None else known
        self._header = said.header
        self._nonce = said.nonce + self._own_nonce
        # librdkafka before 2.6.1 puts its own half before the whole once more. All of ours is signed either way.
        self._nonces = {self._nonce, said.nonce + self._nonce}
        salt = b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._said = f"{said.bare},{answer}"
        return SaslChallenge(answer.encode())

    def _final(self, text: str) -> SaslSuccess:
        """Such as `c=biws,r=NONCE,p=PROOF`."""
        plain, found, proof = text.rpartition(",p=")
        binding, *more = plain.split(",")
        if not found or binding[:2] != "c=" or not more or any(not is_attribute(each) for each in more):
            raise LoginFailed("malformed")
        if decode_scram_base64(binding[2:]) != self._header.encode():
            raise LoginFailed("channel binding")
        if more[0][:2] != "r=" or more[0][2:] not in self._nonces:
            raise LoginFailed("nonce")
        said = f"{self._said},{plain}".encode()
        given = decode_scram_base64(proof)
        if len(given) != self._size:
            raise LoginFailed("malformed")
        signature = hmac.digest(self._credential.stored_key, said, self._hash)
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        right = hmac.compare_digest(hash_bytes(client_key, self._hash), self._credential.stored_key)
        answer = b64encode(hmac.digest(self._credential.server_key, said, self._hash))
        if not (right and self._known):
            raise LoginFailed("credentials")
        return SaslSuccess(self._name, b"v=" + answer)


class ClientFirstMessage(NamedTuple):
    """The client's first message: what binds the channel, what is signed, who it is, and its half of the nonce."""

    header: str
    bare: str
    name: str
    nonce: str


def parse_client_first(text: str) -> ClientFirstMessage:
    """Of such as `n,,n=alice,r=NONCE`. Raises LoginFailed.

    >>> parse_client_first("n,,n=al=2Cice,r=abc").name
    'al,ice'
    """
    binding, comma, rest = text.partition(",")
    authzid, second, bare = rest.partition(",")
    if binding not in ("n", "y") or not (comma and second):
        raise LoginFailed("channel binding" if binding.startswith("p=") else "malformed")
    user, *more = bare.split(",")
    if user[:2] != "n=" or not more or more[0][:2] != "r=" or any(not is_attribute(each) for each in more):
        raise LoginFailed("malformed")
    if len(user) > 3 * MOST_USER_NAME_CHARS or not is_nonce(more[0][2:]):
        raise LoginFailed("malformed")
    if any(each.startswith("tokenauth=") and each != "tokenauth=false" for each in more[1:]):
        raise LoginFailed("delegation token")
    name = unescape_saslname(user[2:])
    if len(name) > MOST_USER_NAME_CHARS:
        raise LoginFailed("malformed")
    if authzid and (authzid[:2] != "a=" or unescape_saslname(authzid[2:]) != name):
        raise LoginFailed("another's name")
    return ClientFirstMessage(f"{binding},{authzid},", bare, name, more[0][2:])


def is_attribute(text: str) -> bool:
    """Whether this may be one; a client that insists on an extension (`m=`) is refused."""
    name, equals, _ = text.partition("=")
    return bool(equals) and name.isascii() and name.isalpha() and name != "m"


def is_nonce(text: str) -> bool:
    return 0 < len(text) <= MOST_NONCE_CHARS and text.isascii() and text.isprintable() and " " not in text


def decode_scram_base64(text: str) -> bytes:
    """Of Base64. Raises LoginFailed."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise LoginFailed("malformed") from None


def hash_bytes(data: bytes, name: str) -> bytes:
    return new(name, data).digest()


def salt_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword: what a client computes of a password, and Kafka's tools send. Takes milliseconds."""
    return pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)


def make_scram_credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What is kept of it."""
    name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, iterations, hash_bytes(client_key, name), server_key)


def format_salt(number: int) -> bytes:
    """A salt of 130 random bits as Kafka's tools make it, so that nobody sees by it which tool made a user.

    >>> format_salt(35), format_salt(36)
    (b'z', b'10')
    """
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return digits.encode()


def scram_stand_in(secret: bytes, mechanism: str, iterations: int, name: str) -> ScramCredential:
    """Of a name that nobody has: the same whenever it is asked for. No proof fits it."""
    seed = hmac.digest(secret, f"{mechanism}:{name}".encode(), "sha512")
    size = SCRAM_KEY_BYTES[mechanism]
    salt = format_salt(int.from_bytes(seed[:17], "big") >> 6)
    keys = hmac.digest(seed, b"stored", "sha512"), hmac.digest(seed, b"server", "sha512")
    return ScramCredential(salt, iterations, keys[0][:size], keys[1][:size])
