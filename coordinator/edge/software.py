"""What a client says it runs, in one form for both doors: `librdkafka 2.16.0`. It is kept in sentences of the ledger.

Kafka's clients say it with ApiVersions (KIP-511), gRPC's in their user agent, whose first word is the client itself.
"""

import re
from functools import lru_cache
from typing import Final

WORD: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]{0,253}[a-zA-Z0-9])?")
"""What may be a name or a version (KIP-511), in so many characters as the ledger has room for."""

AGENTS_KEPT: Final = 64


def is_software_word(text: str) -> bool:
    """Whether KIP-511 takes this as a name or a version."""
    return WORD.fullmatch(text) is not None


def format_software(name: str, version: str) -> str:
    """Both in one; empty when the client said neither."""
    return f"{name} {version}".strip()


@lru_cache(AGENTS_KEPT)
def parse_user_agent(agent: str) -> str:
    """The software that a user agent begins with; empty for what no client calls itself.

    >>> parse_user_agent("muster-python/0.1.0 grpc-python-asyncio/1.76.0 grpc-c/51.0.0 (linux; chttp2)")
    'muster-python 0.1.0'
    >>> parse_user_agent("grpc-go/1.60.0"), parse_user_agent("muster-python grpc-c/51.0.0"), parse_user_agent("(none)")
    ('grpc-go 1.60.0', 'muster-python', '')
    """
    name, _, version = agent.partition(" ")[0].partition("/")
    if not is_software_word(name):
        return ""
    return format_software(name, version if is_software_word(version) else "")
