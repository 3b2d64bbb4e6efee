"""A Spark session for the length of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coordinator.cli.errors import CommandError


@contextmanager
def spark_session(name: str, master: str) -> Iterator[Any]:
    """Started, quiet, and stopped at the end; one that was there before is left running."""
    from coordinator.java import JavaNotFound
    from coordinator.spark.session import session

    try:
        from pyspark.sql import SparkSession

        before = SparkSession.getActiveSession()
        spark = session(name, master=master, light=master.startswith("local"))
    except (ImportError, JavaNotFound) as missing:
        raise CommandError(str(missing)) from missing
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        if before is None:
            spark.stop()
