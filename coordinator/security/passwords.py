"""Password logins on the server's side, SCRAM and PLAIN, and the credentials that are kept of a user.

SCRAM (RFC 5802, RFC 7677): an unknown name gets a salt and an iteration count that look like any user's, and the same
answer at the same point as a wrong password. Names and passwords are UTF-8 as sent, as in Kafka: SASLprep is up to the
client. PLAIN (RFC 4616) is checked against scrypt (RFC 7914) and must be spoken over TLS.

Pure: salts and nonces are arguments. Hashing takes milliseconds, so callers do it off the event loop.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import new, pbkdf2_hmac, scrypt
from typing import Final, NamedTuple

from muster.coordinator.security.login import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    MOST_NONCE_CHARS,
    MOST_PASSWORD_BYTES,
    MOST_USER_NAME_CHARS,
    LoginFailed,
    LoginWork,
    SaslChallenge,
    SaslSuccess,
    decode_text,
    unescape_saslname,
)
from muster.coordinator.security.state import PasswordHash, ScramCredential, User

# SCRAM (RFC 5802, RFC 7677)
# --------------------------

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
        """See `SaslMechanism`."""
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


# PLAIN (RFC 4616)
# ----------------

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
        """See `SaslMechanism`."""
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


# Credentials of a new user
# -------------------------

LEAST_PASSWORD_BYTES: Final = 8
SALT_BITS: Final = 130


def check_user_name(name: str) -> str:
    """The name of a user. Raises ValueError."""
    if not name or len(name) > MOST_USER_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"a user is called {name[:60]!r}; expected 1 to {MOST_USER_NAME_CHARS} printable characters, without "
            "spaces at the ends"
        )
    return name


def check_password(password: str) -> str:
    """Raises ValueError, which does not show it."""
    size = len(password.encode("utf-8", "surrogatepass"))
    if not LEAST_PASSWORD_BYTES <= size <= MOST_PASSWORD_BYTES or "\0" in password:
        raise ValueError(
            f"the password has {size} bytes; expected {LEAST_PASSWORD_BYTES} to {MOST_PASSWORD_BYTES}, none of them 0"
        )
    return password


def check_iterations(iterations: int) -> int:
    """Raises ValueError."""
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ValueError(f"iterations are {iterations}; expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
    return iterations


def make_user(name: str, password: str, numbers: Iterable[int], iterations: int = LEAST_ITERATIONS) -> User:
    """What is kept of them: for SCRAM of both kinds, and for PLAIN. Takes some 50 ms. Raises ValueError.

    `numbers`: random ones of SALT_BITS bits, as many as are asked for.
    """
    check_user_name(name)
    check_password(password)
    check_iterations(iterations)
    drawn = iter(numbers)
    kept: Mapping[str, ScramCredential] = {
        mechanism: hash_scram_password(mechanism, password, next(drawn), iterations) for mechanism in SCRAM_HASHES
    }
    return User(name, kept, hash_plain_password(password, next(drawn)))


def hash_scram_password(mechanism: str, password: str, number: int, iterations: int) -> ScramCredential:
    salt = format_salt(number)
    return make_scram_credential(mechanism, salt_password(mechanism, password, salt, iterations), salt, iterations)


def hash_plain_password(password: str, number: int) -> PasswordHash:
    return make_password_hash(password, (number & ((1 << 8 * SALT_BYTES) - 1)).to_bytes(SALT_BYTES, "big"))
