"""A port that is ours, before anybody is answered on it."""

import socket


def open_listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Take the port (0: any free one). Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # Two processes can bind one port with SO_REUSEADDR; only one of them can listen.
        listening.listen(backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
