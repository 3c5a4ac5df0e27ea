"""What an audit found, as Parquet tables and as JSON. Pure: values in, bytes out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from enum import Enum
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evenq.spark.jobs.audit.findings import (
    Audit,
    BrokerLoad,
    Consumer,
    Copy,
    Finding,
    Gap,
    Holding,
    LagPoint,
    LagSample,
    Late,
    Move,
    QueueLoad,
    Slot,
    Spread,
)
from evenq.spark.jobs.audit.judging import verdict
from evenq.spark.jobs.audit.measures import Percentiles, Skew

__all__ = ["TIMES", "as_json", "tables"]

# Columns that hold milliseconds since 1970: times, in a table.
TIMES = frozenset({"at", "stored", "born", "behind"})

_TYPES = {"int": pa.int64(), "str": pa.string(), "str | None": pa.string(), "float": pa.float64(), "Kind": pa.string()}


def tables(audit: Audit) -> dict[str, bytes]:
    """Each table by its name, as a Parquet file. All are there, also those that are empty."""
    topics, groups = audit.topics, audit.groups
    plain: dict[str, tuple[type, Iterable[Any]]] = {
        "findings": (Finding, audit.findings),
        "queues": (QueueLoad, (one for topic in topics for one in topic.queues)),
        "brokers": (BrokerLoad, (one for topic in topics for one in topic.brokers)),
        "traffic": (Slot, (one for topic in topics for one in topic.slots)),
        "duplicates": (Copy, (one for topic in topics for one in topic.copies)),
        "late": (Late, (one for topic in topics for one in topic.late)),
        "spread": (Spread, (one for topic in topics for one in topic.spread)),
        "gaps": (Gap, (one for topic in topics for one in topic.gaps)),
        "lag": (LagSample, (one for group in groups for one in group.samples)),
        "waiting": (LagPoint, (one for group in groups for one in group.lag)),
        "consumers": (Consumer, (one for group in groups for one in group.consumers)),
        "holdings": (Holding, (one for group in groups for one in group.holdings)),
        "moves": (Move, (one for group in groups for one in group.moves)),
    }
    found = {name: _parquet(_table(kind, list(rows))) for name, (kind, rows) in plain.items()}
    return found | {
        "keys": _parquet(_keys(audit)),
        "skew": _parquet(_measures(Skew, {"topic": pa.string(), "of": pa.string()}, _skews(audit))),
        "latency": _parquet(_measures(Percentiles, {"of": pa.string(), "stage": pa.string()}, _latencies(audit))),
    }


def _table(kind: type, rows: Sequence[Any]) -> pa.Table:
    columns = {
        field.name: pa.array(
            [_plain(getattr(row, field.name)) for row in rows],
            pa.timestamp("ms", "UTC") if field.name in TIMES else _TYPES[str(field.type)],
        )
        for field in fields(kind)
    }
    return pa.table(columns)


def _keys(audit: Audit) -> pa.Table:
    keys = [key for topic in audit.topics for key in topic.keys]
    return pa.table(
        {
            "topic": pa.array([key.topic for key in keys], pa.string()),
            "key": pa.array([key.key for key in keys], pa.string()),
            "messages": pa.array([key.messages for key in keys], pa.int64()),
            "bytes": pa.array([key.bytes for key in keys], pa.int64()),
            "queues": pa.array([list(key.queues) for key in keys], pa.map_(pa.string(), pa.int64())),
            "hot": pa.array([key.hot for key in keys], pa.bool_()),
        }
    )


def _skews(audit: Audit) -> list[tuple[str, str, Skew]]:
    return [
        (topic.topic, name, found)
        for topic in audit.topics
        for name, found in (("queues", topic.queue_skew), ("brokers", topic.broker_skew), ("keys", topic.key_skew))
    ]


def _latencies(audit: Audit) -> list[tuple[str, str, Percentiles]]:
    found = [(topic.topic, "born to stored", topic.stored_after) for topic in audit.topics]
    for group in audit.groups:
        found += [
            (group.group, "stored to consumed", group.consumed_after),
            (group.group, "born to consumed", group.whole_way),
            (group.group, "handling", group.handling),
        ]
    return [(name, stage, taken) for name, stage, taken in found if taken is not None]


def _measures(kind: type, names: dict[str, pa.DataType], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = {name: pa.array([row[at] for row in rows], form) for at, (name, form) in enumerate(names.items())}
    for field in fields(kind):
        columns[field.name] = pa.array([getattr(row[-1], field.name) for row in rows], _TYPES[str(field.type)])
    return pa.table(columns)


def _parquet(table: pa.Table) -> bytes:
    sink = BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def as_json(audit: Audit) -> dict[str, Any]:
    """The audit for programs: all but what is long and only of use in tables."""
    return {
        "verdict": verdict(audit.topics),
        "clean": audit.clean,
        "at": audit.at,
        "messages": audit.messages,
        "findings": [_dict(finding) for finding in audit.findings],
        "topics": [
            {
                "topic": topic.topic,
                "messages": topic.messages,
                "bytes": topic.bytes,
                "order": topic.order.value,
                "skew": {name: _dict(found) for _, name, found in _skews(audit) if _ == topic.topic},
                "missing": topic.missing,
                "duplicates": topic.copies_count,
                "late": topic.late_count,
                "spread": topic.spread_count,
                "hot_keys": [{"key": key.key, "messages": key.messages} for key in topic.keys if key.hot],
                "born_to_stored": _dict(topic.stored_after),
                "queues": [_dict(queue) for queue in topic.queues],
            }
            for topic in audit.topics
        ],
        "groups": [
            {
                "group": group.group,
                "lag": group.behind,
                "consumers": [_dict(consumer) for consumer in group.consumers],
                "moves": group.moves_count,
                "again": group.again,
                "stored_to_consumed": _dict(group.consumed_after),
                "born_to_consumed": _dict(group.whole_way),
            }
            for group in audit.groups
        ],
        "report": audit.report,
    }


def _dict(value: Any) -> Any:
    return None if value is None else {name: _plain(each) for name, each in asdict(value).items()}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
