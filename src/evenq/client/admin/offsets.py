"""Offsets of groups: how far each is, who holds which queue, and to move a group to another place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from evenq.balance import Strategy, StrategyLike, as_strategy, assign
from evenq.client.admin.base import milliseconds, moment
from evenq.client.admin.cluster import Clusters
from evenq.client.admin.groups import Client, Groups, Membership
from evenq.client.net.remote import by_broker, together
from evenq.client.net.routes import Route
from evenq.errors import ArgumentError, StateError, TopicNotFound
from evenq.model import MessageModel, MessageQueue
from evenq.protocol.bodies import ConsumeStats, QueueOffsets
from evenq.protocol.codes import RequestCode
from evenq.protocol.headers import ConsumeStatsRequest, ResetOffset

__all__ = ["GroupProgress", "Holder", "Offsets", "Place", "QueueProgress", "QueueReset"]

Place = Literal["first", "last"] | datetime | Mapping[MessageQueue, int]

# How places are told to a broker that looks offsets up by itself.
_FIRST, _LAST = 0, -1


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A member that holds a queue. ``told`` is False where not the member says so, but the strategy would have it."""

    queue: MessageQueue
    member: str
    told: bool


class QueueProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one queue: ``offset`` is the next one it will read, ``end`` the next to be written.

    ``consumed_at`` is when the last consumed message was stored.
    """

    queue: MessageQueue
    offset: int
    end: int
    consumed_at: datetime | None
    holder: Holder | None

    @property
    def lag(self) -> int:
        return self.end - self.offset


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is. ``rate`` is messages out in a second, over the last minute."""

    group: str
    queues: tuple[QueueProgress, ...]
    rate: float

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)


