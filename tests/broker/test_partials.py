"""Whose incomplete request is read first."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.partials import PartialRequests

LIMIT = 1000


@dataclass(eq=False)
class Sender:
    """A connection whose request has ``needed`` bytes."""

    needed: int
    partial: int = 0
    is_held_back: bool = False

    def hold_back(self, held_back: bool) -> None:
        self.is_held_back = held_back


def send(requests: PartialRequests, sender: Sender, size: int) -> None:
    sender.partial = min(sender.partial + size, sender.needed)
    completed = sender.partial == sender.needed
    if completed:
        sender.partial = 0
    requests.changed(sender, completed=completed)


def test_small_ones_are_never_held_back() -> None:
    requests = PartialRequests(LIMIT)
    large = Sender(2000)
    send(requests, large, 900)
    others = [Sender(100) for _ in range(9)]
    for other in others:
        send(requests, other, 40)
    assert not any(other.is_held_back for other in others)


def test_one_may_finish_however_large_it_is() -> None:
    requests = PartialRequests(LIMIT)
    first, second = Sender(2000), Sender(2000)
    for sender in (first, second):
        send(requests, sender, 600)
    assert (first.is_held_back, second.is_held_back) == (False, True)
    send(requests, first, 1400)
    assert not second.is_held_back


def test_one_that_is_gone_leaves_its_place_to_the_next() -> None:
    requests = PartialRequests(LIMIT)
    senders = [Sender(900) for _ in range(3)]
    for sender in senders:
        send(requests, sender, 600)
    assert [sender.is_held_back for sender in senders] == [False, True, True]
    requests.forget(senders[0])
    assert [sender.is_held_back for sender in senders[1:]] == [False, True]
    requests.forget(senders[2])
    requests.forget(senders[1])
    assert requests.total_bytes == 0


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_all_requests_come_to_their_end_within_the_limit(sizes: list[int], random: st.DrawFn) -> None:
    requests = PartialRequests(LIMIT)
    senders = [Sender(size) for size in sizes]
    left = set(senders)
    while left:
        going = [sender for sender in senders if sender in left and not sender.is_held_back]
        assert going, "some may always send"
        sender = random.choice(going)  # type: ignore[attr-defined]
        send(requests, sender, 100)
        if not sender.partial:
            left.discard(sender)
        assert requests.total_bytes == sum(each.partial for each in senders)
        # each may have sent one more piece before it was held back, and one may finish however large it is
        assert requests.total_bytes <= 2 * LIMIT + 100 * len(senders) + max(sizes)
    assert requests.total_bytes == 0
