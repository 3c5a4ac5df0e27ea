"""Offsets: how far groups are, what queues hold.

Behaviour
    A group without an offset in a queue that still holds its first message, and that recently, begins at 0 whatever
    it wished: the Java broker does so, and members of both kinds must agree.

Codes
    QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET, GET_MIN_OFFSET,
    GET_EARLIEST_MSG_STORETIME

Not implemented
    Resetting the offsets of a group on the broker's side.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from evenq.broker.admission import check_queue
from evenq.broker.server import Connection, Handler, Refusal
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["OffsetHandlers"]

# What Java counts as still in memory: the last 40 % of it.
_RECENT = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 40 // 100


class OffsetHandlers:
    """The handlers of offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def _query(self, request: Command, connection: Connection) -> Command:
        header = headers.QueryOffset.from_ext(request.ext)
        store = self._broker.store
        offset = self._broker.offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset is None and header.set_zero_if_not_found is not False:
            first, _ = store.bounds(header.topic, header.queue_id)
            if first == 0 and store.is_recent(header.topic, header.queue_id, 0, _RECENT):
                offset = 0
        if offset is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"Not found: group {header.consumer_group} has no offset in queue {header.queue_id} of {header.topic}",
            )
        return _answer(request, offset)

    def _update(self, request: Command, connection: Connection) -> Command:
        header = headers.UpdateOffset.from_ext(request.ext)
        if self._broker.group_configs.get(header.consumer_group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!")
        topic = self._broker.topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        check_queue(topic, header.queue_id)
        if header.commit_offset < 0:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"commitOffset[{header.commit_offset}] is illegal: offsets begin at 0"
            )
        self._broker.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return request.reply()

    def _search(self, request: Command, connection: Connection) -> Command:
        header = headers.SearchOffset.from_ext(request.ext)
        upper = header.boundary_type == "UPPER"
        return _answer(
            request, self._broker.store.offset_at(header.topic, header.queue_id, header.timestamp, upper=upper)
        )

    def _max(self, request: Command, connection: Connection) -> Command:
        header = headers.MaxOffsetRequest.from_ext(request.ext)
        return _answer(request, self._broker.store.bounds(header.topic, header.queue_id)[1])

    def _min(self, request: Command, connection: Connection) -> Command:
        header = headers.MinOffsetRequest.from_ext(request.ext)
        return _answer(request, self._broker.store.bounds(header.topic, header.queue_id)[0])

    def _earliest(self, request: Command, connection: Connection) -> Command:
        header = headers.EarliestRequest.from_ext(request.ext)
        first, _ = self._broker.store.bounds(header.topic, header.queue_id)
        time = self._broker.store.time_of(header.topic, header.queue_id, first)
        return request.reply(ext=headers.TimestampResponse(timestamp=-1 if time is None else time).to_ext())


def _answer(request: Command, offset: int) -> Command:
    return request.reply(ext={"offset": str(offset)})
