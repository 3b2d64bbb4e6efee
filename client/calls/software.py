"""What this client calls itself to a node: the first word of gRPC's user agent. Kafka's clients do alike (KIP-511)."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

NAME = "muster-python"
DISTRIBUTION = "muster-groups"


@cache
def user_agent() -> str:
    """Name and version; the name alone where Muster runs without having been installed."""
    try:
        return f"{NAME}/{version(DISTRIBUTION)}"
    except PackageNotFoundError:
        return NAME
