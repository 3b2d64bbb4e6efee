"""What the short processes of a query load: Spark starts several, one after the other, and a query waits for each."""

import pickle
import subprocess
import sys

import pytest

from muster.spark.source import MusterDataSource

OPTIONS = "{'bootstrap.servers': '127.0.0.1:1', 'subscribe': 't'}"
LOOK_UP = f"from muster.spark.source import MusterDataSource as S; S({OPTIONS}).schema()"
STREAM = f"from muster.spark.source import MusterDataSource as S; s = S({OPTIONS}); s.streamReader(SCHEMA)"
SCHEMA = "from pyspark.sql.types import *; SCHEMA = StructType([StructField('value', BinaryType())]); "
DRIVER = SCHEMA + STREAM + "._driver"

CALLS = ("grpc", "asyncio", "google.protobuf", "muster.client.calls.transport")
MEMBERS = (
    "muster.client.members.classic_member",
    "muster.client.aio.worker",
    "muster.client.aio",
)


@pytest.mark.parametrize(
    ("does", "unwanted"),
    [
        ("import muster.spark.source", ("pydantic", *CALLS)),
        (LOOK_UP, (*CALLS, "muster.assignors.registry", *MEMBERS)),
        (SCHEMA + STREAM, (*CALLS, *MEMBERS)),
        (DRIVER, ("muster.assignors.registry", *MEMBERS)),
    ],
)
def test_a_process_loads_what_it_does_and_not_what_others_do(does: str, unwanted: tuple[str, ...]) -> None:
    assert loaded(does, unwanted) == []


@pytest.mark.parametrize(
    ("does", "unwanted"),
    [
        ("; s.streamReader(SCHEMA)._driver", ("pyarrow", "assignors")),
        ("; s.reader(SCHEMA)", ("pyarrow", "assignors")),
        ("; import muster.spark.fetch", ("assignors",)),
    ],
)
def test_what_was_checked_in_one_process_is_not_checked_in_the_next(does: str, unwanted: tuple[str, ...]) -> None:
    """Spark asks for the schema, and hands the source on: to the process of a query, to planners and to tasks."""
    source = MusterDataSource({"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    source.schema()
    handed = f"{SCHEMA}import pickle; s = pickle.loads({pickle.dumps(source)!r})"
    assert loaded(handed + does, ("pydantic", *unwanted)) == []


def loaded(does: str, names: tuple[str, ...]) -> list[str]:
    """Which of these modules a process has loaded after that, beyond what Spark does."""
    code = f"import pyspark.sql.datasource; before = set(__import__('sys').modules); {does}; "
    code += f"print(*(name for name in {names!r} if name in set(__import__('sys').modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()
