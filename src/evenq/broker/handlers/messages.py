"""Messages: single ones are looked for, by key, by id, by place.

Behaviour
    A key is looked for in the index, which catches up with the log first. What is found is looked at before it is
    given out: the index knows hashes only.

Codes
    QUERY_MESSAGE, VIEW_MESSAGE_BY_ID, QUERY_CONSUME_QUEUE

Not implemented
    Telling of each entry of a consume queue whether a group's filter lets it through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.later import DeferredReplies
from evenq.broker.server import Connection, Handler, Pieces, Refusal
from evenq.broker.store.consumequeue import UNIT
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.view import MessageView

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["MessageHandlers"]

# What Java gives at most: for a key, and for the id that a producer gave.
_MOST = 64
_MOST_UNIQUE = 32
# After so many rows other requests have their turn.
_PIECE = 1024
# Clients take no frame of more than 16 MiB.
_MOST_BYTES = 8 * 1024 * 1024


class MessageHandlers:
    """The handlers of questions for single messages."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._deferred = DeferredReplies()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_CONSUME_QUEUE: self._consume_queue,
        }

    def _view(self, request: Command, connection: Connection) -> Command:
        self._broker.server.check_room()
        offset = headers.ViewMessage.from_ext(request.ext).offset
        record = self._broker.store.record_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return request.reply(body=record)

    def _query(self, request: Command, connection: Connection) -> None:
        self._broker.server.check_room()
        header = headers.QueryMessage.from_ext(request.ext)
        self._deferred.answer(request, connection, self._found(request, header))

    async def _found(self, request: Command, header: headers.QueryMessage) -> Command:
        most = _MOST_UNIQUE if header.unique_key else min(header.max_num, _MOST)
        places: list[int] = []
        size = 0

        def take(offset: int) -> bool:
            """Look at a message; whether more are wanted."""
            nonlocal size
            message = self._broker.store.message_at(offset)
            if message is None or offset in places or not _is_meant(message, header):
                return True
            size += message.store_size
            if len(places) == most or (places and size > _MOST_BYTES):
                return False
            places.append(offset)
            return True

        last_offset, last_time = await self._broker.indexer.search(
            header.topic, header.key, header.begin_timestamp, header.end_timestamp, take
        )
        ext = headers.QueryMessageResponse(
            index_last_update_timestamp=last_time, index_last_update_phyoffset=last_offset
        ).to_ext()
        if not places:
            remark = f"can not find message, maybe time range not correct: {header.topic} has none with {header.key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, ext=ext, remark=remark)
        records = [self._broker.store.record_at(offset) or b"" for offset in sorted(places)]
        return request.reply(ext=ext, body=b"".join(records))

    def _consume_queue(self, request: Command, connection: Connection) -> Pieces:
        self._broker.server.check_room()
        header = headers.QueryConsumeQueue.from_ext(request.ext)
        first, end = self._broker.store.bounds(header.topic, header.queue_id)
        if not end:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        entries = []
        limits = self._broker.settings.limits
        count = min(header.count, end - header.index)
        if first <= header.index < end and count > 0:
            units = self._broker.store.queue(header.topic, header.queue_id).units(
                header.index, min(count, limits.max_admin_rows)
            )
            for number, (place, size, code) in enumerate(UNIT.iter_unpack(units)):
                if number % _PIECE == 0 and number:
                    yield
                entries.append(bodies.ConsumeQueueEntry(physic_offset=place, physic_size=size, tags_code=code))
        group = self._broker.groups.get(header.consumer_group or "")
        wanted = None if group is None else group.subscriptions.get(header.topic)
        body = yield from bodies.ConsumeQueueBody(
            subscription_data=wanted, queue_data=entries, max_queue_index=end, min_queue_index=first
        ).encode_pieces()
        return request.reply(body=body, remark=limits.cut_remark(count))


def _is_meant(message: MessageView, header: headers.QueryMessage) -> bool:
    """Whether a message has the key, and not only a hash like it."""
    if message.topic != header.topic or not header.begin_timestamp <= message.store_timestamp <= header.end_timestamp:
        return False
    return message.unique_key == header.key or (not header.unique_key and header.key in message.keys)
