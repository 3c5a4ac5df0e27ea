"""Selectors: the Java client's own answers, rooms with a way out, and any function."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from evenq.balance import HashSelector, Long, MachineRoomSelector, RandomSelector, Selector, as_selector
from evenq.errors import ArgumentError
from evenq.model import Message, MessageQueue
from tests.balance.cases import StartAt, load, queues_of

MESSAGE = Message("orders", b"paid")


@pytest.mark.parametrize("case", load("hash_selector"), ids=lambda case: f"{case['type']}-{case['arg']}"[:40])
def test_java_client_answers(case: dict[str, Any]) -> None:
    arg = Long(case["arg"]) if case["type"] == "Long" else case["arg"]
    queues = queues_of("a", each=case["queues"])
    assert HashSelector().select(queues, MESSAGE, arg).queue_id == case["queue"]


def test_the_hash_whose_absolute_value_java_has_not() -> None:
    queues = queues_of("a", each=7)
    assert HashSelector().select(queues, MESSAGE, "polygenelubricants").queue_id == 2**31 % 7
    assert HashSelector().select(queues, MESSAGE, -(2**31)).queue_id == 2**31 % 7


def test_random_reaches_every_queue_and_repeats_with_its_seed() -> None:
    queues = queues_of("a", "b", each=4)
    taken = [RandomSelector(Random(3)).select(queues, MESSAGE, None) for _ in range(2)]
    assert taken[0] == taken[1]
    selector = RandomSelector(Random(3))
    assert {selector.select(queues, MESSAGE, None) for _ in range(200)} == set(queues)


def test_machine_room_goes_round_the_queues_of_its_rooms() -> None:
    queues = queues_of("hz@a", "sh@a", "hz-b", "bj@a", each=2)
    selector = MachineRoomSelector({"hz", "bj"}, StartAt(0))
    near = queues_of("hz@a", "bj@a", each=2)
    assert [selector.select(queues, MESSAGE, None) for _ in range(8)] == near * 2


def test_machine_room_falls_back_to_all_queues() -> None:
    queues = queues_of("hz@a", "b", each=2)
    selector = MachineRoomSelector(["bj"], StartAt(0))
    assert Tally(selector.select(queues, MESSAGE, None) for _ in range(8)) == dict.fromkeys(queues, 2)


def test_any_function_is_a_selector() -> None:
    def by_size(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        assert arg == "arg"
        return queues[len(message.body) % len(queues)]

    assert as_selector(by_size).select(queues_of("a", each=3), MESSAGE, "arg").queue_id == 1


def test_a_selector_is_itself() -> None:
    selector = HashSelector()
    assert as_selector(selector) is selector


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="selector=42: give a selector"):
        as_selector(42)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="selector=None: the function must return"):
        as_selector(lambda queues, message, arg: None).select(queues_of("a"), MESSAGE, None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ArgumentError, match="rooms='hz': give a set"):
        MachineRoomSelector("hz")


@pytest.mark.parametrize(
    "selector",
    [RandomSelector(), HashSelector(), MachineRoomSelector({"hz"}), as_selector(lambda queues, *_: queues[0])],
    ids=lambda selector: type(selector).__name__,
)
def test_no_queues_is_an_error(selector: Selector) -> None:
    with pytest.raises(ArgumentError, match=r"queues=\[\]: give at least one queue"):
        selector.select([], MESSAGE, "key")
