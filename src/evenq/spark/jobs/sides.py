"""A topic on a cluster, as one side of a job, and what is asked of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from evenq.client.admin import Admin
from evenq.errors import ArgumentError, TopicNotFound
from evenq.model import MessageQueue
from evenq.spark.connecting import CONNECTION, Connecting
from evenq.spark.deduplicate import LOOK_BACK
from evenq.spark.sinkoptions import write_options

__all__ = ["Side", "administrator", "at_a_time", "queues_to_write", "target_queues"]

# More at a time make nothing faster, and Spark tells how far it is between them only.
MOST_AT_A_TIME = 200_000


@dataclass(frozen=True, slots=True)
class Side:
    """A topic on a cluster; ``options`` are those of the source or the sink, such as who we are."""

    namesrv: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def reading(self) -> dict[str, str]:
        return {**self.options, "namesrv": self.namesrv, "subscribe": self.topic}

    @property
    def reading_back(self) -> dict[str, str]:
        """To read what was written: of the sink's options those that are about the connection."""
        names = {row.name.lower() for row in CONNECTION}
        own = {name: text for name, text in self.options.items() if name.lower() in names}
        return {**own, "namesrv": self.namesrv}

    @property
    def writing(self) -> dict[str, str]:
        return {**self.options, "namesrv": self.namesrv, "topic": self.topic}

    def __str__(self) -> str:
        return f"{self.topic} at {self.namesrv}"


def administrator(connecting: Connecting) -> Admin:
    """An admin client that is connected as the job is. Lives in the running event loop."""
    return Admin(
        connecting.namesrv, credentials=connecting.credentials, tls=connecting.tls, timeouts=connecting.timeouts
    )


async def _writable(admin: Admin, topic: str) -> list[MessageQueue]:
    parts = await admin.route(topic)
    return [
        MessageQueue(topic, part.broker, number)
        for part in parts
        if "w" in part.perm
        for number in range(part.write_queues)
    ]


def queues_to_write(connecting: Connecting, topic: str) -> list[MessageQueue]:
    """The queues of a topic that can be written; none where there is no such topic yet."""

    async def ask() -> list[MessageQueue]:
        async with administrator(connecting) as admin:
            try:
                return await _writable(admin, topic)
            except TopicNotFound:
                return []

    return asyncio.run(ask())


def target_queues(target: Side, source: Sequence[MessageQueue], say: Callable[[str], None]) -> list[MessageQueue]:
    """The queues to write to. A topic that is not there is made with as many queues on a broker as the source has."""

    async def ask() -> list[MessageQueue]:
        async with administrator(write_options(target.writing).connecting) as admin:
            try:
                found = await _writable(admin, target.topic)
            except TopicNotFound:
                most = 1 + max(queue.queue_id for queue in source)
                say(f"making topic {target} with {most} queues on each broker")
                await admin.create_topic(target.topic, queues=most)
                found = await _writable(admin, target.topic)
        if not found:
            raise ArgumentError("target", str(target), "it has no queue that can be written: look at its permissions")
        return found

    return asyncio.run(ask())


def at_a_time(queues: int) -> int:
    """How many messages to send before what is done is noted, into a topic with so many queues.

    What is sent again after a failure must be near what it repeats: readers look back a limited number of messages for
    it, in each queue.

    >>> at_a_time(1), at_a_time(4), at_a_time(64)
    (25000, 100000, 200000)
    """
    return min(MOST_AT_A_TIME, queues * LOOK_BACK // 4)
