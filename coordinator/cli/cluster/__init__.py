"""`muster cluster`: nodes that keep copies for each other."""

import click

from muster.coordinator.cli.common.lazy import Lazy, LazyGroup

ROOM = "muster.coordinator.cli.cluster"

COMMANDS = {
    "status": Lazy(f"{ROOM}.status:status", "Show who is controller, and how many partitions want for something."),
    "nodes": Lazy(f"{ROOM}.status:nodes", "List the nodes: up or gone, what they lead and hold, who is behind."),
    "partitions": Lazy(f"{ROOM}.partitions:partitions", "Show who leads, who has copies, who is in sync."),
    "explain": Lazy(f"{ROOM}.explain:explain", "Tell why leaders changed, and what unclean elections cost."),
    "elect": Lazy(f"{ROOM}.elect:elect", "Let first replicas lead again, or anybody, where nobody does."),
    "drain": Lazy(f"{ROOM}.drain:drain", "Let a node lead nothing; it stays up, and goes on copying."),
    "undrain": Lazy(f"{ROOM}.drain:undrain", "Let it lead again."),
    "reassign": Lazy(f"{ROOM}.reassign:reassign", "Give partitions other replicas, or show how far that is."),
    "spread": Lazy(f"{ROOM}.spread:spread", "Spread replicas over all nodes, as little moved as that takes."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def cluster() -> None:
    """Nodes that keep copies for each other: who leads what, who is behind, and what to do about it.

    Any node of the cluster answers (--bootstrap), also about the others.
    """
