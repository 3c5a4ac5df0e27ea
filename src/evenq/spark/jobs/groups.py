"""Groups that go along with a mirror: their offsets in the source become offsets in the target."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evenq.errors import TopicNotFound
from evenq.model import MessageQueue
from evenq.protocol.names import RETRY
from evenq.spark.connecting import Connecting
from evenq.spark.jobs.sides import Side, administrator
from evenq.spark.jobs.translation import GroupPosition, Memory, positions
from evenq.spark.lookup import Lookup
from evenq.spark.options import ReadOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["translate", "waiting"]


def translate(
    spark: SparkSession,
    source: Side,
    target: Side,
    groups: Sequence[str],
    *,
    name: str = "",
    memory: Memory | None = None,
) -> tuple[GroupPosition, ...]:
    """Put groups in the target where they are in the source. No group is moved back there.

    A group that the target does not know is made with the settings that it has in the source; one that has stored
    nothing in the source is left out.
    """
    from_source = read_options(source.reading)
    to_target = read_options({**target.reading_back, "subscribe": target.topic})

    def read(bounds: dict[str, str]) -> DataFrame:
        return spark.read.format("rocketmq").options(**target.reading_back, **bounds).load()

    consuming = asyncio.run(_consuming(from_source.connecting, source.topic))
    with Lookup(from_source) as lookup:
        queues = lookup.queues(fresh=True)
        asked = {group: lookup.stored(group, queues) for group in dict.fromkeys(groups) if group in consuming}
    known = {group: stored for group, stored in asked.items() if stored}
    if not known:
        return ()
    with Lookup(to_target) as lookup:
        ends = lookup.ends(lookup.queues(fresh=True))
        found = positions(read, known, ends, memory or Memory(), name)
        asyncio.run(_make_groups(from_source.connecting, to_target.connecting, list(known)))
        return tuple(
            GroupPosition(
                group,
                _move(lookup, group, offsets),
                sum(ends.latest[queue] - offset for queue, offset in offsets.items()),
                waiting(from_source, group),
            )
            for group, offsets in found.items()
        )


def _move(lookup: Lookup, group: str, offsets: Mapping[MessageQueue, int]) -> int:
    """Store a group's offsets where they are ahead of what is stored; gives the number of queues."""
    stored = lookup.stored(group, offsets)
    # brokers say 0 also where nothing is stored, and then a group would begin where it likes
    news = {queue: offset for queue, offset in offsets.items() if offset > stored.get(queue, -1) or not stored[queue]}
    # first offsets of a group that come at once are lost on a real broker: one queue of each broker goes before others
    first = {queue.broker: queue for queue in news}.values()
    told = lookup.commit(group, {queue: news[queue] for queue in first})
    told |= lookup.commit(group, {queue: offset for queue, offset in news.items() if queue not in first})
    return len(told)


def waiting(source: ReadOptions, group: str) -> int:
    """How many messages the group gave back for another try, and has not consumed yet."""
    try:
        with Lookup(replace(source, topics=(f"{RETRY}{group}",))) as lookup:
            ends = lookup.ends(lookup.queues(fresh=True))
            stored = lookup.stored(group, ends.latest)
    except TopicNotFound:
        return 0
    return sum(end - stored.get(queue, ends.earliest[queue]) for queue, end in ends.latest.items())


async def _consuming(connecting: Connecting, topic: str) -> set[str]:
    """The groups that have stored something about the topic."""
    async with administrator(connecting) as admin:
        return set(await admin.consumers(topic))


async def _make_groups(source: Connecting, target: Connecting, groups: Sequence[str]) -> None:
    """Make the groups that the target does not have, as the source has them."""
    async with administrator(target) as admin:
        missing = set(groups) - {known.group for known in await admin.groups()}
        if not missing:
            return
        async with administrator(source) as there:
            settings = {known.group: known for known in await there.groups()}
        for group in sorted(missing):
            known = settings.get(group)
            if known is None:
                await admin.create_group(group)
            else:
                await admin.create_group(
                    group,
                    max_retries=known.max_retries,
                    retry_queues=known.retry_queues,
                    consume=known.consume,
                    broadcast=known.broadcast,
                )
