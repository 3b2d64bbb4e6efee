"""The `muster` command: tables of every command and sub-command, each imported on use.

`muster --help` imports nothing but click and these tables, so that it answers quickly. A command's module is named
by a string, next to its line of help; a command with an empty line is hidden. `muster --help` and `muster groups
--help` show the tables under their headings.

`muster completion` prints a script that lets a shell complete commands and options with TAB.
"""

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import get_completion_class

from muster.cli.common.commands import LazyCommand, LazyGroup, run_command

COMMANDS = {
    "Run": {
        "serve": LazyCommand("nodes.node:serve", "Run a node."),
        "watch": LazyCommand("nodes.watch:watch", "Watch the groups of any Kafka and explain their rebalances."),
        "settings": LazyCommand("nodes.node:settings", "Show the settings of a node and their defaults."),
        "health": LazyCommand("nodes.node:health", "Check whether a node is serving."),
        "demo": LazyCommand("demo.command:demo", "Run a demo that kills a worker and explains the rebalance."),
    },
    "Groups": {
        "groups": LazyCommand("main:groups", "Manage consumer groups and explain their rebalances."),
        "consumer-groups": LazyCommand(
            "groups.consumer_groups:consumer_groups", "Manage groups with the flags of kafka-consumer-groups.sh."
        ),
        "doctor": LazyCommand("doctor:doctor", "Diagnose groups and their node."),
        "advise": LazyCommand("advise:advise", "Advise what to change about groups, from their own history."),
        "top": LazyCommand("top:top", "Watch the groups of a node live."),
    },
    "Topics and records": {
        "topics": LazyCommand("records.topics:topics", "Manage topics."),
        "produce": LazyCommand("records.produce:produce", "Write lines of text to a topic."),
        "consume": LazyCommand("records.consume:consume", "Print the records of topics, alone or as a group member."),
        "transactions": LazyCommand("main:transactions", "Inspect transactions, and end those that hang."),
    },
    "Security": {
        "users": LazyCommand("security.accounts:users", "Manage users that log in with a password."),
        "tokens": LazyCommand("security.accounts:tokens", "Manage API tokens."),
        "acls": LazyCommand("main:acls", "Manage access control lists."),
        "quotas": LazyCommand("security.accounts:quotas", "Manage the quotas of users, clients and addresses."),
        "certs": LazyCommand("security.certs:certs", "Create and inspect certificates for TLS."),
    },
    "Operate": {
        "cluster": LazyCommand("main:cluster", "Manage a cluster: leaders, replicas and nodes."),
        "engine": LazyCommand("main:engine", "Manage groups kept in an existing Kafka cluster."),
        "storage": LazyCommand("data_directory:storage", "Set up or reset the security of a stopped node."),
        "log": LazyCommand("main:log", "Dump, verify and recover log files."),
        "zookeeper": LazyCommand("nodes.zookeeper:zookeeper", "Run a local ZooKeeper for development and tests."),
    },
    "Develop": {
        "assignor": LazyCommand("main:assignor", "List, inspect, create and test assignors."),
        "assign": LazyCommand("assignors:assign", "Solve assignment problems given as JSON lines."),
        "simulate": LazyCommand("assignors:simulate", "Preview an assignment without changing anything."),
        "replay": LazyCommand("replay:replay", "Replay recorded decisions, or try another assignor."),
        "pipeline": LazyCommand("main:pipeline", "Analyse the history of groups, and backtest assignors."),
        "bench": LazyCommand("workshop:bench", "Benchmark Muster against its peers."),
        "lab": LazyCommand("workshop:lab", "Compare protocol generations and scalers on one workload."),
        "completion": LazyCommand("main:completion", "Print a shell completion script."),
    },
    "Hidden": {
        "demo-worker": LazyCommand("demo.workers:demo_worker", ""),
        "demo-cluster-worker": LazyCommand("demo.workers:demo_cluster_worker", ""),
        "demo-watch-worker": LazyCommand("demo.watch_demo:demo_watch_worker", ""),
        "demo-exactly-once-worker": LazyCommand("demo.exactly_once_demo:demo_exactly_once_worker", ""),
        "demo-spark-driver": LazyCommand("demo.workers:demo_spark_driver", ""),
    },
}

EPILOG = """
Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 unhealthy, 5 conflict, 6 advice. MUSTER_BOOTSTRAP is the
node (HOST:PORT) that commands connect to; NO_COLOR turns colours off. A refused connection fails immediately; without
an answer, most commands give up after 10 s. --set default.api.timeout.ms=MS retries for that long in both cases.
"""


