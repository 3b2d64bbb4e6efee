"""A group's history without its decisions: who was there when, who wanted what, how much there was to read.

A trace is what a backtest replays. It is made by `synthetic` from a seed or by `recorded` from a node's ledger, and
kept as JSON lines: a head, then one line per step with its row of the load. All partitions lie on one axis: topics
in the order of the head, partition p of a topic at the sum of the counts before it plus p.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.assignors.data.axis import Axis

VERSION = 1
MAX_STEPS = 1_000_000
MAX_CELLS = 200_000_000
"""Steps times partitions: 1.6 GB of 64-bit numbers."""
MAX_LOAD = 10**12
"""Records of one partition at one step; sums over all partitions stay exact in 64 bits."""
MAX_LINE_CHARACTERS = 64 << 20

Load = NDArray[np.int64]


class TraceMember(NamedTuple):
    """One member over its whole life. A worker that comes back as a dynamic member is a new one."""

    id: str
    instance_id: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TraceStep:
    """What is so from `at_ms` until the next step.

    `cause` says why the group rebalances here; empty means that it does not, only the load is another one.
    `present` are numbers of members, `subscriptions` the numbers of what each of them subscribes to, `counts` the
    partitions of each topic. `lost` are (member, since when it worked on nothing) for those who went since the last
    rebalance; `silent` are members of the group that do not work: their crash is not known yet.
    """

    at_ms: int
    cause: str
    present: tuple[int, ...]
    subscriptions: tuple[int, ...]
    counts: tuple[int, ...]
    lost: tuple[tuple[int, int], ...] = ()
    silent: tuple[int, ...] = ()


@dataclass(frozen=True)
class GroupTrace:
    """A history, ready to be replayed.

    `drain_per_s` 0: a row of `load` is the lag of each partition, as it was recorded, whatever a replay decides.
    Otherwise it is what arrived in each partition since the step before, and every member works off so many records a
    second of what the replay gives it: then decisions have consequences. Partitions that do not exist have no load.
    """

    name: str
    topics: tuple[str, ...]
    counts: tuple[int, ...]
    members: tuple[TraceMember, ...]
    subscriptions: tuple[tuple[str, ...], ...]
    steps: tuple[TraceStep, ...]
    load: Load
    end_ms: int
    drain_per_s: int = 0

    def __post_init__(self) -> None:
        problem = find_problem(self)
        if problem:
            raise ValueError(f"trace {self.name!r}: {problem}")

    @cached_property
    def axis(self) -> Axis:
        return Axis.of(self.topics, dict(zip(self.topics, self.counts, strict=True)))

    @property
    def decisions(self) -> int:
        return sum(1 for step in self.steps if step.cause)

    def renamed(self, seed: int) -> "GroupTrace":
        """The same history with other member ids, as every run has them: ids are random, and ties fall by id.

        Seed 0 is the trace as it is. Static members keep their instance ids, which is what they are sorted by.
        """
        if seed == 0:
            return self
        dice = Random(seed)
        members = tuple(member._replace(id=f"{dice.getrandbits(64):016x}-{member.id}") for member in self.members)
        return replace(self, members=members)


def find_problem(trace: GroupTrace) -> str:
    """What makes this no history; empty when nothing does."""
    steps, cells = len(trace.steps), sum(trace.counts)
    if not steps:
        return "it has no steps; expected at least one rebalance"
    if steps > MAX_STEPS or steps * cells > MAX_CELLS:
        return f"{steps} steps of {cells} partitions are too many; expected at most {MAX_CELLS} cells"
    if trace.load.shape != (steps, cells):
        return f"its load is {trace.load.shape}; expected one row per step and one column per partition {steps, cells}"
    if trace.load.size and (int(trace.load.min()) < 0 or int(trace.load.max()) > MAX_LOAD):
        return f"its load goes from {trace.load.min()} to {trace.load.max()}; expected 0 to {MAX_LOAD}"
    if not 0 <= trace.drain_per_s <= MAX_LOAD:
        return f"drain_per_s is {trace.drain_per_s}; expected 0 to {MAX_LOAD}"
    if len(trace.topics) != len(trace.counts) or len(set(trace.topics)) != len(trace.topics):
        return "topics and counts do not go together; expected one count for each topic, each topic once"
    if len({member.id for member in trace.members}) != len(trace.members):
        return "two members have the same id; ids must differ"
    unknown = sorted({topic for row in trace.subscriptions for topic in row} - set(trace.topics))
    if unknown:
        return f"somebody subscribes to {unknown[0]!r}, which is none of its topics"
    return next((problem for at in range(steps) if (problem := find_step_problem(trace, at))), "")


def find_step_problem(trace: GroupTrace, at: int) -> str:
    step, members, kinds = trace.steps[at], len(trace.members), len(trace.subscriptions)
    until_ms = trace.steps[at + 1].at_ms if at + 1 < len(trace.steps) else trace.end_ms
    if until_ms < step.at_ms:
        return f"step {at} is at {step.at_ms} ms and ends at {until_ms} ms; expected steps in order of time"
    if len(step.present) != len(step.subscriptions) or len(set(step.present)) != len(step.present):
        return (
            f"step {at} lists {len(step.present)} members and {len(step.subscriptions)} subscriptions; "
            "expected each member once, with one subscription"
        )
    named = [*step.present, *step.silent, *(member for member, _ in step.lost)]
    if any(not 0 <= member < members for member in named):
        return f"step {at} names member {max(named)}; the members are 0 to {members - 1}"
    if any(not 0 <= kind < kinds for kind in step.subscriptions):
        return f"step {at} names subscription {max(step.subscriptions)}; there are 0 to {kinds - 1}"
    if len(step.counts) != len(trace.counts) or any(
        not 0 <= now <= most for now, most in zip(step.counts, trace.counts, strict=True)
    ):
        return f"step {at} has partition counts {list(step.counts)}; expected at most {list(trace.counts)}"
    if set(step.present) & {member for member, _ in step.lost}:
        return f"step {at} lists a member as present and as lost"
    return ""


class TraceHead(BaseModel):
    """The first line of a trace file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = Field(ge=VERSION, le=VERSION)
    name: str
    topics: dict[str, int]
    members: list[list[str | None]]
    subscriptions: list[list[str]]
    end_ms: int
    drain_per_s: int


