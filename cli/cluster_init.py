"""`muster cluster`: nodes that keep copies for each other."""

import click

from muster.cli.common.lazy import LazyCommand, LazyGroup

CLUSTER_COMMANDS = {
    "status": LazyCommand(
        "muster.cli.nodes.status:status", "Show who is controller, and how many partitions want for something."
    ),
    "nodes": LazyCommand(
        "muster.cli.nodes.status:nodes", "List the nodes: up or gone, what they lead and hold, who is behind."
    ),
    "partitions": LazyCommand(
        "muster.cli.nodes.partitions:partitions", "Show who leads, who has copies, who is in sync."
    ),
    "explain": LazyCommand(
        "muster.cli.nodes.explain:explain", "Tell why leaders changed, and what unclean elections cost."
    ),
    "elect": LazyCommand(
        "muster.cli.nodes.elect:elect", "Let first replicas lead again, or anybody, where nobody does."
    ),
    "drain": LazyCommand("muster.cli.nodes.drain:drain", "Let a node lead nothing; it stays up, and goes on copying."),
    "undrain": LazyCommand("muster.cli.nodes.drain:undrain", "Let it lead again."),
    "reassign": LazyCommand(
        "muster.cli.nodes.reassign:reassign", "Give partitions other replicas, or show how far that is."
    ),
    "spread": LazyCommand(
        "muster.cli.nodes.spread:spread", "Spread replicas over all nodes, as little moved as that takes."
    ),
}


@click.group(cls=LazyGroup, lazy=CLUSTER_COMMANDS)
def cluster() -> None:
    """Nodes that keep copies for each other: who leads what, who is behind, and what to do about it.

    Any node of the cluster answers (--bootstrap), also about the others.
    """
