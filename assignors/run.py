"""Runs an assignor without trusting it: none, ours or a plugin's, can give a partition twice or lose one.

`run` is pure and has no deadline of its own. A caller with one runs it in a thread or process, waits as long as it
likes, and reports an overrun as `overran(assignor, deadline_ms)`. A plugin gets a private copy of the snapshot:
whatever it does to it, the checks and the ledger see the original.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FrameType, MappingProxyType

from muster.assignors.api import (
    Assignment,
    Assignor,
    AssignorError,
    Member,
    Plan,
    RebalanceProtocol,
    Snapshot,
    TopicPartition,
)
from muster.assignors.data.consumer_protocol import claims_are_memories
from muster.assignors.data.values import HANDOVER, NOBODY, WHOLE, find_claimants

# A private copy of the snapshot
# ------------------------------


def is_ours(assignor: Assignor) -> bool:
    """Whether an assignor is part of this package, and may be shown the original."""
    return type(assignor).__module__.startswith(f"{__package__}.")


def shielded(snapshot: Snapshot) -> Snapshot:
    """A copy down to the last list. A table of members is shared: it and its arrays are read-only."""
    members = snapshot.members
    return replace(
        snapshot,
        topics=MappingProxyType(dict(snapshot.topics)),
        members=[_copied(member) for member in members] if isinstance(members, (list, tuple)) else members,
        lags=None
        if snapshot.lags is None
        else MappingProxyType({topic: tuple(row) for topic, row in snapshot.lags.items()}),
        racks=None
        if snapshot.racks is None
        else MappingProxyType({topic: tuple(map(tuple, row)) for topic, row in snapshot.racks.items()}),
        options=MappingProxyType(dict(snapshot.options)),
        stale=MappingProxyType({topic: tuple(row) for topic, row in snapshot.stale.items()}),
    )


def _copied(member: Member) -> Member:
    if member.owned is None:
        return member
    return replace(member, owned={topic: tuple(row) for topic, row in member.owned.items()})


# Asking and checking
# -------------------

LIMIT_OPTION = "max.partitions.per.member"
_NAMED = 5  # How many culprits an error names before it only counts.


def run(assignor: Assignor, snapshot: Snapshot, withhold: bool = True) -> Assignment:
    """Ask `assignor`, check its answer, and hold back what a cooperative member must release first.

    `withhold=False` leaves the full target in place, as a KIP-848 coordinator wants it. Raises
    AssignorError when the assignor raises or when any partition of a subscribed topic does not go to
    exactly one subscriber.
    """
    name = _name_of(assignor)
    check_snapshot(name, snapshot)
    target = decided(assignor, name, snapshot, snapshot if is_ours(assignor) else shielded(snapshot))
    cooperative = assignor.protocol is RebalanceProtocol.COOPERATIVE
    return withheld(snapshot, target) if withhold and cooperative else target


def decided(assignor: Assignor, name: str, snapshot: Snapshot, shown: Snapshot) -> Assignment:
    """What `assignor` answers when it is shown `shown`, checked against `snapshot`. Raises AssignorError.

    The error of a plugin ends with file and line: where it raised, or where its `assign` is defined.
    """
    try:
        answer = assignor.assign(shown)
    except AssignorError:
        raise
    except (Exception, SystemExit) as error:
        place = place_in_plugin(assignor, list(traceback.walk_tb(error.__traceback__))[1:])
        trace = "".join(traceback.format_exception(error))[-MAX_TRACE:]
        what = f"raised {type(error).__name__}: {error}"
        raise AssignorError(name, f"{what} ({place})" if place else what, trace) from error
    try:
        return checked(name, snapshot, answer, ours=is_ours(assignor))
    except AssignorError as error:
        if is_ours(assignor) or not (place := place_of_definition(assignor)):
            raise
        raise AssignorError(name, f"{error.problem} ({place})") from error
    except Exception as error:
        # A plan is foreign data; its very values may misbehave when read.
        raise AssignorError(name, f"answered something unreadable ({type(error).__name__}: {error})") from error


MAX_TRACE = 8_000
"""Characters of a traceback, of its end."""


def place_in_plugin(assignor: Assignor, calls: Sequence[tuple[FrameType, int]]) -> str:
    """File, line and function of the innermost of these calls that is the plugin's own, else of the innermost."""
    own = getattr(sys.modules.get(type(assignor).__module__), "__file__", None)
    mine = [call for call in calls if call[0].f_code.co_filename == own] or list(calls)
    if not mine:
        return ""
    frame, number = mine[-1]
    return f"{frame.f_code.co_filename}, line {number}, in {frame.f_code.co_name}"


