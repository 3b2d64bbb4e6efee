"""The Spark demo's course: node, lines, a cluster, a word count as a stream, an executor killed, the proof."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from rich.text import Text

from muster.cli.common.commands import CommandError, raise_if_interrupted
from muster.cli.demo import group_demo
from muster.cli.demo.group_demo import NODE_SETTINGS, fill
from muster.cli.demo.processes import DemoProcesses, DemoRun
from muster.cli.records.produce import LineSource, SourceLine
from muster.client import Admin, Consumer, Message, TopicPartition
from muster.coordinator.observability.views.formatting import plural
from muster.spark.session import ClusterFailed, LocalSparkCluster, running_cluster

LINES, COUNTS = "lines", "counts"
PARTITIONS_OF_COUNTS = 4
WORKERS = 2
BATCHES = 8
KILL_AFTER = 2
"""Batches that are done before the executor is killed, with a task of the next one on each."""

KILL_BY = 5
"""Done before it is killed anyway, should the driver not see a task run: they may be shorter than its looks."""

PRODUCE_AT_MOST_S = 4.0
READ_PATIENCE_S = 30.0
WORD = re.compile(rb"[A-Za-z0-9_]+")


class SparkDemo(DemoRun):
    """Runs one demo in `folder`. `run` may be called once."""

    def __init__(self, source: LineSource, partitions: int, folder: Path) -> None:
        super().__init__(folder)
        self._source = source
        self._partitions = partitions

    def run(self) -> bool:
        """Whether the stream's counts are exactly those of a count without Spark, each written once."""
        with ExitStack() as stack:
            children = stack.enter_context(DemoProcesses(self._folder))
            settings = [part for key, value in NODE_SETTINGS.items() for part in ("--set", f"{key}={value}")]
            node = children.start_node(["--data", str(self._folder / "data"), *settings])
            self._say(f"node at {node.address} (pid {node.pid})")
            lines = self._fill(node.address)
            cluster = self._start_cluster(stack)
            batches, killed, failed = self._count(children, cluster, node.address, lines)
            records = read_topic(node.address, COUNTS)
        proof = WordCountProof(Counter(count_words_locally(islice(self._source.lines(), lines))), batches)
        for record in records:
            proof.record_count(record.key or b"", int(record.value or b"0"))
        self._out.print()
        for line in word_count_verdict(proof, killed, failed):
            self._out.print(line, soft_wrap=True)
        return proof.good

    def _fill(self, address: str) -> int:
        with Admin({"bootstrap.servers": address}) as admin:
            admin.create_topic(LINES, self._partitions)
            admin.create_topic(COUNTS, PARTITIONS_OF_COUNTS)
        deadline = time.monotonic() + PRODUCE_AT_MOST_S
        produced, complete = fill(LINES, self._partitions, self._source, address, self._out, deadline)
        description = self._source.description if complete else f"the first of {self._source.description}"
        self._say(group_demo.summary(produced.lines, description, self._source.keyed_by, produced.by_partition()))
        return produced.lines

    def _start_cluster(self, stack: ExitStack) -> LocalSparkCluster:
        try:
            cluster = stack.enter_context(running_cluster(self._folder / "cluster", WORKERS))
        except ClusterFailed as failure:
            raise CommandError(str(failure), "", "run it again with --keep and look into the log") from failure
        self._say(f"Spark cluster at {cluster.address}: a master and {plural(WORKERS, 'worker')}, one slot each")
        return cluster

    def _count(
        self, children: DemoProcesses, cluster: LocalSparkCluster, address: str, lines: int
    ) -> tuple[int, int, int]:
        """From the first batch to the last: how many there were, which process was killed, how many tasks failed."""
        rows = str(max(1, -(-lines // BATCHES)))
        words = ["demo-spark-driver", "--bootstrap", address, "--master", cluster.address, "--rows", rows]
        words += ["--source", LINES, "--target", COUNTS, "--folder", str(self._folder)]
        words += ["--busy-after", str(KILL_AFTER)]
        words += [part for name, value in cluster.config.items() for part in ("--conf", f"{name}={value}")]
        process = children.start("driver", words)
        self._say(
            f"counting words in batches of {int(rows):,} lines, dealt to {plural(WORKERS, 'task')} by their backlog"
        )
        assert process.stdout is not None
        done = killed = failed = 0
        for line in process.stdout:
            raise_if_interrupted()
            told = json.loads(line)
            if "batch" in told:
                done += 1
                self._say(describe_batch_line(told))
            failed = told.get("failed", 0)
            if not killed and ("busy" in told or done == KILL_BY):
                killed = self._kill(cluster, told.get("busy", 0))
        if process.wait() != 0:
            raise CommandError(f"the driver failed: {children.last_words('driver')}", "", "its log says more (--keep)")
        return done, killed, failed

    def _kill(self, cluster: LocalSparkCluster, running: int) -> int:
        killed = cluster.kill_executor()
        if killed is None:
            raise CommandError(
                "no executor runs", f"expected one on each of {WORKERS} workers", "try again with --keep"
            )
        when = f"while {plural(running, 'task')} ran" if running else "when no task was seen to run"
        self._say(f"SIGKILL to an executor (pid {killed}) {when}")
        return killed


class WordCountProof:
    """Takes the counts that the stream wrote and holds them against a count without Spark.

    Every batch writes the whole table, so a word that is there from the first batch on is written once in each.
    """

    def __init__(self, expected: "Counter[bytes]", batches: int) -> None:
        self.expected = expected
        self.batches = batches
        self.written: Counter[bytes] = Counter()
        self._last: dict[bytes, int] = {}

    def record_count(self, word: bytes, count: int) -> None:
        self.written[word] += 1
        self._last[word] = count

    @property
    def wrong(self) -> int:
        """Words whose last count is not the right one."""
        words = self.expected.keys() | self._last.keys()
        return sum(self._last.get(word) != self.expected.get(word) for word in words)

    @property
    def doubled(self) -> int:
        """Counts that came more often than there were batches: a batch written twice would repeat its words."""
        return sum(max(0, times - self.batches) for times in self.written.values())

    @property
    def good(self) -> bool:
        return not self.wrong and not self.doubled


def count_words_locally(lines: Iterable[SourceLine]) -> Iterator[bytes]:
    for line in lines:
        yield from WORD.findall(line.value)


def describe_batch_line(batch: dict[str, Any]) -> str:
    ranges, tasks = sorted(batch["partitions"]), batch["tasks"]
    uneven = f"{len(ranges)} partitions with {ranges[0]:,} to {ranges[-1]:,} lines" if ranges else "nothing"
    shares = " and ".join(f"{share:,}" for share in tasks)
    return f"batch {batch['batch']}: {uneven}, tasks with {shares}; {batch['ms'] / 1000:.1f} s"


def word_count_verdict(proof: WordCountProof, killed: int, failed: int) -> list[Text]:
    """The proof in words; `failed` tasks came to no end and were tried again."""
    expected = proof.expected
    lost = f"{plural(failed, 'task')} failed and ran again" if failed else "no task failed by it"
    story = f"though executor {killed} was killed ({lost})" if killed else "no executor was killed: too few batches"
    top = ", ".join(f"{word.decode()} {count:,}" for word, count in expected.most_common(5))
    written = f"{proof.written.total():,} counts written in {proof.batches} batches"
    return [
        Text(f"{expected.total():,} words, {len(expected):,} different ones; most often {top}"),
        Text(f"{written}; {proof.doubled:,} of them doubled, {story}"),
        Text.assemble(
            ("exact", "bold green") if proof.good else ("WRONG", "bold red"),
            f": {proof.wrong:,} words differ from a count without Spark",
        ),
    ]


def read_topic(address: str, topic: str) -> list[Message]:
    """Every record of a topic, partition by partition in order, as any consumer reads them."""
    with Admin({"bootstrap.servers": address}) as admin:
        partitions = [TopicPartition(topic, number) for number in range(admin.list_topics()[topic])]
        ends = {tp: at.offset for tp, at in admin.list_offsets(dict.fromkeys(partitions, -1)).items()}
    records: list[Message] = []
    with Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(partitions)
        deadline = time.monotonic() + READ_PATIENCE_S
        while len(records) < sum(ends.values()):
            if time.monotonic() > deadline:
                raise CommandError(f"only {len(records)} of {sum(ends.values())} counts could be read", "", "try again")
            records += consumer.consume(10_000, 0.5)
    return records
