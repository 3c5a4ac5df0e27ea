"""Progress: how far queues and groups are, and who consumes what.

Behaviour
    A group that has members is measured in the topics it subscribes to; one without members wherever it has offsets.
    Offsets that a group does not have count as 0, as with the Java broker.

Codes
    GET_TOPIC_STATS_INFO, GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS, QUERY_CONSUME_TIME_SPAN,
    QUERY_TOPIC_CONSUME_BY_WHO, QUERY_TOPICS_BY_CONSUMER, QUERY_SUBSCRIPTION_BY_CONSUMER, QUERY_CORRECTION_OFFSET,
    GET_ALL_CONSUMER_OFFSET

Not implemented
    Progress of groups that pop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from evenq.broker.server import Connection, Handler, Pieces, Refusal
from evenq.broker.state.statistics import GROUP_GET, MINUTE, TOPIC_PUT
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import CUT_REMARK, RequestCode, ResponseCode
from evenq.protocol.command import Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["ProgressHandlers"]

# What Java says of a queue that no group may be taken back in.
_NEVER = 2**63 - 1

# After so many rows other requests have their turn.
_PIECE = 64

T = TypeVar("T")


class _Rows:
    """Counts the rows of an answer, all lists of it together. ``cut`` is the remark that some were left out."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._count = 0
        self.cut: str | None = None

    @property
    def is_piece(self) -> bool:
        """Whether so many were given that others should have their turn."""
        return self._count % _PIECE == 0

    def of(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if self._count >= self._limit:
                self.cut = f"{CUT_REMARK}{self._limit} rows: this broker gives no more at a time"
                return
            self._count += 1
            yield item


class ProgressHandlers:
    """The handlers of questions for progress."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self._topic,
            RequestCode.GET_CONSUME_STATS: self._group,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            RequestCode.QUERY_CORRECTION_OFFSET: self._corrections,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
        }

    def _topic(self, request: Command, connection: Connection) -> Pieces:
        self._broker.server.check_room()
        name = headers.TopicRequest.from_ext(request.ext).topic
        topic = self._config(name)
        table: dict[MessageQueue, bodies.OffsetRange] = {}
        rows = self._rows()
        for queue in rows.of(self._queues(name, max(topic.write_queue_nums, topic.read_queue_nums))):
            if rows.is_piece:
                yield
            first, end = self._broker.store.bounds(name, queue.queue_id)
            last_time = self._broker.store.time_of(name, queue.queue_id, end - 1) or 0
            table[queue] = bodies.OffsetRange(min_offset=first, max_offset=end, last_update_timestamp=last_time)
        rate = self._broker.rates.over(MINUTE, (TOPIC_PUT, name)).tps
        body = yield from bodies.TopicStats(offset_table=table, topic_put_tps=rate).encode_pieces()
        return request.reply(body=body, remark=rows.cut)

    def _group(self, request: Command, connection: Connection) -> Pieces:
        self._broker.server.check_room()
        header = headers.ConsumeStatsRequest.from_ext(request.ext)
        group = header.consumer_group
        if header.topic_list:
            topics: Iterable[str] = [topic for topic in header.topic_list.split(";") if topic]
        else:
            topics = self._subscribed(group, [header.topic] if header.topic else self._broker.offsets.topics(group))
        table: dict[MessageQueue, bodies.OffsetPair] = {}
        rate = 0.0
        rows = self._rows()
        for topic in rows.of(topics):
            if rows.is_piece:
                yield
            config = self._broker.topics.get(topic)
            if config is not None:
                for queue in rows.of(self._queues(topic, config.read_queue_nums)):
                    if rows.is_piece:
                        yield
                    table[queue] = self._pair(group, queue)
                rate += self._rate(group, topic)
        body = yield from bodies.ConsumeStats(offset_table=table, consume_tps=rate).encode_pieces()
        return request.reply(body=body, remark=rows.cut)

    def _all_groups(self, request: Command, connection: Connection) -> Pieces:
        self._broker.server.check_room()
        ordered_only = headers.BrokerConsumeStats.from_ext(request.ext).is_order
        found: list[dict[str, list[bodies.ConsumeStats]]] = []
        all_pairs: list[bodies.OffsetPair] = []
        rows = self._rows()
        # both may change between the pieces
        topics: dict[str, list[str]] = {}
        for (topic, group), _ in self._broker.offsets.entries():
            topics.setdefault(group, []).append(topic)
        groups = [settings.group_name for settings in self._broker.group_configs]
        for group in rows.of(groups):
            if rows.is_piece:
                yield
            stats = []
            for topic in self._subscribed(group, topics.get(group, [])):
                config = self._broker.topics.get(topic)
                if config is not None and (config.order or not ordered_only):
                    pairs: dict[MessageQueue, bodies.OffsetPair] = {}
                    for queue in rows.of(self._queues(topic, config.write_queue_nums)):
                        if rows.is_piece:
                            yield
                        pairs[queue] = self._pair(group, queue)
                    stats.append(bodies.ConsumeStats(offset_table=pairs, consume_tps=self._rate(group, topic)))
            found.append({group: stats})
            all_pairs += [pair for each in stats for pair in each.offset_table.values()]
        stats_list = bodies.ConsumeStatsList(
            consume_stats_list=found,
            broker_addr=self._broker.address,
            total_diff=sum(pair.broker_offset - pair.consumer_offset for pair in all_pairs),
            total_inflight_diff=sum(pair.pull_offset - pair.consumer_offset for pair in all_pairs),
        )
        body = yield from stats_list.encode_pieces()
        return request.reply(body=body, remark=rows.cut)

    def _time_spans(self, request: Command, connection: Connection) -> Pieces:
        self._broker.server.check_room()
        header = headers.QueryTimeSpan.from_ext(request.ext)
        queues = self._queues(header.topic, self._config(header.topic).write_queue_nums)
        rows = self._rows()
        spans = []
        for queue in rows.of(queues):
            if rows.is_piece:
                yield
            spans.append(self._time_span(header.group, queue))
        body = yield from bodies.TimeSpans(consume_time_span_set=spans).encode_pieces()
        return request.reply(body=body, remark=rows.cut)

    def _time_span(self, group: str, queue: MessageQueue) -> bodies.QueueTimeSpan:
        store = self._broker.store
        topic, number = queue.topic, queue.queue_id
        first, end = store.bounds(topic, number)
        reached = self._broker.offsets.get(group, topic, number) or 0
        begin = store.time_of(topic, number, first)
        waiting_since = store.time_of(topic, number, reached)
        consumed = store.time_of(topic, number, reached - 1) if reached else begin
        last = store.time_of(topic, number, end - 1)
        return bodies.QueueTimeSpan(
            message_queue=queue,
            min_time_stamp=_or_none(begin),
            max_time_stamp=_or_none(last),
            consume_time_stamp=_or_none(consumed),
            delay_time=0 if waiting_since is None else self._broker.now_ms() - waiting_since,
        )

    def _groups_of_topic(self, request: Command, connection: Connection) -> Command:
        topic = headers.TopicRequest.from_ext(request.ext).topic
        online = [group.name for group in self._broker.groups if topic in group.subscriptions]
        names = dict.fromkeys(online + self._broker.offsets.groups(topic))
        return request.reply(body=bodies.GroupNames(group_list=list(names)).encode())

    def _topics_of_group(self, request: Command, connection: Connection) -> Command:
        group = headers.GroupConfigRequest.from_ext(request.ext).group
        topics = self._broker.offsets.topics(group)
        return request.reply(body=bodies.TopicNames(topic_list=topics, broker_addr=self._broker.address).encode())

    def _subscription(self, request: Command, connection: Connection) -> Command:
        header = headers.TopicSubscription.from_ext(request.ext)
        group = self._broker.groups.get(header.group)
        known = group.subscriptions.get(header.topic or "") if group is not None else None
        body = bodies.TopicSubscriptionBody(group=header.group, topic=header.topic or "", subscription_data=known)
        return request.reply(body=body.encode())

    def _corrections(self, request: Command, connection: Connection) -> Pieces:
        header = headers.CorrectionOffset.from_ext(request.ext)
        offsets = self._broker.offsets
        left_out = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        rows = _Rows(math.inf)
        for group in rows.of(offsets.groups(header.topic)):
            if rows.is_piece:
                yield
            for queue_id, offset in rows.of(offsets.queues(group, header.topic).items()):
                if rows.is_piece:
                    yield
                if group not in left_out and offset >= self._broker.store.bounds(header.topic, queue_id)[0]:
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in offsets.queues(header.compare_group, header.topic).items():
            if least.get(queue_id, _NEVER) > offset:
                least[queue_id] = _NEVER
        body = yield from bodies.CorrectionOffsets(correction_offsets=least).encode_pieces()
        return request.reply(body=body)

    def _all_offsets(self, request: Command, connection: Connection) -> Pieces:
        self._broker.server.check_room()
        rows = self._rows()
        flat: dict[str, dict[int, int]] = {}
        for (topic, group), queues in self._broker.offsets.entries():
            flat[f"{topic}@{group}"] = dict(rows.of(queues.items()))
            if rows.cut:
                break
        body = yield from bodies.OffsetTable(offset_table=flat).encode_pieces(standard=True)
        return request.reply(body=body, remark=rows.cut)

    # -- what several of them need

    def _config(self, topic: str) -> bodies.TopicConfig:
        config = self._broker.topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _rows(self) -> _Rows:
        return _Rows(self._broker.settings.limits.max_admin_rows)

    def _queues(self, topic: str, count: int) -> Iterator[MessageQueue]:
        return (MessageQueue(topic, self._broker.settings.name, number) for number in range(count))

    def _subscribed(self, group: str, topics: list[str]) -> list[str]:
        """Those of the topics that a group with members subscribes to; all where it has none."""
        online = self._broker.groups.get(group)
        if online is None or not online.subscriptions:
            return topics
        return [topic for topic in topics if topic in online.subscriptions]

    def _pair(self, group: str, queue: MessageQueue) -> bodies.OffsetPair:
        offsets, store = self._broker.offsets, self._broker.store
        topic, number = queue.topic, queue.queue_id
        reached = offsets.get(group, topic, number) or 0
        return bodies.OffsetPair(
            broker_offset=store.bounds(topic, number)[1],
            consumer_offset=reached,
            pull_offset=offsets.in_hand(group, topic, number),
            last_timestamp=store.time_of(topic, number, reached - 1) or 0,
        )

    def _rate(self, group: str, topic: str) -> float:
        return self._broker.rates.over(MINUTE, (GROUP_GET, f"{topic}@{group}")).tps


def _or_none(time: int | None) -> int:
    """A time as Java writes it: -1 where there is none."""
    return -1 if time is None else time
