"""Ends a connection of gRPC's, which has no call for that: the socket is shut, and gRPC finds its peer gone."""

import os
import socket
from pathlib import Path

OPEN_FILES = Path("/proc/self/fd")


def cut_connection(peer: str) -> bool:
    """Shut the connection with gRPC's `peer` (`ipv4:127.0.0.1:51234`); whether there was one that could be found.

    Found among the process's open files, which Linux lists; elsewhere nothing is. Looks at each of them: not on an
    event loop.
    """
    address = parse_peer(peer)
    if address is None or not OPEN_FILES.is_dir():
        return False
    return any(shut_if_connected_to(int(number), address) for number in os.listdir(OPEN_FILES))


def parse_peer(peer: str) -> tuple[str, int] | None:
    """
    >>> parse_peer("ipv4:127.0.0.1:51234"), parse_peer("ipv6:%5B::1%5D:51234"), parse_peer("unix:/run/muster.sock")
    (('127.0.0.1', 51234), ('::1', 51234), None)
    """
    family, _, rest = peer.partition(":")
    host, _, port = rest.replace("%5B", "").replace("%5D", "").rpartition(":")
    return (host, int(port)) if family in ("ipv4", "ipv6") and port.isdecimal() else None


def shut_if_connected_to(number: int, address: tuple[str, int]) -> bool:
    """Shut the open file of this number if it is a connection with `address`."""
    found = duplicate_descriptor(number)
    if found is None:
        return False
    with found:
        try:
            if found.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            host, port = found.getpeername()[:2]
            if (host.removeprefix("::ffff:"), port) != address:
                return False
            found.shutdown(socket.SHUT_RDWR)
        except OSError:  # not connected, or gone meanwhile
            return False
    return True


def duplicate_descriptor(number: int) -> socket.socket | None:
    """A copy of the open file of this number, which is ours to close and stays what it is while it is looked at; None
    if it is no socket."""
    try:
        copy = os.dup(number)
    except OSError:  # gone meanwhile
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
