"""API tokens: what one looks like, and what is kept of it.

`muster_ID_SECRET`: a program that looks for secrets in files finds it by its first word. The id is no secret.
"""

import re
from hashlib import sha256
from typing import Final

PREFIX: Final = "muster_"
ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
SHAPE: Final = re.compile(r"muster_([0-9a-f]{16})_([0-9a-f]{64})")


def token_of(id_: bytes, secret: bytes) -> str:
    """
    >>> token_of(bytes(8), bytes(32))[:30]
    'muster_0000000000000000_000000'
    """
    assert (len(id_), len(secret)) == (ID_BYTES, SECRET_BYTES)
    return f"{PREFIX}{id_.hex()}_{secret.hex()}"


def id_of(text: str) -> str:
    """Empty where it is no API token.

    >>> id_of(token_of(bytes(8), bytes(32))), id_of("muster_1_2")
    ('0000000000000000', '')
    """
    found = SHAPE.fullmatch(text)
    return found[1] if found else ""


def hash_of(text: str) -> bytes:
    """All that is kept. A secret of 256 random bits cannot be guessed, so that one round is enough."""
    return sha256(text.encode()).digest()
