"""What an audit keeps of each message, and of each record of the trace: a narrow row, made by Spark itself.

The columns of the source come in; what goes out is a tenth of their size. Names of columns and SQL only: no Spark is
needed to import this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenq.model import MessageQueue, Property
from evenq.spark.jobs.audit.measures import EXACT, WIDTH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PROPERTY_COLUMNS", "bucket", "message_facts", "places", "trace_facts", "with_queues"]

# Properties that the source gives as columns. A message that waited at the broker has one of the last two.
PROPERTY_COLUMNS = (Property.SHARDING_KEY, Property.REAL_TOPIC, Property.HALF)

# Of its queue a message has a hash only: three columns less to write, see :func:`with_queues`.
_PLACE = "xxhash64(topic, broker, queue_id) as place"
_MESSAGE = (
    _PLACE,
    "offset",
    "unix_millis(timestamp) as stored",
    "unix_millis(born_timestamp) as born",
    "length(value) as size",
    f"coalesce({Property.SHARDING_KEY}, keys) as key",
    f"{Property.SHARDING_KEY} is not null as sharded",
    # delayed, or in a transaction: when it was stored here says nothing about its order, nor about the broker
    f"{Property.REAL_TOPIC} is not null or {Property.HALF} is not null as waited",
    "unique_key",
)

# RocketMQ's consumers record a message before and after it is handled; both have the id of that call.
_RECORD = "split(record, '\\u0001')"
_TRACE = (
    "if(part[0] = 'SubBefore', 'before', 'after') as kind",
    "cast(if(part[0] = 'SubBefore', part[1], get(part, 7)) as bigint) as at",
    "if(part[0] = 'SubBefore', part[3], get(part, 8)) as consumers",
    "if(part[0] = 'SubBefore', part[4], part[1]) as request",
    "if(part[0] = 'SubBefore', part[5], part[2]) as unique_key",
    "if(part[0] = 'SubAfter', cast(part[3] as bigint), null) as took",
    "if(part[0] = 'SubAfter', part[4] = 'true', null) as well",
)


def message_facts(frame: DataFrame) -> DataFrame:
    """The columns of the source, with those of ``PROPERTY_COLUMNS``, to facts."""
    return frame.selectExpr(*_MESSAGE)


def places(spark: SparkSession, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """The hash that messages have of each queue."""
    rows = [(queue.topic, queue.broker, queue.queue_id) for queue in sorted(queues)]
    named = spark.createDataFrame(rows, "topic string, broker string, queue_id int").selectExpr("*", _PLACE)
    return {MessageQueue(row.topic, row.broker, row.queue_id): row.place for row in named.collect()}


def with_queues(facts: DataFrame, queues: Iterable[MessageQueue]) -> DataFrame:
    """The facts with topic, broker and queue, which are among these."""
    from pyspark.sql.functions import broadcast

    rows = [(queue.topic, queue.broker, queue.queue_id) for queue in sorted(queues)]
    named = facts.sparkSession.createDataFrame(rows, "topic string, broker string, queue_id int")
    return facts.join(broadcast(named.selectExpr("*", _PLACE)), "place")


def trace_facts(frame: DataFrame) -> DataFrame:
    """The messages of the trace topic to one row for each record of a consumer; what else is in there is left out.

    ``consumers`` is the group. Who consumed is in the id of the call: as in a message's unique key, it begins with the
    address and the number of the process.
    """
    records = frame.selectExpr("explode(split(decode(value, 'UTF-8'), '\\u0002')) as record")
    parts = records.where("record like 'Sub%'").selectExpr(f"{_RECORD} as part")
    known = parts.where("part[0] = 'SubBefore' and size(part) >= 6 or part[0] = 'SubAfter' and size(part) >= 5")
    return known.selectExpr(*_TRACE).selectExpr("*", f"{_consumer('request')} as consumer").drop("request")


def _consumer(text: str) -> str:
    """SQL for ``10.0.0.1@4711``, of an id of 32 digits, or of 56 with an IPv6 address."""
    four = ", '.', ".join(f"conv(substr({text}, {at}, 2), 16, 10)" for at in (1, 3, 5, 7))
    six = ", ':', ".join(f"lower(substr({text}, {at}, 4))" for at in range(1, 32, 4))
    return (
        f"case length({text}) when 32 then concat({four}, '@', conv(substr({text}, 9, 4), 16, 10)) "
        f"when 56 then concat({six}, '@', conv(substr({text}, 33, 4), 16, 10)) else {text} end"
    )


def bucket(milliseconds: str) -> str:
    """SQL for :func:`evenq.spark.jobs.audit.measures.bucket_of`."""
    above = f"{EXACT} + cast(floor(ln(({milliseconds}) / {EXACT}D) / ln({WIDTH}D)) as int)"
    return f"case when ({milliseconds}) < {EXACT} then greatest(0, cast({milliseconds} as int)) else {above} end"
