"""Administration of the broker itself: what it is and how it does.

Behaviour
    Figures are counted since the start. Names are the Java broker's, since its tools look for them.

Codes
    GET_BROKER_RUNTIME_INFO, GET_BROKER_CONFIG, VIEW_MESSAGE_BY_ID

Not implemented
    Changing the configuration, statistics over time, queries by key, anything that is relayed to a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq._version import __version__
from evenq.broker.server import Connection, Handler, Refusal
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import VERSION, Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["Administration"]


class Administration:
    """The handlers of the broker's own administration."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
        }

    def _runtime(self, request: Command, connection: Connection) -> Command:
        broker = self._broker
        log = broker.store.log
        stats = {
            "brokerVersionDesc": f"evenq {__version__}",
            "brokerVersion": str(VERSION),
            "bootTimestamp": str(int(broker.started * 1000)),
            "commitLogMinOffset": str(log.start),
            "commitLogMaxOffset": str(log.end),
            "msgPutTotalTodayNow": str(sum(queue.max for queue in broker.store.queues())),
            "putTps": "0.0 0.0 0.0",
            "getTransferredTps": "0.0 0.0 0.0",
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            "sendThreadPoolQueueSize": "0",
            "pullThreadPoolQueueSize": "0",
            "queryThreadPoolQueueSize": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": "-1",
            "commitLogDiskRatio": "0.0",
            "consumeQueueDiskRatio": "0.0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            "brokerActive": "true",
        }
        return request.reply(body=bodies.KvTable(table=stats).encode())

    def _config(self, request: Command, connection: Connection) -> Command:
        settings = self._broker.settings
        lines = {
            "brokerName": settings.name,
            "brokerClusterName": settings.cluster,
            "brokerId": 0,
            "listenPort": self._broker.address.rpartition(":")[2],
            "autoCreateTopicEnable": str(settings.auto_create_topics).lower(),
            "flushDiskType": f"{settings.flush.upper()}_FLUSH",
            "maxMessageSize": settings.max_message,
        }
        body = "".join(f"{name}={value}\n" for name, value in lines.items())
        return request.reply(ext=headers.ConfigVersion(version="{}").to_ext(), body=body.encode())

    def _view(self, request: Command, connection: Connection) -> Command:
        offset = headers.ViewMessage.from_ext(request.ext).offset
        record = self._broker.store.record_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by offset: {offset}")
        return request.reply(body=record)
