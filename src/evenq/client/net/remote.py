"""What a client asks of brokers, one method a question: values in, values out, errors raised for error codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from evenq.client.net.connections import Connections
from evenq.errors import IncompleteAnswer, NoPermission, RefusedError, TopicNotFound
from evenq.model import MessageQueue
from evenq.protocol.bodies import (
    ConsumeStats,
    GroupConnections,
    Heartbeat,
    LockRequest,
    LockResponse,
    Members,
    OffsetPair,
    TopicConfig,
)
from evenq.protocol.codes import CUT_REMARK, RequestCode, ResponseCode, name_of
from evenq.protocol.command import Command
from evenq.protocol.headers import (
    ConsumeStatsRequest,
    GroupRequest,
    Header,
    MaxOffsetRequest,
    MinOffsetRequest,
    OffsetResponse,
    QueryOffset,
    SearchOffset,
    SendBack,
    TopicRequest,
    UnregisterClient,
    UpdateOffset,
)

__all__ = ["Remote", "by_broker", "checked", "refusal", "together"]

# Brokers answer so many questions of one connection that they pass on to other clients, and refuse more: 64 by default.
AT_A_TIME = 32

T = TypeVar("T")

_REFUSALS: dict[int, type[RefusedError]] = {
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFound,
    ResponseCode.NO_PERMISSION: NoPermission,
}


def refusal(address: str, request: int, answer: Command) -> RefusedError:
    """The error that an answer stands for."""
    kind = _REFUSALS.get(answer.code, RefusedError)
    return kind(address, name_of(request), answer.code, answer.remark)


def checked(address: str, request: int, answer: Command) -> Command:
    """The answer, if it is a success and whole."""
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(address, request, answer)
    if answer.remark is not None and answer.remark.startswith(CUT_REMARK):
        raise IncompleteAnswer(address, name_of(request), answer.remark)
    return answer


class Remote:
    """Questions to brokers by address. Each takes at most ``timeout`` seconds, connecting included."""

    def __init__(self, connections: Connections, timeout: float = 3.0) -> None:
        self.connections = connections
        self.timeout = timeout
        # addresses, brokers, groups and topics that have an offset; and who stores the first. A proxy has the address
        # of many brokers.
        self._opened: set[tuple[str, str, str, str]] = set()
        self._opening: dict[tuple[str, str, str, str], asyncio.Lock] = {}

    async def ask(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b"", timeout: float = 0
    ) -> Command:
        command = Command(code, ext=header.to_ext() if header is not None else {}, body=body)
        answer = await self.connections.request(address, command, timeout or self.timeout)
        return checked(address, code, answer)

    async def heartbeat(self, address: str, data: Heartbeat) -> None:
        await self.ask(address, RequestCode.HEART_BEAT, body=data.encode())

    async def unregister(
        self, address: str, client_id: str, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        header = UnregisterClient(client_id=client_id, producer_group=producer_group, consumer_group=consumer_group)
        await self.ask(address, RequestCode.UNREGISTER_CLIENT, header)

    async def members(self, address: str, group: str) -> list[str]:
        """The client ids in ``group``. A broker that knows no such group has no members of it."""
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        try:
            answer = await self.ask(address, code, GroupRequest(consumer_group=group))
        except RefusedError as error:
            # Java's broker answers an unknown group with a plain system error
            if error.code == ResponseCode.SYSTEM_ERROR:
                return []
            raise
        return Members.decode(answer.body).consumer_id_list

    async def connected(self, address: str, group: str) -> GroupConnections | None:
        """Who is in ``group``, with language and version; None where the group is not online."""
        try:
            answer = await self.ask(
                address, RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupRequest(consumer_group=group)
            )
        except RefusedError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        return GroupConnections.decode(answer.body)

    async def stored_offset(
        self, address: str, group: str, queue: MessageQueue, *, never_guess: bool = False
    ) -> int | None:
        """What the group has committed for the queue, or None.

        While a queue has its first message in memory, the broker says 0 for None, unless it must ``never_guess``.
        """
        header = QueryOffset(
            consumer_group=group,
            broker_name=queue.broker,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if never_guess else None,
        )
        try:
            answer = await self.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except RefusedError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return OffsetResponse.from_ext(answer.ext).offset

    async def progress(self, address: str, group: str, topic: str) -> dict[MessageQueue, OffsetPair]:
        """How far the group is in every queue of the topic on this broker, in one question.

        An offset of 0 also stands for one that was never stored.
        """
        answer = await self.ask(
            address, RequestCode.GET_CONSUME_STATS, ConsumeStatsRequest(consumer_group=group, topic=topic)
        )
        return ConsumeStats.decode(answer.body).offset_table

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset and wait until the broker has it.

        The first offset of a topic on a broker is stored alone, and looked for afterwards: where several first ones
        come at once, the real broker makes a table for each, confirms them all, and keeps the table that came last.
        """
        place = address, queue.broker, group, queue.topic
        if place not in self._opened:
            async with self._opening.setdefault(place, asyncio.Lock()):
                if place not in self._opened:
                    await self._commit(address, group, queue, offset)
                    self._opened.add(place)
                    if await self.stored_offset(address, group, queue, never_guess=True) is not None:
                        return
                    # another client's came at the same time
        await self._commit(address, group, queue, offset)

    async def _commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateOffset(
            consumer_group=group,
            broker_name=queue.broker,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        header = MaxOffsetRequest(broker_name=queue.broker, topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.ask(address, RequestCode.GET_MAX_OFFSET, header)
        return OffsetResponse.from_ext(answer.ext).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        header = MinOffsetRequest(broker_name=queue.broker, topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.ask(address, RequestCode.GET_MIN_OFFSET, header)
        return OffsetResponse.from_ext(answer.ext).offset

    async def offset_at(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time or later."""
        header = SearchOffset(
            broker_name=queue.broker, topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = await self.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return OffsetResponse.from_ext(answer.ext).offset

    async def stores_batches(self, address: str, topic: str) -> bool:
        """Whether the broker stores each batch of this topic as one record. One that does not say so does not."""
        try:
            answer = await self.ask(address, RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic=topic))
        except RefusedError:
            return False
        return TopicConfig.decode(answer.body).attributes.get("queue.type") == "BatchCQ"

    async def lock(self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Take the queues for 60 s under the name ``group``; gives those that were granted."""
        body = LockRequest(consumer_group=group, client_id=client_id, mq_set=list(queues)).encode()
        answer = await self.ask(address, RequestCode.LOCK_BATCH_MQ, body=body)
        return set(LockResponse.decode(answer.body).queues)

    async def unlock(self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        body = LockRequest(consumer_group=group, client_id=client_id, mq_set=list(queues)).encode()
        await self.ask(address, RequestCode.UNLOCK_BATCH_MQ, body=body)

    async def send_back(self, address: str, header: SendBack) -> None:
        await self.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """The queues by the broker that has them: one request each."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker, []).append(queue)
    return found


async def together(*work: Awaitable[T]) -> list[T]:
    """Do it side by side, a few at a time, and wait for every end; then the first failure, if there was one, is raised.

    Nothing is left running: what half of the brokers did is done when the error of the others is seen.
    """
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(each: Awaitable[T]) -> T:
        async with room:
            return await each

    outcomes = await asyncio.gather(*map(one, work), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
