"""Rules on clients and how they are configured: versions with known defects, deadlines, and static membership.

docs/observe.md has its table of defects from here. Deadlines: session, heartbeat and poll against each other, and
those that members missed. Static membership (KIP-345) helps only when instance ids are unique and are used again
after a restart.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    ExaminedGroup,
    RuleCase,
    list_culprits,
    member_name,
    number_entries,
    recent_incidents,
    seconds,
    some,
)
from muster.coordinator.observability.read_model.groups import MemberDescription
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause

# Known defects
# -------------

Version: TypeAlias = tuple[int, ...]

COOPERATIVE = "cooperative-sticky"
BY_CLIENT_ID = ("kafka-python", "aiokafka")
"""Clients whose default client id is their name and version: older ones say it nowhere else."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Versions from `since` on and below `mended` have it; `assignor`: only where the group runs this one."""

    software: str
    since: str
    mended: str
    what: str
    source: str
    assignor: str = ""


LIBRDKAFKA = "https://github.com/confluentinc/librdkafka/"
JAVA = "https://github.com/apache/kafka/pull/"
SARAMA = "https://github.com/IBM/sarama/pull/"

DEFECTS = (
    Defect(
        "librdkafka", "1.6.0", "2.6.1",
        "the leader's cooperative-sticky assignor may never finish: the group waits for a plan that does not come",
        LIBRDKAFKA + "pull/4800", COOPERATIVE,
    ),
    Defect(
        "librdkafka", "1.0.0", "2.4.0",
        "records may be read twice after a rebalance or a pause, because of an outdated fetch position",
        LIBRDKAFKA + "pull/4636",
    ),
    Defect(
        "librdkafka", "1.0.0", "2.1.0",
        "polling any queue counts as a poll: a stuck consumer keeps its partitions beyond max.poll.interval.ms",
        LIBRDKAFKA + "pull/4176",
    ),
    Defect(
        "librdkafka", "0.11.0", "1.5.3",
        "the leader's roundrobin assignor may never finish if members subscribe to different topics",
        LIBRDKAFKA + "issues/3159", "roundrobin",
    ),
    Defect(
        "librdkafka", "0.11.0", "1.5.2",
        "a commit that fails during a rebalance may leave the consumer stuck",
        LIBRDKAFKA + "issues/2933",
    ),
    Defect(
        "apache-kafka-java", "2.4.0", "2.8.1",
        "a member that dropped out of the group still claims its former partitions: the leader makes no plan",
        JAVA + "10985", COOPERATIVE,
    ),
    Defect(
        "apache-kafka-java", "3.2.0", "3.2.1",
        "a member commits again and again before it rejoins, and holds up the rebalance",
        JAVA + "12349", COOPERATIVE,
    ),
    Defect(
        "sarama", "1.0.0", "1.42.2",
        "closing a consumer group may hang forever: the member stays until its session ends",
        SARAMA + "2717",
    ),
    Defect(
        "sarama", "1.0.0", "1.41.0",
        "partitions that are added to a topic are not read until the consumer is restarted",
        SARAMA + "2563",
    ),
    Defect(
        "sarama", "1.0.0", "1.31.1",
        "heartbeats stop as soon as a rebalance begins: a member whose cleanup takes long is removed from the group",
        SARAMA + "2110",
    ),
    Defect(
        "kafka-python", "1.4.0", "2.0.2",
        "the consumer and its heartbeat thread may block each other forever when a heartbeat times out",
        "https://github.com/dpkp/kafka-python/pull/2064",
    ),
    Defect(
        "kafka-python", "3.0.0", "3.0.9",
        "a consumer with a rebalance listener may keep partitions that were given to another member",
        "https://github.com/dpkp/kafka-python/releases/tag/3.0.9",
    ),
    Defect(
        "aiokafka", "0.6.0", "0.7.1",
        "generation and member id may be reset while it joins: the group rebalances without end",
        "https://github.com/aio-libs/aiokafka/pull/747",
    ),
    Defect(
        "kgo", "0.0.0", "1.17.0",
        "a group cannot be changed from an eager to a cooperative assignor while it runs",
        "https://github.com/twmb/franz-go/blob/master/CHANGELOG.md#v1170",
    ),
)  # fmt: skip
"""What upstream's change logs and threads say; a source a row."""


