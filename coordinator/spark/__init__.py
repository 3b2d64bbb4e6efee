"""Topics as a Spark data source, and pipelines over the rebalance ledger. The room that knows pyspark: above it, only
commands and benchmarks of it do.

Names load on first use, so that importing this package costs nothing. A session with a Java and all that is made by
`muster.coordinator.spark.session.session`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.coordinator.spark.groups.commit import OffsetCommitter, commit_batch, pin_batch
    from muster.coordinator.spark.session import register
    from muster.coordinator.spark.source import MusterDataSource

HOMES = {
    "MusterDataSource": "muster.coordinator.spark.source",
    "OffsetCommitter": "muster.coordinator.spark.groups.commit",
    "commit_batch": "muster.coordinator.spark.groups.commit",
    "pin_batch": "muster.coordinator.spark.groups.commit",
    "register": "muster.coordinator.spark.session",
}

__all__ = ["MusterDataSource", "OffsetCommitter", "commit_batch", "pin_batch", "register"]


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
