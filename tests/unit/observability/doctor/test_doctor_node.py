"""The same of clients' versions and of the node."""

from typing import Any

import pytest

from muster.coordinator.observability.doctor.client_rules import DEFECTS, numbers
from muster.coordinator.observability.doctor.model import ExaminedNode, NodeTrouble
from tests.support.doctor import NOW, found, group, member, only


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d.software}-{d.mended}")
def test_client_defect(defect: Any) -> None:
    def runs(version: str, assignor: str = defect.assignor) -> bool:
        sick = group(member(client_software=f"{defect.software} {version}"), assignor=assignor)
        return any(defect.source in f.evidence[1] for f in found("client-defect", sick))

    assert runs(defect.since)
    assert not runs(defect.mended)
    major, minor, patch = numbers(defect.since)
    if minor:
        assert not runs(f"{major}.{minor - 1}.{patch}")
    if defect.assignor:
        assert not runs(defect.since, "range")


def test_older_clients_say_their_version_in_their_client_id() -> None:
    finding = only("client-defect", group(member("kafka-python-2.0.1")))
    assert "kafka-python 2.0.1" in finding.what
    assert finding.todo == "upgrade to kafka-python 2.0.2 or later"
    assert not found("client-defect", group(member("kafka-python-mine")))
    assert not found("client-defect", group(member(client_software="librdkafka")))


@pytest.mark.parametrize(
    ("condition", "rule"),
    [
        ("certificate-ends:grpc", "certificate-ends-soon"),
        ("certificate-ended:kafka", "certificate-ended"),
        ("certificate-not-read:http", "certificate-not-read"),
    ],
)
def test_certificates(condition: str, rule: str) -> None:
    node = ExaminedNode(troubles=(NodeTrouble(condition, "it is so; do that", NOW - 5_000),))
    assert only(rule, node=node).evidence == (f"condition {condition}",)
    assert not found("node-trouble", node=node), "it is told once"
    assert not found(rule)


def test_doors_that_stand_open() -> None:
    def opened(**settings: str) -> list[str]:
        node = ExaminedNode(settings={key.replace("_", "."): value for key, value in settings.items()})
        return [finding.what for finding in found("door-open", node=node)]

    assert opened() == []
    assert opened(listeners="127.0.0.1:9290", http_listeners="PLAINTEXT://localhost:9291", kafka_listeners="") == []
    assert opened(listeners="SSL://0.0.0.0:9290", authorizer="acl") == []
    assert opened(listeners="SSL://0.0.0.0:9290") == [
        "listeners is SSL://0.0.0.0:9290: who reaches it may do everything"
    ]
    [told] = opened(kafka_listeners="SASL_PLAINTEXT://10.0.0.1:9092", listeners="QUIC://10.0.0.1:1", authorizer="acl")
    assert told.startswith("kafka.listeners is SASL_PLAINTEXT://10.0.0.1:9092: who is on the way reads")


def test_node_trouble() -> None:
    node = ExaminedNode(troubles=(NodeTrouble("shard-failed:7", "shard 7 is not served", NOW - 5_000, 3),))
    assert only("node-trouble", node=node).evidence == ("condition shard-failed:7, for 5 s, seen 3 times",)
    assert not found("node-trouble")


def test_a_warning_of_the_node_is_no_error() -> None:
    takeover = NodeTrouble("central-takeover", "if this node fails, node 2 takes over", NOW - 5_000, warning=True)
    node = ExaminedNode(troubles=(takeover,))
    assert only("node-warning", node=node).evidence == ("condition central-takeover, for 5 s, seen 1 times",)
    assert not found("node-trouble", node=node)
    assert not found("node-warning", node=ExaminedNode(troubles=(NodeTrouble("disk-full", "no room", NOW),)))


@pytest.mark.parametrize(
    ("rule", "sick", "well"),
    [
        ("clock-skew", {"clock_ahead_ms": -5_000}, {"clock_ahead_ms": -4_999}),
        (
            "descriptors-short",
            {"open_descriptors": 820, "descriptor_limit": 1024},
            {"open_descriptors": 819, "descriptor_limit": 1024},
        ),
        (
            "memory-short",
            {"resident_bytes": 90 << 20, "memory_bytes": 100 << 20},
            {"resident_bytes": 89 << 20, "memory_bytes": 100 << 20},
        ),
        (
            "disk-short",
            {"disk_free_bytes": 9 << 30, "disk_total_bytes": 100 << 30},
            {"disk_free_bytes": 10 << 30, "disk_total_bytes": 100 << 30},
        ),
        ("loop-late", {"loop_late_ms": 250}, {"loop_late_ms": 249}),
        ("loop-late", {"stalled_ms": 3_600, "up_ms": 3_600_000}, {"stalled_ms": 3_599, "up_ms": 3_600_000}),
        (
            "loop-late",
            {"stalled_ms": 300, "stalls": 3, "up_ms": 120_000},
            {"stalled_ms": 300, "stalls": 2, "up_ms": 120_000},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_node_has_left(rule: str, sick: dict[str, int], well: dict[str, int]) -> None:
    assert only(rule, node=ExaminedNode(**sick))
    assert not found(rule, node=ExaminedNode(**well))


def test_a_disk_that_the_node_complains_of_is_told_once() -> None:
    node = ExaminedNode(
        troubles=(NodeTrouble("disk-nearly-full", "full", NOW),), disk_free_bytes=1, disk_total_bytes=100
    )
    assert not found("disk-short", node=node)


def test_groups_that_nobody_tells_of_are_a_finding() -> None:
    untold = ("those of node-2:9290, which is one of the cluster and cannot be reached from here",)
    finding = only("groups-untold", untold=untold)
    assert (finding.group, finding.evidence) == ("", untold)
    assert "muster cluster drain" in finding.todo
    assert not found("groups-untold")


def test_logins_that_fail() -> None:
    """After a dozen of them it said that nothing is wrong."""
    failed = (("kafka", "10.0.0.1", 9, "wrong password"), ("http", "10.0.0.2", 1, "unknown token"))
    finding = only("logins-fail", node=ExaminedNode(failed_logins=failed))
    assert finding.what == "10 logins failed in the last ten minutes"
    assert finding.evidence == (
        "10.0.0.1, by kafka: 9 times, the last: wrong password",
        "10.0.0.2, by http: 1 time, the last: unknown token",
    )
    assert not found("logins-fail", node=ExaminedNode(failed_logins=failed[:1]))
    many = tuple(("kafka", f"10.0.0.{n}", 2, "no such user") for n in range(9))
    assert only("logins-fail", node=ExaminedNode(failed_logins=many)).evidence[-1] == "and 4 more addresses"
