"""The `muster` command: tables of every command and sub-command, each imported on use.

`muster --help` imports nothing but click and these tables, so that it answers quickly. A command's module is named
by a string, and its line of help stands beside it; a command with an empty line is hidden.

`muster completion` prints what a shell has to read so that TAB completes commands and options.
"""

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import get_completion_class

from muster.cli.common.commands import LazyCommand, LazyGroup, run_command

COMMANDS = {
    "serve": LazyCommand("muster.cli.nodes.node:serve", "Run a node."),
    "settings": LazyCommand("muster.cli.nodes.node:settings", "Show every setting of a node, and what differs."),
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
    "groups": LazyCommand("muster.cli.main:groups", "Look into consumer groups, and explain their rebalances."),
    "consumer-groups": LazyCommand(
        "muster.cli.groups.consumer_groups:consumer_groups",
        "The same with the flags of kafka-consumer-groups.sh.",
    ),
    "cluster": LazyCommand("muster.cli.main:cluster", "Nodes and copies: who leads, who is behind, and why."),
    "engine": LazyCommand("muster.cli.main:engine", "Groups over somebody's Kafka: who has which, move them."),
    "acls": LazyCommand("muster.cli.main:acls", "Who may do what: add, list, remove, check."),
    "assign": LazyCommand("muster.cli.assignors:assign", "Solve assignment problems given as JSON lines."),
    "simulate": LazyCommand("muster.cli.assignors:simulate", "Foresee an assignment; change nothing."),
    "replay": LazyCommand("muster.cli.replay:replay", "Make a group's recorded decisions again, or otherwise."),
    "assignor": LazyCommand("muster.cli.main:assignor", "List, show, make and test assignors."),
    "log": LazyCommand("muster.cli.main:log", "Dump, verify and recover what lies on disk."),
    "bench": LazyCommand("muster.cli.workshop:bench", "Measure, as ratios against peers and limits."),
    "pipeline": LazyCommand("muster.cli.main:pipeline", "Analyse what groups did, and try other assignors on it."),
    "lab": LazyCommand("muster.cli.workshop:lab", "Compare the protocol's generations, and scalers, on one workload."),
    "zookeeper": LazyCommand(
        "muster.cli.nodes.zookeeper:zookeeper", "Run a real ZooKeeper, for development and tests."
    ),
    "quotas": LazyCommand(
        "muster.cli.security.accounts:quotas", "Set, list and remove what users and clients may use of a node."
    ),
    "users": LazyCommand("muster.cli.security.accounts:users", "Who may log in by a password: add, list, delete."),
    "tokens": LazyCommand("muster.cli.security.accounts:tokens", "API tokens: create, list, revoke."),
    "storage": LazyCommand("muster.cli.data_directory:storage", "The first user of a node that is stopped."),
    "health": LazyCommand("muster.cli.nodes.node:health", "Ask a node whether it serves."),
    "certs": LazyCommand("muster.cli.security.certs:certs", "Make certificates for development, and show some."),
    "doctor": LazyCommand("muster.cli.doctor:doctor", "Find what is wrong with groups and their node."),
    "top": LazyCommand("muster.cli.top:top", "Watch the groups of a node, live."),
    "completion": LazyCommand("muster.cli.main:completion", "Let the shell complete commands and options."),
    "demo-worker": LazyCommand("muster.cli.demo.workers:demo_worker", ""),
    "demo-cluster-worker": LazyCommand("muster.cli.demo.workers:demo_cluster_worker", ""),
    "demo-spark-driver": LazyCommand("muster.cli.demo.workers:demo_spark_driver", ""),
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


# Shell completion
# ----------------

WHERE = {
    "bash": 'eval "$(muster completion bash)"          in ~/.bashrc',
    "zsh": 'eval "$(muster completion zsh)"           in ~/.zshrc',
    "fish": "muster completion fish | source           in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", type=click.Choice(sorted(WHERE)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL; a line in the shell's own start-up file takes it in."""

    made = get_completion_class(shell)
    assert made is not None, "every shell that can be named has one"
    # Asking bash for its version, which `source` does before it prints, is of no use to a script that is only printed.
    script = made(cli, {}, "muster", "_MUSTER_COMPLETE")
    click.echo(script.source_template % script.source_vars())


# `muster acls`
# -------------

ACLS_COMMANDS = {
    "add": LazyCommand("muster.cli.security.acls:add", "Allow somebody something, or deny it."),
    "list": LazyCommand("muster.cli.security.acls:list_acls", "Show the entries of the lists."),
    "remove": LazyCommand("muster.cli.security.acls:remove", "Take entries away."),
    "check": LazyCommand("muster.cli.security.acls:check", "Whether somebody may, and by which entry."),
}


@click.group(cls=LazyGroup, lazy=ACLS_COMMANDS)
def acls() -> None:
    """Who may do what on a node with authorizer=acl.

    The same lists that Kafka's own kafka-acls shows and changes.
    """


# `muster assignor`
# -----------------

ASSIGNOR_COMMANDS = {
    "list": LazyCommand("muster.cli.assignors:list_", "List the assignors known here."),
    "show": LazyCommand("muster.cli.assignors:show_", "Tell what one promises, and its options."),
    "new": LazyCommand("muster.cli.assignors:new", "Write a package with a new assignor and its test."),
    "test": LazyCommand("muster.cli.assignors:test", "Put an assignor through the compliance suite."),
}


@click.group(cls=LazyGroup, lazy=ASSIGNOR_COMMANDS)
def assignor() -> None:
    """List, show, make and test assignors. No node is needed."""


# `muster cluster`
# ----------------

CLUSTER_COMMANDS = {
    "status": LazyCommand(
        "muster.cli.nodes.cluster:status", "Show who is controller, and how many partitions want for something."
    ),
    "nodes": LazyCommand(
        "muster.cli.nodes.cluster:nodes", "List the nodes: up or gone, what they lead and hold, who is behind."
    ),
    "partitions": LazyCommand("muster.cli.nodes.cluster:partitions", "Show who leads, who has copies, who is in sync."),
    "explain": LazyCommand(
        "muster.cli.nodes.cluster:explain", "Tell why leaders changed, and what unclean elections cost."
    ),
    "elect": LazyCommand(
        "muster.cli.nodes.placement:elect", "Let first replicas lead again, or anybody, where nobody does."
    ),
    "drain": LazyCommand(
        "muster.cli.nodes.placement:drain", "Let a node lead nothing; it stays up, and goes on copying."
    ),
    "undrain": LazyCommand("muster.cli.nodes.placement:undrain", "Let it lead again."),
    "reassign": LazyCommand(
        "muster.cli.nodes.placement:reassign", "Give partitions other replicas, or show how far that is."
    ),
    "spread": LazyCommand(
        "muster.cli.nodes.placement:spread", "Spread replicas over all nodes, as little moved as that takes."
    ),
}


@click.group(cls=LazyGroup, lazy=CLUSTER_COMMANDS)
def cluster() -> None:
    """Nodes that keep copies for each other: who leads what, who is behind, and what to do about it.

    Any node of the cluster answers (--bootstrap), also about the others.
    """


# `muster engine`
# ---------------

ENGINE_COMMANDS = {
    "status": LazyCommand("muster.cli.engine:status", "Show the nodes over that Kafka, and whose each shard is."),
    "init": LazyCommand("muster.cli.engine:init", "Make the state topic, or look whether the one there will do."),
    "acls": LazyCommand(
        "muster.cli.engine:acls", "Print what Muster needs to be allowed there, and what shuts the back door."
    ),
    "adopt": LazyCommand(
        "muster.cli.engine_adoption:adopt", "Take groups over from that Kafka, with what they have committed."
    ),
    "release": LazyCommand(
        "muster.cli.engine_adoption:release", "Give a group back to that Kafka, with what it has committed."
    ),
}


@click.group(cls=LazyGroup, lazy=ENGINE_COMMANDS)
def engine() -> None:
    """Groups over somebody's Kafka (`muster serve --engine kafka://HOST:PORT`).

    These commands ask that Kafka themselves: --engine says where it is, --config and --set how it is reached (the
    node's own properties file will do).
    """


# `muster groups`
# ---------------

GROUPS_COMMANDS = {
    "list": LazyCommand("muster.cli.groups.description:list_", "List groups."),
    "describe": LazyCommand("muster.cli.groups.description:describe", "Show positions and lag, or the group's state."),
    "members": LazyCommand("muster.cli.groups.description:members", "Show members and what they own."),
    "explain": LazyCommand("muster.cli.groups.rebalances:explain", "Tell why the group rebalanced, each time."),
    "history": LazyCommand("muster.cli.groups.rebalances:history", "One line per rebalance."),
    "shadow": LazyCommand("muster.cli.groups.rebalances:shadow", "Show what other assignors would have decided."),
    "canary": LazyCommand("muster.cli.groups.control:canary", "Try another assignor for a while, with a way back."),
    "promote": LazyCommand("muster.cli.groups.control:promote", "The canary becomes the setting."),
    "rollback": LazyCommand("muster.cli.groups.control:rollback", "The canary goes."),
    "settings": LazyCommand("muster.cli.groups.control:settings", "Show what is set for the group."),
    "set": LazyCommand("muster.cli.groups.control:set_", "Set something for the group, such as assignor.options."),
    "unset": LazyCommand("muster.cli.groups.control:unset", "Unset it again."),
    "freeze": LazyCommand("muster.cli.groups.control:freeze", "Nobody who lives loses a partition."),
    "deploy": LazyCommand(
        "muster.cli.groups.control:deploy", "Members are started anew; what one leaves waits for it."
    ),
    "drain": LazyCommand("muster.cli.groups.control:drain", "Move a member's partitions away; it stays."),
    "undrain": LazyCommand("muster.cli.groups.control:undrain", "Let it have partitions again."),
    "pin": LazyCommand("muster.cli.groups.control:pin", "A partition belongs to a certain member."),
    "unpin": LazyCommand("muster.cli.groups.control:unpin", "It does no longer."),
    "resume": LazyCommand("muster.cli.groups.control:resume", "End all that is held of the group."),
    "reset-offsets": LazyCommand("muster.cli.groups.offsets:reset_offsets", "Move the positions of an inactive group."),
    "delete-offsets": LazyCommand("muster.cli.groups.offsets:delete_offsets", "Forget positions of topics."),
    "migrate-offsets": LazyCommand(
        "muster.cli.groups.offsets:migrate_offsets",
        "Copy positions from ZooKeeper to the coordinator, or back.",
    ),
    "remove-members": LazyCommand("muster.cli.groups.control:remove_members", "Send members away, as an operator."),
    "delete": LazyCommand("muster.cli.groups.offsets:delete", "Delete groups without members."),
}


@click.group(cls=LazyGroup, lazy=GROUPS_COMMANDS)
def groups() -> None:
    """Look into consumer groups, and explain their rebalances."""


# `muster log`
# ------------

LOG_COMMANDS = {
    "dump": LazyCommand("muster.cli.data_directory:dump", "Print log files batch by batch."),
    "verify": LazyCommand("muster.cli.data_directory:verify", "Walk a data directory and check everything."),
    "recover": LazyCommand("muster.cli.data_directory:recover", "Cut damaged logs off where the damage begins."),
}


@click.group(cls=LazyGroup, lazy=LOG_COMMANDS)
def log() -> None:
    """Look at log files and data directories. The node need not run."""


# `muster pipeline`
# -----------------

PIPELINE_COMMANDS = {
    "backtest": LazyCommand("muster.cli.backtest:backtest", "Try assignors on histories, and rank them."),
    "export-trace": LazyCommand("muster.cli.pipeline:export_trace", "Write a group's history down for a backtest."),
    "analytics": LazyCommand(
        "muster.cli.pipeline:analytics",
        "Lag and rebalances of a node's groups, by Spark, as Parquet.",
    ),
}


@click.group(cls=LazyGroup, lazy=PIPELINE_COMMANDS)
def pipeline() -> None:
    """Analyse what groups did, and try other assignors on it."""
