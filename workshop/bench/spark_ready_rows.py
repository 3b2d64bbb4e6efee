"""A stream that has its rows ready: what Spark takes for any source in Python, before one of them does anything.

In a module of its own, so that the processes of such a query load nothing else of this package.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

ROWS = 100
NAME = "ready_rows"


class ReadyRows(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReadyReader()


class ReadyReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One batch of ROWS, in one task."""

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing more comes."""

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"rows": ROWS}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(ROWS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter([(bytes(100),)] * partition.value)
