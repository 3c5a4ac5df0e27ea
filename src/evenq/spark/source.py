"""``format("rocketmq")``: what Spark finds by itself, and where it gets readers and writers."""

# ruff: noqa: N802 (the names of methods are Spark's)

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from evenq.errors import ArgumentError
from evenq.protocol.schema import schema as columns
from evenq.spark.options import ReadOptions, read_options

if TYPE_CHECKING:
    from evenq.spark.sinkoptions import WriteOptions

__all__ = ["RocketMQSource"]


class RocketMQSource(DataSource):
    """RocketMQ topics as tables and as streams.

    Spark makes it anew in several processes for each query, most of which need little of it: so what reads and writes
    is imported on use only.

    ::

        spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("subscribe", "orders").load()
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @cached_property
    def checked(self) -> ReadOptions:
        # Spark makes the source once, asks for the schema and sends it around from then on: this goes with it
        return read_options(self.options)

    def schema(self) -> StructType:
        return from_arrow_schema(columns(self.checked.include_properties, self.checked.property_columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        from evenq.spark.reader import BatchReader

        self._check(schema)
        return BatchReader(self.checked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from evenq.spark.reader import StreamReader

        self._check(schema)
        return StreamReader(self.checked)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from evenq.spark.writer import BatchWriter

        if overwrite:
            raise ArgumentError("mode", "overwrite", "messages cannot be taken back: write with mode('append')")
        return BatchWriter(self._writing(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from evenq.spark.writer import StreamWriter

        # the output mode complete is written as it comes, each result after the one before
        return StreamWriter(self._writing(schema))

    def _writing(self, schema: StructType) -> WriteOptions:
        from evenq.spark.sinkoptions import check_columns, write_options

        options = write_options(self.options)
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options)
        return options

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise ArgumentError(
                "schema", schema.simpleString(), f"leave schema() out: the columns are {self.schema().simpleString()}"
            )
