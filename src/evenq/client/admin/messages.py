"""Messages: to find them by their keys and ids, and to look at what a queue holds."""

from __future__ import annotations

from datetime import datetime

import msgspec

from evenq.client.admin.base import milliseconds
from evenq.client.admin.topics import Topics
from evenq.client.net.remote import together
from evenq.client.read.pull import pull, pull_command
from evenq.errors import ArgumentError, RefusedError
from evenq.model import MessageQueue
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.headers import QueryMessage, ViewMessage
from evenq.protocol.ids import parse_message_id
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView

__all__ = ["FOREVER", "Messages"]

# The group that every broker has for tools. Pulls leave no trace in it.
_TOOLS = "TOOLS_CONSUMER"
FOREVER = (1 << 63) - 1


class Messages(Topics):
    """What can be asked of messages."""

    async def message(self, msg_id: str) -> MessageView:
        """The message with this id of the broker: an ``offset_msg_id``, which says where the message is."""
        address, offset = parse_message_id(msg_id)
        brokers = {
            address: name
            for name, data in (await self._cluster_info()).broker_addr_table.items()
            for address in data.broker_addrs.values()
        }
        if address not in brokers:
            raise ArgumentError(
                "msg_id",
                msg_id,
                f"it would be on {address}, which is no broker here ({', '.join(brokers)}); "
                "an id that a producer gave is looked up with messages_by_unique_key(topic, id)",
            )
        answer = await self._ask(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=offset))
        return self._own_message(decode_messages(answer.body, broker=brokers[address])[0])

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        limit: int = 32,
    ) -> tuple[MessageView, ...]:
        """The newest messages with this key, at most ``limit``, the oldest first; from ``begin`` to ``end`` if given.

        Keys are indexed a moment after the message is stored.
        """
        if limit < 1:
            raise ArgumentError("limit", limit, "give 1 or more")
        found = await self._query(
            QueryMessage(
                topic=self._wire(topic),
                key=key,
                max_num=limit,
                begin_timestamp=0 if begin is None else milliseconds("begin", begin),
                end_timestamp=FOREVER if end is None else milliseconds("end", end),
            )
        )
        # the index holds hashes only: others may come along
        return tuple(message for message in found if key in message.keys)[-limit:]

    async def messages_by_unique_key(self, topic: str, unique_key: str) -> tuple[MessageView, ...]:
        """Messages with this id of the producer (``msg_id`` of a receipt): one, or more where a send was retried."""
        found = await self._query(
            QueryMessage(
                topic=self._wire(topic),
                key=unique_key,
                max_num=32,
                begin_timestamp=0,
                end_timestamp=FOREVER,
                unique_key=True,
            )
        )
        return tuple(message for message in found if message.unique_key == unique_key)

    async def messages_at(self, queue: MessageQueue, offset: int, count: int = 1) -> tuple[MessageView, ...]:
        """What the queue holds from ``offset`` on: up to ``count`` messages, in order, fewer at its end."""
        if count < 1:
            raise ArgumentError("count", count, "give 1 or more")
        wire = self._wire_queue(queue)
        route = await self._session.routes.refresh(wire.topic)
        if wire not in route.readable:
            raise ArgumentError("queue", str(queue), f"topic {queue.topic!r} has no such queue to read from")
        address = route.address(queue.broker)
        found: list[MessageView] = []
        while len(found) < count:
            command = pull_command(_TOOLS, wire, offset, count=count - len(found))
            came = await pull(self._session.remote, address, command, self._session.timeouts.pull)
            if not came.body:
                break
            found += map(self._own_message, decode_messages(came.body, broker=queue.broker))
            offset = came.next_offset
        return tuple(found)

    async def _query(self, header: QueryMessage) -> list[MessageView]:
        """Ask every broker that has the topic; the oldest first."""
        masters = await self._topic_masters(header.topic)
        found = await together(*(self._query_one(broker, at, header) for broker, at in masters.items()))
        return sorted((message for part in found for message in part), key=_when_stored)

    async def _query_one(self, broker: str, address: str, header: QueryMessage) -> list[MessageView]:
        try:
            answer = await self._ask(address, RequestCode.QUERY_MESSAGE, header)
        except RefusedError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            raise
        return [self._own_message(message) for message in decode_messages(answer.body, broker=broker)]

    def _own_message(self, message: MessageView) -> MessageView:
        topic = self._own(message.topic)
        return message if topic == message.topic else msgspec.structs.replace(message, topic=topic)


def _when_stored(message: MessageView) -> tuple[int, int]:
    return message.store_timestamp, message.commit_log_offset
