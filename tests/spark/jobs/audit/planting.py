"""Messages as a test wants them in a topic: their born times, unique keys and bodies chosen one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evenq.client.net.session import Session
from evenq.model import MessageQueue, Property
from evenq.protocol.codes import RequestCode
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import SendRequestV2
from evenq.protocol.properties import encode_properties
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.waiting import wait_until

__all__ = ["Seed", "faults", "plant", "tidy"]

CUSTOMERS = 120
TIMES = 8


@dataclass(frozen=True)
class Seed:
    """A message to be. One that is ``broken`` says that its body is compressed, and it is not."""

    queue: int
    key: str | None
    born: int
    unique_key: str
    body: bytes = b"x" * 40
    broken: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


def tidy(sharded: bool = False) -> list[Seed]:
    """Customers with some messages each, every one in the queue of its own, in order; four queues, all alike."""
    began = round(time.time() * 1000) - 60_000
    seeds = []
    for number in range(CUSTOMERS * TIMES):
        customer = number % CUSTOMERS
        name = f"customer-{customer}"
        properties = {Property.SHARDING_KEY: name} if sharded else {}
        seeds.append(Seed(customer % 4, name, began + 10 * number, f"{number:032X}", properties=properties))
    return seeds


def faults(seeds: Sequence[Seed]) -> list[Seed]:
    """The same with a hot key, three duplicates, two messages out of order and one that cannot be read."""
    changed = list(seeds)
    for first in (3, 50):
        # two messages of one customer, one behind the other, change places
        second = first + CUSTOMERS
        one, other = changed[first], changed[second]
        changed[first], changed[second] = replace(one, born=other.born), replace(other, born=one.born)
    changed[200] = replace(changed[200], broken=True)
    # tried again: at once, a little later, and on another broker
    again = [(300, 301, 0), (310, 500, 0), (320, 420, 1)]
    for original, behind, elsewhere in sorted(again, key=lambda one: -one[1]):
        copy = changed[original]
        changed.insert(behind, replace(copy, queue=(copy.queue + elsewhere) % 4))
    last = changed[-1].born
    changed += [Seed(2, "vip", last + number, f"F{number:031X}") for number in range(400)]
    return changed


def plant(namesrv: str, topic: str, seeds: Sequence[Seed]) -> None:
    """Send them, one queue beside the other, each in order, and wait until they can be read."""
    asyncio.run(_plant(namesrv, topic, seeds))
    with Lookup(read_options({"namesrv": namesrv, "subscribe": topic})) as lookup:
        wait_until(
            lambda: sum(lookup.latest(lookup.queues()).values()) >= len(seeds), f"{len(seeds)} messages in {topic}"
        )


async def _plant(namesrv: str, topic: str, seeds: Sequence[Seed]) -> None:
    session = Session(namesrv)
    route = await session.routes.get(topic)
    queues = sorted(route.readable)

    async def fill(number: int, queue: MessageQueue) -> None:
        for seed in seeds:
            if seed.queue == number:
                await _send(session, route.address(queue.broker), queue, seed)

    try:
        await asyncio.gather(*(fill(number, queue) for number, queue in enumerate(queues)))
    finally:
        await session.close()


async def _send(session: Session, address: str, queue: MessageQueue, seed: Seed) -> None:
    properties = {Property.UNIQUE_KEY: seed.unique_key, **seed.properties}
    if seed.key is not None:
        properties[Property.KEYS] = seed.key
    header = SendRequestV2(
        producer_group="planting",
        topic=queue.topic,
        queue_id=queue.queue_id,
        sys_flag=int(SysFlag.COMPRESSED) if seed.broken else 0,
        born_timestamp=seed.born,
        properties=encode_properties(properties),
    )
    await session.remote.ask(address, RequestCode.SEND_MESSAGE_V2, header, seed.body, timeout=30)
