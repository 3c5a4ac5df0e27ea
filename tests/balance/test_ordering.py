"""Java's order, against a comparison of UTF-16 units written out."""

from __future__ import annotations

from hypothesis import given

from evenq.balance import sorted_members, sorted_queues
from evenq.model import MessageQueue
from tests.balance.cases import member_lists, queue_lists


def units(text: str) -> bytes:
    return text.encode("utf-16-be")


@given(member_lists)
def test_members(members: list[str]) -> None:
    assert sorted_members(members) == sorted(members, key=units)


@given(queue_lists)
def test_queues(queues: list[MessageQueue]) -> None:
    expected = sorted(queues, key=lambda queue: (units(queue.topic), units(queue.broker), queue.queue_id))
    assert sorted_queues(queues) == expected
