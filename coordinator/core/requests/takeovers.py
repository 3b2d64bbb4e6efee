"""Another node takes a shard over: its diary says from whom, why, and for how long nobody answered."""

from dataclasses import replace

from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_records import TakeoverForgotten, TakeoverNoted
from muster.coordinator.core.model.streams import CutFound, TookOver
from muster.coordinator.core.model.types import Takeover

KEPT_TAKEOVERS = 20
"""How many the diary of a shard holds."""


def note_takeover(event: TookOver, step: Step) -> None:
    """This node answers for the shard from now on."""
    state = step.state
    members = sum(len(group.members) for group in state.groups.values())
    takeover = Takeover(
        event.shard,
        event.epoch,
        event.moved_from,
        event.moved_to,
        event.cause,
        event.last_heard_ms,
        event.elected_ms,
        step.now_ms,
        len(state.groups),
        members,
    )
    step.keep(TakeoverNoted(takeover))
    for epoch in sorted(state.takeovers)[:-KEPT_TAKEOVERS]:
        step.keep(TakeoverForgotten(event.shard, epoch))


def note_cut(event: CutFound, step: Step) -> None:
    """Who was to lose records has come back, and counted them: the diary tells it with the takeover that cost them."""
    takeover = step.state.takeovers.get(event.epoch)
    if takeover is not None and event.records > takeover.cut:
        step.keep(TakeoverNoted(replace(takeover, cut=event.records)))
