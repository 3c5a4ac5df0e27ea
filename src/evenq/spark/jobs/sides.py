"""A topic on a cluster, as one side of a job, and what is asked of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from evenq.client.admin import Admin
from evenq.errors import ArgumentError, TopicNotFound
from evenq.model import MessageQueue
from evenq.spark.connecting import CONNECTION, Connecting
from evenq.spark.sinkoptions import write_options

__all__ = ["Administrator", "Side", "check_reachable", "target_queues"]


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


class Administrator(Admin):
    """An admin client that is connected as the job is."""

    def __init__(self, connecting: Connecting) -> None:
        self._session = connecting.session()


def check_reachable(connecting: Connecting) -> None:
    """Raise an error where no name server answers: before long work is done for nothing."""

    async def ask() -> None:
        async with Administrator(connecting) as admin:
            await admin.masters()

    asyncio.run(ask())


def target_queues(target: Side, source: Sequence[MessageQueue], say: Callable[[str], None]) -> list[MessageQueue]:
    """The queues to write to. A topic that is not there is made with as many queues on a broker as the source has."""

    async def ask() -> list[MessageQueue]:
        async with Administrator(write_options(target.writing).connecting) as admin:
            try:
                parts = await admin.route(target.topic)
            except TopicNotFound:
                most = 1 + max(queue.queue_id for queue in source)
                say(f"making topic {target} with {most} queues on each broker")
                await admin.create_topic(target.topic, queues=most)
                parts = await admin.route(target.topic)
            found = [
                MessageQueue(target.topic, part.broker, number)
                for part in parts
                if "w" in part.perm
                for number in range(part.write_queues)
            ]
        if not found:
            raise ArgumentError("target", str(target), "it has no queue that can be written: look at its permissions")
        return found

    return asyncio.run(ask())
