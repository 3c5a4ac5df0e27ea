"""Strategies by name, and the mistakes one can make with names and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from evenq.balance import STRATEGIES, as_strategy, assign, strategy
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from tests.balance.cases import queues_of


def room(name: str) -> str:
    return name.partition("@")[0]


@pytest.mark.parametrize(
    ("name", "params", "reported"),
    [
        ("AVG", {}, "AVG"),
        ("AVG_BY_CIRCLE", {}, "AVG_BY_CIRCLE"),
        ("CONFIG", {"queues": queues_of("a")}, "CONFIG"),
        ("MACHINE_ROOM", {"rooms": {"hz"}}, "MACHINE_ROOM"),
        ("CONSISTENT_HASH", {}, "CONSISTENT_HASH"),
        ("MACHINE_ROOM_NEARBY", {"inner": "AVG"}, "MACHINE_ROOM_NEARBY-AVG"),
        ("MACHINE_ROOM_NEARBY-CONSISTENT_HASH", {}, "MACHINE_ROOM_NEARBY-CONSISTENT_HASH"),
    ],
)
def test_every_strategy_has_its_exact_name(name: str, params: dict[str, Any], reported: str) -> None:
    rooms = {"broker_room": room, "member_room": room} if "NEARBY" in name else {}
    assert strategy(name, **params, **rooms).name == reported


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("avg", "AVG"), ("AVG_CIRCLE", "AVG_BY_CIRCLE"), ("consistent-hash", "CONSISTENT_HASH"), ("zzz", None)],
)
def test_an_unknown_name_is_answered_with_the_choices(name: str, nearest: str | None) -> None:
    with pytest.raises(ArgumentError) as raised:
        strategy(name)
    assert str(raised.value).startswith(f"strategy='{name}': ")
    assert f"The strategies are {', '.join(STRATEGIES)}" in raised.value.remedy
    assert ("did you mean" in raised.value.remedy) is (nearest is not None)
    assert nearest is None or f"did you mean {nearest}?" in raised.value.remedy


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [
        ("AVG", {"virtual_nodes": 3}, "virtual_nodes=3: AVG takes no parameters"),
        ("CONSISTENT_HASH", {"nodes": 3}, "nodes=3: CONSISTENT_HASH takes virtual_nodes, hash"),
        ("MACHINE_ROOM", {}, "rooms=None: MACHINE_ROOM takes rooms; give rooms"),
        ("MACHINE_ROOM_NEARBY-AVG", {"broker_room": room}, "member_room=None: .*; give member_room"),
        ("MACHINE_ROOM_NEARBY-AVGG", {"broker_room": room, "member_room": room}, "strategy='AVGG': did you mean AVG"),
        ("CONSISTENT_HASH", {"virtual_nodes": -1}, "virtual_nodes=-1: give 0 or more"),
        ("CONFIG", {"queues": ["orders"]}, "queues='orders': give MessageQueue"),
    ],
)
def test_wrong_parameters_are_named(name: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{text}"):
        strategy(name, **params)


def reversed_average(
    group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    assert group == "billing"
    return strategy("AVG").allocate(group, member, queues, members)[::-1]


def test_a_function_is_a_strategy() -> None:
    chosen = as_strategy(reversed_average)
    assert chosen.name == "reversed_average"
    queues = queues_of("a", each=3)
    assert assign(reversed_average, queues, ["m2", "m1"], group="billing") == {
        "m1": [queues[1], queues[0]],
        "m2": [queues[2]],
    }
    with pytest.raises(ArgumentError, match=r"^currentCID is empty"):
        chosen.allocate("billing", "", queues, ["m1"])


def test_a_strategy_is_itself() -> None:
    chosen = strategy("AVG")
    assert as_strategy(chosen) is chosen
    assert as_strategy("AVG") == chosen


def test_anything_else_is_not_a_strategy() -> None:
    with pytest.raises(ArgumentError, match="strategy=42: give a strategy, its name, or a function"):
        as_strategy(42)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queues", "members", "opening"),
    [
        ([], ["m"], "mqAll is null"),
        (queues_of("a"), [], "cidAll is null"),
        (queues_of("a"), ["m", ""], "currentCID is empty"),
    ],
)
def test_assign_checks_what_allocate_checks(queues: list[MessageQueue], members: list[str], opening: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{opening}"):
        assign("AVG", queues, members)
