"""Stalls of the node and takeovers of the shard: no member expires for what could not be heard, and the diary says why.

A stopped process, a paused machine, or one thing that takes seconds on the event loop: members go on sending, and no
coordinator listens. Deadlines measure what was heard, so they stand still as well. So do those of one member whose
connection is held for its quota.
"""

from dataclasses import replace

from muster.coordinator.core.groups.state import FirstSession, Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    CutFound,
    HeldBack,
    JoinGroup,
    OffsetCommit,
    SessionHeartbeat,
    StoodStill,
    SyncGroup,
    TookOver,
    TurnedAway,
)
from muster.coordinator.core.model.records import StallForgotten, StallRecorded, TakeoverForgotten, TakeoverRecorded
from muster.coordinator.core.model.types import Stall, Takeover

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
    for firsts in step.state.first_sessions.values():
        for key, (own_ms, lengthened_ms) in firsts.items():
            firsts[key] = FirstSession(own_ms + event.moved_ms, lengthened_ms + event.moved_ms)
    state, telling = step.state, {kind for kind, rules in KINDS.items() if rules.counts_from_last_heard}
    counting = [group for group in state.groups.values() if type(group) in telling]
    delayed = [group for group_id in sorted(state.delayed) if (group := state.groups.get(group_id)) is not None]
    for group in (*counting, *(group for group in delayed if type(group) not in telling)):
        KINDS[type(group)].stood_still(group, event, step)
    step.state.extensions.node_stalled(event.stalled_ms, step)
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
    step.keep(StallRecorded(Stall(max(stalls, default=0) + 1, step.now_ms, stalled_ms)))
    for number in sorted(stalls)[:-KEPT_STALLS]:
        step.keep(StallForgotten(number))


# Takeovers
# ---------

LEAST_FIRST_SESSION_MS = 45_000
"""The first session of a member after a takeover from a lost node; Kafka's default for all. Clients that ask the lost
node who coordinates their group wait 30 to 40 s for that."""

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
    step.keep(TakeoverRecorded(takeover))
    for epoch in sorted(state.takeovers)[:-KEPT_TAKEOVERS]:
        step.keep(TakeoverForgotten(event.shard, epoch))
    if event.lost:
        lengthen_first_sessions(step)


def lengthen_first_sessions(step: Step) -> None:
    """A member whose request the lost node took may wait for the answer for longer than its session, and only then
    look for the coordinator: its first session here is long enough for that (CL-G7)."""
    state, longer_ms = step.state, step.now_ms + LEAST_FIRST_SESSION_MS
    for key, at_ms in list(state.deadlines.items()):
        if key[0] == "session" and step.now_ms < at_ms < longer_ms:
            step.arm(key, LEAST_FIRST_SESSION_MS)
            state.first_sessions.setdefault(key[1], {})[key] = FirstSession(at_ms, longer_ms)


def end_first_sessions(group_id: str, step: Step) -> None:
    """A newcomer has joined, and waits for those who have not been heard of: they have what is left of their own
    sessions. It may be one of them: clients of librdkafka give up by themselves, and come under a new id."""
    for key, first in step.state.first_sessions.pop(group_id, {}).items():
        if step.state.deadlines.get(key) == first.lengthened_ms:
            step.arm(key, max(0, first.own_ms - step.now_ms))


def note_cut(event: CutFound, step: Step) -> None:
    """Who was to lose records has come back, and counted them: the diary tells it with the takeover that cost them."""
    takeover = step.state.takeovers.get(event.epoch)
    if takeover is not None and event.records > takeover.cut:
        step.keep(TakeoverRecorded(replace(takeover, cut=event.records)))
