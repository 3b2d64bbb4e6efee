"""`muster groups freeze`: nobody who lives loses a partition."""

from typing import Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.groups.held import for_option, override_arguments, override_options, report_overrides
from muster.cli.groups.which import group_argument


@click.command()
@client_options
@output_option
@override_options
@for_option
@click.option(
    "--orphans",
    type=click.Choice(["give", "keep"]),
    default=None,
    help="What loses its owner goes to whoever has least, or stays without one. Where members make their own plans: "
    "keep only.",
)
@group_argument
def freeze(bootstrap: str, overrides: dict[str, str], style: str, orphans: Any, group: str, **given: Any) -> None:
    """Freeze GROUP: who lives keeps its partitions, and newcomers get none, until it is resumed."""
    words = override_arguments(given)
    with connect_admin(bootstrap, overrides) as admin:
        held = admin.freeze_group(group, orphans or "", **words)
    report_overrides(group, held, style, dry_run=words["validate_only"])
