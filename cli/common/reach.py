"""Whether anybody listens where a command is told to go: a port that refuses is said at once, not after a wait."""

import socket
from collections.abc import Iterable

from muster.cli.common.errors import Unhealthy

PATIENCE_S = 1.0
"""For one look. Who does not answer sooner may be far away or busy: the command itself finds out."""


def require_listening_node(servers: Iterable[str]) -> None:
    """Raises Unhealthy when every one of these HOST:PORT refuses a connection, or has a name that nobody knows."""
    refusals = []
    for server in servers:
        refusal = connection_refusal(server)
        if refusal is None:
            return
        refusals.append(f"{server} {refusal}")
    if refusals:
        raise Unhealthy(
            ", ".join(refusals),
            "expected a node that serves",
            "start one (muster serve), wait for one (muster health --timeout 60), or name another with --bootstrap",
        )


def connection_refusal(server: str) -> str | None:
    """Why nothing can be had there. None where somebody listens, or where that is not known so soon."""
    host, _, port = server.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        return None  # no address; the client says so in its own words
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()
    except ConnectionRefusedError:
        return "refuses connections: nothing listens there"
    except socket.gaierror as error:
        return f"cannot be found: {error.strerror}"
    except OSError:
        return None
    return None
