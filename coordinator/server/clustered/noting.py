"""What a controller notes, as lines of its node's log."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from muster.coordinator.cluster.controller.effects import Note

NAMED: Final = 5
"""Units that a line of many names; the ledger has all."""

log = structlog.get_logger("muster.cluster")


class Alike(NamedTuple):
    """What elections have in common that are told in one line."""

    before: int
    after: int
    clean: str
    cause: str


def tell_elections(notes: Sequence[Note]) -> None:
    """What was decided in one write: a line for all elections that are alike. A line for each of a thousand would cost
    the controller more than to decide them."""
    found: dict[Alike, list[Note]] = {}
    for note in notes:
        found.setdefault(Alike(note.before, note.after, note.clean.value, note.cause), []).append(note)
    for alike, some in found.items():
        log.info(
            "elected" if alike.after >= 0 else "nobody leads",
            **(one(some[0]) if len(some) == 1 else many(some)),
            **alike._asdict(),
        )


def one(note: Note) -> dict[str, object]:
    return {"unit": str(note.unit), "epoch": note.epoch, "isr": list(note.isr), "took_ms": note.took_ms}


def many(notes: Sequence[Note]) -> dict[str, object]:
    named = [str(note.unit) for note in notes[:NAMED]]
    more = ["..."] if len(notes) > NAMED else []
    return {"count": len(notes), "units": named + more, "took_ms": max(note.took_ms for note in notes)}
