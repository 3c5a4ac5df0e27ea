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

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenq.broker.rates import MINUTE
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.traffic import GROUP_GET, TOPIC_PUT
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["Progress"]

# What Java says of a queue that no group may be taken back in.
_NEVER = 2**63 - 1


class Progress:
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

    def _topic(self, request: Command, connection: Connection) -> Command:
        name = headers.TopicRequest.from_ext(request.ext).topic
        topic = self._config(name)
        table = {}
        for queue in self._queues(name, max(topic.write_queue_nums, topic.read_queue_nums)):
            first, end = self._broker.store.bounds(name, queue.queue_id)
            last_time = self._broker.store.time_of(name, queue.queue_id, end - 1) or 0
            table[queue] = bodies.OffsetRange(min_offset=first, max_offset=end, last_update_timestamp=last_time)
        rate = self._broker.rates.over(MINUTE, (TOPIC_PUT, name)).tps
        return request.reply(body=bodies.TopicStats(offset_table=table, topic_put_tps=rate).encode())

    def _group(self, request: Command, connection: Connection) -> Command:
        header = headers.ConsumeStatsRequest.from_ext(request.ext)
        group = header.consumer_group
        if header.topic_list:
            topics: Iterable[str] = [topic for topic in header.topic_list.split(";") if topic]
        else:
            topics = self._subscribed(group, [header.topic] if header.topic else self._broker.offsets.topics(group))
        table: dict[MessageQueue, bodies.OffsetPair] = {}
        rate = 0.0
        for topic in topics:
            config = self._broker.topics.get(topic)
            if config is not None:
                table |= self._pairs(group, topic, config.read_queue_nums)
                rate += self._rate(group, topic)
        return request.reply(body=bodies.ConsumeStats(offset_table=table, consume_tps=rate).encode())

    def _all_groups(self, request: Command, connection: Connection) -> Command:
        ordered_only = headers.BrokerConsumeStats.from_ext(request.ext).is_order
        found: list[dict[str, list[bodies.ConsumeStats]]] = []
        all_pairs: list[bodies.OffsetPair] = []
        for settings in self._broker.group_configs:
            group = settings.group_name
            stats = []
            for topic in self._subscribed(group, self._broker.offsets.topics(group)):
                config = self._broker.topics.get(topic)
                if config is not None and (config.order or not ordered_only):
                    pairs = self._pairs(group, topic, config.write_queue_nums)
                    stats.append(bodies.ConsumeStats(offset_table=pairs, consume_tps=self._rate(group, topic)))
            found.append({group: stats})
            all_pairs += [pair for each in stats for pair in each.offset_table.values()]
        body = bodies.ConsumeStatsList(
            consume_stats_list=found,
            broker_addr=self._broker.address,
            total_diff=sum(pair.broker_offset - pair.consumer_offset for pair in all_pairs),
            total_inflight_diff=sum(pair.pull_offset - pair.consumer_offset for pair in all_pairs),
        )
        return request.reply(body=body.encode())

    def _time_spans(self, request: Command, connection: Connection) -> Command:
        header = headers.QueryTimeSpan.from_ext(request.ext)
        queues = self._queues(header.topic, self._config(header.topic).write_queue_nums)
        spans = [self._time_span(header.group, queue) for queue in queues]
        return request.reply(body=bodies.TimeSpans(consume_time_span_set=spans).encode())

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

    def _corrections(self, request: Command, connection: Connection) -> Command:
        header = headers.CorrectionOffset.from_ext(request.ext)
        offsets = self._broker.offsets
        left_out = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in offsets.groups(header.topic):
            for queue_id, offset in offsets.queues(group, header.topic).items():
                if group not in left_out and offset >= self._broker.store.bounds(header.topic, queue_id)[0]:
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in offsets.queues(header.compare_group, header.topic).items():
            if least.get(queue_id, _NEVER) > offset:
                least[queue_id] = _NEVER
        return request.reply(body=bodies.CorrectionOffsets(correction_offsets=least).encode())

    def _all_offsets(self, request: Command, connection: Connection) -> Command:
        flat = {f"{topic}@{group}": queues for (topic, group), queues in self._broker.offsets.table().items()}
        return request.reply(body=bodies.OffsetTable(offset_table=flat).encode(standard=True))

    # -- what several of them need

    def _config(self, topic: str) -> bodies.TopicConfig:
        config = self._broker.topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _queues(self, topic: str, count: int) -> list[MessageQueue]:
        return [MessageQueue(topic, self._broker.settings.name, number) for number in range(count)]

    def _subscribed(self, group: str, topics: list[str]) -> list[str]:
        """Those of the topics that a group with members subscribes to; all where it has none."""
        online = self._broker.groups.get(group)
        if online is None or not online.subscriptions:
            return topics
        return [topic for topic in topics if topic in online.subscriptions]

    def _pairs(self, group: str, topic: str, count: int) -> dict[MessageQueue, bodies.OffsetPair]:
        offsets, store = self._broker.offsets, self._broker.store
        pairs = {}
        for queue in self._queues(topic, count):
            reached = offsets.get(group, topic, queue.queue_id) or 0
            pairs[queue] = bodies.OffsetPair(
                broker_offset=store.bounds(topic, queue.queue_id)[1],
                consumer_offset=reached,
                pull_offset=offsets.in_hand(group, topic, queue.queue_id),
                last_timestamp=store.time_of(topic, queue.queue_id, reached - 1) or 0,
            )
        return pairs

    def _rate(self, group: str, topic: str) -> float:
        return self._broker.rates.over(MINUTE, (GROUP_GET, f"{topic}@{group}")).tps


def _or_none(time: int | None) -> int:
    """A time as Java writes it: -1 where there is none."""
    return -1 if time is None else time
