"""The virtual clock, the one source of chance, and the queue of what happens next."""

import hashlib
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

START_MS = 1_000_000
"""Virtual time begins here, so that no rule can mistake zero for a time."""

MAX_EVENTS = 500_000
"""A run that needs more goes in circles."""

Action = Callable[[], None]


class Violated(AssertionError):
    """An invariant is broken: names the checker and what it saw."""


class World:
    """Everything of one run hangs on one of these. Nothing else may ask for the time or draw a number."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now_ms = START_MS
        self.behind_ms = 0
        """How far the clock of the node's machine has been set back so far, always while the node was down."""
        self.events = 0
        self.census: Counter[str] = Counter()
        self.violations: list[str] = []
        self.lines: list[str] = []
        self._keep_trace = keep_trace
        self._digest = hashlib.sha256()
        self._queue: list[tuple[int, int, Action]] = []
        self._scheduled = 0

    @property
    def node_ms(self) -> int:
        """The time by the node's clock."""
        return self.now_ms - self.behind_ms

    @property
    def digest(self) -> str:
        """Of all that was traced: two runs with the same digest were the same run."""
        return self._digest.hexdigest()

    def at(self, at_ms: int, action: Action) -> None:
        """Do `action` at that time, after what was scheduled for it before."""
        self._scheduled += 1
        heappush(self._queue, (max(at_ms, self.now_ms), self._scheduled, action))

    def after(self, delay_ms: int, action: Action) -> None:
        self.at(self.now_ms + delay_ms, action)

    def chance(self, probability: float) -> bool:
        """Whether it happens. What never happens draws no number."""
        return probability > 0 and self.rng.random() < probability

    def between(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def trace(self, line: str) -> None:
        text = f"{self.now_ms - START_MS:>8} {line}"
        self._digest.update(text.encode())
        self._digest.update(b"\n")
        if self._keep_trace:
            self.lines.append(text)

    def violated(self, checker: str, sentence: str) -> None:
        """Note it; the run stops before the next event. Raising here would be taken for a bug of whoever called."""
        self.violations.append(f"{checker}: {sentence}")
        self.trace(f"VIOLATED {checker}: {sentence}")

    def run(self, until_ms: int, each: Action, done: Callable[[], bool] | None = None) -> None:
        """Let time pass, `each` after every event. Raises Violated at the first event that broke an invariant."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms and not (done is not None and done()):
            self.now_ms, _, action = heappop(queue)
            self.events += 1
            if self.events > MAX_EVENTS:
                self.violated("world", f"{MAX_EVENTS} events and no end; something goes in circles")
            action()
            each()
            if self.violations:
                raise Violated("\n".join(self.violations))
        if done is None or not done():
            self.now_ms = max(self.now_ms, until_ms)
