"""Resets: a group is sent to another place in a topic.

Behaviour
    The new offset counts from the answer on. A member that reads the queue is told with its next pull, which is
    answered at once also where it waited; what members commit before that is not taken.

Codes
    INVOKE_BROKER_TO_RESET_OFFSET, CLONE_GROUP_OFFSET

Not implemented
    Telling members without being asked (RESET_CONSUMER_CLIENT_OFFSET): every pull is told as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.admission import check_queue
from evenq.broker.server import Connection, Handler, Refusal
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.names import group_error

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["ResetHandlers"]


class ResetHandlers:
    """The handlers of resets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
        }

    def _reset(self, request: Command, connection: Connection) -> Command:
        header = headers.ResetOffset.from_ext(request.ext)
        topic = self._broker.topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.group not in self._broker.group_configs:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        if header.queue_id >= 0:
            check_queue(topic, header.queue_id)
        numbers = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
        table = {number: self._target(header, number) for number in numbers}
        if not table:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"No queues to reset: {header.topic} has none that can be read")
        for number, offset in table.items():
            self._broker.offsets.reset(header.group, header.topic, number, offset)
        self._broker.waiting_pulls.arrived([(header.topic, number) for number in table])
        name = self._broker.settings.name
        body = bodies.QueueOffsets(
            offset_table={MessageQueue(header.topic, name, number): offset for number, offset in table.items()}
        )
        return request.reply(body=body.encode())

    def _target(self, header: headers.ResetOffset, queue_id: int) -> int:
        """Where the group is to go on in a queue: at a given offset in a given queue, or by time."""
        first, end = self._broker.store.bounds(header.topic, queue_id)
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            if not first <= header.offset <= end + 1:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {header.offset} not in consume queue range [{first}-{end}]",
                )
            return header.offset
        if header.timestamp < 0:
            return end
        return self._broker.store.offset_at(header.topic, queue_id, header.timestamp)

    def _clone(self, request: Command, connection: Connection) -> Command:
        header = headers.CloneOffsets.from_ext(request.ext)
        error = group_error(header.dest_group)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        if self._broker.group_configs.get(header.dest_group) is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{header.dest_group}] does not exist"
            )
        offsets = self._broker.offsets
        online = self._broker.groups.get(header.src_group)
        for topic in [header.topic] if header.topic else offsets.topics(header.src_group):
            subscribed = online is None or not online.subscriptions or topic in online.subscriptions
            if topic in self._broker.topics and (header.offline or subscribed):
                offsets.clone(header.src_group, header.dest_group, topic)
        return request.reply()
