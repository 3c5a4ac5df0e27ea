"""Spark finds format("rocketmq") here."""
