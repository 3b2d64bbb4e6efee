"""The cases of `muster bench engine`: the goals are KB-P1 to KB-P9 (docs/design/kafka-backend.md, Goals)."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from muster.workshop.bench import beating, commits, engine_failover, passing, taking, transacting
from muster.workshop.bench.broker import KafkaBroker, running_broker
from muster.workshop.bench.place import classpath
from muster.workshop.bench.rows import BenchRow

MeasureOverKafka: TypeAlias = Callable[[KafkaBroker, str, str], Iterator[BenchRow]]
"""Beside a broker, in a folder that is removed afterwards; and the classpath of more of them."""

CASES: Final[dict[str, MeasureOverKafka]] = {
    "P1 P2 P3 commits": lambda broker, home, jars: commits.measure_commits(broker),
    "P4 taking": lambda broker, home, jars: taking.measure_shard_taking(broker, home),
    "P5 P6 passing": lambda broker, home, jars: passing.measure_passing(broker, home),
    "transactions": lambda broker, home, jars: transacting.measure_transactions(broker, home),
    "P7 heartbeats": lambda broker, home, jars: beating.measure_backend_heartbeats(broker, home),
    "P8 P9 failover": engine_failover.measure_failover,
}


def run(only: str = "", kafka: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`, over a broker of the folder `kafka`, or of what Maven has.

    Raises BenchFailed, NotFetched, JavaNotFound.
    """
    wanted = {name: measure for name, measure in CASES.items() if only in name}
    if not wanted:
        return
    home = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    try:
        with running_broker(str(home), classpath(kafka) if kafka else "") as broker:
            for name, measure in wanted.items():
                folder = home / name.replace(" ", "-")
                folder.mkdir()
                yield from measure(broker, str(folder), kafka)
    finally:
        shutil.rmtree(home, ignore_errors=True)
