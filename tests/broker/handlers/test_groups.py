import json
from collections.abc import Callable

from evenq.broker import Broker
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import subscription
from evenq.testing import Clock, EmbeddedCluster
from tests.broker.peers import Peer
from tests.clusters import route
from tests.waiting import wait_until

Connect = Callable[..., Peer]


def is_change_of(note: Command, group: str) -> bool:
    return (
        note.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and note.ext == {"consumerGroup": group} and note.is_oneway
    )


def test_members_are_those_whose_heartbeats_came(connect: Connect, group: str) -> None:
    first, second = connect("c1"), connect("c2")
    assert first.members(group) == []
    answer = first.heartbeat(group)
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    second.heartbeat(group)
    assert first.members(group) == ["c1", "c2"]


def test_nobody_there_is_an_error_with_javas_words(peer: Peer, group: str) -> None:
    answer = peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, headers.GroupRequest(consumer_group=group))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")


def test_every_change_of_members_is_told_to_all(connect: Connect, group: str) -> None:
    first, second = connect("c1"), connect("c2")
    first.heartbeat(group)
    assert is_change_of(first.notification(), group)
    second.heartbeat(group)
    assert is_change_of(first.notification(), group)
    assert is_change_of(second.notification(), group)
    first.heartbeat(group)
    assert first.silence()
    assert second.silence()
    header = headers.UnregisterClient(client_id="c2", consumer_group=group)
    assert second.ask(RequestCode.UNREGISTER_CLIENT, header).code == 0
    assert is_change_of(first.notification(), group)
    assert second.silence()
    assert first.members(group) == ["c1"]


def test_a_closed_connection_is_a_member_less_at_once(connect: Connect, group: str) -> None:
    first, second = connect("c1"), connect("c2")
    first.heartbeat(group)
    second.heartbeat(group)
    first.notification()
    first.notification()
    second.socket.close()
    assert is_change_of(first.notification(), group)
    assert first.members(group) == ["c1"]


def test_a_change_of_subscriptions_is_told(connect: Connect, group: str) -> None:
    peer = connect("c1")
    peer.heartbeat(group, ["orders"])
    peer.notification()
    peer.heartbeat(group, ["orders", "bills"])
    assert is_change_of(peer.notification(), group)


def test_many_changes_in_one_read_are_told_together(connect: Connect, group: str) -> None:
    watcher, busy = connect("c1"), connect("c2")
    watcher.heartbeat(group)
    watcher.notification()
    frames = b""
    for number in range(20):
        topics = [f"topic-{number}"]
        data = bodies.ConsumerData(group_name=group, subscription_data_set=[subscription(topics[0], version=number)])
        beat = bodies.Heartbeat(client_id="c2", consumer_data_set=[data])
        frames += Command(RequestCode.HEART_BEAT, opaque=100 + number, body=beat.encode()).encode()
    busy.socket.sendall(frames)
    busy.answer(119)
    watcher.notification()
    told = 1
    while not watcher.silence():
        watcher.notification()
        told += 1
    # once, or where this machine is busy, once for each turn that the connection had
    assert told <= 5


def test_a_silent_member_is_dropped_after_two_minutes(connect: Connect, group: str, broker_clock: Clock) -> None:
    quiet, alive = connect("c1"), connect("c2")
    quiet.heartbeat(group)
    alive.heartbeat(group)
    broker_clock.advance(100)
    alive.heartbeat(group)
    assert alive.members(group) == ["c1", "c2"]
    broker_clock.advance(21)
    wait_until(lambda: alive.members(group) == ["c2"], "the silent member being dropped")
    assert quiet.is_closed()


def test_a_broadcasting_group_is_told_nothing(connect: Connect, group: str) -> None:
    first, second = connect("c1"), connect("c2")
    first.heartbeat(group, model="BROADCASTING")
    second.heartbeat(group, model="BROADCASTING")
    assert first.silence()


def test_a_group_may_wish_not_to_be_told(connect: Connect, group: str) -> None:
    peer = connect("c1")
    config = bodies.GroupConfig(group_name=group, notify_consumer_ids_changed_enable=False)
    peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
    peer.heartbeat(group)
    assert peer.silence()


def test_the_first_heartbeat_makes_the_retry_topic(peer: Peer, group: str, one_broker: EmbeddedCluster) -> None:
    peer.heartbeat(group)
    wait_until(lambda: route(one_broker.namesrv, f"%RETRY%{group}") == {"broker-a": 1}, "the retry topic's route")


