"""The node stood still: nobody is expired for what it could not hear.

A process that is stopped, a machine that is paused, or one thing that takes seconds on the event loop: members go on
sending, and nobody listens. Deadlines measure what was heard, so they stand still as well. So do those
of one member whose connection is held for its quota.
"""

from muster.coordinator.core.control.overrides import standing
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.core_events import (
    ConsumerHeartbeat,
    JoinGroup,
    OffsetCommit,
    SessionHeartbeat,
    StoodStill,
    SyncGroup,
    TurnedAway,
)
from muster.coordinator.core.model.core_records import StallForgotten, StallNoted
from muster.coordinator.core.model.streams import HeldBack
from muster.coordinator.core.model.types import Stall

WORTH_A_NOTE_MS = 1_000
"""Shorter stalls move deadlines and are counted, but nobody has to read of them."""

KEPT_STALLS = 20
"""How many the diary of a shard holds."""

SIGNS_OF_LIFE = frozenset({"session", "ping", "lease"})
"""Timers that a member has pushed back before they ring."""


def take_stall(event: StoodStill, step: Step) -> None:
    """Move what would have come due meanwhile, and note why where there are members it would have hit."""
    deadlines = step.state.deadlines
    for key in deadlines:
        deadlines[key] += event.moved_ms
    for group in list(step.state.groups.values()):
        KINDS[type(group)].stood_still(group, event, step)
    standing.extend_held_shares(event.stalled_ms, step)
    if event.stalled_ms >= WORTH_A_NOTE_MS and any(key[0] in SIGNS_OF_LIFE for key in deadlines):
        note_stall(event.stalled_ms, step)


def take_held_back(event: HeldBack, step: Step) -> None:
    """Nobody listens to this member meanwhile, so its session stands still as all do when nobody listens to anybody.

    What the whole group waits for (a rebalance) does not wait for it: others are not slowed by one's quota.
    """
    key = ("session", event.group_id, event.member_id)
    deadline_ms = step.state.deadlines.get(key)
    if deadline_ms is not None and event.for_ms > 0:
        step.arm(key, deadline_ms - step.now_ms + event.for_ms)


def take_turned_away(event: TurnedAway, step: Step) -> None:
    """Who is told to try again, for there is no room, has been heard: his session begins anew as if he had been read.

    Only by what begins one where there is room: a KIP-848 member's heartbeats, whatever a classic member says but that
    it leaves.
    """
    said = event.request.heartbeat if isinstance(event.request, SessionHeartbeat) else event.request
    group = step.state.groups.get(event.group_id)
    if isinstance(said, ConsumerHeartbeat):
        KINDS[type(group)].lives(group, said, step)
    elif isinstance(said, JoinGroup | SyncGroup | OffsetCommit):
        KINDS[type(group)].spoke(group, said.member_id, step)


def note_stall(stalled_ms: int, step: Step) -> None:
    stalls = step.state.stalls
    step.keep(StallNoted(Stall(max(stalls, default=0) + 1, step.now_ms, stalled_ms)))
    for number in sorted(stalls)[:-KEPT_STALLS]:
        step.keep(StallForgotten(number))
