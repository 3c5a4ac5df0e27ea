"""The cluster: which brokers there are, and how each of them does."""

from __future__ import annotations

from datetime import datetime

import msgspec

from evenq.client.admin.base import Administration, moment
from evenq.errors import ArgumentError, RefusedError
from evenq.model import java_order
from evenq.protocol.bodies import BrokerStatsBody, KvTable, StatsItem
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.headers import BrokerNameRequest, BrokerStats, WipedResponse

__all__ = ["Broker", "BrokerStatus", "Clusters", "Counter", "Counters"]

MASTER = 0
# How statistics begin whose key is the name of a cluster.
_OF_BROKERS = "BROKER_"


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """One broker process. Those of the same name hold the same messages; the one with id 0 is their master."""

    name: str
    cluster: str
    broker_id: int
    address: str


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker does. Rates are messages a second, over the last 10 s; ``figures`` is all that it tells, by
    RocketMQ's names."""

    broker: Broker
    version: str
    started: datetime | None
    rate_in: float
    rate_out: float
    figures: dict[str, str]


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted in some time: how often, how often a second, and the average of what it took."""

    total: int
    rate: float
    average: float


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker counted in the last minute, hour and day."""

    minute: Counter
    hour: Counter
    day: Counter


class Clusters(Administration):
    """What can be asked of brokers and done with them."""

    async def brokers(self) -> tuple[Broker, ...]:
        """Every broker that the name server knows, masters and replicas. None of them is asked."""
        info = await self._cluster_info()
        return tuple(
            Broker(name=name, cluster=data.cluster or "", broker_id=broker_id, address=address)
            for name, data in sorted(info.broker_addr_table.items(), key=lambda item: java_order(item[0]))
            for broker_id, address in sorted(data.broker_addrs.items())
        )

    async def broker_status(self, name: str, *, broker_id: int = MASTER) -> BrokerStatus:
        """How the broker does, in its own words."""
        broker = await self._broker(name, broker_id)
        answer = await self._ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        figures = KvTable.decode(answer.body).table
        return BrokerStatus(
            broker=broker,
            version=_version(figures.get("brokerVersionDesc", "")),
            started=moment(_millis(figures.get("bootTimestamp"))),
            rate_in=_rate(figures.get("putTps")),
            rate_out=_rate(figures.get("getTransferredTps")),
            figures=dict(sorted(figures.items())),
        )

    async def broker_settings(self, name: str, *, broker_id: int = MASTER) -> dict[str, str]:
        """The broker's settings, by RocketMQ's names."""
        return await self._settings_of((await self._broker(name, broker_id)).address)

    async def counters(self, name: str, key: str) -> dict[str, Counters]:
        """One of RocketMQ's statistics on each broker that has counted it: ``TOPIC_PUT_NUMS`` of a topic, or
        ``GROUP_GET_NUMS`` of ``topic@group``. A minute counts when it is over."""
        if not name.startswith(_OF_BROKERS):
            # topics and groups; queues are numbers
            key = "@".join(part if part.isdecimal() else self._wire(part) for part in key.split("@"))
        found = {}
        for broker, address in (await self._chosen()).items():
            try:
                answer = await self._ask(
                    address, RequestCode.VIEW_BROKER_STATS_DATA, BrokerStats(stats_name=name, stats_key=key)
                )
            except RefusedError as error:
                # the answer to something that was never counted
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                continue
            body = BrokerStatsBody.decode(answer.body)
            found[broker] = Counters(
                minute=_counter(body.stats_minute), hour=_counter(body.stats_hour), day=_counter(body.stats_day)
            )
        return found

    async def set_writable(self, broker: str, writable: bool) -> int:
        """Take the write permission of all topics on the broker away, e.g. before it is stopped, or give it back; how
        many topics that concerned.

        Name servers remember it, so senders go elsewhere with their next look at the routes, after at most 30 s, and
        consumers read on what is there. The broker itself knows nothing of it: when one of its topics is created or
        changed, or it starts anew, it registers its own permissions. Given back, each topic may be read and written,
        also one that might not before.
        """
        await self._chosen([broker])
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER if writable else RequestCode.WIPE_WRITE_PERM_OF_BROKER
        answers = await self._tell_name_servers(code, BrokerNameRequest(broker_name=broker))
        told = [WipedResponse.from_ext(answer.ext) for answer in answers]
        return max((each.add_topic_count if writable else each.wipe_topic_count) or 0 for each in told)

    async def _broker(self, name: str, broker_id: int) -> Broker:
        brokers = await self.brokers()
        for broker in brokers:
            if (broker.name, broker.broker_id) == (name, broker_id):
                return broker
        known = ", ".join(f"{broker.name} ({broker.broker_id})" for broker in brokers) or "none"
        raise ArgumentError("broker", f"{name} ({broker_id})", f"the name server does not know it; it knows {known}")

    async def _settings_of(self, address: str) -> dict[str, str]:
        text = (await self._ask(address, RequestCode.GET_BROKER_CONFIG)).body.decode(errors="replace")
        return {name: value for name, _, value in sorted(line.partition("=") for line in text.splitlines()) if name}


def _version(description: str) -> str:
    """A version as people write it: Java brokers say ``V5_4_0``."""
    return description.removeprefix("V").replace("_", ".") if description.startswith("V") else description


def _rate(figures: str | None) -> float:
    """The first of the rates that a broker tells as ``10 s, 60 s, 600 s`` (or fewer, just after its start)."""
    try:
        return float((figures or "").split()[0])
    except (IndexError, ValueError):
        return 0.0


def _millis(figure: str | None) -> int:
    """A time as a broker tells it; 0 where it is none."""
    return int(figure) if figure and figure.isascii() and figure.isdigit() and len(figure) < 20 else 0


def _counter(item: StatsItem | None) -> Counter:
    item = item or StatsItem()
    return Counter(total=item.sum, rate=item.tps, average=item.avgpt)
