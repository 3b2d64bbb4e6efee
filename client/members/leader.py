"""The leader of a delayed cooperative group (KIP-415): who works on what, what is let go of, and how long to wait.

When a worker goes, its resources stay unassigned for `scheduled.rebalance.max.delay.ms`: a worker that comes back
within that time gets them again, and nobody else has moved. Pure: `plan_round` takes the state that the round before
left and answers with the next one. The rules are those of Kafka Connect's incremental cooperative assignor with
KAFKA-12283, 12495, 14079 and 15693.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from muster.client.members.balance import Loads, Takes, accepts_resource, distribute_resources, find_surplus

BACKOFF_FACTOR = 40
BACKOFF_STEPS = 10
"""40**10 ms is more than any delay there can be."""


@dataclass(frozen=True, slots=True)
class DelayedLeaderState:
    """What a leader knows from the round before. The default is a leader that knows nothing."""

    previous: frozenset[str] = frozenset()
    """What the last plan gave out or kept for somebody to come back."""
    generation: int = -1
    """The one that the last plan was made for."""
    members: frozenset[str] = frozenset()
    revoked: frozenset[str] = frozenset()
    """What the last plan took away from somebody."""
    candidates: tuple[str, ...] = ()
    """Workers that had nothing while the delay ran: those who came back."""
    scheduled_at_ms: int | None = None
    """When the delay is over; None while none runs."""
    revoked_before: bool = False
    """The last round took something away to even out the load."""
    revocations: int = 0
    """Rounds in a row that wanted to."""


@dataclass(frozen=True, slots=True)
class DelayedRound:
    """What a round is decided on. `kinds` are evened out one by one: Connect has connectors and tasks."""

    generation: int
    completed_generation: int
    """The last one whose plan took effect, -1 when there is none."""
    kinds: tuple[frozenset[str], ...]
    held: Mapping[str, Collection[str]]
    """worker -> what it says it works on"""
    takes: Takes = None
    """worker -> what it is ready to work on; None: every worker takes everything"""

    @property
    def configured(self) -> frozenset[str]:
        return frozenset().union(*self.kinds)


@dataclass(frozen=True, slots=True)
class DelayedDecision:
    """Everybody's whole share; who has to let go of something sees it in that. `delay_ms` 0: no delay."""

    shares: dict[str, tuple[str, ...]]
    revoked: dict[str, tuple[str, ...]]
    delay_ms: int
    state: DelayedLeaderState


