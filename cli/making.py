"""`muster assignor new` and `test`: for those who write one."""

from dataclasses import asdict
from pathlib import Path

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import NumberRange, output_option
from muster.cli.common.output import notice, print_document
from muster.cli.common.plugins import find_plugins_here


@click.command()
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where to write it; a new folder called NAME when not given.",
)
def new(name: str, into: Path | None) -> None:
    """Write a package with a working assignor called NAME, its entry point and its test."""
    from muster.assignors.tools.scaffold import scaffold

    try:
        files = scaffold(name)
    except ValueError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error
    folder = into or Path(name)
    taken = [str(folder / path) for path in files if (folder / path).exists()]
    if taken:
        what = f"{', '.join(taken)} exist already"
        raise CommandError(what, "expected an empty place", "choose another --into", code=Exit.CONFLICT)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    notice(f"wrote {', '.join(files)} below {folder}; next: pip install -e {folder} && muster assignor test {name}")


@click.command()
@output_option
@click.option(
    "--deadline",
    type=NumberRange(0.01, 3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time for one check on one group.",
)
@click.argument("target")
def test(style: str, target: str, deadline: float) -> int:
    """Put TARGET (a name, or package.module:Class in this folder) through the suite every assignor must pass.

    It runs in a process of its own, and what it prints is shown. Exit code 1 when a check fails.
    """
    from muster.assignors.compliance import examine
    from muster.assignors.registry import resolve

    find_plugins_here()
    report = examine(resolve(target), round(1000 * deadline))
    if style in ("table", "wide"):
        click.echo(str(report))
    else:
        findings = [asdict(finding) for finding in report.findings]
        document = {"assignor": report.assignor, "passed": report.passed, "findings": findings}
        print_document(document, "yaml" if style == "yaml" else "json")
    return Exit.OK if report.passed else Exit.FAILURE
