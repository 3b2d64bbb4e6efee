"""`muster groups resume`: what was held, is held no longer."""

from typing import Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.groups.held import override_arguments, override_options, report_overrides
from muster.cli.groups.which import group_argument


@click.command()
@client_options
@output_option
@override_options
@click.option("--only", type=click.Choice(["freeze", "deploy"]), default=None, help="End this, and nothing else.")
@group_argument
def resume(bootstrap: str, overrides: dict[str, str], style: str, only: Any, group: str, **given: Any) -> None:
    """End all that is held of GROUP: freeze, deploy, drains, pins. What follows is one rebalance."""
    words = override_arguments(given)
    with connect_admin(bootstrap, overrides) as admin:
        held = admin.resume_group(group, only or "", **words)
    report_overrides(group, held, style, dry_run=words["validate_only"])
