"""`muster groups deploy`: members are started anew one by one, and nobody else notices."""

from typing import Any

import click

from muster.cli.common.options import COUNT, client_options, connect_admin, output_option
from muster.cli.groups.held import Duration, override_arguments, override_options, report_overrides
from muster.cli.groups.which import group_argument


@click.command()
@client_options
@output_option
@override_options
@click.option("--expect", type=COUNT, required=True, metavar="N", help="So many members go and come back.")
@click.option(
    "--timeout", "--for", "for_ms", type=Duration(), default="15m", show_default=True, help="Over then at the latest."
)
@group_argument
def deploy(bootstrap: str, overrides: dict[str, str], style: str, expect: int, group: str, **given: Any) -> None:
    """Tell GROUP that its members are started anew: what one leaves waits for the next of its client id to come."""
    words = override_arguments(given)
    with connect_admin(bootstrap, overrides) as admin:
        held = admin.deploy_group(group, expect, **words)
    report_overrides(group, held, style, dry_run=words["validate_only"])
