"""What a name server knows: which brokers there are, and which topics they have with how many queues."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from evenq.errors import StateError
from evenq.protocol.bodies import BrokerData, ClusterInfo, DataVersion, QueueData, TopicConfig, TopicRoute
from evenq.protocol.flags import Perm

__all__ = ["SILENCE_SECONDS", "BrokerId", "RouteTable"]

# A broker registers every 30 s; one that is silent for longer than this is dropped.
SILENCE_SECONDS = 120.0

MASTER = 0

Channel = TypeVar("Channel", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BrokerId:
    """One broker process: brokers of the same name share their topics, and the one with id 0 is their master."""

    cluster: str
    name: str
    address: str
    broker_id: int = MASTER


@dataclass(slots=True)
class _Alive(Generic[Channel]):
    channel: Channel
    until: float
    silence: float
    version: DataVersion


def _share_place(one: BrokerId, other: BrokerId) -> bool:
    """Whether two brokers cannot be there at the same time."""
    same_name = (one.name, one.broker_id) == (other.name, other.broker_id)
    return same_name or (one.cluster, one.address) == (other.cluster, other.address)


class RouteTable(Generic[Channel]):
    """Brokers and topics.

    >>> table = RouteTable(clock=lambda: 0.0)
    >>> broker = BrokerId("DefaultCluster", "broker-a", "127.0.0.1:10911")
    >>> table.register(broker, [TopicConfig(topic_name="orders")], DataVersion(), channel=1)
    >>> table.route("orders").broker_datas[0].master, table.route("bills")
    ('127.0.0.1:10911', None)
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._alive: dict[BrokerId, _Alive[Channel]] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}

    def register(
        self,
        broker: BrokerId,
        topics: Iterable[TopicConfig],
        version: DataVersion,
        channel: Channel,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        """A broker is there, with these topics; a :class:`StateError` where another one has its place.

        A name and id, or an address, are one broker's for as long as it is alive. That broker itself, over the
        connection on which it registered, may change them.
        """
        rivals = [known for known in self._alive if known != broker and _share_place(known, broker)]
        for known in rivals:
            alive = self._alive[known]
            if alive.channel != channel and alive.until >= self._clock():
                raise StateError(
                    f"broker {broker.name} (id {broker.broker_id}) at {broker.address} is not registered: {known.name} "
                    f"(id {known.broker_id}) at {known.address} is there already; stop that one, or choose another name"
                )
        for known in rivals:
            del self._alive[known]
        before = self._alive.get(broker)
        self._alive[broker] = _Alive(channel, self._clock() + silence, silence, version)
        if broker.broker_id == MASTER:
            for topic in topics:
                queues = self._queues.setdefault(topic.topic_name, {})
                # of topics that are as they were a name server may know better: their write permission was taken
                if before is not None and before.version == version and broker.name in queues:
                    continue
                queues[broker.name] = QueueData(
                    broker_name=broker.name,
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=topic.write_queue_nums,
                    perm=topic.perm,
                    topic_sys_flag=topic.topic_sys_flag,
                )

    def heard(self, cluster: str, address: str) -> None:
        """A broker is still there."""
        for broker, alive in self._alive.items():
            if (broker.cluster, broker.address) == (cluster, address):
                alive.until = self._clock() + alive.silence

    def version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics that a broker last registered."""
        for broker, alive in self._alive.items():
            if (broker.cluster, broker.address) == (cluster, address):
                return alive.version
        return None

    def unregister(self, broker: BrokerId, channel: Channel | None = None) -> None:
        """A broker leaves, over the connection on which it registered; a :class:`StateError` for any other."""
        alive = self._alive.get(broker)
        if alive is not None and channel is not None and alive.channel != channel:
            raise StateError(
                f"broker {broker.name} at {broker.address} is not unregistered: it registered over another connection; "
                f"stop that broker, or wait until it is silent"
            )
        self._alive.pop(broker, None)
        self._forget_queues()

    def lose(self, channel: Channel) -> list[BrokerId]:
        """A connection is gone: the brokers that registered over it are dropped."""
        return self._drop(broker for broker, alive in self._alive.items() if alive.channel == channel)

    def expire(self) -> list[BrokerId]:
        """Drop the brokers that were silent for too long."""
        now = self._clock()
        return self._drop(broker for broker, alive in self._alive.items() if alive.until < now)

    def _drop(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        dropped = list(brokers)
        for broker in dropped:
            del self._alive[broker]
        if dropped:
            self._forget_queues()
        return dropped

    def _forget_queues(self) -> None:
        names = {broker.name for broker in self._alive}
        for topic, queues in list(self._queues.items()):
            for name in [name for name in queues if name not in names]:
                del queues[name]
            if not queues:
                del self._queues[topic]

    def delete_topic(self, topic: str) -> None:
        self._queues.pop(topic, None)

    def set_write(self, broker_name: str, allowed: bool) -> int:
        """Take the write permission of a broker's topics away, or give it back; how many topics it concerned."""
        count = 0
        for queues in self._queues.values():
            known = queues.get(broker_name)
            if known is not None:
                perm = Perm.READ | Perm.WRITE if allowed else known.perm & ~Perm.WRITE
                queues[broker_name] = QueueData(
                    broker_name=broker_name,
                    read_queue_nums=known.read_queue_nums,
                    write_queue_nums=known.write_queue_nums,
                    perm=int(perm),
                    topic_sys_flag=known.topic_sys_flag,
                )
                count += 1
        return count

    def brokers(self) -> dict[str, BrokerData]:
        """The brokers by name, with the addresses of all that share it."""
        addresses: dict[tuple[str, str], dict[int, str]] = {}
        for broker in self._alive:
            addresses.setdefault((broker.name, broker.cluster), {})[broker.broker_id] = broker.address
        return {
            name: BrokerData(broker_name=name, cluster=cluster, broker_addrs=found)
            for (name, cluster), found in sorted(addresses.items())
        }

    def route(self, topic: str) -> TopicRoute | None:
        queues = self._queues.get(topic)
        if not queues:
            return None
        brokers = self.brokers()
        return TopicRoute(
            broker_datas=[brokers[name] for name in sorted(queues) if name in brokers],
            queue_datas=[queues[name] for name in sorted(queues)],
        )

    def clusters(self) -> ClusterInfo:
        names: dict[str, list[str]] = {}
        brokers = self.brokers()
        for name, data in brokers.items():
            names.setdefault(data.cluster or "", []).append(name)
        return ClusterInfo(broker_addr_table=brokers, cluster_addr_table=names)

    def topics(self, cluster: str | None = None) -> list[str]:
        """All topics, or those that a broker of the cluster has."""
        if cluster is None:
            return sorted(self._queues)
        names = {broker.name for broker in self._alive if broker.cluster == cluster}
        return sorted(topic for topic, queues in self._queues.items() if names & queues.keys())
