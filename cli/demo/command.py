"""`muster demo`: the whole story in one command."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import NumberRange, find_plugins_here
from muster.cli.common.output import notice


@click.command()
@click.option(
    "--input", "file", type=click.Path(path_type=Path), metavar="FILE", help="File with the lines to process."
)
@click.option("--key-regex", metavar="RE", help="Use this expression's first group, or its match, as a line's key.")
@click.option("--workers", type=click.IntRange(1, 16), default=3, show_default=True, metavar="N")
@click.option("--partitions", type=click.IntRange(1, 500), default=12, show_default=True, metavar="N")
@click.option(
    "--assignor",
    default="cooperative-sticky",
    show_default=True,
    metavar="NAME",
    help="Built-in assignor, Kafka class, plugin, or package.module:Class.",
)
@click.option(
    "--seconds",
    type=NumberRange(1, 600),
    default=10.0,
    show_default=True,
    metavar="S",
    help="How long the workers take for all lines; sets their pace.",
)
@click.option("--spark", is_flag=True, help="Count words on a Spark cluster, and kill one of its executors.")
@click.option("--balance", is_flag=True, help="Make one partition hot, and see the load balanced again.")
@click.option(
    "--cluster",
    is_flag=True,
    help="Run three nodes and ZooKeeper, kill the group's coordinator, and see that no member has to join again.",
)
@click.option(
    "--engine",
    metavar="URL",
    help="kafka://HOST:PORT: run two nodes over that Kafka with a group of confluent-kafka, and kill the "
    "group's owner.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Start a Kafka and a group of confluent-kafka, kill a worker, and explain it from Kafka's records.",
)
@click.option(
    "--exactly-once",
    is_flag=True,
    help="Bill orders in transactions, kill a worker and the node in the middle of some, and count the bills.",
)
@click.option("--keep", is_flag=True, help="Keep the data directory, and print its path.")
def demo(
    file: Path | None,
    key_regex: str | None,
    workers: int,
    partitions: int,
    assignor: str,
    seconds: float,
    spark: bool,
    balance: bool,
    cluster: bool,
    engine: str | None,
    watch: bool,
    exactly_once: bool,
    keep: bool,
) -> int:
    """Run a demo that kills a worker and explains the rebalance.

    A node, the producer and each worker are processes of their own. Without --input the lines are those of this
    Python's standard library, keyed by file: real, and skewed. Ends by itself, within a minute; with --spark it
    takes one to two. With --cluster, --balance, --engine, --watch and --exactly-once it has another story.
    """
    if exactly_once:
        return run_exactly_once_demo(keep)
    if watch:
        return run_watch_demo(keep)
    if balance:
        return run_balance_demo(keep)
    if cluster:
        return run_cluster_demo(keep)
    if engine is not None:
        return run_kafka_backend_demo(engine, keep)
    if spark:
        return run_spark_demo(file, key_regex, partitions, keep)
    from muster.assignors.registry import resolve_all
    from muster.cli.common.commands import interrupt_on_signals
    from muster.cli.demo.group_demo import DemoPlan, GroupDemo
    from muster.cli.records.produce import choose_source

    find_plugins_here()
    resolve_all(assignor)
    plan = DemoPlan(choose_source(file, key_regex), workers, partitions, assignor, seconds)
    interrupt_on_signals()
    with workspace(keep) as folder:
        proved = GroupDemo(plan, folder).run()
    return Exit.OK if proved else Exit.FAILURE


def run_balance_demo(keep: bool) -> int:
    """The demo of continuous balance: it has a story of its own."""
    refuse_other_options("balance")
    from muster.cli.common.commands import interrupt_on_signals
    from muster.cli.demo.group_demo import BalanceDemo

    interrupt_on_signals()
    with workspace(keep) as folder:
        return Exit.OK if BalanceDemo(folder).run() else Exit.FAILURE


def run_kafka_backend_demo(engine: str, keep: bool) -> int:
    """The demo over somebody's Kafka: it has a story of its own."""
    refuse_other_options("engine")
    if not engine.startswith("kafka://"):
        raise click.UsageError(f"--engine is {engine}; expected kafka://HOST:PORT, or several with commas between them")
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise CommandError("confluent-kafka is not installed", "", "pip install 'muster-groups[kafka]'") from None
    from muster.cli.common.commands import interrupt_on_signals
    from muster.cli.demo.kafka_backend_demo import KafkaBackendDemo

    interrupt_on_signals()
    with workspace(keep) as folder:
        return Exit.OK if KafkaBackendDemo(folder, engine).run() else Exit.FAILURE


