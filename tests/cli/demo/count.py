"""A count of what a demo left that shares nothing with its verdict: files are read again, and numbers compared."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

__all__ = ["Count", "count"]


@dataclass(frozen=True)
class Count:
    """``consumed``: how often each place of the topic was consumed, by members and by the query."""

    sent: set[str]
    stored: Counter[str]
    places: set[tuple[str, int, int]]
    consumed: Counter[tuple[str, int, int]]
    by: dict[str, Counter[tuple[str, int, int]]]


def count(out: Path) -> Count:
    sent = [json.loads(line) for line in (out / "sent.jsonl").read_text().splitlines()]
    topic = pq.ParquetFile(out / "topic.parquet").read(["keys", "broker", "queue_id", "offset"]).to_pydict()
    by: dict[str, Counter[tuple[str, int, int]]] = {}
    for notes in (out / "members").glob("*.txt"):
        lines = [line.split() for line in notes.read_text().splitlines()]
        by[notes.stem] = Counter((broker, int(queue), int(offset)) for _, broker, queue, offset in lines)
    for file in (out / "orders.parquet").glob("*.parquet"):
        rows = pq.ParquetFile(file).read(["broker", "queue_id", "offset"]).to_pydict()
        places = zip(rows["broker"], rows["queue_id"], rows["offset"], strict=True)
        by.setdefault("Spark", Counter()).update(places)
    consumed: Counter[tuple[str, int, int]] = Counter()
    for one in by.values():
        consumed += one
    return Count(
        sent={line["key"] for line in sent if "error" not in line},
        stored=Counter(topic["keys"]),
        places=set(zip(topic["broker"], topic["queue_id"], topic["offset"], strict=True)),
        consumed=consumed,
        by=by,
    )
