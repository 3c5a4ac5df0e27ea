"""Machine rooms: how a broker's name tells its room, and what happens where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from evenq.balance import assign, strategy
from evenq.balance.rooms import room_of
from evenq.errors import ArgumentError
from tests.balance.cases import queues_of


@pytest.mark.parametrize(
    ("broker", "room"),
    [
        ("hz@broker-a", "hz"),
        ("broker-a", None),
        ("hz@rack@broker-a", None),
        # Java's split forgets empty parts at the end, and only there.
        ("hz@", None),
        ("hz@broker-a@@", "hz"),
        ("@broker-a", ""),
        ("@@", None),
        ("", None),
    ],
)
def test_room_of_a_broker(broker: str, room: str | None) -> None:
    assert room_of(broker) == room


def test_machine_room_counts_only_queues_of_its_rooms() -> None:
    near, far = queues_of("hz@a", each=5), queues_of("sh@a", "hz-b", each=3)
    shares = assign(strategy("MACHINE_ROOM", rooms={"hz"}), near + far, ["m1", "m2"])
    assert shares == {"m1": [near[0], near[1], near[4]], "m2": [near[2], near[3]]}
    assert assign(strategy("MACHINE_ROOM", rooms={"bj"}), near + far, ["m1", "m2"]) == {"m1": [], "m2": []}


@pytest.mark.parametrize(("rooms", "remedy"), [("hz", r"e\.g\. \{'hz'\}"), ((), "at least one room")])
def test_rooms_must_be_some_names(rooms: Any, remedy: str) -> None:
    with pytest.raises(ArgumentError, match=remedy):
        strategy("MACHINE_ROOM", rooms=rooms)


ROOMS = {"a": "hz", "b": "", "m1": "hz", "m2": None}
NEARBY = strategy("MACHINE_ROOM_NEARBY", inner="AVG", broker_room=ROOMS.get, member_room=ROOMS.get)


def test_a_queue_without_a_room_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"broker_room=''.*MessageQueue \[topic=orders, brokerName=b, queueId=0\]"):
        NEARBY.allocate("group", "m1", queues_of("a", "b"), ["m1"])


def test_a_room_may_depend_on_the_whole_queue() -> None:
    rooms = {"m1": "even", "m2": "odd"}
    chosen = strategy(
        "MACHINE_ROOM_NEARBY",
        inner="AVG",
        queue_room=lambda queue: "odd" if queue.queue_id % 2 else "even",
        member_room=rooms.get,
    )
    shares = assign(chosen, queues_of("a", each=5), ["m1", "m2"])
    assert {member: [queue.queue_id for queue in share] for member, share in shares.items()} == {
        "m1": [0, 2, 4],
        "m2": [1, 3],
    }
    nameless = strategy("MACHINE_ROOM_NEARBY", inner="AVG", queue_room=lambda queue: "", member_room=rooms.get)
    with pytest.raises(ArgumentError, match=r"queue_room=''.*brokerName=a, queueId=0\]"):
        assign(nameless, queues_of("a"), ["m1"])


@pytest.mark.parametrize("given", [{}, {"queue_room": str, "broker_room": str}])
def test_a_room_of_queues_is_given_in_one_way(given: Any) -> None:
    with pytest.raises(ArgumentError, match="takes one of queue_room and broker_room"):
        strategy("MACHINE_ROOM_NEARBY", inner="AVG", member_room=str, **given)


def test_a_member_without_a_room_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"member_room=None.*m2"):
        NEARBY.allocate("group", "m1", queues_of("a"), ["m1", "m2"])


def test_the_inner_strategy_may_be_a_function() -> None:
    def last_takes_all(group: str, member: str, queues: Any, members: Any) -> Any:
        return queues if member == members[-1] else []

    room = {"a": "hz", "b": "sh", "c": "bj", "m1": "hz", "m2": "hz", "m3": "sh"}.__getitem__
    chosen = strategy("MACHINE_ROOM_NEARBY", inner=last_takes_all, broker_room=room, member_room=room)
    assert chosen.name == "MACHINE_ROOM_NEARBY-last_takes_all"
    shares = assign(chosen, queues_of("a", "b", "c"), ["m1", "m2", "m3"])
    assert shares == {"m1": [], "m2": queues_of("a"), "m3": queues_of("b", "c")}
