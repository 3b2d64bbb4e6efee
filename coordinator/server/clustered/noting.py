"""What a controller notes, as lines of its node's log."""

import structlog

from muster.coordinator.cluster.controller.effects import Note

log = structlog.get_logger("muster.cluster")


def tell_election(note: Note) -> None:
    """A line for each election."""
    log.info(
        "elected" if note.after >= 0 else "nobody leads",
        unit=str(note.unit),
        epoch=note.epoch,
        before=note.before,
        after=note.after,
        clean=note.clean.value,
        cause=note.cause,
        isr=list(note.isr),
        took_ms=note.took_ms,
    )
