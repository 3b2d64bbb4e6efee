"""`muster groups resume`: what was held, is held no longer."""

from typing import Any

import click

from muster.coordinator.cli.common.options import admin_of, client_options, output_option
from muster.coordinator.cli.control.held import asked, tell, verb_options
from muster.coordinator.cli.groups.which import group_argument


@click.command()
@client_options
@output_option
@verb_options
@click.option("--only", type=click.Choice(["freeze", "deploy"]), default=None, help="End this, and nothing else.")
@group_argument
def resume(bootstrap: str, overrides: dict[str, str], style: str, only: Any, group: str, **given: Any) -> None:
    """End all that is held of GROUP: freeze, deploy, drains, pins. What follows is one rebalance."""
    words = asked(given)
    with admin_of(bootstrap, overrides) as admin:
        held = admin.resume_group(group, only or "", **words)
    tell(group, held, style, dry_run=words["validate_only"])
