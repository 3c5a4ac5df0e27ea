import pytest

from evenq.broker.scheduling.retries import Retries
from evenq.broker.server import Refusal
from evenq.broker.state.groups import GroupConfigs
from evenq.broker.state.locks import QueueLocks
from evenq.broker.state.topics import Topics
from evenq.model import MessageQueue
from evenq.protocol.bodies import GroupConfig, TopicConfig
from evenq.protocol.codes import ResponseCode
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import SendBack
from evenq.protocol.view import MessageView, make_view
from tests.broker.stores import Hand, message

PROPERTIES = {"KEYS": "k", "TAGS": "paid", "UNIQ_KEY": "A1"}


def stored(*, properties: dict[str, str] = PROPERTIES, reconsume_times: int = 0, sys_flag: int = 0) -> MessageView:
    return make_view(
        topic="orders",
        body=b"hard",
        queue_id=2,
        queue_offset=7,
        store_timestamp=1_700_000_000_000,
        born_timestamp=1_699_999_999_000,
        born_host="10.0.0.7:4711",
        store_host="127.0.0.1:10911",
        commit_log_offset=4096,
        properties=properties,
        reconsume_times=reconsume_times,
        sys_flag=sys_flag,
    )


class Group:
    """A group, and what becomes of messages that it cannot consume."""

    def __init__(self, *, retry_queue_nums: int = 1, retry_max_times: int = 16) -> None:
        hand = Hand()
        self.topics = Topics("DefaultCluster", "broker-a", clock=hand)
        self.locks = QueueLocks(hand)
        groups = GroupConfigs(clock=hand)
        self.config = groups.put(
            GroupConfig(group_name="billing", retry_queue_nums=retry_queue_nums, retry_max_times=retry_max_times)
        )
        self.retries = Retries(self.topics, groups, self.locks)

    def back(
        self, times: int = 0, level: int = 0, most: int | None = None, properties: dict[str, str] | None = None
    ) -> tuple[str, str]:
        """Give a message back that was tried so many times before; the topic and the level that it goes to."""
        message = stored(properties=properties or PROPERTIES, reconsume_times=times)
        header = SendBack(offset=4096, group="billing", delay_level=level, max_reconsume_times=most)
        again, wire = self.retries.sent_back(message, header, self.config)
        assert again.reconsume_times == times + 1
        return again.topic, wire["DELAY"]

    def send(self, times: int, most: int | None = None) -> tuple[str, str | None]:
        """Let a client send a message to the retry topic itself."""
        incoming = message(b"hard", topic="%RETRY%billing")._replace(reconsume_times=times)
        again, wire = self.retries.redirected(incoming, {"KEYS": "k"}, most)
        return again.topic, wire.get("DELAY")


def test_each_time_a_message_waits_longer() -> None:
    assert [Group().back(times) for times in (0, 1, 15)] == [
        ("%RETRY%billing", "3"),
        ("%RETRY%billing", "4"),
        ("%RETRY%billing", "18"),
    ]


def test_it_waits_at_the_level_that_is_asked_for() -> None:
    assert Group().back(times=5, level=1) == ("%RETRY%billing", "1")


def test_after_too_many_times_it_is_a_dead_letter() -> None:
    dead = ("%DLQ%billing", "0")
    assert Group().back(times=16) == dead
    assert Group().back(level=-1) == dead
    assert Group(retry_max_times=2).back(times=2) == dead
    assert Group(retry_max_times=2).back(times=2, most=3) == ("%RETRY%billing", "5")
    assert Group().back(most=0) == dead


def test_the_topics_are_made_as_java_makes_them() -> None:
    group = Group(retry_queue_nums=4)
    assert "%RETRY%billing" not in group.topics
    group.back()
    group.back(level=-1)
    made = [group.topics.get(topic) for topic in ("%RETRY%billing", "%DLQ%billing")]
    assert [(topic.read_queue_nums, topic.write_queue_nums, topic.perm) for topic in made if topic] == [
        (4, 4, 6),
        (1, 1, 6),
    ]


def test_a_message_says_where_it_comes_from_first() -> None:
    group = Group()
    header = SendBack(offset=4096, group="billing", delay_level=0)
    again, properties = group.retries.sent_back(stored(), header, group.config)
    assert properties == {
        **PROPERTIES,
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000001000",
        "DELAY": "3",
        "WAIT": "false",
    }
    assert (again.body, again.tags, again.born_host) == (b"hard", "paid", "10.0.0.7:4711")
    tried = {"RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "first id"}
    _, properties = group.retries.sent_back(stored(properties=tried), header, group.config)
    assert properties.items() >= tried.items()


def test_a_message_that_a_client_sends_to_a_retry_topic_goes_there() -> None:
    assert Group().send(times=16) == ("%RETRY%billing", None)


def test_there_too_it_becomes_a_dead_letter() -> None:
    dead = ("%DLQ%billing", "-1")
    assert Group().send(times=17) == dead
    assert Group().send(times=1, most=0) == dead
    assert Group(retry_max_times=3).send(times=4) == dead


def test_of_a_group_that_consumes_in_order_nothing_is_tried_again() -> None:
    group = Group()
    group.locks.lock("billing", "c1", [MessageQueue("orders", "broker-a", 0)])
    assert group.send(times=0) == ("%DLQ%billing", "-1")


def test_an_unknown_group_is_refused() -> None:
    hand = Hand()
    topics = Topics("DefaultCluster", "broker-a", clock=hand)
    retries = Retries(topics, GroupConfigs(clock=hand, auto_create=False), QueueLocks(hand))
    with pytest.raises(Refusal, match="subscription group not exist, billing") as refused:
        retries.group("billing")
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_topic_that_takes_no_messages_is_respected() -> None:
    group = Group()
    group.topics.put(TopicConfig(topic_name="%RETRY%billing", perm=4))
    with pytest.raises(Refusal, match="%RETRY%billing] sending message is forbidden"):
        group.back()


def test_what_is_tried_again_is_no_committed_transaction() -> None:
    group = Group()
    header = SendBack(offset=4096, group="billing", delay_level=0)
    again, _ = group.retries.sent_back(stored(sys_flag=SysFlag.COMMIT | SysFlag.COMPRESSED), header, group.config)
    assert again.sys_flag == SysFlag.COMPRESSED


def test_a_dead_letter_waits_for_no_timer() -> None:
    group = Group()
    header = SendBack(offset=4096, group="billing", delay_level=-1)
    _, properties = group.retries.sent_back(stored(properties={"TIMER_DELAY_SEC": "soon"}), header, group.config)
    assert "TIMER_DELAY_SEC" not in properties


def test_it_goes_to_a_queue_that_its_topic_has() -> None:
    group = Group(retry_queue_nums=1000)
    group.topics.put(TopicConfig(topic_name="%RETRY%billing", write_queue_nums=1, read_queue_nums=1))
    header = SendBack(offset=4096, group="billing", delay_level=0)
    assert {group.retries.sent_back(stored(), header, group.config)[0].queue_id for _ in range(20)} == {0}


def test_a_count_of_tries_stays_within_32_bits() -> None:
    group = Group()
    header = SendBack(offset=4096, group="billing", delay_level=0)
    again, _ = group.retries.sent_back(stored(reconsume_times=2**31 - 1), header, group.config)
    assert (again.topic, again.reconsume_times) == ("%DLQ%billing", 2**31 - 1)
