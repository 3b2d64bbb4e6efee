"""Topics as a Spark data source, and pipelines over the rebalance ledger. The room that knows pyspark: above it, only
commands and benchmarks of it do.

Names load on first use, so that importing this package costs nothing. A session with a Java and all that is made by
`muster.spark.session.session`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.spark.offset_commits import OffsetCommitter, commit_batch, pin_batch
    from muster.spark.session import register
    from muster.spark.source import MusterDataSource
    from muster.spark.stream_offsets import offsets_behind_latest

HOMES = {
    "MusterDataSource": "muster.spark.source",
    "OffsetCommitter": "muster.spark.offset_commits",
    "commit_batch": "muster.spark.offset_commits",
    "offsets_behind_latest": "muster.spark.stream_offsets",
    "pin_batch": "muster.spark.offset_commits",
    "register": "muster.spark.session",
}

__all__ = ["MusterDataSource", "OffsetCommitter", "commit_batch", "offsets_behind_latest", "pin_batch", "register"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module(HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in ("pyspark", "pyarrow"):
            raise ImportError(
                f"{error.name} is not installed; install it with: pip install 'muster-groups[spark]'"
            ) from None
        raise


if __name__ == "spark":  # A checkout's folder, imported by its own name.
    from muster.checkout import stand_in

    stand_in(__name__)
