"""How long a pull may wait at a broker whose queue has nothing new."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import cycle

from evenq.client.settings import Timeouts
from tests.client.read.test_following import Growing, follower, turns


def test_at_the_end_of_a_queue_a_pull_waits_as_long_as_the_timeouts_say() -> None:
    async def scenario() -> None:
        broker = Growing(0, cycle([32]))
        async with aclosing(follower(broker).chunks()) as chunks:
            waiting = asyncio.ensure_future(anext(chunks))
            await turns(lambda: bool(broker.waiting))
            [(_, header)] = broker.waiting
            assert header.suspend_timeout_millis == Timeouts().hold * 1000 == 15_000
            broker.grow(1)
            assert (await waiting).stop == 1

    asyncio.run(scenario())
