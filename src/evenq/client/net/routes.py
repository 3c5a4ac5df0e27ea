"""Routes: which brokers have a topic, and with which queues. Asked of the name servers, kept, refreshed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from evenq.balance import PublishRoute
from evenq.client.net.connections import Connections
from evenq.client.net.remote import checked
from evenq.errors import ArgumentError, ConnectError, ProtocolError, RemoteError, TopicNotFound
from evenq.model import MessageQueue, java_order
from evenq.protocol.bodies import ClusterInfo, TopicRoute
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.headers import Header, RouteRequest
from evenq.supervision import Outages

__all__ = ["DEFAULT_TOPIC", "MASTER", "NameServers", "Route", "Routes"]

log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_TOPIC = "TBW102"
MASTER = 0
WRITE, READ = 2, 4

# For how long a route that has lost a broker is said to have lost it: most come back, after a restart.
SHRUNK_S = 120.0

# How long messages of a topic that is being created go to brokers that do not have it yet.
CREATION_S = 300.0

# A name server that tells of more queues of a topic is broken: each is an object here, and is asked about on its own.
MAX_QUEUES = 1 << 18

_NO_BROKER: dict[int, str] = {}


@dataclass(frozen=True, slots=True)
class Route:
    """Where one topic is: its queues to write to and to read from, and the addresses of its brokers."""

    topic: str
    writable: PublishRoute
    readable: tuple[MessageQueue, ...]
    # broker name -> broker id -> address; id 0 is the master
    addresses: Mapping[str, Mapping[int, str]]
    # the default topic's route, used for a topic that the brokers create when they get its first message
    provisional: bool = False

    @classmethod
    def of(cls, topic: str, answer: TopicRoute, *, queues_at_most: int | None = None) -> Route:
        """Read a name server's answer. ``queues_at_most`` is for a topic that will be made after the default one."""
        addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in answer.broker_datas}
        masters = {name for name, ids in addresses.items() if MASTER in ids}
        layout = sorted(
            (data for data in answer.queue_datas if data.broker_name in addresses),
            key=lambda data: java_order(data.broker_name),
        )

        def queues(counts: Sequence[tuple[str, int]]) -> tuple[MessageQueue, ...]:
            limit = queues_at_most if queues_at_most is not None else MAX_QUEUES
            if (total := sum(max(0, count) for _, count in counts)) > MAX_QUEUES:
                raise ProtocolError(f"a route of topic {topic!r} with {total} queues; at most {MAX_QUEUES} are read")
            return tuple(MessageQueue(topic, broker, n) for broker, count in counts for n in range(min(count, limit)))

        ordered = _order_conf(topic, answer.order_topic_conf)
        writable = ordered or [
            (data.broker_name, data.write_queue_nums)
            for data in layout
            if data.perm & WRITE and data.broker_name in masters
        ]
        readable = [(data.broker_name, data.read_queue_nums) for data in layout if data.perm & READ]
        provisional = queues_at_most is not None
        return cls(topic, PublishRoute.of(queues(writable)), queues(readable), addresses, provisional)

    def with_brokers_of(self, other: Route, names: Collection[str]) -> Route:
        """This route with some brokers of another route of the same topic, as a provisional one."""

        def both(mine: Iterable[MessageQueue], others: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
            queues = [*mine, *(queue for queue in others if queue.broker in names)]
            return tuple(sorted(queues, key=lambda queue: (java_order(queue.broker), queue.queue_id)))

        return Route(
            self.topic,
            PublishRoute.of(both(self.writable.queues, other.writable.queues)),
            both(self.readable, other.readable),
            {**other.addresses, **self.addresses},
            provisional=True,
        )

    def address(self, broker: str, broker_id: int = MASTER) -> str:
        """The address of a broker: the replica asked for, else the master, else the slave with the lowest id."""
        return self.replicas(broker, broker_id)[0]

    def replicas(self, broker: str, first: int = MASTER) -> list[str]:
        """The addresses of a broker, at least one: of the replica asked for, of the master, of the slaves by id; a
        proxy's, which stands for all of them, once."""
        ids = self.addresses.get(broker)
        if not ids:
            raise ConnectError(broker, f"the route of topic {self.topic!r} has no such broker; it may have gone")
        return list(dict.fromkeys(ids[number] for number in sorted(ids, key=lambda number: (number != first, number))))

    def master(self, broker: str) -> str:
        """The address of a broker's master, empty if there is none."""
        return self.addresses.get(broker, _NO_BROKER).get(MASTER, "")

    @property
    def masters(self) -> dict[str, str]:
        """Broker name -> address of its master."""
        return {name: ids[MASTER] for name, ids in self.addresses.items() if MASTER in ids}

    @property
    def all_addresses(self) -> set[str]:
        """The addresses of all brokers, masters and slaves."""
        return {address for ids in self.addresses.values() for address in ids.values()}


def _order_conf(topic: str, text: str | None) -> list[tuple[str, int]]:
    """Read ``broker-a:8;broker-b:8``, the fixed layout of an ordered topic. Text of another form is no layout."""
    if not text:
        return []
    parts = [part.partition(":") for part in text.split(";") if part]
    if not all(broker and count.isascii() and count.isdigit() and len(count) < 10 for broker, _, count in parts):
        log.warning("topic %s: the order configuration %r is ignored, expected broker:queues;…", topic, text)
        return []
    return [(broker, int(count)) for broker, _, count in parts]


class NameServers:
    """A list of name servers: one is asked until it fails, then the next."""

    def __init__(self, addresses: Sequence[str], connections: Connections, timeout: float = 3.0) -> None:
        if not addresses:
            raise ArgumentError("namesrv", addresses, "give at least one host:port")
        self.addresses = tuple(addresses)
        self._connections = connections
        self._timeout = timeout
        self._current = 0

    async def ask(self, code: RequestCode, header: Header | None = None) -> Command:
        errors: list[str] = []
        for step in range(len(self.addresses)):
            index = (self._current + step) % len(self.addresses)
            address = self.addresses[index]
            command = Command(code, ext=header.to_ext() if header is not None else {})
            try:
                answer = await self._connections.request(address, command, self._timeout)
            except RemoteError as error:
                errors.append(str(error))
                continue
            self._current = index
            return checked(address, code, answer)
        raise ConnectError("; ".join(self.addresses), f"no name server answers: {'; '.join(errors)}")

    async def route(self, topic: str) -> TopicRoute:
        answer = await self.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic=topic, accept_standard_json_only=True)
        )
        return TopicRoute.decode(answer.body)

    async def cluster(self) -> ClusterInfo:
        return ClusterInfo.decode((await self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)


class Routes:
    """The routes that one client uses. Many callers that miss the same topic share one question.

    ``wire_name`` is what the name servers call a topic, where that is not what the client calls it.
    """

    def __init__(self, name_servers: NameServers, wire_name: Callable[[str], str] = str) -> None:
        self._name_servers = name_servers
        self._wire_name = wire_name
        self._known: dict[str, Route] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[Any]] = {}
        # topics with a provisional route, and when these end
        self._creating: dict[str, float] = {}
        # topic and broker that is gone from its route, and until when that counts
        self._lost: dict[tuple[str, str], float] = {}
        self._outages = Outages()
        # called with (old, new) when the route of a topic is no longer what it was
        self.on_change: list[Callable[[Route | None, Route], None]] = []

    def known(self, topic: str) -> Route | None:
        return self._known.get(topic)

    async def get(self, topic: str) -> Route:
        return self._known.get(topic) or await self.refresh(topic)

    async def get_for_send(self, topic: str, queues_at_most: int) -> Route:
        """The route to send by. A topic that does not exist gets the default topic's: each broker creates the topic
        when it gets the first message.

        A broker of that route is used until it has the topic, so that messages go to all of them and the topic is
        created on each. A question after the first message would find the topic on one broker, and it would stay there.
        """
        route = self._known.get(topic)
        if route is not None:
            return route
        try:
            return await self.refresh(topic)
        except TopicNotFound as missing:
            try:
                answer = await self._shared(("default", DEFAULT_TOPIC), self._name_servers.route)
            except TopicNotFound:
                raise missing from None
            # another caller may have got a route meanwhile
            if (route := self._known.get(topic)) is not None:
                return route
            self._creating[topic] = time.monotonic() + CREATION_S
            return self._keep(Route.of(topic, answer, queues_at_most=queues_at_most))

    async def refresh(self, topic: str) -> Route:
        """Ask the name server now, and keep the answer."""
        return await self._shared(("route", topic), self._ask)

    async def _shared(self, key: tuple[str, str], ask: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        """What ``ask`` finds out; all who want the same at the same time wait for one answer."""
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(ask(key[1]))
            task.add_done_callback(lambda done: self._asking.pop(key, None))
        # a caller that gives up must not take the answer from the others
        found: T = await asyncio.shield(task)
        return found

    async def refresh_all(self) -> None:
        """Ask for every topic in use. What cannot be refreshed now stays as it was, except topics that are gone."""
        unexpected: Exception | None = None
        for topic in list(self._known):
            try:
                await self.refresh(topic)
            except TopicNotFound:
                gone = self._known.pop(topic, None)
                if gone is not None and not gone.provisional:
                    log.warning("topic %s has no route any more", topic)
            except RemoteError as error:
                self._outages.failed(f"refresh of the route of topic {topic}", error)
            except Exception as error:  # noqa: BLE001 - raised below: the other topics must have their turn first
                unexpected = error
            else:
                self._outages.ended(f"refresh of the route of topic {topic}")
        if unexpected is not None:
            raise unexpected

    def all(self) -> list[Route]:
        return list(self._known.values())

    def shrunk(self) -> set[str]:
        """The topics whose routes have lost a broker not long ago that is still missing."""
        now = time.monotonic()
        self._lost = {lost: until for lost, until in self._lost.items() if until > now and lost[0] in self._known}
        return {topic for topic, _ in self._lost}

    def masters(self) -> dict[str, str]:
        """Broker name -> master address, over all routes in use."""
        return dict(chain.from_iterable(route.masters.items() for route in self._known.values()))

    def all_addresses(self) -> set[str]:
        """The addresses of all brokers, masters and slaves, over all routes in use."""
        return set().union(*(route.all_addresses for route in self._known.values()))

    def master_of(self, broker: str) -> str:
        address = self.masters().get(broker)
        if address is None:
            raise ConnectError(broker, "no route in use has its master; it may have gone")
        return address

    def first_replica_of(self, broker: str) -> str:
        """The address of a broker's master, or of the slave with the lowest id while no route in use has its master:
        where all members of a group find each other's locks."""
        ids = dict(
            chain.from_iterable(route.addresses.get(broker, _NO_BROKER).items() for route in self._known.values())
        )
        if not ids:
            raise ConnectError(broker, "no route in use has such a broker; it may have gone")
        return ids[min(ids)]

    def address_of(self, queue: MessageQueue, broker_id: int = MASTER) -> str:
        route = self._known.get(queue.topic)
        if route is None:
            raise ConnectError(queue.broker, f"there is no route for topic {queue.topic!r}")
        return route.address(queue.broker, broker_id)

    async def _ask(self, topic: str) -> Route:
        found = Route.of(topic, await self._name_servers.route(self._wire_name(topic)))
        old = self._known.get(topic)
        return self._keep(found if old is None or not old.provisional else await self._still_creating(old, found))

    async def _still_creating(self, old: Route, found: Route) -> Route:
        """The route of a topic that some brokers do not have yet but would create, as the default topic's route says.

        It ends after a while, for one of them may be unable to create it.
        """
        have = {*found.writable.by_broker, *(queue.broker for queue in found.readable)}
        missing = set(old.writable.by_broker) - have
        if missing and time.monotonic() < self._creating.get(old.topic, 0.0):
            try:
                default = await self._shared(("default", DEFAULT_TOPIC), self._name_servers.route)
                missing &= set(Route.of(old.topic, default).writable.by_broker)
            except TopicNotFound:
                missing.clear()
            if missing:
                return found.with_brokers_of(old, missing)
        self._creating.pop(old.topic, None)
        return found

    def _keep(self, new: Route) -> Route:
        old = self._known.get(new.topic)
        self._known[new.topic] = new
        for broker in new.addresses:
            self._lost.pop((new.topic, broker), None)
        for broker in old.addresses.keys() - new.addresses.keys() if old is not None else ():
            self._lost[new.topic, broker] = time.monotonic() + SHRUNK_S
        if new != old:
            for listener in self.on_change:
                listener(old, new)
        return new
