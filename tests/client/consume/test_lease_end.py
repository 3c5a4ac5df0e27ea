"""A lock that was not renewed in time counts no more: nothing of its queue is given to anybody."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from evenq.client.group.held import LEASE_VALID_S, Lease
from evenq.client.group.offsets import commit
from evenq.errors import ConnectError
from tests.client.consume.test_buffer import buffer, chunk
from tests.client.consume.test_holding import holding, pulled
from tests.client.group.test_offsets import SlowOffsets


class Now:
    time = 100.0

    def __call__(self) -> float:
        return self.time


def lease(now: Now) -> Lease:
    made = Lease(now)
    made.granted(SimpleNamespace(closed=False), now.time)
    return made


def test_a_push_consumer_is_handed_nothing() -> None:
    now, held = Now(), holding()
    held.lease = lease(now)
    held.add(pulled(0, 1, 2))
    now.time += LEASE_VALID_S
    assert len(held.take(1)) == 1
    now.time += 0.1
    assert held.take(1) == []
    held.lease.granted(SimpleNamespace(closed=False), now.time)
    assert len(held.take(1)) == 1


def test_a_lite_pull_consumer_is_given_nothing() -> None:
    now, held = Now(), buffer()
    held.lease = lease(now)
    held.add(chunk(0, 10))
    now.time += LEASE_VALID_S
    assert held.hand(held.epoch, 5)
    now.time += 0.1
    assert not held.hand(held.epoch, 6)
    assert (held.may_give, held.given) == (False, 5)


def test_nothing_is_committed() -> None:
    now, held = Now(), holding()
    held.lease = lease(now)
    held.add(pulled(0, 1, 2))
    held.finish(held.take(3))
    now.time += LEASE_VALID_S + 0.1
    offsets = SlowOffsets()
    offsets.go_on.set()
    with pytest.raises(ConnectError, match=r"the lock on .* ended"):
        asyncio.run(commit(offsets, held))
    assert offsets.stored == []
