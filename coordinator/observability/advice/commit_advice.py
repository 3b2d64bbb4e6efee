"""Advice on commits: far too many, none at all, or none by one member."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from muster.coordinator.observability.advice.model import DAY_MS, LEAST_SHARE, Advice, GroupRecord, Saving
from muster.coordinator.observability.doctor.model import RuleCase, member_name, seconds
from muster.coordinator.observability.doctor.progress_rules import OLD_COMMIT_MS, one_does_not_commit
from muster.coordinator.observability.read_model.commit_history import CommitTraffic
from muster.coordinator.observability.read_model.groups import MemberDescription
from muster.coordinator.observability.views.formatting import plural

OF_PARTITIONS: Final = "of the partitions"
OF_COMMITS: Final = "of the records that its commits write"

USUAL_INTERVAL_MS: Final = 5_000
"""`auto.commit.interval.ms` of Java's and librdkafka's clients, unless it is set."""
BUSY_RATE: Final = 20.0
"""Records a second that one group may well write by committing: 1.7 million a day."""
TOO_OFTEN: Final = 3
"""So many times as often as by default."""
LEAST_COUNTED_MS: Final = 60_000
"""Commits of a shorter time tell no rate."""


# Too many
# --------


def advise_on_frequent_commits(record: GroupRecord) -> Iterator[Advice]:
    """Positions are committed far more often than a crash makes it worth: each is a record that brokers replicate."""
    commits = record.group.commits
    traffic = commits.traffic
    if traffic is None or traffic.to_ms - traffic.from_ms < LEAST_COUNTED_MS or not record.members:
        return
    if record.facts.now_ms - traffic.to_ms > DAY_MS:
        return
    trails = [trail for trail in commits.trails.values() if trail.samples and trail.samples[-1].at_ms > traffic.from_ms]
    needed = len(trails) * 1000 / USUAL_INTERVAL_MS
    if not trails or traffic.rate < max(BUSY_RATE, needed * TOO_OFTEN):
        return
    read_rate = sum(trail.rate_since(traffic.from_ms) for trail in trails)
    share = round(1 - needed / traffic.rate, 4)
    yield Advice(
        kind="frequent-commits",
        sentence=f"Commit less often: {traffic.rate:,.0f} positions a second are committed, each a record for the "
        f"brokers to keep and copy. Every {seconds(USUAL_INTERVAL_MS)} it would be {describe_rate(needed)}.",
        settings=("enable.auto.commit=true", f"auto.commit.interval.ms={USUAL_INTERVAL_MS}"),
        how="A client that commits by itself (commitSync, commitAsync) can do so after a poll and not after a record, "
        f"or when {seconds(USUAL_INTERVAL_MS)} have passed. The price: after a crash, what was read since the last "
        "commit is read again.",
        saves=Saving(share=share, of=OF_COMMITS),
        proof=(
            f"{traffic.records:,} records in {seconds(traffic.to_ms - traffic.from_ms)}"
            + (f" to {traffic.kept_in}" if traffic.kept_in else "")
            + f": {describe_rate(traffic.rate)}, {traffic.rate * DAY_MS / 1000:,.0f} a day",
            *describe_share(traffic),
            f"{plural(len(trails), 'partition')}, each committed every "
            f"{describe_interval(len(trails) * 1000 / traffic.rate)} on average; by default it is every "
            f"{seconds(USUAL_INTERVAL_MS)}",
            *(
                (f"one commit for each {read_rate / traffic.rate:,.1f} records that were read",)
                if read_rate >= traffic.rate / 2
                else ()
            ),
        ),
    )


def describe_interval(ms: float) -> str:
    """
    >>> describe_interval(40.8), describe_interval(1_600)
    ('41 ms', '1.6 s')
    """
    return f"{ms:.0f} ms" if ms < 1_000 else seconds(ms)


def describe_rate(rate: float) -> str:
    """
    >>> describe_rate(0.6), describe_rate(1234.5)
    ('0.6 a second', '1,234 a second')
    """
    return f"{rate:,.1f} a second" if rate < 10 else f"{rate:,.0f} a second"


def describe_share(traffic: CommitTraffic) -> Iterator[str]:
    """How much of the offsets topic the group writes, as far as it is known."""
    if not traffic.partition_records:
        return
    of_topic = f", {traffic.own / traffic.topic_records:.1%} of all of the topic's" if traffic.topic_records else ""
    yield f"{traffic.own / traffic.partition_records:.0%} of all records in {traffic.kept_in} are its own{of_topic}"


# None
# ----


@dataclass(frozen=True, slots=True)
class CommitState:
    """Of the partitions that members own: which have records, and which of these were ever committed."""

    written: int
    committed: int


def commit_state(record: GroupRecord, member: MemberDescription | None = None) -> CommitState:
    """Of one member, or of all."""
    group = record.group
    owned = group.owners() if member is None else member.assignment
    rows = [group.positions[tp] for tp in owned if tp in group.positions]
    written = [row for row in rows if row.log_end > row.log_start]
    return CommitState(len(written), sum(row.committed is not None for row in written))


def settled_ms(record: GroupRecord) -> int:
    """For how long the group has been as it is; 0 where that is not long enough for a commit, or not known."""
    group = record.group
    newest_ms = max((entry.ended_at_ms for entry in group.rebalances), default=None)
    if newest_ms is None or not group.stable:
        return 0
    length_ms = record.facts.now_ms - newest_ms
    return int(length_ms) if length_ms >= OLD_COMMIT_MS else 0


def advise_on_commits(record: GroupRecord) -> Iterator[Advice]:
    """Nothing was ever committed, or one member's positions stand still, or are none, while the others' move."""
    group, state, stable_ms = record.group, commit_state(record), settled_ms(record)
    if stable_ms and state.written and not state.committed:
        yield Advice(
            kind="no-commits",
            sentence=f"Commit positions: {plural(state.written, 'partition')} with records, and nothing was ever "
            "committed. After each restart everything is read again, or skipped.",
            settings=("enable.auto.commit=true",),
            how="Or commit after processing (commitSync). A group that keeps its positions elsewhere, as Spark "
            "and Flink do, needs none: then this is as it should be.",
            saves=Saving(share=1.0, of=OF_PARTITIONS),
            proof=(f"stable for {seconds(stable_ms // 1000 * 1000)}",),
        )
        return
    for case in one_does_not_commit(group, record.facts):
        yield from stuck_member(record, case)
    if stable_ms:
        yield from silent_members(record, stable_ms)


def stuck_member(record: GroupRecord, case: RuleCase) -> Iterator[Advice]:
    group = record.group
    owned = len(group.owners())
    stuck = next((member for member in group.members if case.what.startswith(member_name(member))), None)
    share = len(stuck.assignment) / owned if stuck is not None and owned else 0.0
    if stuck is None or share < LEAST_SHARE:
        return
    settings, how = removal_of(record, stuck)
    yield Advice(
        kind="stuck-member",
        sentence=f"Restart or replace {member_name(stuck)}: it owns {plural(len(stuck.assignment), 'partition')} of "
        f"{owned}, and their positions do not move while records wait.",
        settings=settings,
        how=f"Look at its threads and at what it writes to first. {how}",
        saves=Saving(share=round(share, 4), of=OF_PARTITIONS),
        proof=(case.what, *case.evidence),
    )


def removal_of(record: GroupRecord, member: MemberDescription) -> tuple[tuple[str, ...], str]:
    """How its partitions come to others: the command, and a sentence. A broker's groups are not Muster's to change."""
    who = member.group_instance_id or member.client_id or member.member_id
    if record.watched or record.group.description.watched:
        return (), f"Once the process of {who} has ended, its partitions go to the others."
    command = f"muster groups remove-members {record.group.id} {member.member_id}"
    return (command,), f"Removing {who} gives its partitions to the others."


def silent_members(record: GroupRecord, stable_ms: int) -> Iterator[Advice]:
    """Members that have never committed any of their partitions, where all others have committed theirs."""
    group = record.group
    states = {member.member_id: commit_state(record, member) for member in group.members if member.assignment}
    silent = [each for each in group.members if (of := states.get(each.member_id)) and of.written and not of.committed]
    others = [of for of in states.values() if of.committed]
    if not silent or len(silent) * 2 > len(states) or any(of.committed < of.written for of in others):
        return
    owned = sum(len(member.assignment) for member in group.members)
    mine = sum(len(member.assignment) for member in silent)
    names = ", ".join(member_name(member) for member in silent[:3])
    yield Advice(
        kind="silent-member",
        sentence=f"See why {names} {'commits' if len(silent) == 1 else 'commit'} nothing: of "
        f"{plural(mine, 'partition')} no position is on record, while the others have committed each of theirs.",
        settings=("enable.auto.commit=true",),
        how="Look for another configuration, and for commits that fail. If nothing has been written to these "
        "partitions since the group began to read at their end, this is as it should be.",
        saves=Saving(share=round(mine / owned, 4), of=OF_PARTITIONS),
        proof=(
            f"stable for {seconds(stable_ms // 1000 * 1000)}",
            *(
                f"{member_name(member)}: {plural(states[member.member_id].written, 'partition')} with records, none "
                "committed"
                for member in silent[:5]
            ),
            f"the others: {plural(sum(of.committed for of in others), 'partition')} with records, all committed",
        ),
    )
