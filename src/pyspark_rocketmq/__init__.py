"""Spark looks for packages that are named ``pyspark_…`` and registers the DefaultSource of each: here is ours."""

from evenq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
