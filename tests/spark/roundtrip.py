"""A program like a user's: it writes to a topic, reads it back and streams it, and prints what it found.

``python roundtrip.py NAMESRV TOPIC FOLDER``; how Spark runs is in the environment (``SPARK_REMOTE``, or
``PYSPARK_SUBMIT_ARGS``).
"""

import json
import sys

from pyspark.sql import SparkSession

ROWS = 1000


def main(namesrv: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    least = {"namesrv": namesrv, "subscribe": topic}
    rows = spark.range(ROWS).selectExpr("cast(id as string) value", "concat('k', id) keys")
    rows.write.format("rocketmq").options(namesrv=namesrv, topic=topic).mode("append").save()

    read = spark.read.format("rocketmq").options(**least, minPartitions="2").load()
    sums = read.selectExpr("count(*)", "count(distinct keys)", "sum(cast(cast(value as string) as int))").collect()[0]

    stream = spark.readStream.format("rocketmq").options(
        **least, startingOffsets="earliest", maxOffsetsPerTrigger="400"
    )
    query = (
        stream.load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    streamed = spark.read.parquet(f"{folder}/out").select("keys").distinct().count()
    print(json.dumps({"kind": type(spark).__module__, "batch": list(sums), "stream": streamed}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