class QueueReset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group was in a queue, if anywhere, and where it is now."""

    queue: MessageQueue
    before: int | None
    after: int


class Offsets(Groups, Clusters):
    """What can be asked of a group's offsets and done with them."""

    async def progress(self, group: str, topic: str | None = None, *, strategy: StrategyLike = "AVG") -> GroupProgress:
        """How far the group is in each queue of its topics, or of one topic, and who holds the queue.

        ``strategy`` is for members that do not tell what they hold, as for :meth:`holders`.
        """
        masters = await self._chosen()
        wire_topic = None if topic is None else self._wire(topic)
        header = ConsumeStatsRequest(consumer_group=self._wire(group), topic=wire_topic)
        answers = await self._ask_each(masters, RequestCode.GET_CONSUME_STATS, header)
        stats = [ConsumeStats.decode(answer.body) for answer in answers.values()]
        pairs = {self._own_queue(queue): pair for part in stats for queue, pair in part.offset_table.items()}
        if not pairs:
            await self._known_group(group, masters)
        holders = {holder.queue: holder for holder in await self.holders(group, strategy=strategy)}
        return GroupProgress(
            group=self._own(group),
            queues=tuple(
                QueueProgress(
                    queue=queue,
                    offset=pairs[queue].consumer_offset,
                    end=pairs[queue].broker_offset,
                    consumed_at=moment(pairs[queue].last_timestamp),
                    holder=holders.get(queue),
                )
                for queue in sorted(pairs)
            ),
            rate=sum(part.consume_tps for part in stats),
        )

    async def holders(self, group: str, *, strategy: StrategyLike = "AVG") -> tuple[Holder, ...]:
        """Who holds which queue now, asked of the members through a broker.

        Some members do not tell. What they hold is what ``strategy`` gives them, of the queues that nobody else
        claims: a supposition, and marked so.
        """
        rule = as_strategy(strategy)
        membership = await self.members(group)
        masters = await self.masters()
        told = await together(*(self._held_by(masters, group, client) for client in membership.members))
        holders = [
            Holder(queue=queue, member=client.client_id, told=True)
            for client, queues in zip(membership.members, told, strict=True)
            for queue in queues or ()
        ]
        silent = {client.client_id for client, queues in zip(membership.members, told, strict=True) if queues is None}
        if silent:
            routes = [route for topic in membership.subscriptions if (route := await self._readable(topic))]
            claimed = {holder.queue for holder in holders}
            # by the names that members know, since a strategy may hash them
            for holder in _supposed(msgspec.structs.replace(membership, group=self._wire(group)), routes, rule):
                queue = self._own_queue(holder.queue)
                if holder.member in silent and queue not in claimed:
                    holders.append(Holder(queue=queue, member=holder.member, told=False))
        return tuple(sorted(holders, key=lambda holder: (holder.queue.sort_key, holder.member)))

    async def reset(self, group: str, topic: str, to: Place) -> tuple[QueueReset, ...]:
        """Move the group: to the ``"first"`` message of each queue, behind the ``"last"``, to the first one stored at a
        time or later, or to exactly these offsets of these queues.

        Members that are online go there too. Brokers of RocketMQ 5 see to that for every place; older ones cannot move
        members to exact offsets: then nobody may be online.
        """
        self._session.check_open("admin client")
        route = await self._session.routes.refresh(self._wire(topic))
        await self._known_group(group, await self._chosen())
        if isinstance(to, Mapping) and self._session.namespace:
            to = {self._wire_queue(queue): offset for queue, offset in to.items()}
        queues = _checked_queues(route, to)
        group = self._wire(group)
        before = await together(*(self._stored(route, group, queue) for queue in queues))
        targets = dict(zip(queues, await together(*(self._place(route, queue, to) for queue in queues)), strict=True))
        moved = await together(
            *(
                self._move(route.address(broker), group, to, {queue: targets[queue] for queue in part})
                for broker, part in by_broker(queues).items()
            )
        )
        after = {queue: offset for part in moved for queue, offset in part.items()}
        return tuple(
            QueueReset(queue=self._own_queue(queue), before=old, after=after[queue])
            for queue, old in zip(queues, before, strict=True)
        )

    async def _held_by(self, masters: dict[str, str], group: str, client: Client) -> list[MessageQueue] | None:
        """What a member says that it holds; None where it does not say."""
        info = await self._running_info(masters, group, client)
        if info is None:
            return None
        held = {queue for queue, state in info.mq_table.items() if not state.dropped}
        held |= {queue for queue, state in info.mq_pop_table.items() if not state.dropped}
        return sorted(map(self._own_queue, held))

    async def _readable(self, topic: str) -> Route | None:
        try:
            return await self._session.routes.refresh(self._wire(topic))
        except TopicNotFound:
            return None

    async def _stored(self, route: Route, group: str, queue: MessageQueue) -> int | None:
        return await self._session.remote.stored_offset(route.address(queue.broker), group, queue)

    async def _place(self, route: Route, queue: MessageQueue, to: Place) -> int:
        """The offset that a place is in this queue."""
        remote, address = self._session.remote, route.address(queue.broker)
        match to:
            case "first":
                return await remote.min_offset(address, queue)
            case "last":
                return await remote.max_offset(address, queue)
            case datetime():
                return await remote.offset_at(address, queue, milliseconds("to", to))
            case _:
                low, high = await together(remote.min_offset(address, queue), remote.max_offset(address, queue))
                if not low <= to[queue] <= high:
                    raise ArgumentError("to", to[queue], f"{queue} holds offsets from {low} up to {high}")
                return to[queue]

    async def _move(
        self, address: str, group: str, to: Place, targets: dict[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """Let one broker move the group in its queues; gives where it is then."""
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        if (await self._settings_of(address)).get("useServerSideResetOffset") == "true":
            headers = [
                ResetOffset(topic=queue.topic, group=group, timestamp=_FIRST, queue_id=queue.queue_id, offset=offset)
                for queue, offset in targets.items()
            ]
            await together(*(self._ask(address, code, header) for header in headers))
            return targets
        if await self._session.remote.connected(address, group) is None:
            await together(*(self._session.remote.commit(address, group, *target) for target in targets.items()))
            return targets
        if isinstance(to, Mapping):
            raise StateError(
                f"group {group} has members online, and {address} cannot move members to exact offsets: "
                "stop them first, or give a time"
            )
        topic = next(iter(targets)).topic
        answer = await self._ask(address, code, ResetOffset(topic=topic, group=group, timestamp=_timestamp(to)))
        return targets | QueueOffsets.decode(answer.body).offset_table


def _checked_queues(route: Route, to: Place) -> list[MessageQueue]:
    """The queues to move a group in; what cannot be a place is an error."""
    match to:
        case "first" | "last":
            return list(route.readable)
        case datetime():
            milliseconds("to", to)
            return list(route.readable)
        case Mapping() if to:
            for queue in to:
                if queue not in route.readable:
                    raise ArgumentError("to", str(queue), f"topic {route.topic!r} has no such queue to read from")
            return sorted(to)
        case _:
            raise ArgumentError("to", to, "give 'first', 'last', a datetime, or offsets by queue")


def _timestamp(to: Literal["first", "last"] | datetime) -> int:
    match to:
        case "first":
            return _FIRST
        case "last":
            return _LAST
        case _:
            return milliseconds("to", to)


def _supposed(membership: Membership, routes: list[Route], rule: Strategy) -> list[Holder]:
    """What the strategy gives to each member; in broadcasting, everybody has everything."""
    members = [client.client_id for client in membership.members]
    if membership.model == MessageModel.BROADCASTING.value:
        return [
            Holder(queue=queue, member=member, told=False)
            for route in routes
            for queue in route.readable
            for member in members
        ]
    return [
        Holder(queue=queue, member=member, told=False)
        for route in routes
        if route.readable
        for member, queues in assign(rule, route.readable, members, group=membership.group).items()
        for queue in queues
    ]
