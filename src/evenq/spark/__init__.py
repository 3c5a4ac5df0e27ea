"""The Spark data source ``rocketmq``. Options and planning are pure and need no Spark."""
