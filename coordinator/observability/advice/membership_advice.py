"""Advice on members that come and go: static membership, session and poll timeouts, one member that flaps."""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.assignors.api import TopicPartition
from muster.coordinator.observability.advice.member_returns import (
    EXPIRED,
    POLLED_LATE,
    RESTARTED,
    LatePoll,
    MemberReturn,
    Numbers,
    flapping_identity,
    set_off_by,
    set_off_by_returns,
)
from muster.coordinator.observability.advice.model import (
    LEAST_TIMES,
    Advice,
    GroupRecord,
    is_over,
    percentile,
    round_up_s,
)
from muster.coordinator.observability.doctor.model import partition_name, seconds, some
from muster.coordinator.observability.doctor.progress_rules import step_over
from muster.coordinator.observability.read_model import groups as read_model
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.incidents import Identity

MARGIN: Final = 1.5
"""Half as much again as the longest that was seen."""
MOST_LIKELY: Final = 0.99
LONGEST_SESSION_MS: Final = 1_800_000
"""`group.max.session.timeout.ms` of brokers, unless it is set."""
SHORTEST_SESSION_MS: Final = 6_000
"""`group.min.session.timeout.ms`."""
USUAL_SESSION_MS: Final = 45_000
"""`session.timeout.ms` of Java's and librdkafka's clients, unless it is set."""
POLL_RECORDS: Final = 500
"""`max.poll.records` of Java's clients, unless it is set."""


def needed_session_ms(returns: Sequence[MemberReturn]) -> int:
    """The 99th percentile of their absences, and half as much again."""
    away_ms = percentile([back.away_ms for back in returns], MOST_LIKELY)
    return min(max(round_up_s(away_ms * MARGIN), SHORTEST_SESSION_MS), LONGEST_SESSION_MS)


def session_setting(record: GroupRecord, needed_ms: int) -> str:
    """By KIP-848 the group has a session timeout; by the classic protocol each member."""
    name = "consumer.session.timeout.ms" if record.by_consumer_protocol else "session.timeout.ms"
    return f"{name}={needed_ms}"


def describe_absences(returns: Sequence[MemberReturn]) -> str:
    away = [back.away_ms for back in returns]
    median, most = percentile(away, 0.5), percentile(away, MOST_LIKELY)
    lasted = seconds(median) if median == most else f"{seconds(median)} (median) to {seconds(most)} (99 %)"
    return f"away for {lasted}; half as much again is {seconds(round_up_s(most * MARGIN))}"


def describe_who(returns: Sequence[MemberReturn]) -> str:
    called = {back.identity: name_identity(back.identity) for back in returns}
    return f"came back: {some([called[who] for who in sorted(called)])}"


def describe_moved(returns: Sequence[MemberReturn]) -> tuple[str, ...]:
    """How many are known by their client id alone."""
    count = sum(back.elsewhere for back in returns)
    return (
        (f"{count} of them came from another host: they are taken for the same by client id and time",) if count else ()
    )


def name_identity(identity: Identity) -> str:
    client_id, instance_id, host = identity
    return f"{instance_id or client_id} at {host or 'unknown host'}"


def numbered(numbers: Numbers) -> str:
    """As `muster groups explain --entries` numbers them."""
    return f"rebalance{'s' if len(numbers) != 1 else ''} {some([f'#{number}' for number in sorted(numbers)])}"


def price_of_session(now_ms: int | None, needed_ms: int) -> str:
    before = f", now after {seconds(now_ms)}" if now_ms else ""
    return f"the price: a member that dies without a word is noticed after {seconds(needed_ms)}{before}"


# A member that flaps
# -------------------


def advise_on_flapping(record: GroupRecord) -> Iterator[Advice]:
    """One client id at one host sets off most restarts of the group."""
    restarts = [back for back in record.comings_and_goings.returns if back.why in (RESTARTED, EXPIRED)]
    who = flapping_identity(record.entries, restarts)
    if who is None:
        return
    mine = [back for back in restarts if back.identity == who]
    if is_over((back.at_ms for back in mine), record.facts.now_ms):
        return
    numbers = set_off_by_returns(record.entries, mine)
    saves = record.saved_by_avoiding(numbers)
    if saves is None:
        return
    yield Advice(
        kind="flapping-member",
        sentence=f"{name_identity(who)} restarted {len(mine)} times and set off {len(numbers)} of "
        f"{plural(record.rebalances, 'rebalance')}: find out why its process ends.",
        settings=(),
        how="Look at its exit code, memory limit and probes. Until it is mended, stop it: the others take its share "
        "once, not each time.",
        saves=saves,
        proof=(
            record.cost_of(numbers),
            numbered(numbers),
            f"{len(mine)} of {plural(len(restarts), 'restart')} in the group are its own; {describe_absences(mine)}",
        ),
    )


# Static membership
# -----------------


