"""The topic of the demo: made, read back whole, and one broker's connections cut."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import evenq
from evenq.cli.demo.verdict import Place, Stored
from evenq.errors import StateError
from evenq.testing import EmbeddedCluster

__all__ = ["create", "cut", "read", "save"]

PATIENCE = 30.0


def create(namesrv: str, topic: str, queues: int) -> None:
    """On every broker, so many queues each."""
    with evenq.Admin(namesrv) as admin:
        admin.create_topic(topic, queues=queues)


def cut(cluster: EmbeddedCluster, broker: str) -> int:
    """Break every connection of a broker off, without a goodbye; gives how many there were."""

    def break_off() -> int:
        connections = list(cluster.brokers[broker].server.connections)
        for connection in connections:
            connection.close()
        return len(connections)

    return cluster.call(break_off)


def read(namesrv: str, topic: str) -> pa.Table:
    """Everything that the topic holds, queue by queue, read by nobody's member."""
    with evenq.Admin(namesrv) as admin:
        status = admin.topic_status(topic)
    expected = status.messages
    batches: list[pa.RecordBatch] = []
    with evenq.LitePullConsumer(namesrv, "demo-count", begin="first") as consumer:
        consumer.assign([part.queue for part in status.queues])
        deadline = time.monotonic() + PATIENCE
        while (found := sum(batch.num_rows for batch in batches)) < expected:
            if time.monotonic() > deadline:
                raise StateError(
                    f"only {found} of {expected} messages of {topic} could be read within {PATIENCE:.0f} s"
                )
            batches.append(consumer.poll_arrow(timeout=0.5))
    return pa.Table.from_batches([batch for batch in batches if batch.num_rows])


def save(table: pa.Table, path: Path) -> list[Stored]:
    """Keep it as Parquet; gives what it says."""
    pq.write_table(table, path)
    rows = table.select(["keys", "broker", "queue_id", "offset"]).to_pylist()
    return [Stored(row["keys"], Place(row["broker"], row["queue_id"], row["offset"])) for row in rows]
