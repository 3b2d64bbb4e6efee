"""`muster cluster`: nodes that keep copies for each other."""

import click

from muster.coordinator.cli.common.lazy import LazyCommand, LazyGroup

CLUSTER_MODULES = "muster.coordinator.cli.cluster"

CLUSTER_COMMANDS = {
    "status": LazyCommand(
        f"{CLUSTER_MODULES}.status:status", "Show who is controller, and how many partitions want for something."
    ),
    "nodes": LazyCommand(
        f"{CLUSTER_MODULES}.status:nodes", "List the nodes: up or gone, what they lead and hold, who is behind."
    ),
    "partitions": LazyCommand(
        f"{CLUSTER_MODULES}.partitions:partitions", "Show who leads, who has copies, who is in sync."
    ),
    "explain": LazyCommand(
        f"{CLUSTER_MODULES}.explain:explain", "Tell why leaders changed, and what unclean elections cost."
    ),
    "elect": LazyCommand(
        f"{CLUSTER_MODULES}.elect:elect", "Let first replicas lead again, or anybody, where nobody does."
    ),
    "drain": LazyCommand(
        f"{CLUSTER_MODULES}.drain:drain", "Let a node lead nothing; it stays up, and goes on copying."
    ),
    "undrain": LazyCommand(f"{CLUSTER_MODULES}.drain:undrain", "Let it lead again."),
    "reassign": LazyCommand(
        f"{CLUSTER_MODULES}.reassign:reassign", "Give partitions other replicas, or show how far that is."
    ),
    "spread": LazyCommand(
        f"{CLUSTER_MODULES}.spread:spread", "Spread replicas over all nodes, as little moved as that takes."
    ),
}


@click.group(cls=LazyGroup, lazy=CLUSTER_COMMANDS)
def cluster() -> None:
    """Nodes that keep copies for each other: who leads what, who is behind, and what to do about it.

    Any node of the cluster answers (--bootstrap), also about the others.
    """
