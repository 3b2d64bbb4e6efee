"""What the Spark demo's proof sees: counts that are wrong, missing, or came twice."""

from collections import Counter
from typing import ClassVar

from pyspark.status import SparkJobInfo, SparkStageInfo

from muster.cli.demo.spark_demo import WordCountProof, count_words_locally, describe_batch_line, word_count_verdict
from muster.cli.demo.workers import TaskTracker
from muster.cli.records.produce import SourceLine

EXPECTED = Counter({b"the": 4, b"end": 1})


def proof(*records: tuple[bytes, int]) -> WordCountProof:
    made = WordCountProof(Counter(EXPECTED), batches=2)
    for word, count in records:
        made.record_count(word, count)
    return made


def test_last_counts_that_agree_are_exact() -> None:
    good = proof((b"the", 2), (b"the", 4), (b"end", 1))
    assert (good.wrong, good.doubled, good.good) == (0, 0, True)
    assert "exact" in word_count_verdict(good, killed=1, failed=1)[-1].plain


def test_a_count_that_is_wrong_or_missing_or_of_no_word_is_seen() -> None:
    assert proof((b"the", 2), (b"the", 3), (b"end", 1)).wrong == 1
    assert proof((b"the", 4)).wrong == 1
    assert proof((b"the", 4), (b"end", 1), (b"ghost", 1)).wrong == 1
    assert "WRONG" in word_count_verdict(proof((b"the", 4)), killed=1, failed=1)[-1].plain


def test_a_batch_that_was_written_twice_is_seen() -> None:
    doubled = proof((b"the", 2), (b"the", 4), (b"the", 4), (b"end", 1))
    assert (doubled.wrong, doubled.doubled, doubled.good) == (0, 1, False)


def test_words_are_those_of_the_query() -> None:
    lines = [SourceLine(None, b"def f(x_1): return 'x'"), SourceLine(b"key", "für\xe9".encode())]
    assert list(count_words_locally(lines)) == [b"def", b"f", b"x_1", b"return", b"x", b"f", b"r"]


def test_a_batch_is_told_with_its_shares() -> None:
    told = describe_batch_line({"batch": 3, "ms": 1500, "partitions": [10, 3000], "tasks": [1505, 1505]})
    assert told == "batch 3: 2 partitions with 10 to 3,000 lines, tasks with 1,505 and 1,505; 1.5 s"


def test_what_was_killed_is_told_as_it_was_seen() -> None:
    good = proof((b"the", 4), (b"end", 1))
    assert (
        "executor 7 was killed (2 tasks failed and ran again)" in word_count_verdict(good, killed=7, failed=2)[1].plain
    )
    assert "executor 7 was killed (no task failed by it)" in word_count_verdict(good, killed=7, failed=0)[1].plain
    assert "no executor was killed" in word_count_verdict(good, killed=0, failed=0)[1].plain


class Tracker:
    """Spark's status tracker: two jobs of a query that share a stage, and one stage that it has forgotten."""

    active = (3, 4)
    stages: ClassVar = {
        1: SparkStageInfo(1, 0, "read", 2, 0, 2, 1),
        3: SparkStageInfo(3, 0, "write", 2, 1, 1, 2),
    }

    def getActiveStageIds(self) -> tuple[int, ...]:
        return self.active

    def getStageInfo(self, number: int) -> SparkStageInfo | None:
        return self.stages.get(number)

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return {"run": [10, 11]}[group]

    def getJobInfo(self, number: int) -> SparkJobInfo:
        return SparkJobInfo(number, {10: (1,), 11: (1, 3, 4)}[number], "RUNNING")


def test_tasks_are_counted_as_spark_tells_them() -> None:
    tasks = TaskTracker(Tracker(), "run")
    assert (tasks.running(), tasks.failed()) == (1, 3)