@dataclass(slots=True)
class DelayedDraft:
    """A round in the making."""

    asked: DelayedRound
    state: DelayedLeaderState
    now_ms: int
    max_delay_ms: int
    loads: Loads
    revoked: Loads = field(default_factory=dict)
    delay_ms: int = 0

    def revoke(self, given_up: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Take away what workers hold. Returns what was only meant for them in this round: nobody has to let go of it.

        A worker sees only the loss of what it holds, and joins again because of that alone.
        """
        spare: set[str] = set()
        for worker, resources in given_up.items():
            held = set(resources).intersection(self.asked.held[worker])
            if held:
                self.revoked.setdefault(worker, set()).update(held)
            spare.update(set(resources) - held)
            self.loads[worker] -= set(resources)
        return frozenset(spare)

    def reset_delay(self) -> None:
        self.delay_ms = 0
        self.state = replace(self.state, candidates=(), scheduled_at_ms=None)

    def wait(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.state = replace(self.state, scheduled_at_ms=self.now_ms + delay_ms)


def plan_round(state: DelayedLeaderState, asked: DelayedRound, now_ms: int, max_delay_ms: int) -> DelayedDecision:
    """Decide one rebalance. `now_ms` is on the clock of `state.scheduled_at_ms`."""
    active = frozenset().union(*asked.held.values())
    previous = find_previous_assignment(state, asked, active)
    deleted = previous - asked.configured
    lost = previous - active - deleted
    created = asked.configured - previous - active
    draft = DelayedDraft(asked, state, now_ms, max_delay_ms, {worker: set(held) for worker, held in asked.held.items()})
    # Deleted ones have no place any more; of those that run twice nobody can say which holder is right.
    gone = (active - asked.configured) | find_duplicates(asked.held)
    draft.revoke({worker: gone.intersection(held) for worker, held in asked.held.items() if gone.intersection(held)})

    released = handle_lost_resources(draft, lost)
    spare = balance_load(draft)
    for kind in asked.kinds:
        distribute_resources(sorted(kind & (created | released | spare)), draft.loads, kind, asked.takes)
    return finish_decision(draft, lost)


def find_previous_assignment(state: DelayedLeaderState, asked: DelayedRound, active: frozenset[str]) -> frozenset[str]:
    """What to compare with: the last plan, as far as it took effect."""
    previous = state.previous if state.generation == asked.completed_generation else frozenset()
    return active if state.revoked & active else previous


def find_duplicates(held: Mapping[str, Collection[str]]) -> frozenset[str]:
    """
    >>> sorted(find_duplicates({"w1": ["a", "b"], "w2": ["b"]}))
    ['b']
    """
    seen: set[str] = set()
    twice: set[str] = set()
    for resources in held.values():
        twice |= seen.intersection(resources)
        seen.update(resources)
    return frozenset(twice)


def handle_lost_resources(draft: DelayedDraft, lost: frozenset[str]) -> frozenset[str]:
    """Wait for whoever had the lost ones, or let them go: returns those to be given out like new ones."""
    state = draft.state
    if not lost and not state.revoked_before:
        draft.reset_delay()
        return frozenset()
    if state.scheduled_at_ms is None and state.members <= draft.loads.keys():
        # Nobody went: their workers only missed the last plan.
        return lost
    if draft.max_delay_ms == 0:  # KAFKA-15693
        draft.reset_delay()
        return lost
    if state.scheduled_at_ms is not None and draft.now_ms >= state.scheduled_at_ms:
        left = lost - return_lost_resources(draft, lost)
        draft.reset_delay()
        # A whole delay has passed since: taking away may begin anew.
        draft.state = replace(draft.state, revoked_before=False)
        return left
    continue_delay(draft)
    return frozenset()


def return_lost_resources(draft: DelayedDraft, lost: frozenset[str]) -> frozenset[str]:
    """Those who came back with nothing get what was lost, in turn. Returns what found a taker."""
    returned = [worker for worker in draft.state.candidates if worker in draft.loads]
    taken: set[str] = set()
    for kind in draft.asked.kinds if returned else ():
        for number, resource in enumerate(sorted(kind & lost)):
            in_turn = [returned[(number + at) % len(returned)] for at in range(len(returned))]
            taker = next((worker for worker in in_turn if accepts_resource(draft.asked.takes, worker, resource)), None)
            if taker is not None:
                draft.loads[taker].add(resource)
                taken.add(resource)
    return frozenset(taken)


def continue_delay(draft: DelayedDraft) -> None:
    """The delay starts or goes on; whoever has nothing now may be the one that was waited for."""
    state = draft.state
    empty = sorted(worker for worker, load in draft.loads.items() if not load)
    draft.state = replace(state, candidates=tuple(dict.fromkeys([*state.candidates, *empty])))
    if state.scheduled_at_ms is None:
        draft.wait(draft.max_delay_ms)
    else:
        draft.wait(min(state.scheduled_at_ms - draft.now_ms, draft.max_delay_ms))


def balance_load(draft: DelayedDraft) -> frozenset[str]:
    """Take from those who have too much, but not in two rounds running, and not while somebody is waited for.

    Returns what was meant for them and is free again.
    """
    if draft.delay_ms:
        draft.state = replace(draft.state, revoked_before=False)
        return frozenset()
    too_much: dict[str, set[str]] = {}
    for kind in draft.asked.kinds:
        for worker, resources in find_surplus(kind, draft.loads, draft.asked.takes).items():
            too_much.setdefault(worker, set()).update(resources)
    if not too_much:
        draft.state = replace(draft.state, revoked_before=False, revocations=0)
        return frozenset()
    if not draft.state.revoked_before:
        draft.state = replace(draft.state, revoked_before=has_any_resource(draft.asked, too_much))
        return draft.revoke(too_much)
    revocations = draft.state.revocations + 1
    draft.state = replace(draft.state, revocations=revocations)
    backoff_ms = min(BACKOFF_FACTOR ** min(revocations, BACKOFF_STEPS), draft.max_delay_ms)
    if backoff_ms:
        draft.wait(backoff_ms)
        return frozenset()
    return draft.revoke(too_much)


def has_any_resource(asked: DelayedRound, resources: Mapping[str, Collection[str]]) -> bool:
    return any(not set(some).isdisjoint(asked.held[worker]) for worker, some in resources.items())


def finish_decision(draft: DelayedDraft, lost: frozenset[str]) -> DelayedDecision:
    given = frozenset().union(*draft.loads.values())
    revoked = frozenset().union(*draft.revoked.values())
    state = replace(
        draft.state,
        previous=(given - revoked) | lost,
        generation=draft.asked.generation,
        members=frozenset(draft.loads),
        revoked=revoked,
    )
    return DelayedDecision(
        shares={worker: tuple(sorted(load)) for worker, load in sorted(draft.loads.items())},
        revoked={worker: tuple(sorted(resources)) for worker, resources in sorted(draft.revoked.items())},
        delay_ms=draft.delay_ms,
        state=state,
    )
