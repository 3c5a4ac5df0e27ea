"""The strategies: the Java client's own answers, its loops as a model, and what must hold for any group."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.balance import Strategy, assign, ring_hash, sorted_members, sorted_queues, strategy
from evenq.balance.rooms import room_of
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from tests.balance.cases import load, member_lists, queue_lists, queues_of

Model = Callable[[int, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

# How the vectors name rooms: brokers are "hz@broker-a" or "hz-broker-a", members "hz@10.0.0.1@42".
IN_ROOMS: dict[str, Callable[[str], str]] = {
    "broker_room": lambda broker: re.split("[@-]", broker)[0],
    "member_room": lambda member: member.partition("@")[0],
}
PARAMS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "MACHINE_ROOM": lambda arg: {"rooms": arg},
    "CONSISTENT_HASH": lambda arg: {"virtual_nodes": arg},
    "MACHINE_ROOM_NEARBY-AVG": lambda arg: IN_ROOMS,
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH": lambda arg: IN_ROOMS,
}


@pytest.mark.parametrize("case", load("allocation"), ids=lambda case: case["strategy"])
def test_java_client_answers(case: dict[str, Any]) -> None:
    name = case["strategy"]
    chosen = strategy(name, **PARAMS.get(name, lambda arg: {})(case.get("arg")))
    queues = [MessageQueue(*queue) for queue in case["queues_unsorted"]]
    expected = {member: [MessageQueue(*queue) for queue in own] for member, own in case["allocation"].items()}

    assert chosen.name == name
    assert assign(chosen, queues, case["members_unsorted"]) == expected
    by_queue, by_member = sorted_queues(queues), sorted_members(case["members_unsorted"])
    for member, own in expected.items():
        assert chosen.allocate("group", member, by_queue, by_member) == own


# The rules once more, member by member and index by index as the Java client has them.


def average(index: int, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    q, m = len(queues), len(members)
    mod = q % m
    size = 1 if q <= m else q // m + (1 if mod > 0 and index < mod else 0)
    start = index * size if mod > 0 and index < mod else index * size + mod
    return [queues[start + n] for n in range(min(size, q - start))]


def circle(index: int, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    return [queues[n] for n in range(index, len(queues)) if n % len(members) == index]


def machine_room(index: int, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    near = [queue for queue in queues if room_of(queue.broker) in ("hz", "sh")]
    size, rest = divmod(len(near), len(members))
    own = [near[n] for n in range(size * index, size * index + size)]
    return own + ([near[index + size * len(members)]] if rest > index else [])


def consistent_hash(index: int, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    ring: dict[int, str] = {}
    for member in members:
        first = sum(owner == member for owner in ring.values())
        for node in range(first, first + 3):
            ring[ring_hash(f"{member}-{node}") % 97] = member

    def owner(queue: MessageQueue) -> str:
        place = ring_hash(str(queue)) % 97
        return ring[min((node for node in ring if node >= place), default=min(ring))]

    return [queue for queue in queues if owner(queue) == members[index]]


def nearby(inner: Model) -> Model:
    def allocate(index: int, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        broker_room, member_room = IN_ROOMS["broker_room"], IN_ROOMS["member_room"]
        room = member_room(members[index])
        mine = [queue for queue in queues if broker_room(queue.broker) == room]
        mates = [member for member in members if member_room(member) == room]
        empty = {broker_room(queue.broker) for queue in queues} - {member_room(member) for member in members}
        shared = [
            inner(index, [queue for queue in queues if broker_room(queue.broker) == other], members)
            for other in sorted(empty, key=lambda name: name.encode("utf-16-be"))
        ]
        own = inner(mates.index(members[index]), mine, mates) if mine else []
        return [*own, *chain.from_iterable(shared)]

    return allocate


# Few places and few nodes, so that they meet on the ring.
CROWDED = strategy("CONSISTENT_HASH", virtual_nodes=3, hash=lambda text: ring_hash(text) % 97)
MODELS: list[tuple[Strategy, Model]] = [
    (strategy("AVG"), average),
    (strategy("AVG_BY_CIRCLE"), circle),
    (strategy("MACHINE_ROOM", rooms={"hz", "sh"}), machine_room),
    (CROWDED, consistent_hash),
    (strategy("MACHINE_ROOM_NEARBY", inner="AVG", **IN_ROOMS), nearby(average)),
    (strategy("MACHINE_ROOM_NEARBY", inner=CROWDED, **IN_ROOMS), nearby(consistent_hash)),
]
each_model = pytest.mark.parametrize(("chosen", "model"), MODELS, ids=[chosen.name for chosen, _ in MODELS])
# Rooms are the part before "@" or "-", and the model of a room that has no name is an error of its own.
roomed_queues = queue_lists.map(lambda queues: [queue for queue in queues if queue.broker[0] not in "@-"]).filter(bool)
# A client with two connections is in the broker's list twice.
with_repeats = member_lists.flatmap(lambda members: st.lists(st.sampled_from(members), min_size=1, max_size=9))


@each_model
@given(queues=roomed_queues, members=st.one_of(member_lists, with_repeats))
def test_whole_group_and_single_member_agree_with_the_model(
    chosen: Strategy, model: Model, queues: list[MessageQueue], members: list[str]
) -> None:
    by_queue, by_member = sorted_queues(queues), sorted_members(members)
    expected = {member: model(by_member.index(member), by_queue, by_member) for member in by_member}
    assert assign(chosen, queues, members) == expected
    assert {member: chosen.allocate("group", member, by_queue, by_member) for member in members} == expected


EVERYTHING = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"]


@pytest.mark.parametrize("name", EVERYTHING)
@given(queues=roomed_queues, members=member_lists, shuffle=st.randoms(use_true_random=False))
def test_each_queue_once_whatever_the_order_of_the_input(
    name: str, queues: list[MessageQueue], members: list[str], shuffle: Any
) -> None:
    chosen = strategy(name, **(IN_ROOMS if "NEARBY" in name else {}))
    shares = assign(chosen, queues, members)
    assert sorted(chain.from_iterable(shares.values())) == sorted(queues)
    assert list(shares) == sorted_members(members)

    shuffle.shuffle(queues)
    shuffle.shuffle(members)
    assert assign(chosen, queues, members) == shares


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
@given(queues=queue_lists, members=member_lists)
def test_even_to_one_queue_the_first_members_have_more(
    name: str, queues: list[MessageQueue], members: list[str]
) -> None:
    sizes = [len(share) for share in assign(name, queues, members).values()]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(queues=queue_lists, members=member_lists)
def test_average_gives_contiguous_runs(queues: list[MessageQueue], members: list[str]) -> None:
    assert list(chain.from_iterable(assign("AVG", queues, members).values())) == sorted_queues(queues)


@given(queues=queue_lists, members=member_lists)
def test_circle_never_gives_neighbours_to_one_member(queues: list[MessageQueue], members: list[str]) -> None:
    place = {queue: position for position, queue in enumerate(sorted_queues(queues))}
    for share in assign("AVG_BY_CIRCLE", queues, members).values():
        assert {place[after] - place[before] for before, after in pairwise(share)} <= {len(members)}


@given(queues=queue_lists, members=member_lists.filter(lambda members: len(members) > 1), data=st.data())
def test_consistent_hash_moves_only_the_queues_of_who_leaves(
    queues: list[MessageQueue], members: list[str], data: st.DataObject
) -> None:
    leaver = data.draw(st.sampled_from(members))
    before = assign("CONSISTENT_HASH", queues, members)
    after = assign("CONSISTENT_HASH", queues, [member for member in members if member != leaver])
    for member, share in after.items():
        assert set(before[member]) <= set(share)


@given(queues=queue_lists, members=member_lists, data=st.data())
def test_consistent_hash_places_a_queue_whatever_other_queues_there_are(
    queues: list[MessageQueue], members: list[str], data: st.DataObject
) -> None:
    some = data.draw(st.lists(st.sampled_from(queues), min_size=1, unique=True))
    whole, part = assign("CONSISTENT_HASH", queues, members), assign("CONSISTENT_HASH", some, members)
    for member in members:
        assert part[member] == [queue for queue in whole[member] if queue in some]


def test_where_nodes_meet_on_the_ring_the_later_member_stands() -> None:
    queues = queues_of("broker-a", each=5)
    shares = assign(strategy("CONSISTENT_HASH", hash=lambda text: 42), queues, ["a", "b", "c"])
    assert shares == {"a": [], "b": [], "c": queues}


def test_a_hash_may_be_negative_as_javas_long_may() -> None:
    def place(text: str) -> int:
        return {"a-0": -5, "b-0": 5}.get(text) or int(text[-2])  # "… queueId=7]" is at 7

    chosen = strategy("CONSISTENT_HASH", virtual_nodes=1, hash=place)
    shares = assign(chosen, queues_of("broker-a", each=9), ["a", "b"])
    assert [queue.queue_id for queue in shares["b"]] == [0, 1, 2, 3, 4, 5]
    assert [queue.queue_id for queue in shares["a"]] == [6, 7, 8]


def test_config_gives_exactly_the_queues_given() -> None:
    fixed = queues_of("broker-z", each=2)[::-1]
    chosen = strategy("CONFIG", queues=iter(fixed))
    assert chosen.allocate("group", "a", queues_of("broker-a"), ["a", "b"]) == fixed
    assert assign(chosen, queues_of("broker-a"), ["a", "b"]) == {"a": fixed, "b": fixed}


STRATEGIES = [
    *(chosen for chosen, _ in MODELS),
    strategy("CONFIG", queues=queues_of("broker-a")),
]
each_strategy = pytest.mark.parametrize("chosen", STRATEGIES, ids=lambda chosen: chosen.name)


@each_strategy
@pytest.mark.parametrize(
    ("member", "queues", "members", "opening", "argument"),
    [
        ("", queues_of("hz@a"), ["hz@1"], "currentCID is empty", "member"),
        ("hz@1", [], ["hz@1"], "mqAll is null or mqAll empty", "queues"),
        ("hz@1", queues_of("hz@a"), [], "cidAll is null or cidAll empty", "members"),
    ],
)
def test_what_has_no_answer_is_an_error_in_javas_words(
    chosen: Strategy, member: str, queues: list[MessageQueue], members: list[str], opening: str, argument: str
) -> None:
    with pytest.raises(ArgumentError, match=f"^{opening}: {argument}=") as raised:
        chosen.allocate("group", member, queues, members)
    assert raised.value.argument == argument


@each_strategy
def test_who_is_not_in_the_group_gets_nothing_and_a_warning(chosen: Strategy, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="evenq.balance"):
        assert chosen.allocate("billing", "hz@me", queues_of("hz@a"), ["hz@1", "hz@2"]) == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "group billing: hz@me is not among the members ['hz@1', 'hz@2'] and gets no queue"


def test_a_ring_without_places_gives_nobody_anything() -> None:
    chosen = strategy("CONSISTENT_HASH", virtual_nodes=0)
    assert assign(chosen, queues_of("a", "b"), ["m1", "m2"]) == {"m1": [], "m2": []}
