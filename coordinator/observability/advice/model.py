"""What advice is made from and what it consists of: a group's history, a change, what it would have saved, and proof.

An advice names one change. What it would have saved is measured in partition-seconds without an owner and in partitions
that changed hands, over the window that the ledger covers. Figures of several advices do not add up: each says what its
change would have saved alone (EX-A3).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from typing_extensions import TypedDict

from muster.coordinator.observability.advice.member_returns import Numbers, ReturnFinder
from muster.coordinator.observability.advice.rounds import RecordedRound, list_rounds
from muster.coordinator.observability.doctor.model import DoctorFacts, ExaminedGroup
from muster.coordinator.observability.read_model.groups import MemberDescription
from muster.coordinator.observability.views.formatting import partition_seconds, plural
from muster.coordinator.observability.views.ledger import is_rebalance
from muster.coordinator.observability.views.member_names import Names, names_of
from muster.coordinator.rpc.v1.ledger_pb2 import REBALANCE_SOURCE_WATCHED, Rebalance, RebalanceOutcome

# Thresholds
# ----------

LEAST_SHARE: Final = 0.05
"""Nothing is advised that would have saved less (EX-A2)."""
LEAST_ROUNDS: Final = 3
"""Fewer rebalances are no pattern (EX-A2)."""
LEAST_SECONDS: Final = 1.0
LEAST_MOVES: Final = 3
"""Below both, a saving is not worth a change, whatever share it is."""
LEAST_TIMES: Final = 3
"""What happened less often is no habit: once may be chance."""
QUIET_S: Final = 1.0
"""Partitions of a group that is well are without an owner for less than this, each day and each partition (EX-A2)."""
QUIET_MOVES: Final = 1.0
"""And change hands less often."""
DAY_MS: Final = 86_400_000
MOST_ENTRIES: Final = 1_000
"""Entries of one ledger that are judged, newest first."""

SECONDS: Final = "of the time without an owner"
MOVES: Final = "of the moves"

# Advice
# ------


class SavingDocument(TypedDict):
    """`share`: from 0 to 1, of what `of` says."""

    partition_seconds: float
    moves: int
    rebalances: int
    share: float
    of: str


class AdviceDocument(TypedDict):
    """An advice for programs, as `Advice` has it."""

    kind: str
    sentence: str
    settings: list[str]
    how: str
    saves: SavingDocument
    proof: list[str]


@dataclass(frozen=True, slots=True)
class Saving:
    """What a change would have saved in the window. `share` (0 to 1) is told of `of`, in words."""

    partition_seconds: float = 0.0
    moves: int = 0
    rebalances: int = 0
    share: float = 0.0
    of: str = SECONDS
    weight: float = 0.0
    """Ranks advices: the share of all partition-seconds plus the share of all moves (EX-A3)."""

    def words(self) -> str:
        """What is nothing is not told.

        >>> Saving(12.5, 3, 0, 0.4).words(), Saving(share=0.25, of="of the members").words()
        ('12.5 partition-seconds, 3 moves (40% of the time without an owner)', '25% of the members')
        """
        figures = (
            f"{partition_seconds(self.partition_seconds)} partition-seconds" if self.partition_seconds else "",
            plural(self.moves, "move") if self.moves > 0 else "",
            plural(self.rebalances, "rebalance") if self.rebalances else "",
        )
        told, share = ", ".join(filter(None, figures)), f"{self.share:.0%} {self.of}"
        return f"{told} ({share})" if told else share


@dataclass(frozen=True, slots=True)
class Advice:
    """One change. `settings` are exact: a client's property, or a command. `how` says how to apply them."""

    kind: str
    sentence: str
    settings: tuple[str, ...]
    how: str
    saves: Saving
    proof: tuple[str, ...]

    def to_dict(self) -> AdviceDocument:
        saves = self.saves
        return {
            "kind": self.kind,
            "sentence": self.sentence,
            "settings": list(self.settings),
            "how": self.how,
            "saves": {
                "partition_seconds": saves.partition_seconds,
                "moves": saves.moves,
                "rebalances": saves.rebalances,
                "share": saves.share,
                "of": saves.of,
            },
            "proof": list(self.proof),
        }


# The group's history
# -------------------