class TraceLine(BaseModel):
    """A further line: one step and its row of the load."""

    model_config = ConfigDict(extra="forbid", strict=True)

    at_ms: int
    cause: str
    present: list[int]
    subscriptions: list[int]
    counts: list[int]
    lost: list[list[int]] = []
    silent: list[int] = []
    load: list[int]


def write_lines(trace: GroupTrace) -> Iterator[str]:
    """The trace as JSON lines; the same trace has the same bytes."""
    head = {
        "version": VERSION,
        "name": trace.name,
        "topics": dict(zip(trace.topics, trace.counts, strict=True)),
        "members": [list(member) for member in trace.members],
        "subscriptions": [list(row) for row in trace.subscriptions],
        "end_ms": trace.end_ms,
        "drain_per_s": trace.drain_per_s,
    }
    yield json.dumps(head, separators=(",", ":"), ensure_ascii=False)
    for number, step in enumerate(trace.steps):
        row = {key: value for key, value in asdict(step).items() if value or key not in ("lost", "silent")}
        yield json.dumps(row | {"load": trace.load[number].tolist()}, separators=(",", ":"), ensure_ascii=False)


def parse_trace(lines: Iterable[str]) -> GroupTrace:
    """Read what `write_lines` wrote. ValueError names the line and what is wrong with it."""
    rows = iter(lines)
    head = read_line(TraceHead, next(rows, ""), 1)
    steps: list[TraceStep] = []
    load: list[list[int]] = []
    for number, text in enumerate(rows, start=2):
        if not text.strip():
            continue
        if len(steps) == MAX_STEPS:
            raise ValueError(f"line {number}: a trace has at most {MAX_STEPS} steps")
        line = read_line(TraceLine, text, number)
        if any(len(pair) != 2 for pair in line.lost):
            raise ValueError(f"line {number}: lost is {line.lost}; expected pairs of a member and a time")
        if len(line.load) != sum(head.topics.values()):
            raise ValueError(
                f"line {number}: load has {len(line.load)} numbers; expected {sum(head.topics.values())}, "
                "one per partition"
            )
        if line.load and not 0 <= min(line.load) <= max(line.load) <= MAX_LOAD:
            raise ValueError(
                f"line {number}: load goes from {min(line.load)} to {max(line.load)}; expected 0 to {MAX_LOAD}"
            )
        load.append(line.load)
        steps.append(read_step(line))
    return GroupTrace(
        name=head.name,
        topics=tuple(head.topics),
        counts=tuple(head.topics.values()),
        members=tuple(read_member_row(row) for row in head.members),
        subscriptions=tuple(tuple(row) for row in head.subscriptions),
        steps=tuple(steps),
        load=np.array(load, dtype=np.int64).reshape(len(steps), sum(head.topics.values())),
        end_ms=head.end_ms,
        drain_per_s=head.drain_per_s,
    )


def read_line(kind: Any, text: str, number: int) -> Any:
    if len(text) > MAX_LINE_CHARACTERS:
        raise ValueError(f"line {number}: {len(text)} characters; expected at most {MAX_LINE_CHARACTERS}")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the line"
        expected = "the head of a trace" if kind is TraceHead else "a step"
        raise ValueError(f"line {number}: {place}: {first['msg']}; expected {expected}") from None


def read_member_row(row: Sequence[str | None]) -> TraceMember:
    if len(row) != 3 or row[0] is None:
        raise ValueError(f"a member is {row}; expected its id, its instance id or null, and its rack or null")
    return TraceMember(row[0], row[1], row[2])


def read_step(line: TraceLine) -> TraceStep:
    return TraceStep(
        at_ms=line.at_ms,
        cause=line.cause,
        present=tuple(line.present),
        subscriptions=tuple(line.subscriptions),
        counts=tuple(line.counts),
        lost=tuple((pair[0], pair[1]) for pair in line.lost),
        silent=tuple(line.silent),
    )


def write_trace(trace: GroupTrace, path: Path) -> None:
    """As JSON lines, packed when the name ends in .gz. Raises OSError."""
    with open_trace(path, "wt") as file:
        file.writelines(line + "\n" for line in write_lines(trace))


def read_trace(path: Path) -> GroupTrace:
    """Raises OSError, and ValueError that names the file and the line."""
    try:
        with open_trace(path, "rt") as file:
            return parse_trace(read_bounded_lines(file))
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: {error}") from None


def open_trace(path: Path, mode: Literal["rt", "wt"]) -> IO[str]:
    return gzip.open(path, mode, encoding="utf-8") if path.suffix == ".gz" else path.open(mode, encoding="utf-8")


def read_bounded_lines(file: Any) -> Iterator[str]:
    """Lines, none of them read further than one may be long."""
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        yield line
