"""Every number that bounds users, tokens and what may be asked for before anybody has shown who they are."""

from typing import Final

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
REFRESH_S: Final = 3_600.0
"""Otherwise it is read again so often."""
