"""Committing to a broker that loses first offsets when they come at once, as the real one does."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from evenq.client.holding import Holding
from evenq.client.offsets import BrokerOffsets, commit_all
from evenq.client.session import Session
from evenq.client.settings import FlowControl
from evenq.client.starting import StartingPoint
from evenq.errors import ConnectError
from evenq.model import MessageQueue
from tests.client.test_holding import message

QUEUES = [MessageQueue("t", broker, n) for broker in ("a", "b") for n in range(4)]


class Broker:
    """Looks whether there is a table, and only a moment later makes one."""

    def __init__(self, failures: int = 0) -> None:
        self.tables: dict[tuple[str, str], dict[MessageQueue, int]] = {}
        self.failures = failures

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectError(address, "lost")
        place = queue.broker, queue.topic
        table = self.tables.get(place)
        await asyncio.sleep(0)
        if table is None:
            table = self.tables[place] = {}
        table[queue] = offset

    @property
    def stored(self) -> dict[MessageQueue, int]:
        return {queue: offset for table in self.tables.values() for queue, offset in table.items()}


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_no_first_offset_is_lost(failures: int) -> None:
    async def scenario() -> None:
        broker = Broker(failures)
        session = SimpleNamespace(remote=broker, routes=SimpleNamespace(address_of=lambda queue: "b:1"))
        offsets = BrokerOffsets(cast(Session, session), "g", StartingPoint.of("first"))
        holdings = [Holding(queue, 0, FlowControl()) for queue in QUEUES]
        for holding in holdings:
            holding.add([message(0)], 7)
            holding.finish(holding.take(1))
        # what fails is tried again the next time
        for _ in range(failures + 1):
            await commit_all(offsets, holdings)
        assert broker.stored == dict.fromkeys(QUEUES, 7)

    asyncio.run(scenario())