def known_defects(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Members run a client version with a known defect."""
    cases: dict[tuple[str, str], list[MemberDescription]] = defaultdict(list)
    for member in group.members:
        software = software_of(member)
        if software:
            cases[software].append(member)
    for (name, version), members in sorted(cases.items()):
        for defect in DEFECTS:
            if has_defect(defect, name, version, group.assignor):
                yield RuleCase(
                    f"{name} {version}, in {plural(len(members), 'member')}: {defect.what}",
                    (f"members: {some([member_name(member) for member in members])}", f"known as {defect.source}"),
                    f"upgrade to {defect.software} {defect.mended} or later",
                )


def software_of(member: MemberDescription) -> tuple[str, str] | None:
    """Name and version, as the client says them, or as its default client id does."""
    name, _, version = member.client_software.partition(" ")
    if numbers(version):
        return name, version.removeprefix("v")
    for known in BY_CLIENT_ID:
        rest = member.client_id.removeprefix(known + "-")
        if rest != member.client_id and numbers(rest):
            return known, rest
    return None


def has_defect(defect: Defect, name: str, version: str, assignor: str) -> bool:
    if name != defect.software or (defect.assignor and assignor != defect.assignor):
        return False
    return numbers(defect.since) <= numbers(version) < numbers(defect.mended)


def numbers(version: str) -> Version:
    """
    >>> numbers("v1.41.2"), numbers("2.6.0-dirty"), numbers("3.2"), numbers("main")
    ((1, 41, 2), (2, 6, 0), (3, 2, 0), ())
    """
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


# Deadlines
# ---------

HEARTBEATS_IN_A_SESSION = 3
DEFAULT_HEARTBEAT_MS = 3_000
"""heartbeat.interval.ms of Kafka's clients: with sessions that have room for three of these nothing is measured."""
LONG_SESSION_MS = 300_000
LONG_REBALANCE_MS = 900_000
MISSED_IN_MS = 600_000
MISSED_OFTEN = 3

CENTRAL = "central"
RETRIES = "group.central.rebalance.max.retries"
BACKOFF = "group.central.rebalance.backoff.ms"


def few_heartbeats(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The session timeout is less than three heartbeats.

    A classic member keeps its interval to itself: it is measured, from one heartbeat to the next. Where nobody could
    look twice nothing is said.
    """
    cases: dict[tuple[int, int, bool], list[MemberDescription]] = defaultdict(list)
    for member in group.members:
        session_ms, told = member.session_timeout_ms, member.heartbeat_interval_ms is not None
        beat_ms = member.heartbeat_interval_ms or group.beats.get(member.member_id, 0)
        if session_ms is not None and session_ms < HEARTBEATS_IN_A_SESSION * beat_ms:
            cases[session_ms, beat_ms if told else round(beat_ms, -2), told].append(member)
    for (session_ms, beat_ms, told), members in cases.items():
        by = "" if told else ", as measured between two heartbeats"
        yield RuleCase(
            f"{plural(len(members), 'member')} may miss fewer than two heartbeats before the session ends",
            (
                f"session timeout {seconds(session_ms)} < 3 x heartbeat interval {seconds(beat_ms)}{by}",
                f"members: {some([member_name(member) for member in members])}",
            ),
        )


def has_measurable_beats(member: MemberDescription) -> bool:
    """Whether its heartbeat interval is worth measuring: it is not told, and the default would be too long."""
    session_ms = member.session_timeout_ms
    return (
        member.heartbeat_interval_ms is None
        and session_ms is not None
        and session_ms < HEARTBEATS_IN_A_SESSION * DEFAULT_HEARTBEAT_MS
    )


def long_session(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """A dead member keeps its partitions for more than five minutes."""
    late = [member for member in group.members if (member.session_timeout_ms or 0) > LONG_SESSION_MS]
    if late:
        longest = max(late, key=lambda member: member.session_timeout_ms or 0)
        yield RuleCase(
            f"a member that dies keeps its partitions for up to {seconds(longest.session_timeout_ms or 0)}",
            (
                f"session timeout above {seconds(LONG_SESSION_MS)}: {some([member_name(member) for member in late])}",
                f"the longest is {seconds(longest.session_timeout_ms or 0)}, of {member_name(longest)}",
            ),
        )


def poll_under_session(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """A rebalance waits for a member for a shorter time than its session lasts."""
    cases: dict[tuple[int, int], list[MemberDescription]] = defaultdict(list)
    for member in group.members:
        session_ms, poll_ms = member.session_timeout_ms, member.rebalance_timeout_ms
        if session_ms is not None and poll_ms is not None and 0 < poll_ms < session_ms:
            cases[poll_ms, session_ms].append(member)
    for (poll_ms, session_ms), members in cases.items():
        yield RuleCase(
            f"{plural(len(members), 'member')} will be put out of a rebalance before the session ends",
            (
                f"rebalance timeout (max.poll.interval.ms) {seconds(poll_ms)} < session timeout {seconds(session_ms)}",
                f"members: {some([member_name(member) for member in members])}",
            ),
        )


def long_rebalance(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """One member that does not poll can hold up a rebalance of the whole group for a quarter of an hour or more."""
    slow = [member for member in group.members if (member.rebalance_timeout_ms or 0) > LONG_REBALANCE_MS]
    if slow and len(group.members) > 1:
        longest_ms = max(member.rebalance_timeout_ms or 0 for member in slow)
        yield RuleCase(
            f"a rebalance may wait up to {seconds(longest_ms)} for one member that does not poll",
            (
                f"rebalance timeout (max.poll.interval.ms) above {seconds(LONG_REBALANCE_MS)}: "
                f"{some([member_name(member) for member in slow])}",
                f"{plural(len(group.members) - 1, 'other member')} would wait with it",
            ),
        )


def sessions_end(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Sessions expired three times in ten minutes: not in a crash loop, and not because the node did not answer."""
    yield from find_missed_deadlines(group, facts, RebalanceCause.REBALANCE_CAUSE_SESSION_EXPIRED, "sessions expired")


def polls_late(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Members left three times in ten minutes because their application did not poll in time."""
    yield from find_missed_deadlines(
        group, facts, RebalanceCause.REBALANCE_CAUSE_POLL_TIMEOUT, "members did not poll in time"
    )


def find_missed_deadlines(group: ExaminedGroup, facts: DoctorFacts, cause: int, what: str) -> Iterator[RuleCase]:
    entries = [entry for entry in group.lately(facts.now_ms, MISSED_IN_MS) if entry.cause == cause]
    if len(entries) >= MISSED_OFTEN:
        explained = {
            entry.number
            for each in recent_incidents(group, facts.now_ms, MISSED_IN_MS)
            if each.told.kind in ("crash_loop", "node_stall", "failover")
            for entry in each.entries
        }
        entries = [entry for entry in entries if entry.number not in explained]
    if len(entries) >= MISSED_OFTEN:
        yield RuleCase(
            f"{what} {len(entries)} times in the last {seconds(MISSED_IN_MS)}",
            (number_entries(entries), f"of: {some(list_culprits(entries))}"),
        )


def retries_under_session(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """All rebalance attempts end before a dead member's session does, the well-known failure of the ZooKeeper era."""
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
                f"members: {some([member_name(member) for member in beyond])}",
            ),
        )


# Static membership
# -----------------

REPLACED_IN_MS = 600_000
REPLACED_OFTEN = 3
STRANGERS = 3
"""So many times as many instance ids as there are members, each seen in one life only, are names that never return."""


def used_twice(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Two processes with one instance id fence each other again and again."""
    replaced = RebalanceCause.REBALANCE_CAUSE_STATIC_MEMBER_REPLACED
    entries = [e for e in group.lately(facts.now_ms, REPLACED_IN_MS) if e.cause == replaced]
    names: Counter[str] = Counter()
    hosts: dict[str, set[str]] = {}
    for entry in entries:
        instance = instance_of(entry.culprit, entry.culprit_client_id)
        names[instance] += 1
        hosts.setdefault(instance, set()).add(entry.culprit_client_host)
    # A calm takeover is no rebalance: only the node's own count tells of it.
    counted = {
        member.group_instance_id: member for member in group.members if member.group_instance_id and member.taken_over
    }
    for instance in sorted({*names, *filter(None, counted)}):
        here = counted.get(instance)
        times = max(names[instance], here.taken_over if here else 0)
        if times >= REPLACED_OFTEN:
            theirs = [e for e in entries if instance_of(e.culprit, e.culprit_client_id) == instance]
            places = {*hosts.get(instance, ()), *([here.client_host] if here else [])}
            now = [f"now {here.client_id or here.member_id} has it"] if here else []
            yield RuleCase(
                f"instance id {instance!r} was taken over, or asked for by another, {times} times in "
                f"{seconds(REPLACED_IN_MS)}",
                (*([number_entries(theirs)] if theirs else []), f"from {some(sorted(places))}", *now),
            )


def instance_of(member_id: str, client_id: str) -> str:
    """A static member's id begins with its instance id; what the coordinator adds is a UUID.

    >>> instance_of("pod-1-0c1ab5c1-3a5c-4b4e-9f6e-2f1d3b7f9a10", "app")
    'pod-1'
    """
    head, dash, tail = member_id[:-37], member_id[-37:-36], member_id[-36:]
    return head if head and dash == "-" and tail.count("-") == 4 else client_id or member_id


def never_reused(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Instance ids change with each start, so the old ones hold their partitions until their sessions end."""
    lives: dict[str, set[str]] = {}
    for entry in group.rebalances:
        for member in entry.members:
            if member.group_instance_id:
                lives.setdefault(member.group_instance_id, set()).add(member.member_id)
    now = {member.group_instance_id for member in group.members if member.group_instance_id}
    gone = sorted(name for name, ids in lives.items() if name not in now and len(ids) == 1)
    if now and len(gone) >= STRANGERS * len(now):
        yield RuleCase(
            f"{plural(len(gone), 'instance id')} came once, and never again",
            (
                f"{len(now)} static members now; gone: {some(gone)}",
                f"among the members of {number_entries(group.rebalances)}",
            ),
        )
