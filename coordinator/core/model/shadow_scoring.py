"""Scores what a decision would have been by other assignors. Pure; computed off the event loop.

All figures are of one kind: what would have been handed out in that round. A cooperative group's round holds back
what another member may still read (KIP-429), so its plans, the real one and the others, are measured without that.

An operator names an assignor with options by one word: `lag-sticky`, or `lag-sticky{"move.budget": 5}`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from muster.assignors.api import AssignorError, JsonValue, Snapshot, TopicPartition
from muster.assignors.registry import resolve
from muster.assignors.run import hand_over
from muster.coordinator.core.model.plan import Decide, canonical_name, run_assignor, runnable_assignors
from muster.coordinator.core.model.types import Limits, RebalanceEntry, Score
from muster.coordinator.values import frozen_value

# Candidates
# ----------

MAX_CHARACTERS = 4_096
"""Of one such word."""
FORM = """NAME or NAME{"option": value}"""


@frozen_value
class AssignorCandidate:
    """`name` is the assignor's own, whichever of its names was used."""

    name: str
    options: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def word(self) -> str:
        return self.name + (json.dumps(dict(self.options), sort_keys=True) if self.options else "")


def candidate_of(word: str, limits: Limits) -> AssignorCandidate:
    """Read it. Raises ValueError, worded to follow what the value is of: "is ...; expected ...".

    >>> candidate_of('range{"a": 1}', Limits())
    AssignorCandidate(name='range', options={'a': 1})
    """
    if not 0 < len(word) <= MAX_CHARACTERS:
        raise ValueError(f"has a word of {len(word)} characters; expected {FORM} of at most {MAX_CHARACTERS}")
    name, brace, rest = word.partition("{")
    try:
        options = json.loads(brace + rest) if brace else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has {word!r}, whose options are no JSON ({error}); expected {FORM}") from None
    if not name.strip():
        raise ValueError(f"has {word!r}, which names no assignor; expected {FORM}")
    return AssignorCandidate(canonical_name(name.strip(), limits), options)


def check_may_run(candidate: AssignorCandidate, limits: Limits) -> None:
    """Refuse an assignor that this node does not offer: a request must not name code to be imported here.

    Raises ValueError, worded as those of `candidate_of`.
    """
    configured = (canonical_name(word, limits) for word in (*limits.consumer_assignors, *limits.remote_assignors))
    names = dict.fromkeys((*runnable_assignors(limits), *configured))
    if candidate.name not in names:
        raise ValueError(
            f"names {candidate.name!r}, which is not an assignor of this coordinator; known here: {', '.join(names)}"
        )


def split_candidates(text: str) -> list[str]:
    """The words of a list with commas between them, those within braces aside.

    >>> split_candidates('lag, sticky{"a": 1, "b": {}},range')
    ['lag', 'sticky{"a": 1, "b": {}}', 'range']
    """
    words, depth, word = [], 0, ""
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth <= 0:
            words.append(word.strip())
            word = ""
        else:
            word += letter
    return [word for word in (*words, word.strip()) if word]


# Scores
# ------

Owners: TypeAlias = Mapping[TopicPartition, str]
Loads: TypeAlias = Mapping[str, Sequence[float]]
"""Topic -> a figure for each partition."""

MAX_FAILURE = 500
"""Characters that are kept of why an assignor failed."""

WHOLE_TARGETS = frozenset({"target", "central"})
"""Sources of snapshots whose plans hold nothing back: members let go of it, or are stopped, one by one."""


@dataclass(frozen=True, slots=True)
class ShadowRequest:
    """A decision to make again, by each candidate. `ticket` fences the answer: no two of a shard's life are the same.

    `lags` and `rates` (records a second) are added at the edge, as far as they are known.
    """

    group_id: str
    ticket: int
    candidates: tuple[AssignorCandidate, ...]
    entry: RebalanceEntry
    plugins: tuple[tuple[str, str], ...] = ()
    lags: Mapping[str, Sequence[int]] | None = None
    rates: Loads | None = None

    @property
    def topics(self) -> frozenset[str]:
        """What was dealt out."""
        return frozenset(topic for member in self.entry.members for topic, _ in member.assigned)


def all_failed(request: ShadowRequest, why: str) -> tuple[Score, ...]:
    """No candidate was asked."""
    return tuple(failed_score(candidate, why) for candidate in request.candidates)