@dataclass(frozen=True)
class GroupRecord:
    """A group and what its ledger says of the time since `since_ms` (epoch milliseconds), oldest entry first."""

    group: ExaminedGroup
    facts: DoctorFacts
    entries: tuple[Rebalance, ...]
    rounds: tuple[RecordedRound, ...]
    since_ms: int
    names: Names = field(repr=False)

    @property
    def rebalances(self) -> int:
        """Those that had a plan, or ended because nobody was left; not those that the next one overtook."""
        overtaken = RebalanceOutcome.REBALANCE_OUTCOME_SUPERSEDED
        return sum(is_rebalance(entry) and entry.outcome != overtaken for entry in self.entries)

    @cached_property
    def comings_and_goings(self) -> ReturnFinder:
        """Members that came back, and those that polled late."""
        return ReturnFinder(self.entries, self.session_timeout_ms)

    @cached_property
    def disturbing(self) -> tuple[RecordedRound, ...]:
        """Rounds before which partitions had owners: the first start of a group is no disturbance."""
        return tuple(each for each in self.rounds if each.before)

    @cached_property
    def is_quiet(self) -> bool:
        """Whether it rebalances too seldom for a change to be worth it."""
        partitions = max((len(each.after) for each in self.rounds), default=0)
        days = (self.facts.now_ms - self.since_ms) / DAY_MS
        worth = partitions * days
        return self.seconds < QUIET_S * worth and self.moves < QUIET_MOVES * worth

    @property
    def seconds(self) -> float:
        """Partition-seconds without an owner, of all rounds."""
        return sum(each.seconds for each in self.rounds)

    @property
    def moves(self) -> int:
        return sum(each.moves for each in self.rounds)

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        return self.group.members

    @property
    def watched(self) -> bool:
        """Whether another broker coordinates the group."""
        return bool(self.entries) and self.entries[-1].source == REBALANCE_SOURCE_WATCHED

    @property
    def planned_with(self) -> str:
        """The assignor of the newest plan."""
        return self.rounds[-1].entry.protocol_name if self.rounds else ""

    @property
    def by_consumer_protocol(self) -> bool:
        """Whether it is a KIP-848 group."""
        return self.group.type == "consumer"

    def usual(self, values: Iterable[int | None]) -> int | None:
        """The most common of its members' values; the larger of two as common; None where none is known."""
        known = [value for value in values if value]
        return max(known, key=lambda value: (known.count(value), value)) if known else None

    @property
    def session_timeout_ms(self) -> int | None:
        return self.usual(member.session_timeout_ms for member in self.members)

    @property
    def poll_interval_ms(self) -> int | None:
        """`max.poll.interval.ms`: Java and librdkafka send it as the rebalance timeout."""
        return self.usual(member.rebalance_timeout_ms for member in self.members)

    def saving(self, seconds: float, moves: int, rebalances: int) -> Saving | None:
        """None where it is too little (EX-A2), or where partitions would have been without an owner for longer."""
        seconds = round(seconds, 3)
        if self.is_quiet or len(self.disturbing) < LEAST_ROUNDS or seconds < 0:
            return None
        if seconds < LEAST_SECONDS and moves < LEAST_MOVES:
            return None
        of_time = seconds / self.seconds if self.seconds else 0.0
        of_moves = max(moves, 0) / self.moves if self.moves else 0.0
        share = max(of_time, of_moves)
        if share < LEAST_SHARE:
            return None
        of = SECONDS if of_time >= of_moves else MOVES
        return Saving(seconds, moves, rebalances, round(share, 4), of, round(of_time + of_moves, 6))

    def saved_by_avoiding(self, numbers: Numbers, costs: float = 0.0) -> Saving | None:
        """What would have been saved without these rebalances; `costs`: partition-seconds that take their place."""
        avoided = [each for each in self.rounds if each.number in numbers]
        if not avoided:
            return None
        seconds = sum(each.seconds for each in avoided) - costs
        return self.saving(seconds, sum(each.moves for each in avoided), len(avoided))

    def cost_of(self, numbers: Numbers) -> str:
        """What these rebalances cost, of all, as proof tells it."""
        mine = [each for each in self.rounds if each.number in numbers]
        seconds, moves = sum(each.seconds for each in mine), sum(each.moves for each in mine)
        return (
            f"{len(mine)} of {len(self.rounds)} rebalances, {seconds:,.1f} of {self.seconds:,.1f} partition-seconds "
            f"without an owner, {moves:,} of {self.moves:,} moves"
        )


def read_record(group: ExaminedGroup, partitions: Mapping[str, int], now_ms: int, since_ms: int) -> GroupRecord:
    """`group.ledger` in any order and in whatever batches it was read: a later entry of one number counts."""
    by_number = {entry.number: entry for entry in group.ledger}
    everything = tuple(by_number[number] for number in sorted(by_number))
    entries = tuple(entry for entry in everything if entry.started_at_ms >= since_ms)[-MOST_ENTRIES:]
    begin_ms = max(since_ms, entries[0].started_at_ms) if entries else since_ms
    ordered = replace(group, ledger=everything[::-1])
    return GroupRecord(
        group=ordered,
        facts=DoctorFacts(now_ms, groups=(ordered,), partitions=partitions),
        entries=entries,
        rounds=tuple(list_rounds(entries)),
        since_ms=begin_ms,
        names=names_of(everything, group.members),
    )


def round_up_s(ms: float) -> int:
    """The next whole second, in milliseconds.

    >>> round_up_s(17_001), round_up_s(18_000)
    (18000, 18000)
    """
    return -int(-ms // 1000) * 1000


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that so many of them do not exceed.

    >>> percentile([5, 1, 3], 0.5), percentile([7], 0.99)
    (3, 7)
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]


def is_over(times_ms: Iterable[int], now_ms: int) -> bool:
    """Whether what happened at these times has stopped: not again for a day, nor for three times the longest pause.

    >>> is_over([0, 60_000], 3_600_000), is_over([0, 60_000], 90_000_000)
    (False, True)
    """
    ordered = sorted(times_ms)
    longest_ms = max((later - sooner for sooner, later in pairwise(ordered)), default=0)
    return now_ms - ordered[-1] > max(DAY_MS, 3 * longest_ms)
