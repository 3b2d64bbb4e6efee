"""What a controller notes: when others hear of it, and as lines of its node's log."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from muster.coordinator.replication.protocol.controller.effects import ElectionNote

NAMED: Final = 5
"""Units that a line of many names; the ledger has all."""

SOON_S: Final = 0.05
LATE_S: Final = 0.5
MAX_HELD: Final = 2_000
"""Elections, of which to tell takes some milliseconds."""

election_log = structlog.get_logger("muster.cluster")


class ElectionNotices:
    """Elections are told of when a run of writes is over: clients wait for what is decided, nobody waits for what is
    said of it. That is SOON_S after the last write; LATE_S after the first, or when there are MOST_HELD, at the latest.

    Belongs to the loop's thread.
    """

    def __init__(self, tell: Callable[[Sequence[ElectionNote]], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._held: list[ElectionNote] = []
        self._first_s = self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def heard(self, notes: Sequence[ElectionNote]) -> None:
        """Of one write."""
        self._last_s = self._loop.time()
        self._held += notes
        if len(self._held) >= MAX_HELD:
            self.now()
        elif self._timer is None:
            self._first_s = self._last_s
            self._timer = self._loop.call_later(SOON_S, self._look)

    def now(self) -> None:
        """Tell what there is: the node is about to stop."""
        if self._timer is not None:
            self._timer.cancel()
        held, self._held, self._timer = self._held, [], None
        if held:
            self._tell(held)

    def _look(self) -> None:
        rest_s = min(self._last_s + SOON_S, self._first_s + LATE_S) - self._loop.time()
        if rest_s > 0.001:  # not so short that the clock does not see it
            self._timer = self._loop.call_later(rest_s, self._look)
        else:
            self.now()


class AlikeElections(NamedTuple):
    """What elections have in common that are told in one line."""

    before: int
    after: int
    clean: str
    cause: str


def log_elections(notes: Sequence[ElectionNote]) -> None:
    """What was decided in one write: a line for all elections that are alike. A line for each of a thousand would cost
    the controller more than to decide them."""
    found: dict[AlikeElections, list[ElectionNote]] = {}
    for note in notes:
        found.setdefault(AlikeElections(note.before, note.after, note.clean.value, note.cause), []).append(note)
    for alike, some in found.items():
        election_log.info(
            "elected" if alike.after >= 0 else "nobody leads",
            **(describe_election_line(some[0]) if len(some) == 1 else describe_elections_line(some)),
            **alike._asdict(),
        )


def describe_election_line(note: ElectionNote) -> dict[str, object]:
    return {"unit": str(note.unit), "epoch": note.epoch, "isr": list(note.isr), "took_ms": note.took_ms}


def describe_elections_line(notes: Sequence[ElectionNote]) -> dict[str, object]:
    named = [str(note.unit) for note in notes[:NAMED]]
    more = ["..."] if len(notes) > NAMED else []
    return {"count": len(notes), "units": named + more, "took_ms": max(note.took_ms for note in notes)}
