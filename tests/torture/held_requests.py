"""A proxy before a Kafka listener that holds single requests back, and lets them go after the client has repeated them.

What Jepsen found in every Kafka of 2024: an EndTxn that was delayed on a dying connection ended a later transaction.
"""

import random
import socket
import threading
from collections import Counter
from contextlib import suppress
from typing import Final

from tests.support.kafka.wire_tap import API_NAMES, pass_bytes

HELD_APIS: Final = {0: "Produce", 22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn"}
HELD_APIS.update({26: "EndTxn", 28: "TxnOffsetCommit"})


class HoldingProxy:
    """Clients find it at `address`. Each request of a transaction is held back with this chance, or its answer is lost.

    A client whose request is held back loses its connection; the request goes on later, by the connection that it had.
    """

    def __init__(self, seed: int, chance: float = 0.01) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.census: Counter[str] = Counter()
        self.chance = chance
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        threading.Thread(target=self._serve, args=((host, int(port)),), daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        self._listener.close()

    def _serve(self, target: tuple[str, int]) -> None:
        with suppress(OSError):
            while not self._ended.is_set():
                incoming, _ = self._listener.accept()
                try:
                    onward = socket.create_connection(target)
                except OSError:  # the node is dead just now
                    incoming.close()
                    continue
                for end in (incoming, onward):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_requests, args=(incoming, onward), daemon=True).start()
                threading.Thread(target=pass_bytes, args=(onward, incoming), daemon=True).start()

    def _struck(self, api: int) -> tuple[str, float]:
        """What becomes of this request, and after how many seconds."""
        if api not in HELD_APIS:
            return "", 0.0
        with self._lock:
            if self._rng.random() >= self.chance:
                return "", 0.0
            what = self._rng.choice(("held back", "held back", "answer lost"))
            self.census[f"{API_NAMES.get(api, HELD_APIS[api])} {what}"] += 1
            return what, self._rng.choice((0.02, 0.1, 0.3, 1.0, 2.5))

    def _pass_requests(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source.makefile("rb") as requests:
            while len(head := requests.read(6)) == 6:
                frame = head + requests.read(int.from_bytes(head[:4], "big") - 2)
                what, delay_s = self._struck(int.from_bytes(head[4:], "big"))
                if not what:
                    target.sendall(frame)
                    continue
                if what == "answer lost":
                    target.sendall(frame)
                hang_up(source)
                self._ended.wait(delay_s)
                if what == "held back":
                    target.sendall(frame)
                    self._ended.wait(0.05)  # so that the node has read it before the end of its connection
                break
        for end in (source, target):
            end.close()


def hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
