"""The deadlines of members: session, heartbeat and poll against each other, and those that were missed."""

from collections import defaultdict
from collections.abc import Iterator

from muster.coordinator.observability.doctor.facts import DoctorFacts, ExaminedGroup, ExaminedMember
from muster.coordinator.observability.doctor.finding import RuleCase
from muster.coordinator.observability.doctor.words import list_culprits, number_entries, seconds, some
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause

HEARTBEATS_IN_A_SESSION = 3
DEFAULT_HEARTBEAT_MS = 3_000
"""heartbeat.interval.ms of Kafka's clients, where a member does not tell its own."""
LONG_SESSION_MS = 300_000
LONG_REBALANCE_MS = 900_000
MISSED_IN_MS = 600_000
MISSED_OFTEN = 3

CENTRAL = "central"
RETRIES = "group.central.rebalance.max.retries"
BACKOFF = "group.central.rebalance.backoff.ms"


def few_heartbeats(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The session timeout is less than three heartbeats."""
    cases: dict[tuple[int, int, bool], list[ExaminedMember]] = defaultdict(list)
    for member in group.members:
        session_ms = member.session_timeout_ms
        beat_ms = member.heartbeat_interval_ms or DEFAULT_HEARTBEAT_MS
        if session_ms is not None and session_ms < HEARTBEATS_IN_A_SESSION * beat_ms:
            cases[session_ms, beat_ms, member.heartbeat_interval_ms is not None].append(member)
    for (session_ms, beat_ms, told), members in cases.items():
        by = "" if told else ", the clients' default: a classic member keeps its own to itself"
        yield RuleCase(
            f"{plural(len(members), 'member')} may miss fewer than two heartbeats before the session ends",
            (
                f"session timeout {seconds(session_ms)} < 3 x heartbeat interval {seconds(beat_ms)}{by}",
                f"members: {some([member.name for member in members])}",
            ),
        )


def long_session(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """A dead member keeps its partitions for more than five minutes."""
    late = [member for member in group.members if (member.session_timeout_ms or 0) > LONG_SESSION_MS]
    if late:
        longest = max(late, key=lambda member: member.session_timeout_ms or 0)
        yield RuleCase(
            f"a member that dies keeps its partitions for up to {seconds(longest.session_timeout_ms or 0)}",
            (
                f"session timeout above {seconds(LONG_SESSION_MS)}: {some([member.name for member in late])}",
                f"the longest is {seconds(longest.session_timeout_ms or 0)}, of {longest.name}",
            ),
        )


def poll_under_session(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """A rebalance waits for a member for a shorter time than its session lasts."""
    cases: dict[tuple[int, int], list[ExaminedMember]] = defaultdict(list)
    for member in group.members:
        session_ms, poll_ms = member.session_timeout_ms, member.rebalance_timeout_ms
        if session_ms is not None and poll_ms is not None and 0 < poll_ms < session_ms:
            cases[poll_ms, session_ms].append(member)
    for (poll_ms, session_ms), members in cases.items():
        yield RuleCase(
            f"{plural(len(members), 'member')} will be put out of a rebalance before the session ends",
            (
                f"rebalance timeout (max.poll.interval.ms) {seconds(poll_ms)} < session timeout {seconds(session_ms)}",
                f"members: {some([member.name for member in members])}",
            ),
        )


def long_rebalance(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """One member that does not poll can hold up a rebalance of everybody for a quarter of an hour and more."""
    slow = [member for member in group.members if (member.rebalance_timeout_ms or 0) > LONG_REBALANCE_MS]
    if slow and len(group.members) > 1:
        longest_ms = max(member.rebalance_timeout_ms or 0 for member in slow)
        yield RuleCase(
            f"a rebalance may wait up to {seconds(longest_ms)} for one member that does not poll",
            (
                f"rebalance timeout (max.poll.interval.ms) above {seconds(LONG_REBALANCE_MS)}: "
                f"{some([member.name for member in slow])}",
                f"{plural(len(group.members) - 1, 'other member')} would wait with it",
            ),
        )


def sessions_end(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Sessions expired three times in ten minutes."""
    yield from find_missed_deadlines(group, facts, RebalanceCause.REBALANCE_CAUSE_SESSION_EXPIRED, "sessions expired")


def polls_late(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Members left three times in ten minutes because their application did not poll in time."""
    yield from find_missed_deadlines(
        group, facts, RebalanceCause.REBALANCE_CAUSE_POLL_TIMEOUT, "members did not poll in time"
    )


def find_missed_deadlines(group: ExaminedGroup, facts: DoctorFacts, cause: int, what: str) -> Iterator[RuleCase]:
    entries = [entry for entry in group.lately(facts.now_ms, MISSED_IN_MS) if entry.cause == cause]
    if len(entries) >= MISSED_OFTEN:
        yield RuleCase(
            f"{what} {len(entries)} times in the last {seconds(MISSED_IN_MS)}",
            (number_entries(entries), f"of: {some(list_culprits(entries))}"),
        )


def retries_under_session(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The ZooKeeper era's famous failure: all attempts are over before the dead member's session is."""
    settings = facts.node.settings
    if group.type != CENTRAL or RETRIES not in settings or BACKOFF not in settings:
        return
    retries, backoff_ms = int(settings[RETRIES]), int(settings[BACKOFF])
    beyond = [member for member in group.members if (member.session_timeout_ms or 0) > retries * backoff_ms]
    if beyond:
        longest_ms = max(member.session_timeout_ms or 0 for member in beyond)
        yield RuleCase(
            "the group gives up a rebalance before the session of a dead member is over",
            (
                f"{RETRIES} {retries} x {BACKOFF} {seconds(backoff_ms)} = {seconds(retries * backoff_ms)} "
                f"< session timeout {seconds(longest_ms)}",
                f"members: {some([member.name for member in beyond])}",
            ),
        )
