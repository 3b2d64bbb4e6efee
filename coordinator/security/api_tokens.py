"""API tokens: what one looks like, and what is kept of it.

`muster_ID_SECRET`: a program that looks for secrets in files finds it by its first word. The id is no secret.
"""

import re
from hashlib import sha256
from typing import Final

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
