"""How delayed cooperative groups (KIP-415) travel in JoinGroup and SyncGroup: the blobs, and a leader's memory.

Members speak ConsumerProtocol: a resource is the partition 0 of its name, so that every tool can read who has what.
The delay stands in the user data of each assignment.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muster.assignors.api import JsonValue, Member, Snapshot
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
from muster.client.members.leader import DelayedDecision, DelayedLeaderState, DelayedRound, plan_round
from muster.client.members.subscription import NamedAssignor, Subscriber, group_by_topic
from muster.client.members.types import NO_GENERATION, GroupMember, OfferedProtocol, TopicPartition
from muster.coordinator.core.model.types import DELAYED

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
        raise ValueError(f"{text[:40]!r} is no leader's state of version {STATE_VERSION}")
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
