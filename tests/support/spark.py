"""One small Spark session for all tests that need one: its start costs more than most of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.java import JavaNotFound, find_java


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A `SparkSession` on local[2] with the data source registered; skipped only where there is no Java at all."""
    try:
        find_java()
    except JavaNotFound as error:
        pytest.skip(f"Spark needs a Java: {error}")
    from coordinator.spark.session import session

    folder = tmp_path_factory.mktemp("spark")
    started = session(
        "muster tests",
        master="local[2]",
        light=True,
        config={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.streaming.pollingDelay": "10ms",
        },
    )
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()
