"""Java's order of queues and members: what every member sorts by before it divides."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from evenq.model import MessageQueue, java_order

__all__ = ["sorted_members", "sorted_queues"]

_sort_key = attrgetter("sort_key")


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """The queues by topic, broker and queue id; the names by UTF-16 unit."""
    return sorted(queues, key=_sort_key)


def sorted_members(members: Iterable[str]) -> list[str]:
    """The member ids by UTF-16 unit."""
    return sorted(members, key=java_order)
