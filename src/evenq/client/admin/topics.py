"""Topics: which there are, where their queues are, what these hold; to create, change and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from evenq.client.admin.base import Administration, moment
from evenq.client.net.remote import together
from evenq.errors import ArgumentError, RequestTimeout, TopicNotFound
from evenq.model import MessageQueue, java_order
from evenq.protocol.bodies import TopicConfig, TopicNames, TopicStats
from evenq.protocol.codes import RequestCode
from evenq.protocol.flags import Perm
from evenq.protocol.headers import CreateTopic, DeleteTopic, KvKey, KvPut, TopicRequest
from evenq.protocol.names import is_system_topic

__all__ = ["Permission", "QueueStatus", "TopicPart", "TopicStatus", "Topics"]

Permission = Literal["rw", "r", "w"]

PERMISSIONS: dict[Permission, int] = {"rw": Perm.READ | Perm.WRITE, "r": int(Perm.READ), "w": int(Perm.WRITE)}

# What groups have of their own: messages that wait for another try, and those that were given up.
GROUP_TOPICS = ("%RETRY%", "%DLQ%")

_ORDERED = "ORDER_TOPIC_CONFIG"
_PAUSE = 0.02


class TopicPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a topic that one broker has. ``addresses`` are by broker id, where 0 is the master."""

    broker: str
    cluster: str
    addresses: dict[int, str]
    read_queues: int
    write_queues: int
    perm: str


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue holds: offsets from ``min_offset`` up to, not including, ``max_offset``."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_stored: datetime | None

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic holds, queue by queue. ``rate`` is messages in a second, over the last minute."""

    topic: str
    queues: tuple[QueueStatus, ...]
    rate: float

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)


class Topics(Administration):
    """What can be asked of topics and done with them."""

    async def topics(self, *, system: bool = False) -> tuple[str, ...]:
        """All topics, in order; with ``system`` also those of RocketMQ itself and of groups (retries, dead letters).

        With a namespace it is the topics of that, and those of RocketMQ itself, which all namespaces share.
        """
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        names = set(TopicNames.decode((await self._session.name_servers.ask(code)).body).topic_list)
        if not system:
            names -= await self._system_topics()
            names = {name for name in names if not name.startswith(GROUP_TOPICS) and self._is_ours(name)}
        elif self._session.namespace:
            shared = await self._system_topics()
            names = {name for name in names if name in shared or is_system_topic(name) or self._is_ours(name)}
        return tuple(sorted(map(self._own, names), key=java_order))

    async def route(self, topic: str) -> tuple[TopicPart, ...]:
        """On which brokers the topic is, and with how many queues; TopicNotFound where there is no such topic."""
        route = await self._session.name_servers.route(self._wire(topic))
        brokers = {data.broker_name: data for data in route.broker_datas}
        return tuple(
            TopicPart(
                broker=data.broker_name,
                cluster=brokers[data.broker_name].cluster or "",
                addresses=dict(sorted(brokers[data.broker_name].broker_addrs.items())),
                read_queues=data.read_queue_nums,
                write_queues=data.write_queue_nums,
                perm=_permission(data.perm),
            )
            for data in sorted(route.queue_datas, key=lambda data: java_order(data.broker_name))
            if data.broker_name in brokers
        )

    async def topic_status(self, topic: str) -> TopicStatus:
        """What each queue of the topic holds, and since when it has not grown."""
        addresses = await self._topic_masters(topic)
        answers = await self._ask_each(
            addresses, RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(topic=self._wire(topic))
        )
        stats = [TopicStats.decode(answer.body) for answer in answers.values()]
        queues = {self._own_queue(queue): held for part in stats for queue, held in part.offset_table.items()}
        return TopicStatus(
            topic=self._own(topic),
            queues=tuple(
                QueueStatus(
                    queue=queue,
                    min_offset=queues[queue].min_offset,
                    max_offset=queues[queue].max_offset,
                    last_stored=moment(queues[queue].last_update_timestamp),
                )
                for queue in sorted(queues)
            ),
            rate=sum(part.topic_put_tps for part in stats),
        )

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        perm: Permission = "rw",
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        brokers: Collection[str] | None = None,
    ) -> None:
        """Make the topic with ``queues`` queues on every master, or on these ``brokers``; or change it to that.

        With ``order`` the layout is fixed: producers keep to it also while a broker is away, so that a key stays with
        its queue. ``attributes`` are RocketMQ's own, such as ``{"queue.type": "BatchCQ"}``, which lets brokers store
        each batch as one record. Returns when the name server knows the topic as it was made.
        """
        _check_queues(queues=queues)
        masters = await self._chosen(brokers)
        header = CreateTopic(
            topic=self._wire(topic),
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=_perm_bits(perm),
            order=order,
            attributes=",".join(f"+{name}={value}" for name, value in (attributes or {}).items()) or None,
        )
        await self._ask_each(masters, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if order:
            layout = ";".join(f"{name}:{queues}" for name in masters)
            await self._tell_name_servers(
                RequestCode.PUT_KV_CONFIG, KvPut(namespace=_ORDERED, key=self._wire(topic), value=layout)
            )
        await self._until_known(topic, dict.fromkeys(masters, (queues, queues, perm)))

    async def update_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Permission | None = None,
    ) -> None:
        """Change what is given, on every broker that has the topic, and leave the rest as it is.

        Fewer queues to write than to read let a queue run empty before it goes: first lower ``write_queues``, then,
        when everything is consumed, ``read_queues``. ``queues`` sets both at once.
        """
        _check_queues(queues=queues, read_queues=read_queues, write_queues=write_queues)
        if perm is None and queues is None and read_queues is None and write_queues is None:
            raise ArgumentError("queues", None, "give something to change: queues, read_queues, write_queues or perm")
        bits = None if perm is None else _perm_bits(perm)
        addresses = await self._topic_masters(topic)
        answers = await self._ask_each(addresses, RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic=self._wire(topic)))
        wanted = {}
        for name, answer in answers.items():
            known = TopicConfig.decode(answer.body)
            wanted[name] = CreateTopic(
                topic=self._wire(topic),
                read_queue_nums=_first(read_queues, queues, known.read_queue_nums),
                write_queue_nums=_first(write_queues, queues, known.write_queue_nums),
                perm=_first(bits, known.perm),
                topic_filter_type=known.topic_filter_type,
                topic_sys_flag=known.topic_sys_flag,
                order=known.order,
            )
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await together(*(self._ask(addresses[name], code, header) for name, header in wanted.items()))
        await self._until_known(
            topic,
            {
                name: (header.read_queue_nums, header.write_queue_nums, _permission(header.perm))
                for name, header in wanted.items()
            },
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic with its messages, on all brokers first and then on all name servers.

        What a broker could not do, an unreachable one above all, can be done again: the name server forgets last.
        """
        wire = self._wire(topic)
        await self._session.name_servers.route(wire)
        info = await self._cluster_info()
        everywhere = {
            address: address for data in info.broker_addr_table.values() for address in data.broker_addrs.values()
        }
        await self._ask_each(everywhere, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic=wire))
        await self._tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopic(topic=wire))
        await self._tell_name_servers(RequestCode.DELETE_KV_CONFIG, KvKey(namespace=_ORDERED, key=wire))

    async def _topic_masters(self, topic: str) -> dict[str, str]:
        """Broker name -> address of its master, over the brokers that have the topic."""
        self._session.check_open("admin client")
        return (await self._session.routes.refresh(self._wire(topic))).masters

    async def _system_topics(self) -> set[str]:
        """Topics that RocketMQ has for itself: clusters and brokers have one of their name, brokers know the rest."""
        info = await self._cluster_info()
        answers = await self._ask_each(await self.masters(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        names = {name for answer in answers.values() for name in TopicNames.decode(answer.body).topic_list}
        return names | info.broker_addr_table.keys() | info.cluster_addr_table.keys()

    async def _until_known(self, topic: str, layout: dict[str, tuple[int, int, str]]) -> None:
        """Wait until the name server tells this layout: a broker registers a change a moment after it answered."""
        seconds = self._session.timeouts.request
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if layout.items() <= (await self._layout(topic)).items():
                        return
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            address = ";".join(self._session.name_servers.addresses)
            raise RequestTimeout(address, f"the new route of topic {topic!r}", seconds) from None

    async def _layout(self, topic: str) -> dict[str, tuple[int, int, str]]:
        try:
            return {part.broker: (part.read_queues, part.write_queues, part.perm) for part in await self.route(topic)}
        except TopicNotFound:
            return {}


def _perm_bits(perm: Permission) -> int:
    if perm not in PERMISSIONS:
        raise ArgumentError("perm", perm, f"give one of {', '.join(PERMISSIONS)}")
    return int(PERMISSIONS[perm])


def _permission(bits: int) -> str:
    """What may be done with the queues, in letters; ``-`` for nothing."""
    return ("r" if bits & Perm.READ else "") + ("w" if bits & Perm.WRITE else "") or "-"


def _check_queues(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ArgumentError(name, count, "give at least 1 queue per broker")


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