@click.group(
    cls=LazyGroup,
    sections=COMMANDS,
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
    """Print a completion script for a shell's start-up file."""

    made = get_completion_class(shell)
    assert made is not None, "every shell that can be named has one"
    # Asking bash for its version, which `source` does before it prints, is of no use to a script that is only printed.
    script = made(cli, {}, "muster", "_MUSTER_COMPLETE")
    click.echo(script.source_template % script.source_vars())


# `muster acls`
# -------------

ACLS_COMMANDS = {
    "add": LazyCommand("security.acls:add", "Allow or deny an operation."),
    "list": LazyCommand("security.acls:list_acls", "List access control entries."),
    "remove": LazyCommand("security.acls:remove", "Remove access control entries."),
    "check": LazyCommand("security.acls:check", "Check whether a principal may, and which entry decides."),
}


@click.group(cls=LazyGroup, sections={"Commands": ACLS_COMMANDS})
def acls() -> None:
    """Manage access control lists on a node with authorizer=acl.

    The same lists that kafka-acls shows and changes.
    """


# `muster assignor`
# -----------------

ASSIGNOR_COMMANDS = {
    "list": LazyCommand("assignors:list_", "List assignors."),
    "show": LazyCommand("assignors:show_", "Show what an assignor guarantees, and its options."),
    "new": LazyCommand("assignors:new", "Create a package for a new assignor."),
    "test": LazyCommand("assignors:test", "Run the compliance suite on an assignor."),
}


@click.group(cls=LazyGroup, sections={"Commands": ASSIGNOR_COMMANDS})
def assignor() -> None:
    """List, inspect, create and test assignors. No node is needed."""


# `muster cluster`
# ----------------

CLUSTER_COMMANDS = {
    "status": LazyCommand("nodes.cluster:status", "Show the controller and the number of unhealthy partitions."),
    "nodes": LazyCommand("nodes.cluster:nodes", "List nodes and what they lead, hold and lag behind on."),
    "partitions": LazyCommand("nodes.cluster:partitions", "Show leader, replicas and ISR of each partition."),
    "explain": LazyCommand("nodes.cluster:explain", "Explain leader changes, and what unclean elections lost."),
    "elect": LazyCommand("nodes.placement:elect", "Elect preferred leaders, or unclean ones."),
    "drain": LazyCommand("nodes.placement:drain", "Move leadership away from a node; it continues to replicate."),
    "undrain": LazyCommand("nodes.placement:undrain", "Let a drained node lead again."),
    "reassign": LazyCommand("nodes.placement:reassign", "Reassign replicas, or show the progress."),
    "spread": LazyCommand("nodes.placement:spread", "Spread replicas evenly over all nodes, with few moves."),
}


@click.group(cls=LazyGroup, sections={"Commands": CLUSTER_COMMANDS})
def cluster() -> None:
    """Manage a cluster: leaders, replicas and nodes.

    Any node of the cluster answers for all of them (--bootstrap).
    """


# `muster engine`
# ---------------

ENGINE_COMMANDS = {
    "status": LazyCommand("engine:status", "Show nodes and the owner of each shard."),
    "init": LazyCommand("engine:init", "Create the state topic, or check the existing one."),
    "acls": LazyCommand("engine:acls", "Print the ACLs that Muster needs in that Kafka."),
    "adopt": LazyCommand("engine_adoption:adopt", "Move groups from that Kafka to Muster, with their positions."),
    "release": LazyCommand("engine_adoption:release", "Move a group back to that Kafka, with its positions."),
}


@click.group(cls=LazyGroup, sections={"Commands": ENGINE_COMMANDS})
def engine() -> None:
    """Manage groups kept in an existing Kafka cluster (`muster serve --engine kafka://HOST:PORT`).

    These commands connect to that Kafka themselves: --engine names it, --config and --set say how to reach it (the
    node's own properties file is enough).
    """


# `muster groups`
# ---------------

GROUPS_COMMANDS = {
    "Inspect": {
        "list": LazyCommand("groups.description:list_", "List groups."),
        "describe": LazyCommand("groups.description:describe", "Show positions and lag, or the state of a group."),
        "members": LazyCommand("groups.description:members", "Show members and the partitions they own."),
    },
    "Rebalances": {
        "explain": LazyCommand("groups.rebalances:explain", "Explain why a group rebalanced."),
        "history": LazyCommand("groups.rebalances:history", "List the rebalances of a group."),
        "watch": LazyCommand("groups.rebalance_watch:watch", "Print each rebalance of a group as it happens."),
        "shadow": LazyCommand("groups.rebalances:shadow", "Show what other assignors would have decided."),
    },
    "Settings": {
        "settings": LazyCommand("groups.control:settings", "Show the settings of a group."),
        "set": LazyCommand("groups.control:set_", "Set a setting of a group, such as assignor.options."),
        "unset": LazyCommand("groups.control:unset", "Reset settings of a group to their defaults."),
    },
    "Canary": {
        "canary": LazyCommand("groups.control:canary", "Try another assignor on a group for a while."),
        "promote": LazyCommand("groups.control:promote", "Make the canary the assignor of its group."),
        "rollback": LazyCommand("groups.control:rollback", "End the canary and return to the former assignor."),
    },
    "Overrides": {
        "freeze": LazyCommand("groups.control:freeze", "Freeze a group: no live member loses a partition."),
        "deploy": LazyCommand("groups.control:deploy", "Keep the partitions of members that restart."),
        "drain": LazyCommand("groups.control:drain", "Move all partitions away from a member."),
        "undrain": LazyCommand("groups.control:undrain", "Let a drained member own partitions again."),
        "pin": LazyCommand("groups.control:pin", "Pin a partition to a member."),
        "unpin": LazyCommand("groups.control:unpin", "Unpin a partition."),
        "resume": LazyCommand("groups.control:resume", "End all overrides of a group."),
    },
    "Positions": {
        "reset-offsets": LazyCommand("groups.offsets:reset_offsets", "Move the positions of an inactive group."),
        "delete-offsets": LazyCommand("groups.offsets:delete_offsets", "Delete the positions of a group in topics."),
        "migrate-offsets": LazyCommand(
            "groups.offsets:migrate_offsets", "Copy positions between ZooKeeper and the coordinator."
        ),
    },
    "Remove": {
        "remove-members": LazyCommand("groups.control:remove_members", "Remove members from a group."),
        "delete": LazyCommand("groups.offsets:delete", "Delete groups that have no members."),
    },
}


@click.group(cls=LazyGroup, sections=GROUPS_COMMANDS)
def groups() -> None:
    """Manage consumer groups and explain their rebalances."""


# `muster log`
# ------------

LOG_COMMANDS = {
    "dump": LazyCommand("data_directory:dump", "Print log files batch by batch."),
    "verify": LazyCommand("data_directory:verify", "Check everything in a data directory."),
    "recover": LazyCommand("data_directory:recover", "Truncate damaged logs where the damage begins."),
}


@click.group(cls=LazyGroup, sections={"Commands": LOG_COMMANDS})
def log() -> None:
    """Dump, verify and recover log files. The node need not run."""


# `muster transactions`
# ---------------------

TRANSACTIONS_COMMANDS = {
    "Inspect": {
        "list": LazyCommand("transactions.inspection:list_", "List transactional ids."),
        "describe": LazyCommand("transactions.inspection:describe", "Show the state of a transactional id."),
        "describe-producers": LazyCommand(
            "transactions.inspection:describe_producers", "Show the producers that a partition knows."
        ),
        "find-hanging": LazyCommand("transactions.hanging:find_hanging", "Find hanging transactions."),
        "explain": LazyCommand(
            "transactions.explain:explain", "Explain how and why the last transactions of an id ended."
        ),
    },
    "End": {
        "abort": LazyCommand("transactions.ending:abort", "Abort a hanging transaction in one partition."),
        "force-terminate": LazyCommand(
            "transactions.ending:force_terminate", "Abort an id's open transaction and fence its producer."
        ),
        "forceTerminateTransaction": LazyCommand("transactions.ending:force_terminate", ""),
    },
}


@click.group(cls=LazyGroup, sections=TRANSACTIONS_COMMANDS)
def transactions() -> None:
    """Inspect transactions, and end those that hang.

    The columns are those of Kafka's kafka-transactions.
    """


# `muster pipeline`
# -----------------

PIPELINE_COMMANDS = {
    "backtest": LazyCommand("backtest:backtest", "Run assignors on recorded histories, and rank them."),
    "export-trace": LazyCommand("pipeline:export_trace", "Export the history of a group for a backtest."),
    "analytics": LazyCommand("pipeline:analytics", "Export lag and rebalances as Parquet tables, by Spark."),
}


@click.group(cls=LazyGroup, sections={"Commands": PIPELINE_COMMANDS})
def pipeline() -> None:
    """Analyse the history of groups, and backtest assignors."""
