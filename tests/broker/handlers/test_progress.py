"""How far queues and groups are."""

from evenq.broker import Broker
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import Clock
from tests.broker.peers import Peer


def commit(peer: Peer, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    header = headers.UpdateOffset(topic=topic, queue_id=queue_id, consumer_group=group, commit_offset=offset)
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0


def stats(peer: Peer, group: str, topic: str | None = None, topics: str | None = None) -> bodies.ConsumeStats:
    header = headers.ConsumeStatsRequest(consumer_group=group, topic=topic, topic_list=topics)
    return bodies.ConsumeStats.decode(peer.ask(RequestCode.GET_CONSUME_STATS, header).body)


def reached(found: bodies.ConsumeStats) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (queue.topic, queue.queue_id): (pair.consumer_offset, pair.broker_offset)
        for queue, pair in found.offset_table.items()
        if pair.broker_offset
    }


def test_a_topic_tells_what_its_queues_hold_and_since_when(peer: Peer, topic: str, broker_clock: Clock) -> None:
    for number in range(3):
        peer.put(topic, b"%d" % number, queue_id=1)
    last = peer.pull(topic, queue_id=1)[-1].store_timestamp

    answer = peer.ask(RequestCode.GET_TOPIC_STATS_INFO, headers.TopicRequest(topic=topic))

    table = bodies.TopicStats.decode(answer.body).offset_table
    assert set(table) == {MessageQueue(topic, "broker-a", number) for number in range(4)}
    full = table[MessageQueue(topic, "broker-a", 1)]
    assert (full.min_offset, full.max_offset, full.last_update_timestamp) == (0, 3, last)
    assert table[MessageQueue(topic, "broker-a", 0)].last_update_timestamp == 0
    nothing = peer.ask(RequestCode.GET_TOPIC_STATS_INFO, headers.TopicRequest(topic=f"{topic}-x"))
    assert nothing.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_group_tells_how_far_it_is_and_what_is_in_hand(peer: Peer, topic: str, group: str) -> None:
    for _ in range(5):
        peer.put(topic)
    commit(peer, group, topic, 2)
    consumed = peer.pull(topic)[1].store_timestamp
    ext = Peer.pull_header(topic, 2, most=2).to_ext() | {"consumerGroup": group}
    peer.ask(RequestCode.PULL_MESSAGE, headers.PullRequest.from_ext(ext))

    found = stats(peer, group)

    pair = found.offset_table[MessageQueue(topic, "broker-a", 0)]
    assert pair == bodies.OffsetPair(broker_offset=5, consumer_offset=2, pull_offset=4, last_timestamp=consumed)
    assert found.consume_tps > 0


def test_a_group_with_members_is_measured_where_it_subscribes(peer: Peer, topic: str, group: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        peer.put(name)
        commit(peer, group, name, 1)
    both = {(topic, 0): (1, 1), (other, 0): (1, 1)}
    assert reached(stats(peer, group)) == both
    peer.heartbeat(group, [topic])
    assert reached(stats(peer, group)) == {(topic, 0): (1, 1)}
    assert reached(stats(peer, group, topic=other)) == {}
    assert reached(stats(peer, group, topics=f"{other};{topic};no-such-topic;")) == both


def test_all_groups_of_a_broker_at_once(peer: Peer, topic: str, group: str, broker: Broker) -> None:
    for _ in range(4):
        peer.put(topic)
    commit(peer, group, topic, 1)

    answer = peer.ask(RequestCode.GET_BROKER_CONSUME_STATS, headers.BrokerConsumeStats())

    body = bodies.ConsumeStatsList.decode(answer.body)
    (mine,) = [groups[group] for groups in body.consume_stats_list if group in groups]
    assert [reached(each) for each in mine] == [{(topic, 0): (1, 4)}]
    assert body.broker_addr == broker.address
    # summed here, too: other tests leave groups whose offsets are past the ends of their queues
    stats_of_all = [each for groups in body.consume_stats_list for parts in groups.values() for each in parts]
    pairs = [pair for each in stats_of_all for pair in each.offset_table.values()]
    assert body.total_diff == sum(pair.broker_offset - pair.consumer_offset for pair in pairs)
    ordered = peer.ask(RequestCode.GET_BROKER_CONSUME_STATS, headers.BrokerConsumeStats(is_order=True))
    assert {group: []} in bodies.ConsumeStatsList.decode(ordered.body).consume_stats_list


def test_time_spans_tell_how_far_behind_a_group_is(
    peer: Peer, topic: str, group: str, broker: Broker, broker_clock: Clock
) -> None:
    times = []
    for _ in range(3):
        peer.put(topic)
        times.append(peer.pull(topic)[-1].store_timestamp)
        broker_clock.advance(10)
    commit(peer, group, topic, 2)

    answer = peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, headers.QueryTimeSpan(topic=topic, group=group))

    first, *others = bodies.TimeSpans.decode(answer.body).consume_time_span_set
    assert (first.min_time_stamp, first.max_time_stamp, first.consume_time_stamp) == (times[0], times[2], times[1])
    assert 10_000 <= first.delay_time < 20_000
    assert [(each.min_time_stamp, each.max_time_stamp, each.delay_time) for each in others] == [(-1, -1, 0)] * 3


def test_who_consumes_what(peer: Peer, topic: str, group: str) -> None:
    peer.put(topic)
    offline = f"{group}-offline"
    commit(peer, offline, topic, 1)
    peer.heartbeat(group, [topic])

    answer = peer.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, headers.TopicRequest(topic=topic))
    assert sorted(bodies.GroupNames.decode(answer.body).group_list) == [group, offline]
    answer = peer.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, headers.GroupConfigRequest(group=offline))
    assert bodies.TopicNames.decode(answer.body).topic_list == [topic]
    header = headers.TopicSubscription(group=group, topic=topic)
    answer = peer.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
    known = bodies.TopicSubscriptionBody.decode(answer.body).subscription_data
    assert known is not None
    assert known.sub_string == "*"
    header = headers.TopicSubscription(group=offline, topic=topic)
    answer = peer.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
    assert bodies.TopicSubscriptionBody.decode(answer.body).subscription_data is None


def test_offsets_that_other_groups_have_reached(peer: Peer, topic: str, group: str) -> None:
    for _ in range(9):
        peer.put(topic)
    for name, offset in ((group, 4), (f"{group}-a", 6), (f"{group}-b", 8)):
        commit(peer, name, topic, offset)

    def least(compare: str, left_out: str = "") -> dict[int, int]:
        header = headers.CorrectionOffset(topic=topic, compare_group=compare, filter_groups=left_out)
        answer = peer.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
        return bodies.CorrectionOffsets.decode(answer.body).correction_offsets

    assert least(f"{group}-b") == {0: 4}
    assert least(f"{group}-b", group) == {0: 6}
    assert least(group, group) == {0: 2**63 - 1}
    answer = peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert bodies.OffsetTable.decode(answer.body).offset_table[f"{topic}@{group}"] == {0: 4}