def run_watch_demo(keep: bool) -> int:
    """The demo of a Kafka that is only watched: it has a story of its own."""
    refuse_other_options("watch")
    from muster.cli.common.commands import interrupt_on_signals
    from muster.cli.demo.watch_demo import WatchDemo

    interrupt_on_signals()
    with workspace(keep) as folder:
        return Exit.OK if WatchDemo(folder).run() else Exit.FAILURE


def run_exactly_once_demo(keep: bool) -> int:
    """The demo of transactions: it has a story of its own."""
    refuse_other_options("exactly_once")
    from muster.cli.common.commands import interrupt_on_signals
    from muster.cli.demo.exactly_once_demo import ExactlyOnceDemo

    interrupt_on_signals()
    with workspace(keep) as folder:
        return Exit.OK if ExactlyOnceDemo(folder).run() else Exit.FAILURE


OTHERS = (
    "file",
    "key_regex",
    "workers",
    "partitions",
    "assignor",
    "seconds",
    "spark",
    "balance",
    "cluster",
    "engine",
    "watch",
    "exactly_once",
)
"""What stories of their own do not take."""


def refuse_other_options(name: str) -> None:
    context = click.get_current_context()
    for other in OTHERS:
        if other != name and context.get_parameter_source(other) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name.replace('_', '-')} has a story of its own; of the other options it takes --keep only"
            )


def run_cluster_demo(keep: bool) -> int:
    """The demo of a cluster: it has a story of its own."""
    refuse_other_options("cluster")
    try:
        import kazoo  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        raise CommandError("there is no ZooKeeper to start", "", "pip install 'muster-groups[zookeeper]'") from None
    from muster.cli.common.commands import interrupt_on_signals
    from muster.cli.demo.cluster_demo import ClusterDemo
    from muster.cli.nodes.zookeeper import translate_zookeeper_errors

    interrupt_on_signals()
    with workspace(keep) as folder, translate_zookeeper_errors():
        return Exit.OK if ClusterDemo(folder).run() else Exit.FAILURE


def run_spark_demo(file: Path | None, key_regex: str | None, partitions: int, keep: bool) -> int:
    """The demo on Spark: nothing of the options for workers concerns it."""
    context = click.get_current_context()
    for name in ("workers", "assignor", "seconds"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is about workers; the Spark demo has none. Leave out --{name} or --spark")
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise CommandError("pyspark is not installed", "pip install 'muster-groups[spark]'") from None
    from muster.cli.common.commands import interrupt_on_signals
    from muster.cli.demo.spark_demo import SparkDemo
    from muster.cli.records.produce import choose_source
    from muster.coordinator.java_runtime import JavaNotFound

    interrupt_on_signals()
    with workspace(keep) as folder:
        try:
            proved = SparkDemo(choose_source(file, key_regex), partitions, folder).run()
        except JavaNotFound as error:
            raise CommandError(str(error)) from error
    return Exit.OK if proved else Exit.FAILURE


@contextmanager
def workspace(keep: bool) -> Iterator[Path]:
    """A directory of this demo's own; it goes at the end unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    try:
        yield folder
    finally:
        if keep:
            notice(f"kept: {folder} (logs and reports); serve it again: muster serve --data {folder / 'data'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
