"""`python -m tests.torture.soak --minutes 30`: everything comes and goes, and the node is as large as before.

Groups, members, topics, connections, refused requests and cancelled calls come and go over both doors of a real node.
At the end its memory is within a tenth of what it was at a third of the run, and its file descriptors and threads are
as many; a table says so, and the exit code (1 when something grew). So that slow growth is seen, and what it is of, the
table has the node's own counts beside it (`census.py`), and below it by how much memory rose in a minute.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression

from tests.support.node import NodeProcess, running_node
from tests.torture.census import SIGNAL, taken
from tests.torture.churn import Churn

ROWS = 12
SAMPLE_S = 1.0
GROWTH = 1.10
SPARE = 16
"""File descriptors and threads that come and go with what is under way."""

SETTINGS = {"kafka.listeners": "127.0.0.1:0", "logging.level": "warning", "log.cleaner.backoff.ms": "5000"}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the node's process holds at one moment."""

    at_s: float
    rss_bytes: int
    files: int
    threads: int
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the node itself said last: see `census`."""


def look(pid: int, at_s: float, counts: Mapping[str, int]) -> Sample:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Sample(
        at_s,
        int(status["VmRSS"].split()[0]) * 1024,
        len(list((process / "fd").iterdir())),
        int(status["Threads"]),
        counts,
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the run was like around its first third, and at its end: the median of a quarter of the samples each.

    Garbage is collected now and then, so that memory rises and falls by itself.
    """

    third: Sample
    end: Sample

    @property
    def grown(self) -> list[str]:
        """What is more than it was, in words."""
        found = []
        if self.end.rss_bytes > GROWTH * self.third.rss_bytes:
            found.append(f"memory: {mib(self.third.rss_bytes)} MiB at a third, {mib(self.end.rss_bytes)} at the end")
        for what, before, after in (
            ("file descriptors", self.third.files, self.end.files),
            ("threads", self.third.threads, self.end.threads),
        ):
            if after > before + SPARE:
                found.append(f"{what}: {before} at a third, {after} at the end")
        return found


def slope(samples: list[Sample]) -> float:
    """By how many bytes memory rose in a minute, over the last two thirds of the run."""
    later = samples[len(samples) // 3 :]
    minutes = [one.at_s / 60 for one in later]
    return linear_regression(minutes, [one.rss_bytes for one in later]).slope


def judged(samples: list[Sample]) -> Verdict:
    """Raises ValueError when there are too few samples to tell."""
    if len(samples) < ROWS:
        raise ValueError(f"{len(samples)} samples are too few; expected {ROWS} or more, so let it run longer")
    span, third = len(samples) // 4, len(samples) // 3
    return Verdict(median(samples[third - span // 2 : third + span // 2]), median(samples[-span:]))


def median(samples: list[Sample]) -> Sample:
    def middle(values: list[int]) -> int:
        return sorted(values)[len(values) // 2]

    return Sample(
        samples[0].at_s,
        middle([one.rss_bytes for one in samples]),
        middle([one.files for one in samples]),
        middle([one.threads for one in samples]),
    )


@contextmanager
def counted_node(home: Path) -> Iterator[tuple[NodeProcess, Path]]:
    """A node that writes what it has into the file that comes with it."""
    census = home / "census.json"
    program = (sys.executable, "-m", "tests.torture.census", str(census))
    with running_node(home / "data", SETTINGS, program) as node:
        yield node, census


async def soak(node: NodeProcess, seconds: float, census: Path, workers: int = 2) -> tuple[list[Sample], Churn]:
    """Let everything come and go for so long. `census` is the file in which the node writes what it has."""
    churn, samples, started = Churn(node.address, node.kafka_address), list[Sample](), time.monotonic()

    def over() -> bool:
        return time.monotonic() - started >= seconds

    async def sample() -> None:
        while not over():
            samples.append(look(node.pid, time.monotonic() - started, taken(census)))
            os.kill(node.pid, SIGNAL)
            await asyncio.sleep(SAMPLE_S)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sample())
        tasks.create_task(churn.run(over, workers))
    return samples, churn


def table(samples: list[Sample], churn: Churn) -> str:
    step = max(len(samples) // ROWS, 1)
    shown = [*samples[::step], samples[-1]]
    counted = list(samples[-1].counts)
    lines = ["   seconds   RSS MiB   files   threads" + "".join(f"{name:>12}" for name in counted)]
    for one in shown:
        counts = "".join(f"{one.counts.get(name, 0):12}" for name in counted)
        lines.append(f"{one.at_s:10.0f}{mib(one.rss_bytes):10}{one.files:8}{one.threads:10}{counts}")
    lines.append(f"memory rose by {slope(samples) / (1 << 20):.2f} MiB in a minute over the last two thirds")
    lines += [f"{count:10} {name.replace('_', ' ')}" for name, count in sorted(churn.done.items())]
    return "\n".join(lines)


def mib(size: int) -> int:
    return size >> 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=2, help="how many of each kind at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, counted_node(Path(home)) as (node, census):
        samples, churn = asyncio.run(soak(node, options.minutes * 60, census, options.workers))
        tail = node.log_tail()
    print(table(samples, churn))
    grown = judged(samples).grown
    print("\n".join(f"GROWN {what}" for what in grown) or "nothing has grown")
    if tail.strip():
        print("the node's last words:", tail, sep="\n")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
