"""Committing to a broker that loses first offsets when they come at once, as the real one does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from evenq.client.net.connections import Connections
from evenq.client.net.remote import Remote
from evenq.errors import ConnectError
from evenq.model import MessageQueue
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.headers import QueryOffset, UpdateOffset

QUEUES = [MessageQueue(topic, "b", n) for topic in ("t", "u") for n in range(4)]


class Brokers:
    """Look whether there is a table, and only a moment later make one."""

    def __init__(self, failures: int = 0) -> None:
        self.tables: dict[tuple[str, str, str], dict[int, int]] = {}
        self.failures = failures
        self.under_way = self.most = 0

    def place(self, address: str, asked: UpdateOffset | QueryOffset) -> tuple[str, str, str]:
        return address, asked.consumer_group, asked.topic

    async def request(self, address: str, command: Command, timeout: float) -> Command:
        if self.failures:
            self.failures -= 1
            raise ConnectError(address, "lost")
        asked = (UpdateOffset if command.code == RequestCode.UPDATE_CONSUMER_OFFSET else QueryOffset).from_ext(
            command.ext
        )
        place = self.place(address, asked)
        if isinstance(asked, QueryOffset):
            await asyncio.sleep(0)
            found = self.tables.get(place, {}).get(asked.queue_id)
            return Command(ResponseCode.QUERY_NOT_FOUND) if found is None else Command(0, ext={"offset": str(found)})
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        table = self.tables.get(place)
        await asyncio.sleep(0)
        if table is None:
            table = self.tables[place] = {}
        table[asked.queue_id] = asked.commit_offset
        self.under_way -= 1
        return Command(0)


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_no_first_offset_is_lost(failures: int) -> None:
    wanted = [(address, group, queue) for address in ("a:1", "b:1") for group in ("g", "h") for queue in QUEUES]

    async def scenario() -> None:
        brokers = Brokers(failures)
        remote = Remote(cast(Connections, brokers))
        # what fails is tried again the next time
        for offset in range(failures + 1):
            calls = (remote.commit(*place, offset) for place in wanted)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert not any(outcomes)
        every = dict.fromkeys(range(4), failures)
        assert brokers.tables == {(address, group, queue.topic): every for address, group, queue in wanted}
        assert brokers.most > 1, "only the first of each waits for nobody"

    asyncio.run(scenario())


def test_a_first_offset_that_another_client_has_pushed_out_is_stored_again() -> None:
    async def scenario() -> None:
        brokers = Brokers()
        ours, theirs = Remote(cast(Connections, brokers)), Remote(cast(Connections, brokers))
        await asyncio.gather(*(remote.commit("a:1", "g", QUEUES[n], 7) for n, remote in enumerate((ours, theirs))))
        assert brokers.tables == {("a:1", "g", "t"): {0: 7, 1: 7}}

    asyncio.run(scenario())


def test_no_first_offset_of_any_broker_behind_a_proxy_is_lost() -> None:
    class Proxied(Brokers):
        def place(self, address: str, asked: UpdateOffset | QueryOffset) -> tuple[str, str, str]:
            return asked.broker_name or "", asked.consumer_group, asked.topic

    async def scenario() -> None:
        brokers = Proxied()
        remote = Remote(cast(Connections, brokers))
        queues = [MessageQueue("t", broker, n) for broker in ("a", "b") for n in range(4)]
        # the broker that comes first must not count for the other one
        await remote.commit("proxy:1", "g", queues[0], 7)
        await asyncio.gather(*(remote.commit("proxy:1", "g", queue, 7) for queue in queues))
        assert brokers.tables == {(broker, "g", "t"): dict.fromkeys(range(4), 7) for broker in ("a", "b")}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "ask",
    [
        lambda remote: remote.stored_offset("p:1", "g", QUEUES[0]),
        lambda remote: remote.commit("p:1", "g", QUEUES[0], 7),
        lambda remote: remote.max_offset("p:1", QUEUES[0]),
        lambda remote: remote.min_offset("p:1", QUEUES[0]),
        lambda remote: remote.offset_at("p:1", QUEUES[0], 7),
    ],
    ids=["stored", "commit", "max", "min", "at a time"],
)
def test_a_question_about_a_queue_names_its_broker(ask: Callable[[Remote], Awaitable[object]]) -> None:
    named: set[str | None] = set()

    class Proxy:
        async def request(self, address: str, command: Command, timeout: float) -> Command:
            named.add(command.ext.get("bname"))
            return Command(0, ext={"offset": "7"})

    async def scenario() -> None:
        await ask(Remote(cast(Connections, Proxy())))

    asyncio.run(scenario())
    assert named == {"b"}
