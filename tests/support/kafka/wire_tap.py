"""A TCP proxy before a Kafka listener that keeps which requests pass."""

import socket
import threading
from collections import Counter
from contextlib import suppress

from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE

API_NAMES = {key: api.name for key, (api, _) in TABLE.items()}


class WireTap:
    """Takes connections at `address` from the beginning, and passes them on once `start` has said to whom. `asked`: how
    often each API was."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def start(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        threading.Thread(target=self._serve, args=((host, int(port)),), daemon=True).start()

    def stop(self) -> None:
        self._listener.close()

    def _serve(self, target: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                incoming, _ = self._listener.accept()
                onward = socket.create_connection(target)
                threading.Thread(target=self._pass_requests, args=(incoming, onward), daemon=True).start()
                threading.Thread(target=pass_bytes, args=(onward, incoming), daemon=True).start()

    def _pass_requests(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source.makefile("rb") as requests:
            while len(head := requests.read(6)) == 6:
                api = int.from_bytes(head[4:], "big")
                with self._lock:
                    self.asked[API_NAMES.get(api, f"api {api}")] += 1
                target.sendall(head + requests.read(int.from_bytes(head[:4], "big") - 2))
        for end in (source, target):
            end.close()


def pass_bytes(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            target.sendall(chunk)
    for end in (source, target):
        end.close()