def failed_score(candidate: AssignorCandidate, why: str, took_ms: int | None = None) -> Score:
    return Score(candidate.word, failure=why[:MAX_FAILURE] or "failed without a word", took_ms=took_ms)


def score_candidates(
    request: ShadowRequest, clock_ms: Callable[[], int], decide: Decide = run_assignor
) -> tuple[Score, ...]:
    """The real plan's score, then one for each candidate. `clock_ms` is of a clock that never jumps."""
    entry = request.entry
    try:
        snapshot = Snapshot.from_json(entry.snapshot_json)
    except (ValueError, RecursionError) as error:
        return all_failed(request, f"the snapshot cannot be read: {error}")
    if snapshot.lags is None:
        snapshot = replace(snapshot, lags=request.lags)
    ruler = ruler_for(entry, snapshot, request.rates)
    scores = [ruler.score(snapshot_word(snapshot, entry), ruler.real)]
    for candidate in request.candidates:
        began_ms = clock_ms()
        try:
            word = dict(request.plugins).get(candidate.name, candidate.name)
            shown = replace(snapshot, assignor=word, options=candidate.options)
            target = decide(resolve(word), shown)
        except AssignorError as error:
            scores.append(failed_score(candidate, str(error), clock_ms() - began_ms))
            continue
        took_ms = clock_ms() - began_ms
        if entry.snapshot_source not in WHOLE_TARGETS:
            target = hand_over(snapshot, target)
        owners = owners_of((member, share.items()) for member, share in target.members.items())
        scores.append(replace(ruler.score(candidate.word, owners), took_ms=took_ms))
    return tuple(scores)


def snapshot_word(snapshot: Snapshot, entry: RebalanceEntry) -> str:
    return snapshot.assignor or entry.protocol_name


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """What the plans of one decision are measured against."""

    members: int
    partitions: int
    before: Owners
    real: Owners
    lags: Loads | None
    rates: Loads | None

    def score(self, word: str, owners: Owners) -> Score:
        return Score(
            word,
            balance_count=balance(owners, None, self.members),
            balance_lag=None if self.lags is None else balance(owners, self.lags, self.members),
            balance_rate=None if self.rates is None else balance(owners, self.rates, self.members),
            members=self.members,
            moves=sum(owners.get(place) != owner for place, owner in self.before.items()),
            differs=differences(owners, self.real),
            unassigned=max(0, self.partitions - len(owners)),
        )


def ruler_for(entry: RebalanceEntry, snapshot: Snapshot, rates: Loads | None) -> PlanComparison:
    """Who owned what before is told by the entry's moves: what did not move was its owner's before, too."""
    real = owners_of((member.member_id, member.assigned) for member in entry.members)
    before = dict(real)
    for move in entry.moves:
        before.pop((move.topic, move.partition), None)
        if move.source:
            before[move.topic, move.partition] = move.source
    partitions = sum(len(snapshot.partitions(topic)) for topic in snapshot.subscribed_topics())
    return PlanComparison(len(snapshot.members), partitions, before, real, snapshot.lags, rates)


def owners_of(shares: Iterable[tuple[str, Iterable[tuple[str, Sequence[int]]]]]) -> dict[TopicPartition, str]:
    return {
        (topic, partition): member
        for member, share in shares
        for topic, partitions in share
        for partition in partitions
    }


def differences(one: Owners, other: Owners) -> int:
    """How many partitions have another owner, or only one of the two an owner."""
    return sum(other.get(place) != owner for place, owner in one.items()) + len(other.keys() - one.keys())


def balance(owners: Owners, loads: Loads | None, members: int) -> float:
    """The heaviest member over the mean; 1.0 is even, and so is nothing at all. Without loads each partition counts.

    >>> balance({("t", 0): "a", ("t", 1): "a", ("t", 2): "b"}, {"t": [1, 1, 6]}, 2)
    1.5
    """
    held: dict[str, float] = {}
    for (topic, partition), owner in owners.items():
        row = None if loads is None else loads.get(topic, ())
        weight = 1.0 if row is None else float(row[partition]) if partition < len(row) else 0.0
        held[owner] = held.get(owner, 0.0) + weight
    total = sum(held.values())
    return round(max(held.values()) * members / total, 4) if total > 0 else 1.0
