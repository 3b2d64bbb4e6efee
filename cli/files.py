"""What pipelines leave behind: a folder of Parquet files and one report."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from muster.cli.common.errors import CommandError
from muster.cli.common.output import notice

NO_ARROW = "Parquet files need pyarrow; install it with: pip install 'muster-groups[spark]'"


def make_folder(out: Path | None) -> Path | None:
    """The folder, made; what writes into it is looked for before the work, not after it."""
    if out is None:
        return None
    from muster.spark.pipelines.page import PlottingNotInstalled, check_plotting

    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise CommandError(NO_ARROW) from None
    try:
        check_plotting()
    except PlottingNotInstalled as missing:
        raise CommandError(str(missing)) from missing
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"--out {out} cannot be made: {error.strerror}", "name a folder, or a place for one"
        ) from None
    if made:
        # Work that fails or is broken off before anything was written leaves nothing behind.
        click.get_current_context().call_on_close(lambda: remove_if_empty(out))
    return out


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def write_parquet(path: Path, rows: Any) -> None:
    """An Arrow table, or a list of rows with the same keys."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows) if isinstance(rows, list) else rows
    pq.write_table(table, path)
    notice(f"{path}: {table.num_rows:,} rows")


def write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    notice(str(path))
