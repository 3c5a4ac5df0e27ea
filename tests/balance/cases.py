"""Cases for the tests of balancing: what the Java client answered, and groups made up at random."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from evenq.model import MessageQueue

VECTORS = Path(__file__).parent.parent / "vectors"


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


def queues_of(*brokers: str, each: int = 1, topic: str = "orders") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker in brokers for number in range(each)]


class StartAt(Random):
    """A source of randomness whose counters start at a known value; ties are broken by name."""

    def __init__(self, start: int = 0) -> None:
        super().__init__(0)
        self._start = start

    def randrange(self, *_: Any, **__: Any) -> int:
        return self._start

    def random(self) -> float:
        return 0.5


# Names on both sides of the place where Java's order and Python's differ.
names = st.text(st.sampled_from("ab@-7é\ue000\uffee\U0001f680\U0010ffff"), min_size=1, max_size=6)
rooms = st.sampled_from(["hz", "sh", "bj", "\uffee", "\U0001f680"])
brokers = st.one_of(names, st.builds("{}@{}".format, rooms, names))
queues = st.builds(MessageQueue, st.sampled_from(["orders", "refunds"]), brokers, st.integers(0, 20))
queue_lists = st.lists(queues, min_size=1, max_size=40, unique=True)
member_lists = st.lists(st.builds("{}@{}".format, rooms, names), min_size=1, max_size=9, unique=True)
