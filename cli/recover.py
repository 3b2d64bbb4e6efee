"""`muster log recover`: give up what is damaged, so that the node starts again."""

from dataclasses import asdict

import click

from muster.cli.common.options import output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.where import existing_directory
from muster.coordinator.observability.views.formatting import plural

RECOVER_COLUMNS = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("FROM-OFFSET", "first_offset"),
    Column("NEXT-OFFSET", "next_offset"),
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
    """Take out of the partitions below DIR what cannot be read. Records behind it are kept where they are intact.

    The records lost have offsets from FROM-OFFSET on and below NEXT-OFFSET; without one the log ends there. The node
    must not run. Look at --dry-run first, and keep a copy.
    """
    from muster.storage.tools.recover import recover_dir

    cuts = recover_dir(data, dry_run=True)
    if cuts or style not in ("table", "wide"):
        print_rows([asdict(cut) for cut in cuts], RECOVER_COLUMNS, style)
    if not cuts:
        notice("nothing is damaged")
        return
    what = plural(len(cuts), "damaged place")
    if dry_run:
        notice(f"{what} would be taken out; nothing was changed")
        return
    if not yes:
        click.confirm(f"Take out {what}?", abort=True, err=True)
    recover_dir(data, dry_run=False)
    notice(f"{what} taken out")
