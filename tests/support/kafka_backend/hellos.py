"""A tap before a TLS listener, on loopback: which names clients ask for in their handshakes (SNI)."""

import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

BYTES: Final = 1 << 16
NAME: Final = re.compile(rb"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.test\b")
"""Names of tests, as they stand in a ClientHello: in plain."""


class Hellos:
    """`port`: where the tap is; `asked`: the names so far, at most one per connection, in order."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []


@contextmanager
def hellos(listener: int) -> Iterator[Hellos]:
    """listener: the port that all goes on to."""

    class Forwarded(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            hello = self.request.recv(BYTES)
            tap.asked += [name.decode() for name in NAME.findall(hello)[:1]]
            with suppress(OSError), socket.create_connection(("127.0.0.1", listener)) as there:
                there.sendall(hello)
                back = threading.Thread(target=pour, args=(there, self.request), daemon=True)
                back.start()
                pour(self.request, there)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forwarded) as server:
        server.daemon_threads = True
        tap = Hellos(int(server.server_address[1]))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield tap
        finally:
            server.shutdown()


def pour(source: socket.socket, target: socket.socket) -> None:
    """Until one of them ends; then the other is told."""
    with suppress(OSError):
        while read := source.recv(BYTES):
            target.sendall(read)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
