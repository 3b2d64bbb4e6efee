"""The data source `muster`: topics as tables and streams, in the columns and options of Spark's Kafka source.

    spark.dataSource.register(MusterDataSource)
    spark.read.format("muster").option("bootstrap.servers", "127.0.0.1:9290").option("subscribe", "orders").load()

Importing this module costs pyspark and nothing else; the rest is loaded where it is used, because Spark starts many
short Python processes that only look a source up.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.datasource import DataSourceStreamWriter as StreamWriter
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from muster.spark.read_options import ReadOptions

NAME = "muster"


class MusterDataSource(DataSource):
    """Spark calls these methods by keyword: the names of their parameters are part of its contract."""

    cores: ClassVar[int | None] = None
    """What `tasks=cores` means; None: the processors of the driver's machine. See `for_cores`."""

    checked: "Mapping[bool, ReadOptions] | None" = None
    """By whether it is a stream. Spark asks for the schema in one process and hands this source on to the others, which
    need not check again, nor load what checks."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from muster.spark.options import check_read_kinds
        from muster.spark.read_options import build_ddl, settle_in

        settle_in()
        self.checked = kinds = check_read_kinds(dict(self.options))
        return build_ddl(next(iter(kinds.values())).column_names)

    def reader(self, schema: StructType) -> DataSourceReader:
        from muster.spark.batch_reader import make_batch_reader

        return make_batch_reader(self._read_options(streaming=False), schema, self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from muster.spark.stream_reader import MusterStreamReader, RefusedStreamReader

        try:
            return MusterStreamReader(self._read_options(streaming=True), schema, self.cores)
        except ValueError as error:
            # Spark would bury what is raised here under an UnboundLocalError of its own.
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from muster.spark.sink import make_batch_writer

        return make_batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from muster.spark.sink import make_stream_writer

        return make_stream_writer(dict(self.options), schema, overwrite)

    def _read_options(self, *, streaming: bool) -> "ReadOptions":
        if (known := (self.checked or {}).get(streaming)) is not None:
            return known
        from muster.spark.options import check_read_options

        return check_read_options(dict(self.options), streaming=streaming)


def for_cores(cores: int) -> type[MusterDataSource]:
    """The source for a cluster of so many cores: its `tasks=cores` plans for them.

    A data source cannot see the cluster that it runs on, so whoever registers it has to say.
    """
    return type("MusterDataSource", (MusterDataSource,), {"cores": cores})
