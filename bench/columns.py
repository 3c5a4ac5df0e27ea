"""How fast pulled messages are read: as objects, and as Arrow columns without and with their properties.

``python -m bench.columns [messages a pull, default 32]``. Bodies of 100 bytes with the properties that
the Java producer gives; processor time, so that a busy machine does not count; the best of several rounds. Each
decoder gets the same bodies, as pulls bring them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from evenq.protocol import decode_messages, encode_record
from evenq.protocol.columns import decode_many
from evenq.protocol.records import split_records

MESSAGES = 32_000
ROUNDS = 7

# what a decoder must reach, in messages a second
GOALS = {"columns": 1_000_000, "columns with properties": 400_000}


def pulls(per_pull: int) -> list[bytes]:
    """Bodies of pulls, ``MESSAGES`` messages in all."""
    records = [_record(offset) for offset in range(MESSAGES)]
    return [b"".join(records[at : at + per_pull]) for at in range(0, MESSAGES, per_pull)]


def _record(offset: int) -> bytes:
    properties = {
        "UNIQ_KEY": f"7F00000112670000CAFE47B7{offset:08X}",
        "KEYS": f"order-{offset}",
        "TAGS": "paid",
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
    }
    return encode_record(
        topic="orders",
        body=b"x" * 100,
        queue_id=offset % 8,
        queue_offset=offset,
        commit_log_offset=offset * 300,
        born_timestamp=1_700_000_000_000 + offset,
        born_host="10.0.0.1:50000",
        store_timestamp=1_700_000_000_001 + offset,
        store_host="10.0.0.2:10911",
        properties="".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
    )


def rate(decode: Callable[[], object]) -> float:
    """Messages a second, in the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        decode()
        best = min(best, time.process_time() - start)
    return MESSAGES / best


def measure(per_pull: int) -> dict[str, float]:
    bodies = pulls(per_pull)
    brokers = ["broker-a"] * len(bodies)
    return {
        "objects": rate(lambda: [decode_messages(body, broker="broker-a") for body in bodies]),
        "columns": rate(lambda: decode_many(bodies, brokers=brokers)),
        "columns with properties": rate(lambda: decode_many(bodies, brokers=brokers, include_properties=True)),
        "boundaries only": rate(lambda: [split_records(body) for body in bodies]),
    }


def main() -> None:
    per_pull = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    rates = measure(per_pull)
    table = Table(title=f"Reading {MESSAGES:,} messages of 100 bytes, {per_pull} a pull")
    table.add_column("decoder")
    for heading in ("messages/s", "of objects", "goal"):
        table.add_column(heading, justify="right")
    for name, found in rates.items():
        goal = GOALS.get(name)
        table.add_row(name, f"{found:,.0f}", f"{found / rates['objects']:.1f} ×", f"{goal:,}" if goal else "")
    Console().print(table)


if __name__ == "__main__":
    main()
