"""One small Spark session for all tests that need one: its start costs more than most of them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.java_runtime import JavaNotFound, find_java


@contextmanager
def without_pandas(place: Path) -> Iterator[None]:
    """Only Spark Connect may need pandas, so nothing else finds it: neither here nor in what is started from here."""
    folder = str(place)
    hidden = "raise ModuleNotFoundError('pandas is hidden: data sources do without it', name='pandas')"
    Path(folder, "pandas.py").write_text(hidden)
    with pytest.MonkeyPatch.context() as patch:
        # pyarrow imports it where it finds it, so that some test before may have brought it in.
        patch.delitem(sys.modules, "pandas", raising=False)
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A `SparkSession` on local[2] with the data source registered; skipped only where there is no Java at all."""
    try:
        find_java()
    except JavaNotFound as error:
        pytest.skip(f"Spark needs a Java: {error}")
    folder = tmp_path_factory.mktemp("spark")
    with without_pandas(tmp_path_factory.mktemp("without-pandas")), started(folder) as spark:
        yield spark


@contextmanager
def started(folder: Path) -> Iterator[Any]:
    from muster.spark.session import session

    spark = session(
        "muster tests",
        master="local[2]",
        light=True,
        config={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.streaming.pollingDelay": "10ms",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()
