"""`muster cluster drain` and `undrain`."""

import click

from muster.cli.common.options import client_options
from muster.cli.common.output import notice
from muster.cli.nodes.asking import NODE, connect_cluster_admin
from muster.coordinator.observability.views.formatting import plural

MOST_NAMED = 10


@click.command()
@client_options
@click.argument("node", type=NODE)
def drain(bootstrap: str, overrides: dict[str, str], node: int) -> None:
    """Let NODE lead nothing that another node can lead: before work on its machine, or to see how the rest bears it.

    It stays up, goes on copying, and stays drained when it is started anew, until `undrain`. Over somebody's Kafka the
    other nodes take its groups, while there is one; there it takes a share again when it is started anew, too.
    """
    with connect_cluster_admin(bootstrap, overrides) as admin:
        left = admin.drain_node(node)
    if not left:
        notice(f"node {node} is drained: it leads nothing")
        return
    named = ", ".join(f"{topic}-{number}" for topic, number in left[:MOST_NAMED])
    more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    notice(
        f"node {node} is drained, and still leads {plural(len(left), 'partition')}, of which nobody else is in "
        f"sync, or which are on their way: {named}{more}"
    )


@click.command()
@client_options
@click.argument("node", type=NODE)
def undrain(bootstrap: str, overrides: dict[str, str], node: int) -> None:
    """Let NODE lead again.

    In a cluster it gets back what it is the first replica of with the next look at the balance
    (leader.imbalance.check.interval.seconds), or at once by `muster cluster elect --all`.
    """
    with connect_cluster_admin(bootstrap, overrides) as admin:
        admin.drain_node(node, on=False)
    notice(f"node {node} may lead again")
