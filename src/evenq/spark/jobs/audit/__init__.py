"""Is the load balanced, and is everything there? What ``evenq audit`` does.

Nothing is imported here, and PySpark only when the job runs: ``from evenq.spark.jobs.audit.job import audit``.
"""
