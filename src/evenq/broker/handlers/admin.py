"""Administration of the broker itself: what it is, how it does, how it is set.

Behaviour
    Names are the Java broker's, since its tools look for them. What came in is counted since the store was begun, what
    went out since the start. A setting that cannot be changed while the broker runs is refused, not ignored.

Codes
    GET_BROKER_RUNTIME_INFO, GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG, VIEW_BROKER_STATS_DATA

Not implemented
    Settings that outlive the process: they come from its command line.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evenq._version import __version__
from evenq.broker.admission import INT64, wire_int
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.state.statistics import BROKER_GET, BROKER_PUT, DAY, HOUR, MINUTE
from evenq.errors import ArgumentError
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import VERSION, Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker, BrokerSettings

__all__ = ["AdminHandlers"]


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _integer(text: str) -> int:
    value = wire_int(text, *INT64)
    if value is None:
        raise ValueError(text)
    return value


# What can be changed while the broker runs: the name of the setting here, and how its text is read.
_CHANGEABLE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "maxMessageSize": ("max_message", _integer),
    "fileReservedTime": ("keep_hours", float),
    "flushDiskType": ("flush", {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}.__getitem__),
    "autoCreateTopicEnable": ("auto_create_topics", _truth),
    "autoCreateSubscriptionGroup": ("auto_create_groups", _truth),
}
_WANTED = {
    "maxMessageSize": "give a whole number of bytes",
    "fileReservedTime": "give a number of hours",
    "flushDiskType": "give ASYNC_FLUSH or SYNC_FLUSH",
    "autoCreateTopicEnable": "give true or false",
    "autoCreateSubscriptionGroup": "give true or false",
}


class AdminHandlers:
    """The handlers of the broker's own administration."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.UPDATE_BROKER_CONFIG: self._change,
            RequestCode.VIEW_BROKER_STATS_DATA: self._growth,
        }

    def _runtime(self, request: Command, connection: Connection) -> Command:
        broker = self._broker
        log = broker.store.log
        disk = shutil.disk_usage(broker.directory)
        first = broker.store.begin_time
        put, got = (BROKER_PUT, broker.settings.cluster), (BROKER_GET, broker.settings.cluster)
        facts: dict[str, object] = {
            "brokerVersionDesc": f"evenq {__version__}",
            "brokerVersion": VERSION,
            "brokerActive": "true",
            "bootTimestamp": int(broker.started * 1000),
            "runtime": _duration(broker.now_ms() // 1000 - int(broker.started)),
            "commitLogMinOffset": log.start,
            "commitLogMaxOffset": log.end,
            "commitLogDiskRatio": disk.used / disk.total,
            "consumeQueueDiskRatio": disk.used / disk.total,
            "commitLogDirCapacity": f"Total : {disk.total}, Free : {disk.free}.",
            "earliestMessageTimeStamp": -1 if first is None else first,
            "msgPutTotalTodayNow": broker.traffic.get(put),
            "msgGetTotalTodayNow": broker.traffic.get(got),
            "putTps": self._tps(put),
            "getTransferredTps": self._tps(got),
            "getFoundTps": self._tps(got),
        }
        return request.reply(body=bodies.KvTable(table=_AT_REST | {k: str(v) for k, v in facts.items()}).encode())

    def _tps(self, key: tuple[str, str]) -> str:
        """Over the last 10 s, minute and 10 minutes."""
        return " ".join(str(self._broker.rates.over(seconds, key).tps) for seconds in (10, 60, 600))

    def _config(self, request: Command, connection: Connection) -> Command:
        settings = self._broker.settings
        values = {
            "brokerName": settings.name,
            "brokerClusterName": settings.cluster,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "listenPort": self._broker.address.rpartition(":")[2],
            "storePathRootDir": self._broker.directory,
            "enablePropertyFilter": "true",
            "useServerSideResetOffset": "true",
            "autoCreateTopicEnable": str(settings.auto_create_topics).lower(),
            "autoCreateSubscriptionGroup": str(settings.auto_create_groups).lower(),
            "flushDiskType": f"{settings.flush.upper()}_FLUSH",
            "fileReservedTime": f"{settings.keep_hours:g}",
            "mappedFileSizeCommitLog": settings.log_file_size,
            "maxMessageSize": settings.max_message,
        }
        body = "".join(f"{name}={value}\n" for name, value in values.items())
        return request.reply(ext=headers.ConfigVersion(version="{}").to_ext(), body=body.encode())

    def _change(self, request: Command, connection: Connection) -> Command:
        changes: dict[str, Any] = {}
        for line in request.body.decode(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip():
                changes |= _change_of(self._broker.settings, name.strip(), value.strip())
        self._broker.change(replace(self._broker.settings, **changes))
        return request.reply()

    def _growth(self, request: Command, connection: Connection) -> Command:
        header = headers.BrokerStats.from_ext(request.ext)
        key = header.stats_name, header.stats_key
        if self._broker.traffic.get(key) is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{key[0]}> <{key[1]}> not exist")
        spans = [self._broker.rates.over(seconds, key) for seconds in (MINUTE, HOUR, DAY)]
        minute, hour, day = (bodies.StatsItem(sum=span.sum, tps=span.tps) for span in spans)
        return request.reply(body=bodies.BrokerStatsBody(stats_minute=minute, stats_hour=hour, stats_day=day).encode())


# What a Java broker has queues and threads for, and this one has not.
_AT_REST = dict.fromkeys(
    "sendThreadPoolQueueSize pullThreadPoolQueueSize ackThreadPoolQueueSize queryThreadPoolQueueSize "
    "sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueHeadWaitTimeMills "
    "queryThreadPoolQueueHeadWaitTimeMills pageCacheLockTimeMills dispatchBehindBytes "
    "timerReadBehind timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps "
    "msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgGetTotalYesterdayMorning msgGetTotalTodayMorning".split(),
    "0",
)


def _change_of(settings: BrokerSettings, name: str, value: str) -> dict[str, Any]:
    if name not in _CHANGEABLE:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"{name} cannot be changed while the broker runs; these can: {', '.join(_CHANGEABLE)}",
        )
    setting, read = _CHANGEABLE[name]
    remedy = _WANTED[name]
    try:
        change = {setting: read(value)}
        replace(settings, **change)
    except ArgumentError as error:
        remedy = error.remedy
    except (KeyError, ValueError):
        pass
    else:
        return change
    raise Refusal(ResponseCode.INVALID_PARAMETER, f"{name} cannot be {value[:40]!r}: {remedy}")


def _duration(seconds: int) -> str:
    """As the Java broker writes how long it has been running.

    >>> _duration(93784)
    '[ 1 days, 2 hours, 3 minutes, 4 seconds ]'
    """
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
