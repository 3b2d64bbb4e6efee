"""Whether another node can be reached: who refuses is told from who is silent.

A machine that refuses a connection (ECONNREFUSED) says that nobody listens there: the process is gone. Silence says
nothing: the node may be slow, frozen or cut off.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from muster.coordinator.config.addresses import Address, format_address

PROBES: Final = 3
PROBING_MS: Final = 300
PAUSE_MS: Final = 75
"""A node counts as gone once it has refused so often within so long, asked again after a pause."""


class LinkError(Exception):
    """No answer. Whether the request was heard is not known."""


class LinkRefused(LinkError):
    """Nobody listens there: the machine lives, and says so (ECONNREFUSED)."""


class LinkSilent(LinkError):
    """Nothing was heard in time."""


class LinkBroken(LinkError):
    """The connection ended, or what came is not what was asked for."""


async def connect_socket(address: Address) -> socket.socket:
    """A socket that is connected to the first address of the host that takes it. Raises Refused, where all of them
    refuse, and Broken. It may take as long as the kernel likes."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LinkBroken(f"{format_target(address)} is not known: {error.strerror or error}") from error
    failures: list[OSError] = []
    for family, kind, protocol, _, place in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, place)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            failures.append(error)
        else:
            return sock
    if all(error.errno == errno.ECONNREFUSED for error in failures):
        raise LinkRefused(f"{format_target(address)} refuses connections; nobody listens there")
    raise unreachable_error(address, failures[-1]) from failures[-1]


async def probe_refusals(
    address: Address,
    now_ms: Callable[[], int],
    *,
    times: int = PROBES,
    within_ms: int = PROBING_MS,
    pause_ms: int = PAUSE_MS,
) -> tuple[int, ...]:
    """When each of so many connections in a row was refused, by `now_ms`; empty if one of them was not, be it that it
    was taken or that nothing was heard. What is taken is closed without a word."""
    told: list[int] = []
    try:
        async with asyncio.timeout(within_ms / 1000):
            while True:
                try:
                    sock = await connect_socket(address)
                except LinkRefused:
                    told.append(now_ms())
                else:
                    sock.close()
                    return ()
                if len(told) == times:
                    return tuple(told)
                await asyncio.sleep(pause_ms / 1000)
    except (TimeoutError, LinkBroken):
        return ()


def unreachable_error(address: Address, error: OSError) -> LinkBroken:
    return LinkBroken(f"{format_target(address)} cannot be reached: {error.strerror or error}")


def format_target(address: Address) -> str:
    return format_address(*address)