def place_of_definition(assignor: Assignor) -> str:
    """File and line of its `assign`; empty where that is no Python."""
    code = getattr(getattr(type(assignor), "assign", None), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if isinstance(code, CodeType) else ""


def calls_under_way(frame: FrameType | None) -> list[tuple[FrameType, int]]:
    """The calls of a thread from the outermost to this one, with the line at which each is."""
    return [(each, number) for each, number in traceback.walk_stack(frame)][::-1] if frame is not None else []


def overran(assignor: str, deadline_ms: int) -> AssignorError:
    """The error of an assignor that was not done by its deadline."""
    return AssignorError(assignor, f"was not done after {deadline_ms} ms; the group keeps its last good assignment")


def check_snapshot(name: str, snapshot: Snapshot) -> None:
    ids = [member.id for member in snapshot.members]
    if len(set(ids)) < len(ids):
        times = Counter(ids)
        twice = min(word for word, count in times.items() if count > 1)
        raise AssignorError(name, f"cannot run: member ids must differ, but {twice!r} appears twice")
    for topic, count in snapshot.topics.items():
        if count < 0:
            raise AssignorError(name, f"cannot run: topic {topic!r} has {count} partitions; 0 or more expected")


def checked(name: str, snapshot: Snapshot, answer: Plan | Assignment, *, ours: bool = False) -> Assignment:
    """The answer as an Assignment in which each partition has exactly one rightful reader.

    ours: it is of an assignor of this package, whose partitions are integers.
    """
    given = answer if isinstance(answer, Assignment) else Assignment(answer)
    if hasattr(given.members, "owner"):
        from muster.assignors.run_columns import checked_table

        table = checked_table(name, snapshot, given, limited=LIMIT_OPTION in snapshot.options)
        if table is not None:
            return table
    if not isinstance(given.members, Mapping):
        raise AssignorError(name, f"answered a {type(answer).__name__}; expected {{member: {{topic: partitions}}}}")
    if ours and not given.unassigned and (whole := whole_shares(snapshot, given.members)) is not None:
        return Assignment(members=whole, note=given.note)
    shares = _clean(name, snapshot, given.members)
    unassigned = _check_coverage(name, snapshot, shares, given.unassigned)
    return Assignment(members=shares, unassigned=unassigned, note=str(given.note))


def withheld(snapshot: Snapshot, target: Assignment, besides: Sequence[Member] = ()) -> Assignment:
    """`target` without the partitions that another member may still be reading.

    A rightful owner who keeps a partition gets it at once, whatever stale members claim; everybody else
    waits a round for as long as anyone else claims it (KIP-429). What an eager `sticky` member remembers
    it has let go of. `besides`: members with what else they may be reading, which makes none of it theirs.
    """
    holding = [member for member in snapshot.members if not claims_are_memories(member)]
    if hasattr(target.members, "owner") and len(holding) == len(snapshot.members) and not besides:
        from muster.assignors.run_columns import withheld_table

        table = withheld_table(target)
        if table is not None:
            return table
    claiming = [member for member in (*holding, *besides) if member.owned]
    if not claiming:
        return target
    early = _early(snapshot, target, claiming)
    if not early and not target.withheld and isinstance(target.members, dict):
        return target
    members: dict[str, dict[str, Sequence[int]]] = {}
    for member, share in target.members.items():
        mine = members[member] = dict(share)
        for topic in share.keys() & early.get(member, {}).keys():
            mine[topic] = [partition for partition in share[topic] if partition not in early[member][topic]]
            if not mine[topic]:
                del mine[topic]
    back = [(t, p) for by_topic in early.values() for t, partitions in by_topic.items() for p in partitions]
    return dataclasses.replace(target, members=members, withheld=tuple(sorted(back)))


def hand_over(snapshot: Snapshot, target: Assignment, besides: Sequence[Member] = ()) -> Assignment:
    """What members get of the target in this round, by the `HANDOVER` that the snapshot states.

    A coordinator's plan depends on what members hold, not on how its assignor hands over: an eager member has let go of
    what it owned by the last plan, so nobody waits for it.
    """
    stated = snapshot.options.get(HANDOVER)
    if stated == WHOLE:
        return target
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        holding = frozenset(stated)
        members = [member if member.id in holding else replace(member, owned=None) for member in snapshot.members]
        # An owner table knows the claims of its own snapshot only.
        return withheld(replace(snapshot, members=members), replace(target, members=target.to_dict()), besides)
    return withheld(snapshot, target, besides)


_Early = dict[str, dict[str, set[int]]]
"""{member: {topic: partitions}}"""


def _early(snapshot: Snapshot, target: Assignment, holding: Iterable[Member]) -> _Early:
    """What each member is to get though somebody else may still be reading it."""
    held, place = snapshot.held, {member.id: number for number, member in enumerate(snapshot.ordered_members())}
    coming: list[tuple[str, str, list[int]]] = []
    asked: dict[str, set[int]] = {}
    for member, share in target.members.items():
        me = place.get(member, NOBODY - 1)
        for topic, partitions in share.items():
            owner = held.get(topic, ())
            count = len(owner)
            if len(partitions) == 1 and partitions[0] < count and owner[partitions[0]] == me:
                continue
            new = [partition for partition in partitions if partition >= count or owner[partition] != me]
            if new:
                coming.append((member, topic, new))
                asked.setdefault(topic, set()).update(new)
    claimed = find_claimants(holding, asked) if coming else {}
    early: _Early = {}
    for member, topic, new in coming:
        others = {partition for partition in new if claimed.get((topic, partition), member) != member}
        if others:
            early.setdefault(member, {})[topic] = others
    return early


def _name_of(assignor: Assignor) -> str:
    try:
        name = assignor.name
    except Exception:  # Foreign code: a name that cannot be read must not hide what went wrong.
        name = ""
    return name if isinstance(name, str) and name else type(assignor).__name__


def _clean(
    name: str, snapshot: Snapshot, plan: Mapping[str, Mapping[str, Sequence[int]]]
) -> dict[str, dict[str, Sequence[int]]]:
    """Every member's share, sorted; refuses unknown members, topics and numbers that do not exist."""
    kinds = {topics: frozenset(topics) for topics in {member.topics for member in snapshot.members}}
    wanted = {member.id: kinds[member.topics] for member in snapshot.members}
    unknown = [member for member in plan if member not in wanted]
    if unknown:
        raise AssignorError(name, f"gave partitions to {_some(unknown)}, not members of this group")
    counts = snapshot.topics
    shares: dict[str, dict[str, Sequence[int]]] = {}
    for member, topics in wanted.items():
        mine = shares[member] = {}
        for topic, partitions in plan.get(member, {}).items():
            count = counts.get(topic, 0)
            if type(partitions) is list and len(partitions) == 1:
                # What most have of a topic: one partition, which is in order as it is.
                (one,) = partitions
                if type(one) is int and 0 <= one < count and topic in topics:
                    mine[topic] = [one]
                    continue
            row = partitions if isinstance(partitions, range) else sorted(partitions)
            if not len(row):
                continue
            if type(row) is not range or not (0 <= row[0] < count and 0 <= row[-1] < count and topic in topics):
                _check_row(name, snapshot, member, topic, row, topics)
            mine[topic] = row
    return shares


def whole_shares(
    snapshot: Snapshot, plan: Mapping[str, Mapping[str, Sequence[int]]]
) -> dict[str, dict[str, Sequence[int]]] | None:
    """Every member's share, if each partition of each topic that is read has one subscriber; None: look closer.

    The fast path of `_clean` and `_check_coverage` for small plans of our own assignors, of which both were a third.
    tests/property/assignors/test_fast_paths.py holds them together.
    """
    shares: dict[str, dict[str, Sequence[int]]] = {}
    given: dict[str, list[int]] = {topic: [] for topic in snapshot.subscribed_topics()}
    wanted: dict[tuple[str, ...], frozenset[str]] = {}
    for member in snapshot.members:
        share = shares[member.id] = dict(plan.get(member.id, ()))
        topics = wanted.get(member.topics)
        if topics is None:
            topics = wanted[member.topics] = frozenset(given.keys() & member.topics)
        if not topics >= share.keys() or not all(share.values()):
            return None
        for topic, row in share.items():
            given[topic] += row
            if len(row) > 1 and type(row) is not range:
                share[topic] = sorted(row)
    if not shares.keys() >= plan.keys():
        return None
    for topic, row in given.items():
        count = snapshot.topics[topic]
        if len(row) != count or len(set(row)) != count or min(row) < 0 or max(row) >= count:
            return None
    return shares


def _check_row(
    name: str, snapshot: Snapshot, member: str, topic: str, row: Sequence[int], wanted: frozenset[str]
) -> None:
    count = snapshot.topics.get(topic, 0)
    for partition in (row[0], row[-1]) if isinstance(row, range) else row:
        if type(partition) is not int:
            raise AssignorError(name, f"gave {member!r} {topic}-{partition!r}: a partition number must be an int")
        if not 0 <= partition < count:
            raise AssignorError(
                name, f"gave {member!r} {topic}-{partition}, which does not exist ({topic} has {count} partitions)"
            )
    if topic not in wanted:
        raise AssignorError(name, f"gave {member!r} {topic}-{row[0]}, but it is not subscribed to {topic!r}")


def _check_coverage(
    name: str,
    snapshot: Snapshot,
    shares: Mapping[str, Mapping[str, Sequence[int]]],
    unassigned: Iterable[TopicPartition],
) -> tuple[TopicPartition, ...]:
    rows: dict[str, list[Sequence[int]]] = defaultdict(list)
    for share in shares.values():
        for topic, row in share.items():
            rows[topic].append(row)
    left = tuple(sorted({(str(topic), int(partition)) for topic, partition in unassigned}))
    if left and LIMIT_OPTION not in snapshot.options:
        raise AssignorError(
            name,
            f"left {_some([f'{t}-{p}' for t, p in left])} unassigned, but the option {LIMIT_OPTION!r} is not set",
        )
    spared: dict[str, set[int]] = {}
    for topic, partition in left:
        spared.setdefault(topic, set()).add(partition)
    for topic in snapshot.subscribed_topics():
        count = snapshot.topics[topic]
        given = rows.get(topic, ())
        apart = spared.get(topic, set())
        seen = apart.union(*given)
        total = len(apart) + sum(map(len, given))
        if total != count or len(seen) != count:
            _complain(name, snapshot, shares, topic, seen)
    return left


def _complain(
    name: str,
    snapshot: Snapshot,
    shares: Mapping[str, Mapping[str, Sequence[int]]],
    topic: str,
    seen: set[int],
) -> None:
    missing = [f"{topic}-{p}" for p in range(snapshot.topics[topic]) if p not in seen]
    if missing:
        raise AssignorError(name, f"forgot {_some(missing)}; its subscribers are {_some(snapshot.subscribers(topic))}")
    takers: dict[int, list[str]] = {}
    for member, share in shares.items():
        for partition in share.get(topic, ()):
            takers.setdefault(partition, []).append(member)
    for partition, members in sorted(takers.items()):
        if len(members) > 1:
            raise AssignorError(name, f"gave {topic}-{partition} twice: to {' and '.join(map(repr, members))}")
    raise AssignorError(name, f"listed partitions of {topic!r} as unassigned that do not exist or have a reader")


def _some(words: Sequence[str]) -> str:
    named = ", ".join(words[:_NAMED])
    return named if len(words) <= _NAMED else f"{named} and {len(words) - _NAMED} more"
