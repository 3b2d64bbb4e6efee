"""What is kept of a new user. Pure: the salts are brought along."""

from collections.abc import Iterable, Mapping
from typing import Final

from muster.coordinator.security import scram
from muster.coordinator.security.facts import PasswordHash, ScramCredential, User
from muster.coordinator.security.limits import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    MOST_PASSWORD_BYTES,
    MOST_USER_NAME_CHARS,
)
from muster.coordinator.security.plain import SALT_BYTES, make_password_hash

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
        mechanism: hash_scram_password(mechanism, password, next(drawn), iterations) for mechanism in scram.SCRAM_HASHES
    }
    return User(name, kept, hash_plain_password(password, next(drawn)))


def hash_scram_password(mechanism: str, password: str, number: int, iterations: int) -> ScramCredential:
    salt = scram.format_salt(number)
    return scram.make_scram_credential(
        mechanism, scram.salt_password(mechanism, password, salt, iterations), salt, iterations
    )


def hash_plain_password(password: str, number: int) -> PasswordHash:
    return make_password_hash(password, (number & ((1 << 8 * SALT_BYTES) - 1)).to_bytes(SALT_BYTES, "big"))
