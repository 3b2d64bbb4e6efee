"""The `muster` command: a table of sub-commands, each imported on use."""

import os
import sys
from collections.abc import Sequence

import click

from muster.cli.common.errors import run_command
from muster.cli.common.lazy import LazyCommand, LazyGroup

COMMANDS = {
    "serve": LazyCommand("muster.cli.nodes.serve:serve", "Run a node."),
    "settings": LazyCommand("muster.cli.nodes.settings:settings", "Show every setting of a node, and what differs."),
    "demo": LazyCommand(
        "muster.cli.demo.command:demo", "Node, topic, workers, one of them killed: see why it rebalanced."
    ),
    "topics": LazyCommand(
        "muster.cli.records.topics:topics", "Create, list, describe, alter, delete and widen topics."
    ),
    "produce": LazyCommand("muster.cli.records.produce:produce", "Send lines of text to a topic."),
    "consume": LazyCommand(
        "muster.cli.records.consume:consume", "Print a topic's values, alone or as member of a group."
    ),
    "groups": LazyCommand("muster.cli.groups_init:groups", "Look into consumer groups, and explain their rebalances."),
    "consumer-groups": LazyCommand(
        "muster.cli.groups.command:consumer_groups",
        "The same with the flags of kafka-consumer-groups.sh.",
    ),
    "cluster": LazyCommand("muster.cli.cluster_init:cluster", "Nodes and copies: who leads, who is behind, and why."),
    "engine": LazyCommand("muster.cli.engine_init:engine", "Groups over somebody's Kafka: who has which, move them."),
    "acls": LazyCommand("muster.cli.acls_init:acls", "Who may do what: add, list, remove, check."),
    "assign": LazyCommand("muster.cli.assign:assign", "Solve assignment problems given as JSON lines."),
    "simulate": LazyCommand("muster.cli.simulate_command:simulate", "Foresee an assignment; change nothing."),
    "replay": LazyCommand("muster.cli.replay:replay", "Make a group's recorded decisions again, or otherwise."),
    "assignor": LazyCommand("muster.cli.assignor_init:assignor", "List, show, make and test assignors."),
    "log": LazyCommand("muster.cli.log_init:log", "Dump, verify and recover what lies on disk."),
    "bench": LazyCommand("muster.cli.bench:bench", "Measure, as ratios against peers and limits."),
    "pipeline": LazyCommand(
        "muster.cli.pipeline_init:pipeline", "Analyse what groups did, and try other assignors on it."
    ),
    "lab": LazyCommand("muster.cli.lab:lab", "Compare the protocol's generations, and scalers, on one workload."),
    "zookeeper": LazyCommand(
        "muster.cli.nodes.zookeeper:zookeeper", "Run a real ZooKeeper, for development and tests."
    ),
    "quotas": LazyCommand(
        "muster.cli.security.quotas:quotas", "Set, list and remove what users and clients may use of a node."
    ),
    "users": LazyCommand("muster.cli.security.users:users", "Who may log in by a password: add, list, delete."),
    "tokens": LazyCommand("muster.cli.security.tokens:tokens", "API tokens: create, list, revoke."),
    "storage": LazyCommand("muster.cli.bootstrap:storage", "The first user of a node that is stopped."),
    "health": LazyCommand("muster.cli.nodes.health:health", "Ask a node whether it serves."),
    "certs": LazyCommand("muster.cli.security.certs:certs", "Make certificates for development, and show some."),
    "doctor": LazyCommand("muster.cli.doctor:doctor", "Find what is wrong with groups and their node."),
    "top": LazyCommand("muster.cli.command:top", "Watch the groups of a node, live."),
    "completion": LazyCommand("muster.cli.completion:completion", "Let the shell complete commands and options."),
    "demo-worker": LazyCommand("muster.cli.demo.worker:demo_worker", ""),
    "demo-cluster-worker": LazyCommand("muster.cli.demo.cluster_worker:demo_cluster_worker", ""),
    "demo-spark-driver": LazyCommand("muster.cli.demo.spark_driver:demo_spark_driver", ""),
}

EPILOG = """
Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 unhealthy, 5 conflict. MUSTER_BOOTSTRAP names the node (HOST:PORT)
that commands talk to; NO_COLOR turns colours off. A port that refuses is said at once; without an answer,
commands that ask once give up after 10 s. --set default.api.timeout.ms=MS waits and tries so long in both cases.
"""


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(None, "-V", "--version", package_name="muster-groups", message="muster %(version)s")
def cli() -> None:
    """Consumer groups with pluggable partition assignors, and an answer to: why did it rebalance?"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # gRPC tells standard error about every connection a stopping node closes; commands say what matters themselves.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    args = None if arguments is None else list(arguments)
    code = run_command(lambda: cli.main(args=args, prog_name="muster", standalone_mode=False))
    flush_output()
    return code


def flush_output() -> None:
    """A reader that went away shows up at the last flush; Python would print a traceback about it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None
