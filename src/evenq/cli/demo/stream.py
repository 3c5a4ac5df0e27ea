"""The Spark query of the demo: a member of the group like the others, which writes its share to Parquet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evenq.cli.demo.verdict import Consumed, Place
from evenq.errors import RemoteError
from evenq.spark.jobs.failures import reason
from evenq.spark.jobs.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Stream"]

NAME = "Spark"
# one machine has to do for everything: the brokers, the members and Spark
SETTINGS = {
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    # it lives for a minute and gains nothing from the best compiler
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass
class Stream:
    """A running query. ``path`` is where its rows are."""

    spark: SparkSession
    query: StreamingQuery
    path: Path
    # the rows of each micro-batch
    _batches: dict[int, int] = field(default_factory=dict)

    @classmethod
    def start(cls, namesrv: str, topic: str, group: str, strategy: str, out: Path) -> Stream:
        """Start Spark, which takes some seconds, and the query."""
        spark = session("evenq demo", "local[2]", SETTINGS)
        spark.sparkContext.setLogLevel("ERROR")
        options = {"namesrv": namesrv, "subscribe": topic, "group": group, "group.join": "true", "strategy": strategy}
        path = out / "orders.parquet"
        query = (
            spark.readStream.format("rocketmq")
            .options(**options, startingOffsets="earliest")
            .load()
            .writeStream.format("parquet")
            .option("path", str(path))
            .option("checkpointLocation", str(out / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        return cls(spark, query, path)

    def rows(self) -> int:
        """How many it has written by now."""
        for report in self.query.recentProgress:
            self._batches[report.batchId] = report.numInputRows
        return sum(self._batches.values())

    def check(self) -> None:
        """Raise if the query has failed."""
        error = self.query.exception()
        if error is not None:
            raise RemoteError(f"Spark: {reason(str(error))}")

    def stop(self) -> None:
        """Leave the group properly; what is in the files by then is what the query has consumed."""
        self.check()
        self.query.stop()

    def consumed(self) -> list[Consumed]:
        """What the files hold."""
        if not self.path.exists():
            return []
        rows = self.spark.read.parquet(str(self.path)).select("keys", "broker", "queue_id", "offset").toArrow()
        return [
            Consumed(NAME, row["keys"], Place(row["broker"], row["queue_id"], row["offset"]))
            for row in rows.to_pylist()
        ]
