"""`muster groups pin` and `unpin`: this partition is that member's."""

from typing import Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.groups.held import for_option, override_arguments, override_options, report_overrides
from muster.cli.groups.which import group_argument


def parse_topic_partition(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, int]:
    topic, colon, number = text.rpartition(":")
    if not topic or not colon or not number.isdigit():
        raise click.BadParameter(f"{text!r} is no partition; expected TOPIC:NUMBER, such as orders:3", ctx, param)
    return topic, int(number)


place_argument = click.argument("place", metavar="TOPIC:P", callback=parse_topic_partition)


@click.command()
@client_options
@output_option
@override_options
@for_option
@group_argument
@place_argument
@click.argument("member")
def pin(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    group: str,
    place: tuple[str, int],
    member: str,
    **given: Any,
) -> None:
    """Pin a partition of GROUP to MEMBER (instance id, client id or member id), for as long as it lives."""
    words = override_arguments(given)
    with connect_admin(bootstrap, overrides) as admin:
        held = admin.pin_partition(group, *place, member, **words)
    report_overrides(group, held, style, dry_run=words["validate_only"])


@click.command()
@client_options
@output_option
@override_options
@group_argument
@place_argument
def unpin(
    bootstrap: str, overrides: dict[str, str], style: str, group: str, place: tuple[str, int], **given: Any
) -> None:
    """Pin a partition of GROUP no longer: it stays where it is until a plan moves it."""
    words = override_arguments(given)
    with connect_admin(bootstrap, overrides) as admin:
        held = admin.unpin_partition(group, *place, **words)
    report_overrides(group, held, style, dry_run=words["validate_only"])
