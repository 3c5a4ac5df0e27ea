import json
from pathlib import Path

from evenq.broker import Broker
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster
from tests.broker.peers import Peer
from tests.clusters import route
from tests.waiting import wait_until


def create(peer: Peer, topic: str, queues: int = 2) -> int:
    header = headers.CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues)
    return peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code


def saved(broker: Broker, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(broker.directory, "config", name).read_text())
    return found


def test_a_topic_is_created_changed_and_deleted(
    peer: Peer, topic: str, group: str, broker: Broker, one_broker: EmbeddedCluster
) -> None:
    assert create(peer, topic, 2) == 0
    assert topic in str(saved(broker, "topics.json"))
    wait_until(lambda: route(one_broker.namesrv, topic) == {"broker-a": 2}, "the topic's route")
    assert create(peer, topic, 3) == 0
    wait_until(lambda: route(one_broker.namesrv, topic) == {"broker-a": 3}, "the topic's new route")
    found = peer.ask(RequestCode.GET_TOPIC_CONFIG, headers.TopicRequest(topic=topic))
    assert bodies.TopicConfig.decode(found.body).write_queue_nums == 3
    peer.put(topic)
    peer.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        headers.UpdateOffset(topic=topic, queue_id=0, consumer_group=group, commit_offset=1),
    )
    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic=topic)).code == 0
    assert (
        peer.ask(RequestCode.GET_TOPIC_CONFIG, headers.TopicRequest(topic=topic)).code == ResponseCode.TOPIC_NOT_EXIST
    )
    assert broker.offsets.groups(topic) == []
    assert broker.store.bounds(topic, 0) == (0, 0)


def test_what_cannot_be_a_topic_is_refused(peer: Peer) -> None:
    for name in ("a b", "TBW102", "broker-a"):
        assert create(peer, name) == ResponseCode.INVALID_PARAMETER
    answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic="TBW102"))
    assert answer.code == ResponseCode.INVALID_PARAMETER


def test_all_topics_are_listed(peer: Peer, topic: str) -> None:
    create(peer, topic)
    listed = bodies.TopicConfigTable.decode(peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
    assert {topic, "TBW102"} <= listed.topic_config_table.keys()
    system = bodies.TopicNames.decode(peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body)
    assert "SCHEDULE_TOPIC_XXXX" in system.topic_list
    assert topic not in system.topic_list


def test_a_groups_settings(peer: Peer, group: str, broker: Broker) -> None:
    config = bodies.GroupConfig(group_name=group, retry_max_times=3)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode()).code == 0
    assert group in str(saved(broker, "subscriptionGroup.json"))
    header = headers.GroupConfigRequest(group=group)
    found = peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert bodies.GroupConfig.decode(found.body).retry_max_times == 3
    listed = bodies.GroupConfigTable.decode(peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert group in listed.subscription_group_table
    peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, headers.DeleteGroup(group_name=group, clean_offset=True))
    assert group not in str(saved(broker, "subscriptionGroup.json"))


def test_a_groups_bad_name_is_refused(peer: Peer) -> None:
    body = bodies.GroupConfig(group_name="a b").encode()
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == ResponseCode.INVALID_PARAMETER


def test_a_topics_attributes_are_kept_when_it_is_changed(peer: Peer, topic: str) -> None:
    def put(attributes: str | None) -> int:
        header = headers.CreateTopic(topic=topic, read_queue_nums=2, write_queue_nums=2, attributes=attributes)
        return peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code

    assert put("+message.type=FIFO") == 0
    assert put(None) == 0
    found = peer.ask(RequestCode.GET_TOPIC_CONFIG, headers.TopicRequest(topic=topic))
    assert bodies.TopicConfig.decode(found.body).attributes == {"message.type": "FIFO"}
    assert put("+message.type=LIFO") == ResponseCode.INVALID_PARAMETER


def test_topics_and_groups_in_lists(peer: Peer, topic: str, group: str, broker: Broker) -> None:
    topics = [bodies.TopicConfig(topic_name=f"{topic}-{number}", read_queue_nums=number) for number in (1, 2)]
    body = bodies.TopicConfigList(topic_config_list=topics).encode()
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body).code == 0
    groups = [bodies.GroupConfig(group_name=f"{group}-{number}", retry_max_times=number) for number in (1, 2)]
    body = bodies.GroupConfigList(group_config_list=groups).encode()
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body).code == 0

    assert [broker.topics.get(config.topic_name) for config in topics] == topics
    assert [broker.group_configs.get(config.group_name) for config in groups] == groups
