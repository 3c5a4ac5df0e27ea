"""How fast topics are audited, next to how fast the source reads them into nothing, in the same run.

``python -m bench.audit [messages, default 5,000,000] [kinds, default both]``. Bodies of 100 bytes in 8 queues of one
embedded broker, ``local[2]``, the best of two rounds by the clock after one to warm up. ``once``: each message has a
key of its own, the hardest for counting. ``ordered``: 10,000 keys in each queue, whose order is checked. Exits with 1
where the goal is missed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import evenq
from bench.filling import fill
from bench.spark import CORES, QUEUES, noop, seconds, session
from evenq.spark.jobs.audit.findings import Audit, Order
from evenq.spark.jobs.audit.job import audit
from tests.clusters import create_topic

# the audit's rate over that of the source
GOAL = 0.4
KINDS = {"once": None, "ordered": 10_000}
ROUNDS = 2


def audited(spark: SparkSession, namesrv: str, topic: str) -> Audit:
    with tempfile.TemporaryDirectory() as folder:
        return audit(spark, [topic], folder, namesrv=namesrv, trace=False)


def timed(work: Callable[[], Audit]) -> tuple[float, Audit]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    kinds = sys.argv[2:] or list(KINDS)
    spark = session([])
    spark.conf.set("spark.sql.shuffle.partitions", str(CORES))
    table = Table("topic", "source into noop", "audit", "ratio", title=f"{messages:,} messages, rows a second")
    ratios = []
    with evenq.testing.cluster(brokers=1) as cluster:
        for kind in kinds:
            create_topic(cluster.namesrv, kind, queues=QUEUES)
            fill(cluster.namesrv, kind, messages, keys_of_queue=KINDS[kind])
            given = {"namesrv": cluster.namesrv, "subscribe": kind}
            source = seconds(lambda given=given: noop(spark.read.format("rocketmq").options(**given).load()), ROUNDS)  # type: ignore[misc]
            rounds = [timed(lambda kind=kind: audited(spark, cluster.namesrv, kind)) for _ in range(ROUNDS + 1)]  # type: ignore[misc]
            for _, found in rounds:
                assert (found.messages, found.clean) == (messages, True), found.findings
                assert (found.topics[0].order is Order.KEYED) == (kind == "ordered")
            took = min(taken for taken, _ in rounds)
            ratios.append(source / took)
            table.add_row(kind, f"{messages / source:,.0f}", f"{messages / took:,.0f}", f"{source / took:.2f}")
    spark.stop()
    Console().print(table)
    sys.exit(min(ratios) < GOAL)


if __name__ == "__main__":
    main()
