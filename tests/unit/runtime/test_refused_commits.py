"""Whose commits are refused, and how many in a row."""

from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.core.model.events import Heartbeat, OffsetCommit, Request
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import MAX_REFUSED_COMMITTERS, Metrics, RefusedCommits
from tests.fakes.memory_group_log import MemoryGroupLog

TAKEN = OffsetCommitReply(partitions={("t", 0): ErrorCode.NONE})
REFUSED = OffsetCommitReply(ErrorCode.ILLEGAL_GENERATION)
IN_PART = OffsetCommitReply(partitions={("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE})


def by(member_id: str, group_id: str = "g") -> OffsetCommit:
    return OffsetCommit(1, group_id, member_id, None, 1, {})


def test_refusals_are_counted_in_a_row_and_one_that_is_taken_ends_it() -> None:
    metrics = Metrics()
    metrics.commit_answered(by("a"), REFUSED)
    metrics.commit_answered(by("a"), IN_PART)
    metrics.commit_answered(by("b"), REFUSED)
    metrics.commit_answered(by("a", "other"), TAKEN)
    assert metrics.refused_commits == {
        ("g", "a"): RefusedCommits(2, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("g", "b"): RefusedCommits(1, ErrorCode.ILLEGAL_GENERATION),
    }
    metrics.commit_answered(by("a"), TAKEN)
    assert list(metrics.refused_commits) == [("g", "b")]
    metrics.commit_answered(by("a"), REFUSED)
    assert metrics.refused_commits["g", "a"].in_a_row == 1


def test_a_committer_without_a_name_is_nobody_s_member() -> None:
    metrics = Metrics()
    metrics.commit_answered(by(""), REFUSED)
    assert not metrics.refused_commits


def test_of_very_many_those_who_were_refused_last_are_kept() -> None:
    metrics = Metrics()
    for number in range(MAX_REFUSED_COMMITTERS):
        metrics.commit_answered(by(f"m{number}"), REFUSED)
    metrics.commit_answered(by("m0"), REFUSED)
    metrics.commit_answered(by("new"), REFUSED)
    assert len(metrics.refused_commits) == MAX_REFUSED_COMMITTERS
    assert metrics.refused_commits["g", "m0"].in_a_row == 2
    assert ("g", "m1") not in metrics.refused_commits


def test_names_that_strangers_invent_are_not_kept() -> None:
    engine = Engine(MemoryGroupLog(1), 1, Limits())
    engine.load(0)

    def answered(*requests: Request) -> None:
        for request in requests:
            assert engine.submit(0, request)
        engine.turn(0)
        if job := engine.flush_job():
            job.run()
            engine.flushed(job)
        assert len(engine.take_released().replies) == len(requests)

    answered(OffsetCommit(1, "there", "", None, -1, {("t", 0): CommittedOffset(1)}))
    for number in range(50):
        answered(by(f"m{number}", f"nobody-{number}"), Heartbeat(2, f"nobody-{number}", "m", None, 1))
        answered(Heartbeat(3, "there", f"m{number}", None, 1), by(f"m{number}", "there"))
    assert engine.metrics.refused_commits == {}, "nobody of these is a member of anything"
    assert {group for group, _ in engine.metrics.fenced} == {"there"}, "no group, no series"
