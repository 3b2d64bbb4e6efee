"""What the short processes of a query load: Spark starts several, one after the other, and a query waits for each."""

import subprocess
import sys

import pytest

OPTIONS = "{'bootstrap.servers': '127.0.0.1:1', 'subscribe': 't'}"
LOOK_UP = f"from coordinator.spark.source import MusterDataSource as S; S({OPTIONS}).schema()"
STREAM = f"from coordinator.spark.source import MusterDataSource as S; s = S({OPTIONS}); s.streamReader(SCHEMA)"
SCHEMA = "from pyspark.sql.types import *; SCHEMA = StructType([StructField('value', BinaryType())]); "
DRIVER = SCHEMA + STREAM + "._driver"

CALLS = ("grpc", "asyncio", "google.protobuf", "coordinator.client.transport")
MEMBERS = ("coordinator.member.classic", "coordinator.client.working", "coordinator.client.aio")


@pytest.mark.parametrize(
    ("does", "unwanted"),
    [
        ("import coordinator.spark.source", ("pydantic", *CALLS)),
        (LOOK_UP, (*CALLS, "assignors.registry", *MEMBERS)),
        (SCHEMA + STREAM, (*CALLS, *MEMBERS)),
        (DRIVER, ("assignors.registry", *MEMBERS)),
    ],
)
def test_a_process_loads_what_it_does_and_not_what_others_do(does: str, unwanted: tuple[str, ...]) -> None:
    code = f"import pyspark.sql.datasource; before = set(__import__('sys').modules); {does}; "
    code += f"print(*(name for name in {unwanted!r} if name in set(__import__('sys').modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
