"""`muster groups drain` and `undrain`: a member's partitions move away, and it stays."""

import time
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import notice
from muster.cli.groups.held import for_option, override_arguments, override_options, report_overrides
from muster.cli.groups.which import group_argument

if TYPE_CHECKING:
    from muster.client import Admin

DRAIN_POLL_S = 0.5

by_option = click.option(
    "--by",
    type=click.Choice(["member-id", "client-id", "instance", "host"]),
    default="member-id",
    show_default=True,
    help="What MEMBER is. One that is named by client-id, instance or host stays drained when it is started anew.",
)


@click.command()
@client_options
@output_option
@override_options
@for_option
@by_option
@click.option("--wait", is_flag=True, help="Tell how far it is, until nothing is left.")
@group_argument
@click.argument("member")
def drain(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    by: Any,
    wait: bool,
    group: str,
    member: str,
    **given: Any,
) -> None:
    """Move all partitions of GROUP's MEMBER to the others; it stays a member with nothing.

    They move as fast as move.budget allows (assignor.options or balance.move.budget of the group), each by a safe
    handoff.
    """
    words = override_arguments(given)
    with connect_admin(bootstrap, overrides) as admin:
        held = admin.drain_member(group, member, by, **words)
        report_overrides(group, held, style, dry_run=words["validate_only"])
        if wait and not words["validate_only"]:
            follow_drain(admin, group, member, by)


def follow_drain(admin: "Admin", group: str, member: str, by: str) -> None:
    """Until nothing is left, or it is drained no longer."""
    before = None
    while True:
        found = next((d for d in admin.group_holds(group).drains if (d.by, d.name) == (by, member)), None)
        if found is None:
            notice("It is not drained any more.")
            return
        if found.left != before:
            notice("Nothing is left." if not found.left else f"{found.left} partitions are left.")
        if not found.left:
            return
        before = found.left
        time.sleep(DRAIN_POLL_S)


@click.command()
@client_options
@output_option
@override_options
@by_option
@group_argument
@click.argument("member")
def undrain(
    bootstrap: str, overrides: dict[str, str], style: str, by: Any, group: str, member: str, **given: Any
) -> None:
    """Let GROUP's MEMBER have partitions again."""
    words = override_arguments(given)
    with connect_admin(bootstrap, overrides) as admin:
        held = admin.undrain_member(group, member, by, **words)
    report_overrides(group, held, style, dry_run=words["validate_only"])