def advise_static_membership(record: GroupRecord) -> Iterator[Advice]:
    """Members restart under new ids: each restart is two rebalances, which static members (KIP-345) do without."""
    restarts = [back for back in record.comings_and_goings.returns if back.why in (RESTARTED, EXPIRED)]
    flapping = flapping_identity(record.entries, restarts)
    mine = [back for back in restarts if not back.is_static and back.identity != flapping]
    if len(mine) < LEAST_TIMES or (record.members and all(member.group_instance_id for member in record.members)):
        return
    numbers = set_off_by_returns(record.entries, mine)
    waits = sum(back.unread_s for back in mine)
    saves = record.saved_by_avoiding(numbers, waits)
    if saves is None:
        return
    needed_ms, now_ms = needed_session_ms(mine), record.session_timeout_ms
    session = (session_setting(record, needed_ms),) if needed_ms > (now_ms or USUAL_SESSION_MS) else ()
    known = f"is {seconds(now_ms)}" if now_ms else f"is not known, {seconds(USUAL_SESSION_MS)} unless it is set"
    enough = () if session else (f"session.timeout.ms {known}, which is enough",)
    yield Advice(
        kind="static-membership",
        sentence=f"Give members a group.instance.id: {plural(len(mine), 'restart')} set off {len(numbers)} of "
        f"{plural(record.rebalances, 'rebalance')}, and static members restart without any.",
        settings=("group.instance.id=NAME", *session),
        how="Set it on each client, with a name of its own that is the same after a restart, such as its pod's "
        "ordinal, and restart them one by one.",
        saves=saves,
        proof=(
            record.cost_of(numbers),
            numbered(numbers),
            describe_who(mine),
            *describe_moved(mine),
            describe_absences(mine),
            f"counted against it: while its member is away a partition waits, {waits:,.1f} partition-seconds in all",
            *(price_of_session(now_ms, needed_ms) for _ in session),
            *enough,
        ),
    )


# Session timeout
# ---------------


def advise_longer_session(record: GroupRecord) -> Iterator[Advice]:
    """Members expired, and were back within moments: their session timeout is shorter than their pauses."""
    mine = [back for back in record.comings_and_goings.returns if back.why == EXPIRED]
    if len(mine) < LEAST_TIMES or is_over((back.at_ms for back in mine), record.facts.now_ms):
        return
    needed_ms, now_ms = needed_session_ms(mine), record.session_timeout_ms
    numbers = set_off_by_returns(record.entries, mine)
    saves = record.saved_by_avoiding(numbers, sum(back.unread_s for back in mine))
    if saves is None or (now_ms is not None and now_ms >= needed_ms):
        return
    yield Advice(
        kind="session-timeout",
        sentence=f"Raise session.timeout.ms: {plural(len(mine), 'session')} expired, and the members were back within "
        f"{seconds(max(back.away_ms for back in mine))} after they were last heard of.",
        settings=(session_setting(record, needed_ms),),
        how="Look for the pauses (garbage collection, CPU limits, a suspended machine) as well. If the processes were "
        "restarted, give them a group.instance.id too: a new process does not continue an old session without one.",
        saves=saves,
        proof=(
            record.cost_of(numbers),
            numbered(numbers),
            describe_who(mine),
            describe_absences(mine),
            price_of_session(now_ms, needed_ms),
        ),
    )


# Poll interval
# -------------


def advise_on_late_polls(record: GroupRecord) -> Iterator[Advice]:
    """Members did not poll within max.poll.interval.ms, left, and came back: too much work for one poll."""
    finder = record.comings_and_goings
    late = finder.late_polls
    if len(late) < LEAST_TIMES or is_over((each.at_ms for each in late), record.facts.now_ms):
        return
    back = [each for each in finder.returns if each.why == POLLED_LATE]
    went = {each.member_id for each in late} | {each.previous_id for each in back}
    numbers = set_off_by(record.entries, went, {each.member_id for each in back})
    saves = record.saved_by_avoiding(numbers)
    if saves is None:
        return
    poison = shared_partition(late)
    interval_ms = record.poll_interval_ms
    # Heartbeats go on until the member leaves; of another broker's groups the last commit is known instead.
    silent_ms = max((each.away_ms + (0 if record.watched else interval_ms or 0) for each in back), default=0)
    longest_ms = max(silent_ms, interval_ms or 0)
    needed_ms = round_up_s(longest_ms * MARGIN)
    times = plural(len(late), "time")
    proof = (
        record.cost_of(numbers),
        numbered(numbers),
        f"longest silence {seconds(longest_ms)}"
        + (f"; max.poll.interval.ms is {seconds(interval_ms)}" if interval_ms else ""),
        f"set off by {some(list(dict.fromkeys(name_identity(each.identity) for each in late)))}",
        *(f"#{each.number}: {name_identity(each.identity)} had {name_share(each)}" for each in late[-5:]),
    )
    if poison is not None:
        name = f"{poison[0]}-{poison[1]}"
        tp = read_model.TopicPartition(*poison)
        position = record.group.positions.get(tp)
        look = (
            step_over(record.group.id, tp, position)
            if position is not None and position.committed is not None
            else f"Look at the record at which {name} is committed, and mend its consumer."
        )
        yield Advice(
            kind="poison-partition",
            sentence=f"Look at {name}: {times} a member did not poll in time, and it had {name} each time.",
            settings=(),
            how=look,
            saves=saves,
            proof=(*proof, f"{name} alone is common to all shares"),
        )
        return
    settings = [f"max.poll.interval.ms={needed_ms}"] if longest_ms else []
    if interval_ms and needed_ms:
        fewer = max(1, POLL_RECORDS * interval_ms // needed_ms)
        settings.append(f"max.poll.records={fewer}")
    yield Advice(
        kind="poll-interval",
        sentence=f"Give a poll more time, or fewer records: {times} a member did not poll within "
        "max.poll.interval.ms, left and came back.",
        settings=tuple(settings),
        how="Set one of them on each client: the longer interval, or fewer records for one poll (counted from Java's "
        f"{POLL_RECORDS}; take as much less of yours).",
        saves=saves,
        proof=proof,
    )


def shared_partition(late: Sequence[LatePoll]) -> TopicPartition | None:
    """The one partition that every member had which was late; None where several are, or the shares were all alike."""
    shares = [each.partitions for each in late]
    if not all(shares) or len({*shares}) == 1 < len(shares[0]):
        return None
    common = frozenset.intersection(*shares)
    return next(iter(common)) if len(common) == 1 else None


def name_share(late: LatePoll) -> str:
    return some([partition_name(read_model.TopicPartition(*tp)) for tp in sorted(late.partitions)]) or "nothing"
