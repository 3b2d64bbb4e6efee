"""The cluster demo's producer: numbered lines, acks=all, and what was acknowledged when."""

import threading
import time
from typing import Final

from muster.cli.demo.checks import Place
from muster.cli.demo.proof import checksum
from muster.client import Producer, RecordMetadata

LINES_PER_S: Final = 300.0
SEND_POLL_S: Final = 0.02


class NumberedLines:
    """Sends from `start` until `stop`. What was given up is in `failed`."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        given = {"bootstrap.servers": address, "client.id": "demo-producer", "acks": "all", "linger.ms": 5}
        self._producer = Producer(given)
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, name="demo-producer", daemon=True)
        self.sent = 0
        self.acked: dict[Place, int] = {}
        self.acked_at_ns: list[int] = []
        self.failed: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Send no more, and wait for the last word on all that was sent."""
        self._stopping.set()
        self._thread.join()
        self._producer.close(patience_s)

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(SEND_POLL_S):
            due = int((time.monotonic() - began) * LINES_PER_S)
            while self.sent < due and not self._stopping.is_set():
                self._send_one(self.sent)
                self.sent += 1

    def _send_one(self, number: int) -> None:
        value = f"line {number:06d}".encode()

        def delivered(error: Exception | None, where: RecordMetadata | None) -> None:
            if where is None:
                self.failed.append(str(error))
                return
            self.acked[where.partition, where.offset] = checksum(None, value)
            self.acked_at_ns.append(time.monotonic_ns())

        self._producer.produce(self._topic, value, None, number % self._partitions, delivered)
