"""Filling a topic quickly: batches to every queue in turn, many in flight."""

from __future__ import annotations

import asyncio
import time

from evenq.client.net.session import Session
from evenq.model import MessageQueue
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.codes import RequestCode
from evenq.protocol.headers import SendRequestV2
from evenq.protocol.properties import encode_properties

__all__ = ["fill"]

PER_BATCH = 400
IN_FLIGHT = 16


def fill(namesrv: str, topic: str, messages: int, size: int = 100, keys_of_queue: int | None = None) -> None:
    """Send ``messages`` bodies of ``size`` bytes, with the properties that clients give, to a topic that is there.

    Each has a key of its own; or every queue has so many keys, which come again and again, as with a selector.
    """
    asyncio.run(_fill(namesrv, topic, messages, size, keys_of_queue))


async def _fill(namesrv: str, topic: str, messages: int, size: int, keys: int | None) -> None:
    session = Session(namesrv)
    route = await session.routes.get(topic)
    room = asyncio.Semaphore(IN_FLIGHT)

    async def send(queue: MessageQueue, first: int) -> None:
        header = SendRequestV2(
            producer_group="bench",
            topic=topic,
            queue_id=queue.queue_id,
            born_timestamp=round(time.time() * 1000),
            batch=True,
        )
        numbers = range(first, min(first + PER_BATCH, messages))
        stem = f"order-{queue.broker}-{queue.queue_id}"
        entries = [_entry(n, size, f"order-{n}" if keys is None else f"{stem}-{n % keys}") for n in numbers]
        try:
            await session.remote.ask(
                route.address(queue.broker), RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(entries), timeout=30
            )
        finally:
            room.release()

    async with asyncio.TaskGroup() as sending:
        for number, first in enumerate(range(0, messages, PER_BATCH)):
            await room.acquire()
            sending.create_task(send(route.readable[number % len(route.readable)], first))
    await session.close()


def _entry(number: int, size: int, key: str) -> BatchEntry:
    properties = {
        "UNIQ_KEY": f"7F00000112670000CAFE47B7{number:08X}",
        "KEYS": key,
        "TAGS": "paid",
        "WAIT": "true",
    }
    return BatchEntry(b"%*d" % (size, number), encode_properties(properties))
