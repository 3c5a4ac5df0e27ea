from evenq.broker import Broker
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.records import decode_messages
from tests.broker.peers import Peer


def test_running_figures(peer: Peer, topic: str, broker: Broker) -> None:
    peer.put(topic)
    table = bodies.KvTable.decode(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert table["brokerVersionDesc"].startswith("evenq ")
    assert int(table["commitLogMaxOffset"]) == broker.store.log.end


def test_settings(peer: Peer) -> None:
    answer = peer.ask(RequestCode.GET_BROKER_CONFIG)
    assert {"brokerName=broker-a", "brokerClusterName=DefaultCluster", "flushDiskType=ASYNC_FLUSH"} <= set(
        answer.body.decode().splitlines()
    )


def test_a_message_by_its_place(peer: Peer, topic: str) -> None:
    peer.put(topic, b"here")
    (message,) = peer.pull(topic)
    answer = peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, headers.ViewMessage(offset=message.commit_log_offset))
    assert decode_messages(answer.body) == [message]
    nothing = peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, headers.ViewMessage(offset=message.commit_log_offset + 1))
    assert nothing.code == ResponseCode.SYSTEM_ERROR
