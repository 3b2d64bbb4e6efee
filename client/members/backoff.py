"""How long to wait before trying again: doubling, with a limit (KIP-580, without its jitter)."""

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Deterministic on purpose: an edge that wants jitter adds it to the time it is woken at.

    >>> waits = Backoff(initial_ms=100, limit_ms=1000)
    >>> [waits.next_ms() for _ in range(5)]
    [100, 200, 400, 800, 1000]
    """

    initial_ms: int
    limit_ms: int
    failures: int = 0

    def next_ms(self) -> int:
        wait_ms = min(self.initial_ms << min(self.failures, 30), self.limit_ms)
        self.failures += 1
        return wait_ms

    def reset(self) -> None:
        self.failures = 0
