"""Positions that do not move although records wait. Two looks a moment apart tell more than one.

Burrow calls a partition STALL when it is committed again and again at one offset, and STOP when it is not committed any
more. A partition that stands still while its owner's others move on is most likely stuck at one record.
"""

from collections import defaultdict
from collections.abc import Iterator
from shlex import quote

from muster.coordinator.observability.doctor.model import (
    MOST_NAMES,
    DoctorFacts,
    ExaminedGroup,
    RuleCase,
    member_name,
    number_entries,
    partition_name,
    seconds,
    some,
)
from muster.coordinator.observability.read_model.groups import MemberDescription, PartitionLag, TopicPartition
from muster.coordinator.observability.views.formatting import plural

REFUSED_COMMITS = 3
"""One commit is refused in many a rebalance; so many in a row are no accident."""

OLD_COMMIT_MS = 300_000
"""A position with a lag that was not committed for so long stands still."""


def is_standing_still(group: ExaminedGroup, tp: TopicPartition) -> bool:
    """Whether records wait there, and the position did not move between both looks."""
    now, before = group.positions[tp], group.earlier.get(tp)
    return now.lag > 0 and now.committed is not None and before is not None and before.committed == now.committed


def is_committed_again(group: ExaminedGroup, tp: TopicPartition) -> bool:
    """Whether it was committed again at the same offset between both looks: Burrow's STALL."""
    now, before = group.positions[tp].committed_at_ms, group.earlier[tp].committed_at_ms
    return now is not None and before is not None and now > before


def is_old(position: PartitionLag, now_ms: int) -> bool:
    at_ms = position.committed_at_ms
    return position.lag > 0 and at_ms is not None and now_ms - at_ms >= OLD_COMMIT_MS


def has_moved(group: ExaminedGroup, tp: TopicPartition) -> bool:
    """Whether the position is another than a moment before, or was committed within the last minutes."""
    now, before = group.positions[tp], group.earlier.get(tp)
    return before is not None and before.committed != now.committed


