"""Clients whose name server and broker answer nonsense now and then: they say so, and go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import random
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

from evenq import Message
from evenq.aio import Admin, LitePullConsumer, Producer, PushConsumer
from evenq.errors import RemoteError
from evenq.protocol import Command, FrameParser
from evenq.protocol.bodies import BrokerData, QueueData, TopicRoute
from evenq.protocol.flags import SysFlag
from evenq.protocol.records import encode_record
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import create_topic
from tests.harness.scale import scaled

pytestmark = pytest.mark.live

SECONDS = scaled(6, 60)
TOPIC = "orders"

Damage = Callable[[random.Random, Command], bytes]


def noise(chance: random.Random, answer: Command) -> bytes:
    """Some bytes behind the length are others."""
    frame = bytearray(answer.encode())
    for _ in range(chance.randrange(1, 6)):
        frame[chance.randrange(4, len(frame))] = chance.randrange(256)
    return bytes(frame)


def cut_body(chance: random.Random, answer: Command) -> bytes:
    answer.body = answer.body[: chance.randrange(len(answer.body) + 1)]
    return answer.encode()


def other_body(chance: random.Random, answer: Command) -> bytes:
    many = TopicRoute(
        broker_datas=[BrokerData(broker_name="broker-a", broker_addrs={0: "127.0.0.1:1"})],
        queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=2**31 - 1, write_queue_nums=2**31 - 1, perm=6)],
    )
    bomb = encode_record(
        topic=TOPIC, body=zlib.compress(bytes(1 << 20)), queue_id=0, queue_offset=0, commit_log_offset=0,
        born_timestamp=1, born_host="127.0.0.1:1", store_timestamp=2, store_host="127.0.0.1:2", properties="",
        sys_flag=int(SysFlag.COMPRESSED),
    )  # fmt: skip
    answer.body = chance.choice(
        [b"", b"{}", b"[]", b"null", b"[" * 50_000, b'{"a":' * 50_000, b"x" * 100, many.encode(), bomb * 20]
    )
    return answer.encode()


def other_fields(chance: random.Random, answer: Command) -> bytes:
    nonsense = ["", "-1", "x", "9" * 5000, str(2**63), str(-(2**63)), "2147483648", "\x00"]
    answer.ext = {name: chance.choice([value, chance.choice(nonsense)]) for name, value in answer.ext.items()}
    answer.ext.pop(chance.choice([*answer.ext, ""]), None)
    return answer.encode("JSON")


def other_code(chance: random.Random, answer: Command) -> bytes:
    answer.code = chance.choice([0, 1, 2, 11, 17, 19, 20, 21, 22, 32_000])
    return answer.encode()


DAMAGES: list[Damage] = [noise, cut_body, other_body, other_fields, other_code]


class Proxy:
    """Passes on everything between clients and one server. While ``hostile`` some answers are damaged on the way."""

    def __init__(self, target: str, chance: random.Random, rewrite: Callable[[bytes], bytes] = bytes) -> None:
        self._target, self._chance, self._rewrite = target, chance, rewrite
        self.hostile = False
        self.damaged: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._serving.add(asyncio.create_task(self._serve(reader, writer)))

        self._server = await asyncio.start_server(serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        server_reader, server_writer = await asyncio.open_connection(host, int(port))

        async def there() -> None:
            while data := await reader.read(1 << 16):
                server_writer.write(data)
            server_writer.close()

        async def back() -> None:
            parser = FrameParser()
            while data := await server_reader.read(1 << 16):
                for command in parser.feed(data):
                    writer.write(self._maybe_damaged(command))
            writer.close()

        try:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(there(), back())
        finally:
            writer.close()
            server_writer.close()

    def _maybe_damaged(self, command: Command) -> bytes:
        command.body = self._rewrite(command.body)
        if self.hostile and self._chance.random() < 0.15:
            damage = self._chance.choice(DAMAGES)
            self.damaged[damage.__name__] += 1
            return damage(self._chance, command)
        return command.encode()


class Handled:
    """What the two consumers got."""

    def __init__(self) -> None:
        self.pushed: set[bytes] = set()
        self.polled: set[bytes] = set()


async def attempt(work: Callable[[], Awaitable[object]], longest: list[float]) -> None:
    """Call the client; only errors that tell of its peers may come of it."""
    begin = time.monotonic()
    with contextlib.suppress(RemoteError):
        await work()
    longest.append(time.monotonic() - begin)


@pytest.fixture
def running() -> Iterator[EmbeddedCluster]:
    with cluster(brokers=1) as found:
        create_topic(found.namesrv, TOPIC, queues=4)
        yield found


async def poll_into(consumer: LitePullConsumer, found: set[bytes], longest: list[float]) -> None:
    async def once() -> None:
        found.update(message.body for message in await consumer.poll(0.2))

    while True:
        await attempt(once, longest)


async def send_for(seconds: float, producer: Producer, sent: list[bytes], longest: list[float]) -> None:
    async def once() -> None:
        body = json.dumps(len(sent) + random.random()).encode()
        await producer.send(Message(TOPIC, body), timeout=2.0)
        sent.append(body)

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await attempt(once, longest)
        await asyncio.sleep(0.01)


async def all_arrive(producer: Producer, handled: Handled, longest: list[float]) -> bool:
    """Whether both consumers get all that is sent now, within a few seconds."""
    sent: list[bytes] = []
    await send_for(0.5, producer, sent, longest)
    for _ in range(50):
        if sent and set(sent) <= handled.pushed & handled.polled:
            return True
        await asyncio.sleep(0.1)
    return False


def test_clients_outlive_nonsense(
    running: EmbeddedCluster, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    unexpected: list[str] = []
    broker_address = running.brokers["broker-a"].address

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unexpected.append(repr(context)))
        broker = Proxy(broker_address, rng)
        fake = await broker.start()
        namesrv = Proxy(running.namesrv, rng, lambda body: body.replace(broker_address.encode(), fake.encode()))
        address = await namesrv.start()
        tasks: list[asyncio.Task[None]] = []
        try:
            await use_clients(address, broker, namesrv, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await namesrv.stop()
            await broker.stop()

    async def use_clients(address: str, broker: Proxy, namesrv: Proxy, tasks: list[asyncio.Task[None]]) -> None:
        handled, sent, longest = Handled(), list[bytes](), list[float]()
        async with (
            Producer(address) as producer,
            PushConsumer(address, "pushed", begin="first") as pushed,
            LitePullConsumer(address, "polled", begin="first") as polled,
            Admin(address) as admin,
        ):
            pushed.subscribe(TOPIC)
            polled.subscribe(TOPIC)
            await pushed.start(lambda messages: handled.pushed.update(message.body for message in messages))
            tasks.append(asyncio.create_task(poll_into(polled, handled.polled, longest)))
            await send_for(1.0, producer, sent, longest)

            broker.hostile = namesrv.hostile = True
            sending = asyncio.create_task(send_for(SECONDS, producer, sent, longest))
            while not sending.done():
                await attempt(admin.topics, longest)
                await attempt(admin.brokers, longest)
                await attempt(partial(admin.progress, "pushed"), longest)
                await attempt(partial(admin.members, "pushed"), longest)
            broker.hostile = namesrv.hostile = False

            # A broker that lies about offsets can make clients pass over messages. It must not keep them from going on.
            async with asyncio.timeout(60):
                while not await all_arrive(producer, handled, longest):
                    pass
            tasks[0].cancel()
        assert sum(broker.damaged.values()) > 20 * SECONDS / 6
        assert set(broker.damaged) == {damage.__name__ for damage in DAMAGES}
        assert max(longest) < 10

    asyncio.run(scenario())
    gc.collect()
    assert not unexpected
    named = [record.getMessage() for record in caplog.records if record.exc_info]
    assert not [text for text in named if "Error" in text and "ProtocolError" not in text], named
