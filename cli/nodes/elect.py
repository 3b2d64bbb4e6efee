"""`muster cluster elect`."""

import click

from muster.cli.common.options import client_options
from muster.cli.nodes.asking import connect_cluster_admin, parse_partitions, report_outcomes


@click.command()
@client_options
@click.option("--all", "everywhere", is_flag=True, help="Wherever another than the first replica leads.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Anybody that lives may lead, where nobody does. RECORDS MAY BE LOST. One partition, named.",
)
@click.argument("places", nargs=-1, metavar="[TOPIC:PARTITION]...", callback=parse_partitions)
def elect(
    bootstrap: str, overrides: dict[str, str], everywhere: bool, unclean: bool, places: list[tuple[str, int]]
) -> None:
    """Let each partition's first replica lead, if it is in sync.

    What an unclean election cost is counted once the others are back: `muster cluster explain` tells it.
    """
    if everywhere == bool(places):
        raise click.UsageError("which partitions is not said, or said twice; expected TOPIC:PARTITION, or --all")
    if unclean and len(places) != 1:
        raise click.UsageError("--unclean may lose records; expected one TOPIC:PARTITION with it")
    with connect_cluster_admin(bootstrap, overrides) as admin:
        outcomes = admin.elect_leaders(places or None, unclean=unclean)
    report_outcomes("elected leaders of", outcomes)
