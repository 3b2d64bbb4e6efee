"""`muster log recover`: give up what is damaged, so that the node starts again."""

from dataclasses import asdict

import click

from muster.coordinator.cli.common.options import output_option
from muster.coordinator.cli.common.output import Column, notice, show
from muster.coordinator.cli.log.where import existing_directory
from muster.coordinator.views.words import plural

COLUMNS = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("FROM-OFFSET", "first_offset"),
    Column("FILE", "file"),
    Column("POSITION", "position"),
    Column("BYTES", "size"),
    Column("LATER-SEGMENTS", "later_segments", wide=True),
    Column("WHY", "why"),
]


@click.command()
@output_option
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("data", metavar="DIR", callback=existing_directory)
def recover(style: str, dry_run: bool, yes: bool, data: str) -> None:
    """Cut each damaged partition below DIR off where its damage begins; what lies behind it is lost.

    The node must not run. Look at --dry-run first, and keep a copy.
    """
    from muster.storage.tools.recover import recover_dir

    cuts = recover_dir(data, dry_run=True)
    if cuts or style not in ("table", "wide"):
        show([asdict(cut) for cut in cuts], COLUMNS, style)
    if not cuts:
        notice("nothing is damaged")
        return
    if dry_run:
        notice(f"{plural(len(cuts), 'partition')} would be cut; nothing was changed")
        return
    if not yes:
        click.confirm(f"Cut {plural(len(cuts), 'partition')} there?", abort=True, err=True)
    recover_dir(data, dry_run=False)
    notice(f"cut {plural(len(cuts), 'partition')}")