def test_heartbeats_in_the_short_form(peer: Peer, group: str, broker: Broker) -> None:
    def beat(fingerprint: int, topics: list[str] | None) -> bool:
        wanted = [subscription(topic, version=1) for topic in topics or []]
        data = bodies.ConsumerData(group_name=group, subscription_data_set=wanted)
        body = bodies.Heartbeat(
            client_id="c1", consumer_data_set=[data], heartbeat_fingerprint=fingerprint, without_sub=topics is None
        )
        return peer.ask(RequestCode.HEART_BEAT, body=body.encode()).ext["IS_SUB_CHANGE"] == "true"

    assert not beat(7, ["orders"])
    assert not beat(7, None)
    known = broker.groups.get(group)
    assert known is not None
    assert list(known.subscriptions) == ["orders"]
    # the other member of the group has other subscriptions: this one is to tell its own again
    assert beat(8, None)


def test_connections_are_described(connect: Connect, group: str) -> None:
    peer = connect("c1")
    header = headers.GroupRequest(consumer_group=group)
    assert peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header).code == ResponseCode.CONSUMER_NOT_ONLINE
    peer.heartbeat(group)
    found = bodies.GroupConnections.decode(peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header).body)
    (one,) = found.connection_set
    assert (one.client_id, one.language) == ("c1", "PYTHON")
    assert one.client_addr == "{}:{}".format(*peer.socket.getsockname())
    assert list(found.subscription_table) == ["orders"]
    assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")


def test_producers_are_described(connect: Connect, group: str) -> None:
    peer = connect("p1")
    header = headers.ProducerGroupRequest(producer_group=group)
    assert peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, header).code == ResponseCode.SYSTEM_ERROR
    beat = bodies.Heartbeat(client_id="p1", producer_data_set=[bodies.ProducerData(group_name=group)])
    peer.ask(RequestCode.HEART_BEAT, body=beat.encode())
    answer = peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
    assert [one.client_id for one in bodies.ClientConnections.decode(answer.body).connection_set] == ["p1"]
    peer.ask(RequestCode.UNREGISTER_CLIENT, headers.UnregisterClient(client_id="p1", producer_group=group))
    assert peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, header).code == ResponseCode.SYSTEM_ERROR


def test_a_clients_settings_are_fine(peer: Peer) -> None:
    assert peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=b"{}").code == ResponseCode.SUCCESS


def test_a_heartbeat_that_cannot_be_read(peer: Peer) -> None:
    answer = peer.ask(RequestCode.HEART_BEAT, body=b"not json")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not json" in (answer.remark or "")


def test_a_short_heartbeat_to_a_broker_that_knows_nothing_asks_for_the_long_one(peer: Peer, group: str) -> None:
    data = bodies.ConsumerData(group_name=group)
    beat = bodies.Heartbeat(client_id="c1", consumer_data_set=[data], heartbeat_fingerprint=7, without_sub=True)
    assert peer.ask(RequestCode.HEART_BEAT, body=beat.encode()).ext["IS_SUB_CHANGE"] == "true"


def test_all_producers_of_a_broker(connect: Connect, group: str) -> None:
    peer = connect("p1")
    beat = bodies.Heartbeat(client_id="p1", producer_data_set=[bodies.ProducerData(group_name=group)])
    peer.ask(RequestCode.HEART_BEAT, body=beat.encode())
    table = bodies.ProducerTable.decode(peer.ask(RequestCode.GET_ALL_PRODUCER_INFO).body).data
    (producer,) = table[group]
    assert (producer.client_id, producer.remote_ip) == ("p1", "{}:{}".format(*peer.socket.getsockname()))
    assert producer.last_update_timestamp > 0


def test_the_cpp_client_writes_enums_by_their_number(peer: Peer, group: str, broker: Broker) -> None:
    beat = {
        "clientID": "cpp",
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeFromWhere": 0,
                "consumeType": 1,
                "messageModel": 0,
                "subscriptionDataSet": [{"topic": "orders", "subString": "*", "subVersion": "1"}],
            }
        ],
    }
    assert peer.ask(RequestCode.HEART_BEAT, body=json.dumps(beat).encode()).code == ResponseCode.SUCCESS
    assert peer.members(group) == ["cpp"]
    known = broker.groups.get(group)
    assert known is not None
    assert (known.consume_type, known.message_model, known.consume_from_where) == (
        "CONSUME_PASSIVELY",
        "BROADCASTING",
        "CONSUME_FROM_LAST_OFFSET",
    )


def test_a_number_that_is_no_enum_is_refused(peer: Peer, group: str) -> None:
    beat = {"clientID": "cpp", "consumerDataSet": [{"groupName": group, "messageModel": 7}]}
    answer = peer.ask(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "messageModel" in (answer.remark or "")
