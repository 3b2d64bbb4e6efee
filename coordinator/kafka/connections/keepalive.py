"""How the kernel finds out that a peer is gone."""

import socket

KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer whose machine is gone is noticed after a minute and a half, though no byte of its connection is due."""


def keep_alive(sock: socket.socket | None) -> None:
    """Let the kernel find out about peers that are gone without a word."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
