"""Clients whose version is known for a defect that shows in groups. docs/observe.md has the table, from this one."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.observability.doctor.facts import DoctorFacts, ExaminedGroup, ExaminedMember
from muster.coordinator.observability.doctor.finding import RuleCase
from muster.coordinator.observability.doctor.words import some
from muster.coordinator.observability.views.formatting import plural

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
        "its leader may plan for ever with cooperative-sticky: the group waits for a plan that does not come",
        LIBRDKAFKA + "pull/4800", COOPERATIVE,
    ),
    Defect(
        "librdkafka", "1.0.0", "2.4.0",
        "records may be read twice after a rebalance or a pause, from a fetch position that is out of date",
        LIBRDKAFKA + "pull/4636",
    ),
    Defect(
        "librdkafka", "1.0.0", "2.1.0",
        "polling any queue counts: a consumer that is stuck keeps its partitions beyond max.poll.interval.ms",
        LIBRDKAFKA + "pull/4176",
    ),
    Defect(
        "librdkafka", "0.11.0", "1.5.3",
        "its leader may plan for ever with roundrobin where members subscribe to different topics",
        LIBRDKAFKA + "issues/3159", "roundrobin",
    ),
    Defect(
        "librdkafka", "0.11.0", "1.5.2",
        "a commit that fails during a rebalance may leave the consumer stuck",
        LIBRDKAFKA + "issues/2933",
    ),
    Defect(
        "apache-kafka-java", "2.4.0", "2.8.1",
        "a member that fell out of the group claims partitions that are not its own any more: its leader makes no plan",
        JAVA + "10985", COOPERATIVE,
    ),
    Defect(
        "apache-kafka-java", "3.2.0", "3.2.1",
        "a member commits again and again before it rejoins, and holds up the rebalance",
        JAVA + "12349", COOPERATIVE,
    ),
    Defect(
        "sarama", "1.0.0", "1.42.2",
        "closing a consumer group may hang for ever: the member stays until its session ends",
        SARAMA + "2717",
    ),
    Defect(
        "sarama", "1.0.0", "1.41.0",
        "partitions that are added to a topic are not read until the consumer is restarted",
        SARAMA + "2563",
    ),
    Defect(
        "sarama", "1.0.0", "1.31.1",
        "heartbeats stop as soon as a rebalance begins: who takes long to clean up is put out of the group",
        SARAMA + "2110",
    ),
    Defect(
        "kafka-python", "1.4.0", "2.0.2",
        "the consumer and its heartbeat thread may block each other for ever when a heartbeat times out",
        "https://github.com/dpkp/kafka-python/pull/2064",
    ),
    Defect(
        "kafka-python", "3.0.0", "3.0.9",
        "a consumer with a rebalance listener may keep partitions that were given to another",
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
    """Members run a version that is known for a defect."""
    cases: dict[tuple[str, str], list[ExaminedMember]] = defaultdict(list)
    for member in group.members:
        software = software_of(member)
        if software:
            cases[software].append(member)
    for (name, version), members in sorted(cases.items()):
        for defect in DEFECTS:
            if has_defect(defect, name, version, group.assignor):
                yield RuleCase(
                    f"{name} {version}, in {plural(len(members), 'member')}: {defect.what}",
                    (f"members: {some([member.name for member in members])}", f"known as {defect.source}"),
                    f"upgrade to {defect.software} {defect.mended} or later",
                )


def software_of(member: ExaminedMember) -> tuple[str, str] | None:
    """Name and version, as the client says them, or as its default client id does."""
    name, _, version = member.software.partition(" ")
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
