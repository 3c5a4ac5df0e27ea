"""What people run over their topics, each a short Spark program on the data source and a command of the same name.

Nothing is imported here, and PySpark only when a job runs: ``from evenq.spark.jobs.ingest import ingest``.
"""
