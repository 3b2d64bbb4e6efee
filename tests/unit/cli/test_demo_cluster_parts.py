"""What `muster demo --cluster` proves, and that it says so when something does not hold."""

import io
import json
import struct
from pathlib import Path

import pytest
from rich.console import Console

from muster.cli.demo import cluster_demo
from muster.cli.demo.cluster_demo import ClusterDemo, ClusterProof, DemoStanding, StandingBefore
from muster.cli.demo.delivery_proof import (
    REPORT_STRUCT,
    OwnershipSpan,
    ReportedReads,
    find_double_owners,
    longest_gap_s,
    ownership_spans,
)
from muster.cli.main import main
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove

WHOLE = ClusterProof(
    before=StandingBefore(1, {"worker-1": "id-1", "worker-2": "id-2"}),
    after=StandingBefore(1, {"worker-1": "id-1", "worker-2": "id-2"}),
    sent=100,
    acked=100,
    given_up=0,
    lacking=0,
    again=3,
    twice_owned=0,
    without_coordinator_s=0.39,
    without_ack_s=0.22,
)


@pytest.mark.parametrize(
    "broken",
    [
        {"after": StandingBefore(2, WHOLE.after.members)},
        {"after": StandingBefore(1, {"worker-1": "id-1", "worker-2": "another"})},
        {"after": StandingBefore(1, {"worker-1": "id-1"})},
        {"acked": 99},
        {"given_up": 1},
        {"lacking": 1},
        {"twice_owned": 1},
    ],
)
def test_each_promise_that_is_broken_is_seen(broken: dict[str, object]) -> None:
    assert WHOLE.holds
    assert not WHOLE._replace(**broken).holds  # type: ignore[arg-type]


def printed(proved: ClusterProof) -> str:
    out = Console(file=io.StringIO(), width=100)
    cluster_demo.show_cluster_proof(out, proved)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_the_verdict_is_the_last_line() -> None:
    assert printed(WHOLE).splitlines()[-1] == "all of it holds"
    told = printed(WHOLE._replace(after=StandingBefore(2, {"worker-1": "id-1", "worker-2": "x"})))
    assert told.splitlines()[-1] == "NOT ALL OF IT HOLDS"
    assert "1 -> 2   CHANGED" in told
    assert "1 of 2" in told


def test_who_read_what_is_followed_as_it_is_written(tmp_path: Path) -> None:
    report, read = tmp_path / "report", ReportedReads()
    pack = struct.Struct(REPORT_STRUCT).pack
    report.write_bytes(pack(0, 5, 77) + pack(1, 5, 78)[:3])
    read.follow(report)
    assert read.lacks({(0, 5): 77, (1, 5): 78}) == [(1, 5)], "a torn record is none yet"
    report.write_bytes(pack(0, 5, 77) + pack(1, 5, 78) + pack(0, 5, 77))
    read.follow(report)
    assert read.lacks({(0, 5): 77, (1, 5): 78}) == []
    assert read.lacks({(0, 5): 1}) == [(0, 5)], "something else was read there"
    assert read.again == 1


def test_what_a_worker_owned_by_its_own_words() -> None:
    lines = [{"at_ns": 1, "gained": [0, 1]}, {"at_ns": 4, "lost": [1, 9]}, {"at_ns": 6, "gained": [0, 2]}]
    assert ownership_spans("w", map(json.dumps, lines), 10) == [
        OwnershipSpan(1, "w", 1, 4),
        OwnershipSpan(0, "w", 1, 10),
        OwnershipSpan(2, "w", 6, 10),
    ]


def test_a_partition_that_two_had_at_one_time_is_found() -> None:
    handed_over = [OwnershipSpan(0, "a", 1, 5), OwnershipSpan(0, "b", 5, 9), OwnershipSpan(1, "b", 1, 9)]
    assert find_double_owners(handed_over) == []
    assert find_double_owners([OwnershipSpan(0, "a", 1, 5), OwnershipSpan(0, "b", 4, 9)]) == [
        (OwnershipSpan(0, "a", 1, 5), OwnershipSpan(0, "b", 4, 9))
    ]
    assert (
        find_double_owners([OwnershipSpan(0, "a", 1, 20), OwnershipSpan(0, "b", 2, 3), OwnershipSpan(0, "c", 7, 8)])
        != []
    )
    assert longest_gap_s([]) == 0


def test_who_leads_and_owns_what_is_shown() -> None:
    cluster = pb.DescribeClusterResponse(
        controller_id=2,
        nodes=[
            pb.ClusterNode(node_id=1, host="h", port=1, state=pb.NODE_STATE_GONE, holds=3, behind=3),
            pb.ClusterNode(node_id=2, host="h", port=2, state=pb.NODE_STATE_LIVE, leads=2, holds=3),
        ],
        partitions=[pb.ClusterPartitionState(topic="lines", partition=number, leader_id=2) for number in range(3)],
    )
    out = Console(file=io.StringIO(), width=100)
    cluster_demo.show_standing(out, "Now", DemoStanding(cluster, "h:2", 4, {"w": "id"}, {"w": [0, 1], "v": []}))
    election = pb.Election(topic="__consumer_offsets", partition=3, from_node_id=1, to_node_id=2, cause="node 1 died")
    move = CoordinatorMove(
        from_node=1, to_node=2, cause="node 1 died", last_heard_ms=1, elected_ms=100, serving_ms=401, members=3
    )
    cluster_demo.show_takeover(out, [move], [election])
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert "coordinates the group, controller" in text
    assert "gone" in text
    assert "generation 4: v -, w 0,1" in text
    assert "Coordinator moved   node 1 -> 2" in text
    assert "took 400 ms   node 1 died; 3 members kept" in text
    assert "1 leader changed with it: node 1 died" in text


def test_it_has_a_story_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--cluster", "--workers", "4"]) == 2
    assert "--cluster has a story of its own" in capsys.readouterr().err


def test_a_busy_machine_has_time_to_make_a_topic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After one second the demo gave up, while three nodes were still electing leaders."""
    given: dict[str, object] = {}
    monkeypatch.setattr(cluster_demo, "Admin", given.update)
    ClusterDemo(tmp_path)._admin_of(["127.0.0.1:1"])
    assert (given["request.timeout.ms"], given["default.api.timeout.ms"]) == (5_000, 30_000)