def stuck(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """A partition is stuck at one offset while its owner works, most likely at a record that it cannot process."""
    if not group.stable:
        return
    for member in group.members:
        mine = [tp for tp in member.assignment if tp in group.positions]
        going = [tp for tp in mine if has_moved(group, tp)]
        for tp in mine:
            position = group.positions[tp]
            if going and is_starved(group, tp, facts.now_ms):
                yield describe_starved(group, tp, member, going, facts.now_ms)
            stall = is_standing_still(group, tp) and is_committed_again(group, tp)
            alone = bool(going) and is_old(position, facts.now_ms) and not has_moved(group, tp)
            if stall or alone:
                waiting = plural(position.lag, "record")
                yield RuleCase(
                    f"{partition_name(tp)} stands still at offset {position.committed}, with {waiting} behind it",
                    tuple(list_signs(group, tp, member, going, facts.now_ms, stall=stall)),
                    step_over(group.id, tp, position),
                )


def step_over(group_id: str, tp: TopicPartition, position: PartitionLag) -> str:
    """The cure with the names in it, fit to be pasted into a shell."""
    topic, group = quote(tp.topic), quote(group_id)
    look = f"muster consume --topic {topic} --partition {tp.partition} --from {position.committed} --max-messages 1"
    over = f"muster groups reset-offsets {group} --topic {quote(f'{tp.topic}:{tp.partition}')} --to +1 --execute"
    return f"Look at the record (`{look}`), mend its consumer, or step over it: stop the group, then `{over}`."


def is_starved(group: ExaminedGroup, tp: TopicPartition, now_ms: int) -> bool:
    """Whether it is written to, and was never committed although its owner has had it for long.

    Records of before its owner came are no sign: who begins at the end does not read them.
    """
    now, before = group.positions[tp], group.earlier.get(tp)
    newest = next(iter(group.rebalances), None)
    return (
        now.committed is None
        and before is not None
        and now.log_end > before.log_end
        and newest is not None
        and now_ms - newest.ended_at_ms >= OLD_COMMIT_MS
    )


def describe_starved(
    group: ExaminedGroup, tp: TopicPartition, member: MemberDescription, going: list[TopicPartition], now_ms: int
) -> RuleCase:
    newest = group.rebalances[0]
    had_ms = (now_ms - newest.ended_at_ms) // 1000 * 1000
    return RuleCase(
        f"{partition_name(tp)} starves: it is written to, and nothing of it was ever committed",
        (
            f"owner: {member_name(member)}, for {seconds(had_ms)} at least ({number_entries([newest])})",
            f"{plural(group.positions[tp].lag, 'record')} wait, {describe_written(group, tp)} of them new within "
            f"{seconds(group.apart_ms)}",
            f"meanwhile its owner moved on in {some(list(map(partition_name, going)))}",
        ),
        "See whether its consumer fetches it at all: a partition that was paused and not resumed, a fetch that fails "
        "again and again, or records that are dropped without a commit.",
    )


def describe_written(group: ExaminedGroup, tp: TopicPartition) -> int:
    return group.positions[tp].log_end - group.earlier[tp].log_end


def list_signs(
    group: ExaminedGroup,
    tp: TopicPartition,
    member: MemberDescription,
    going: list[TopicPartition],
    now_ms: int,
    *,
    stall: bool,
) -> Iterator[str]:
    position = group.positions[tp]
    yield f"owner: {member_name(member)}"
    if stall:
        yield f"committed again at offset {position.committed} within {seconds(group.apart_ms)} (STALL)"
    elif position.committed_at_ms is not None:
        yield f"last committed {seconds((now_ms - position.committed_at_ms) // 1000 * 1000)} ago (STOP)"
    yield (
        f"meanwhile its owner moved on in {some(list(map(partition_name, going)))}"
        if going
        else "its owner has no other partition that moved"
    )


def stopped(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """No partition of the group makes progress, and records wait."""
    owned = [tp for tp in group.owners() if tp in group.positions]
    behind = [tp for tp in owned if group.positions[tp].lag > 0]
    dead = [tp for tp in behind if is_old(group.positions[tp], facts.now_ms)]
    if group.stable and behind and len(dead) == len(behind) and not any(has_moved(group, tp) for tp in owned):
        newest_ms = max(group.positions[tp].committed_at_ms or 0 for tp in behind)
        waiting = sum(group.positions[tp].lag for tp in behind)
        records, where = plural(waiting, "record"), plural(len(behind), "partition")
        yield RuleCase(
            f"the group makes no progress: it is {records} behind in {where}",
            (
                f"the newest commit among them is {seconds((facts.now_ms - newest_ms) // 1000 * 1000)} old",
                f"{plural(len(group.members), 'member')}, state {group.state}, generation {group.generation}",
            ),
        )


def one_does_not_commit(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """One member's committed offsets are old while the others' are fresh: its commits fail, or it makes none."""
    if not group.stable or len(group.members) < 2:
        return
    fresh: dict[str, int] = {}
    silent: dict[str, list[TopicPartition]] = defaultdict(list)
    for member in group.members:
        behind = [tp for tp in member.assignment if tp in group.positions and group.positions[tp].lag > 0]
        old = [tp for tp in behind if is_old(group.positions[tp], facts.now_ms) and not has_moved(group, tp)]
        if behind and len(old) == len(behind):
            silent[member.member_id] = old
        times = [group.positions[tp].committed_at_ms or 0 for tp in member.assignment if tp in group.positions]
        if times and facts.now_ms - max(times) < OLD_COMMIT_MS:
            fresh[member.member_id] = max(times)
    members = {member.member_id: member for member in group.members}
    others = set(fresh) - set(silent)
    for member_id in silent.keys() - fresh.keys():
        if len(others) * 2 >= len(group.members):
            newest_ms = max(group.positions[tp].committed_at_ms or 0 for tp in silent[member_id])
            yield RuleCase(
                f"{member_name(members[member_id])} lives, but has committed nothing for "
                f"{seconds((facts.now_ms - newest_ms) // 1000 * 1000)}",
                (
                    f"records wait in {some([partition_name(tp) for tp in silent[member_id]])}",
                    f"{len(others)} of {len(group.members)} members committed within {seconds(OLD_COMMIT_MS)}",
                ),
            )


def removed_unread(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Committed positions lie below the log's start: retention removed records that the group has not read."""
    short = [position for position in group.positions.values() if position.removed]
    if not short:
        return
    short.sort(key=lambda position: (-position.removed, position.partition))
    told = [
        f"{partition_name(position.partition)}: committed {position.committed:,}, the log begins at "
        f"{position.log_start:,}: {plural(position.removed, 'record')}"
        for position in short[:MOST_NAMES]
    ]
    more = [f"and {plural(len(short) - MOST_NAMES, 'more partition')}"] if len(short) > MOST_NAMES else []
    left = f"{plural(sum(position.lag for position in group.positions.values()), 'record')} can still be read"
    removed = sum(position.removed for position in short)
    were, them = ("was", "it") if removed == 1 else ("were", "them")
    what = f"{plural(removed, 'record')} {were} removed by retention before {group.id} read {them}"
    yield RuleCase(what, (*told, *more, left))


def commits_refused(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The last three or more commits of a member were all refused."""
    for member in group.members:
        if member.refused_commits >= REFUSED_COMMITS:
            waiting = group.lag_of(member)
            yield RuleCase(
                f"the last {plural(member.refused_commits, 'commit')} of {member_name(member)} were refused",
                (
                    f"the newest with {member.refused_commit_code}",
                    f"it has {plural(len(member.assignment), 'partition')}, {plural(waiting, 'record')} behind",
                ),
            )
