"""Orders from a topic, as a table that grows with every run, and what was sold as a view over it."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
NAMESRV = os.environ.get("EVENQ_NAMESRV", "127.0.0.1:9876")


@dp.table(comment="every message of the topic orders, once")
def orders() -> DataFrame:
    stream = spark.readStream.format("rocketmq").options(
        namesrv=NAMESRV, subscribe="orders", startingOffsets="earliest", group="orders-pipeline"
    )
    order = f.from_json(f.col("value").cast("string"), "order LONG, customer STRING, total DOUBLE")
    return stream.load().select("broker", "queue_id", "offset", "timestamp", "keys", order.alias("body"))


@dp.materialized_view(comment="orders and money by customer, of all runs")
def customers() -> DataFrame:
    body = spark.read.table("orders").select("body.*")
    return body.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))
