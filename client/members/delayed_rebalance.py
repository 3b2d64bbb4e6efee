"""Delayed cooperative rebalancing (KIP-415): the leader's decision, and how it is encoded.

When a worker leaves, its resources stay unassigned for `scheduled.rebalance.max.delay.ms`. A worker that returns in
time gets them back and no other resource moves. `plan_round` is pure: it takes the state that the previous round left
and returns the next. The rules are those of Kafka Connect's incremental cooperative assignor with KAFKA-12283,
KAFKA-12495, KAFKA-14079 and KAFKA-15693. Resources of each kind (connectors, tasks) are balanced separately; ties go
to the smaller worker id.

Members speak ConsumerProtocol: a resource is partition 0 of a topic with its name, so that any tool can read the
assignment. The delay travels in the user data of each assignment. A snapshot in the ledger holds all the inputs of a
decision, so that it can be replayed.
"""

import heapq
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from muster.assignors.api import JsonValue, Member, Snapshot, TopicPartition
from muster.assignors.data.consumer_protocol import (
    NEWEST,
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import NO_GENERATION, GroupMember, OfferedProtocol
from muster.client.members.subscription import NamedAssignor, Subscriber, group_by_topic
from muster.coordinator.core.model.types import DELAYED

# Balancing resources of one kind
# -------------------------------

Loads: TypeAlias = dict[str, set[str]]
"""worker -> the resources it works on"""
Takes: TypeAlias = Mapping[str, Collection[str]] | None
"""worker -> the resources it is ready to work on; None: every worker takes everything"""


def accepts_resource(takes: Takes, worker: str, resource: str) -> bool:
    return takes is None or resource in takes.get(worker, ())


def find_surplus(kind: frozenset[str], loads: Loads, takes: Takes = None) -> dict[str, set[str]]:
    """What each worker has beyond its fair part of `kind`; nothing when giving out the rest evens it out anyway.

    Where workers are not ready for the same resources there is no fair part: nothing is taken away then, or the same
    resource could be taken from its only possible owner again and again.

    >>> sorted(find_surplus(frozenset("abcd"), {"w1": set("abcd"), "w2": set()})["w1"])
    ['c', 'd']
    """
    if not loads or (takes is not None and any(not kind <= set(takes.get(worker, ())) for worker in loads)):
        return {}
    least, extras = divmod(len(kind), len(loads))
    counts = {worker: len(load & kind) for worker, load in loads.items()}
    with_extra = sum(count == least + 1 for count in counts.values())
    if with_extra == extras and all(count in (least, least + 1) for count in counts.values()):
        return {}
    found: dict[str, set[str]] = {}
    for worker in sorted(loads):
        if counts[worker] <= least:
            continue
        allowed = least + (extras > 0)
        extras -= extras > 0
        if counts[worker] > allowed:
            found[worker] = set(sorted(loads[worker] & kind)[allowed:])
    return found


def distribute_resources(resources: Sequence[str], loads: Loads, kind: frozenset[str], takes: Takes = None) -> None:
    """Each resource goes to the worker with the least of its kind; ties fall to the smaller worker id.

    What no worker is ready for stays unassigned.
    """
    queue = [(len(load & kind), worker) for worker, load in loads.items()]
    heapq.heapify(queue)
    for resource in resources:
        passed: list[tuple[int, str]] = []
        while queue and not accepts_resource(takes, queue[0][1], resource):
            passed.append(heapq.heappop(queue))
        if queue:
            count, worker = heapq.heappop(queue)
            loads[worker].add(resource)
            heapq.heappush(queue, (count + 1, worker))
        for entry in passed:
            heapq.heappush(queue, entry)


# The leader's decision
# ---------------------

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


# Encoding in ConsumerProtocol, and the leader's memory
# -----------------------------------------------------

USER_DATA_VERSION = 1
STATE_VERSION = 1


class DelayedSubscriber(Subscriber):
    """A worker that shares named resources: it offers `delayed` first, then its cooperative assignors.

    While a group is moved over, members that do not know `delayed` yet still find a protocol in common.
    """

    def __init__(self, resources: Iterable[str], assignors: Sequence[NamedAssignor], rack: str | None = None) -> None:
        super().__init__(resources, assignors, rack)
        self._rack_name = rack or None

    def offered(self, owned: Collection[TopicPartition], generation: int) -> tuple[OfferedProtocol, ...]:
        subscription = Subscription(NEWEST, self.topics, None, group_by_topic(owned), generation, self._rack_name)
        return (OfferedProtocol(DELAYED, encode_subscription(subscription)), *super().offered(owned, generation))

    def rejoin_after_ms(self, assignment: bytes) -> int:
        return read_delay(parse_assignment(assignment).user_data)


class DelayedLeader:
    """Makes the plans of one worker that may lead, and remembers between them what the protocol needs.

    With `keeps_delay` a new leader goes on where the one before it stopped. Without, it starts from nothing, as in
    Kafka Connect: a delay that was running is forgotten, and what was lost is given out at once.
    """

    def __init__(self, max_delay_ms: int, keeps_delay: bool = True) -> None:
        self._max_delay_ms = max_delay_ms
        self._keeps_delay = keeps_delay
        self._state = DelayedLeaderState()

    def plan(self, asked: act.MakePlan, now_ms: int) -> ev.PlanMade:
        """Decide the round that this member leads. A member that cannot be read takes part without resources."""
        state, completed = self._known(asked, now_ms)
        members = [read_worker(member) for member in asked.members]
        round_ = build_round(members, asked.generation, completed)
        decision = plan_round(state, round_, now_ms, self._max_delay_ms)
        self._state = decision.state
        shares = tuple((worker, encode_share(share, decision.delay_ms)) for worker, share in decision.shares.items())
        return ev.PlanMade(
            asked.generation,
            shares,
            build_snapshot(members, round_, state, now_ms, self._max_delay_ms).to_json().encode(),
            dict.fromkeys(sorted(round_.configured), 1),
            write_state(decision.state),
            decision.delay_ms,
        )

    def _known(self, asked: act.MakePlan, now_ms: int) -> tuple[DelayedLeaderState, int]:
        """The state to go on from, and the last generation whose plan took effect."""
        if not self._keeps_delay or not asked.leader_state:
            return self._state, asked.completed_generation
        try:
            handed = read_state(asked.leader_state)
        except ValueError:
            # Written by a leader of another make: as good as a leader that left no word.
            return DelayedLeaderState(), asked.completed_generation
        # The coordinator keeps it with the plan that it accepted, and counts the delay on its own clock.
        left_ms = asked.scheduled_delay_ms
        return replace(handed, scheduled_at_ms=None if left_ms is None else now_ms + left_ms), handed.generation


def read_worker(member: GroupMember) -> Member:
    """A worker with what it is ready for and what it says it works on."""
    try:
        told = parse_subscription(member.metadata)
    except ValueError:
        return Member(member.member_id, (), instance_id=member.group_instance_id)
    owned = {resource: [0] for resource, partitions in told.owned.items() if partitions}
    return Member(member.member_id, told.topics, owned, told.generation, member.group_instance_id, told.rack or None)


def build_round(members: Sequence[Member], generation: int, completed_generation: int) -> DelayedRound:
    """What the leader decides on. Workers that list the same resources are evened out, see `surplus`."""
    takes = {member.id: frozenset(member.topics) for member in members}
    return DelayedRound(
        generation=generation,
        completed_generation=completed_generation,
        kinds=(frozenset().union(*takes.values()),),
        held={member.id: tuple(member.owned or ()) for member in members},
        takes=takes,
    )


def replay_decision(snapshot: Snapshot) -> DelayedDecision:
    """The decision that a snapshot of the ledger records, made anew. ValueError when it is no such snapshot."""
    options = snapshot.options
    try:
        state = read_state(json.dumps(options["leader.state"]))
        left_ms, generation = options["delay.left.ms"], options["generation"]
        completed, max_delay_ms = options["completed.generation"], options["scheduled.rebalance.max.delay.ms"]
    except KeyError as missing:
        raise ValueError(f"the snapshot has no option {missing}; expected one that a delayed group left") from None
    if not (isinstance(generation, int) and isinstance(completed, int) and isinstance(max_delay_ms, int)):
        raise ValueError("the options of the snapshot are not numbers; expected one that a delayed group left")
    known = replace(state, scheduled_at_ms=left_ms if isinstance(left_ms, int) else None)
    return plan_round(known, build_round(snapshot.members, generation, completed), 0, max_delay_ms)


def build_snapshot(
    members: Sequence[Member], asked: DelayedRound, state: DelayedLeaderState, now_ms: int, max_delay_ms: int
) -> Snapshot:
    """All that the decision depended on, for the ledger."""
    left_ms = None if state.scheduled_at_ms is None else state.scheduled_at_ms - now_ms
    options: dict[str, JsonValue] = {
        "scheduled.rebalance.max.delay.ms": max_delay_ms,
        "delay.left.ms": left_ms,
        "generation": asked.generation,
        "completed.generation": asked.completed_generation,
        "leader.state": json.loads(write_state(state)),
    }
    return Snapshot(dict.fromkeys(sorted(asked.configured), 1), members, assignor=DELAYED, options=options)


def encode_share(resources: Iterable[str], delay_ms: int) -> bytes:
    user_data = USER_DATA_VERSION.to_bytes(2) + delay_ms.to_bytes(4)
    return encode_assignment({resource: [0] for resource in resources}, user_data)


def read_delay(user_data: bytes | None) -> int:
    """The delay in an assignment's user data; 0 when it has none, as when another protocol made the plan.

    >>> read_delay(bytes([0, 1, 0, 0, 1, 0])), read_delay(None)
    (256, 0)
    """
    if user_data is None or len(user_data) < 6 or int.from_bytes(user_data[:2]) < USER_DATA_VERSION:
        return 0
    return int.from_bytes(user_data[2:6])


def write_state(state: DelayedLeaderState) -> str:
    """As JSON, without the time: only its keeper has a clock that outlives the leader."""
    known = {
        "version": STATE_VERSION,
        "previous": sorted(state.previous),
        "generation": state.generation,
        "members": sorted(state.members),
        "revoked": sorted(state.revoked),
        "candidates": list(state.candidates),
        "revoked_before": state.revoked_before,
        "revocations": state.revocations,
    }
    return json.dumps(known, separators=(",", ":"))


def read_state(text: str) -> DelayedLeaderState:
    """What `write_state` wrote; ValueError says what is wrong with anything else."""
    known = json.loads(text)
    if not isinstance(known, dict) or known.get("version") != STATE_VERSION:
        raise ValueError(f"{text[:40]!r} is not a leader's state of version {STATE_VERSION}")
    return DelayedLeaderState(
        previous=frozenset(parse_names(known, "previous")),
        generation=parse_number(known, "generation"),
        members=frozenset(parse_names(known, "members")),
        revoked=frozenset(parse_names(known, "revoked")),
        candidates=parse_names(known, "candidates"),
        revoked_before=known.get("revoked_before") is True,
        revocations=parse_number(known, "revocations"),
    )


def parse_names(known: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = known.get(field)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{field} is {value!r:.60}; expected a list of names")
    return tuple(value)


def parse_number(known: Mapping[str, Any], field: str) -> int:
    value = known.get(field)
    if type(value) is not int or value < NO_GENERATION:
        raise ValueError(f"{field} is {value!r:.60}; expected a number")
    return value
