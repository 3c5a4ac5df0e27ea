from pathlib import Path

import pytest

from evenq.broker import Broker
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import Clock, cluster
from tests.broker.peers import Peer


def query(peer: Peer, topic: str, group: str, queue_id: int = 0, *, zero: bool | None = None) -> Command:
    header = headers.QueryOffset(topic=topic, queue_id=queue_id, consumer_group=group, set_zero_if_not_found=zero)
    return peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


def update(peer: Peer, topic: str, group: str, offset: int, queue_id: int = 0) -> Command:
    header = headers.UpdateOffset(topic=topic, queue_id=queue_id, consumer_group=group, commit_offset=offset)
    return peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def test_a_group_finds_its_offset_again(peer: Peer, topic: str, group: str) -> None:
    peer.put(topic)
    assert update(peer, topic, group, 7).code == 0
    assert query(peer, topic, group).ext == {"offset": "7"}
    assert update(peer, topic, group, 3).code == 0
    assert query(peer, topic, group).ext == {"offset": "3"}


def test_a_new_group_begins_at_0_where_the_first_message_is_still_there(peer: Peer, topic: str, group: str) -> None:
    peer.put(topic, queue_id=1)
    assert query(peer, topic, group, 1).ext == {"offset": "0"}
    assert query(peer, topic, group, 1, zero=False).code == ResponseCode.QUERY_NOT_FOUND
    assert query(peer, topic, group, 2).code == ResponseCode.QUERY_NOT_FOUND


def test_a_commit_to_nowhere_is_refused(peer: Peer, topic: str, group: str) -> None:
    assert update(peer, topic, group, 7).code == ResponseCode.TOPIC_NOT_EXIST
    peer.put(topic)
    assert update(peer, topic, "no group", 7).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_what_a_queue_holds(peer: Peer, topic: str, broker_clock: Clock) -> None:
    begin = int(broker_clock.now() * 1000)
    for _ in range(3):
        peer.put(topic)
    broker_clock.advance(10)
    later = int(broker_clock.now() * 1000)
    peer.put(topic)

    def ask(code: int, **fields: object) -> int:
        kinds: dict[int, type[headers.Header]] = {
            RequestCode.GET_MAX_OFFSET: headers.MaxOffsetRequest,
            RequestCode.GET_MIN_OFFSET: headers.MinOffsetRequest,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: headers.SearchOffset,
        }
        answer = peer.ask(code, kinds[code](topic=topic, queue_id=0, **fields))
        assert answer.code == 0
        return int(answer.ext["offset"])

    assert ask(RequestCode.GET_MAX_OFFSET) == 4
    assert ask(RequestCode.GET_MIN_OFFSET) == 0
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert [ask(search, timestamp=time) for time in (begin, later, later + 60_000)] == [0, 3, 4]
    assert ask(search, timestamp=later - 1, boundary_type="UPPER") == 2
    earliest = peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, headers.EarliestRequest(topic=topic, queue_id=0))
    assert begin <= int(earliest.ext["timestamp"]) < later
    nothing = peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, headers.EarliestRequest(topic=topic, queue_id=1))
    assert nothing.ext["timestamp"] == "-1"


@pytest.mark.live
@pytest.mark.parametrize("stop", ["broker", "cluster"])
def test_offsets_messages_and_settings_outlive_a_restart(tmp_path: Path, stop: str) -> None:
    with cluster(data=tmp_path) as running:
        with Peer(running.brokers["broker-a"].address) as peer:
            for number in range(5):
                peer.put("orders", b"%d" % number)
            update(peer, "orders", "billing", 3)
        if stop == "broker":
            address = running.brokers["broker-a"].address
            running.stop_broker("broker-a")
            assert running.start_broker("broker-a").address == address
            check(address)
    if stop == "cluster":
        with cluster(data=tmp_path) as running:
            check(running.brokers["broker-a"].address)


def check(address: str) -> None:
    with Peer(address) as peer:
        assert [message.body for message in peer.pull("orders")] == [b"0", b"1", b"2", b"3", b"4"]
        assert query(peer, "orders", "billing").ext == {"offset": "3"}
        assert peer.put("orders").ext["queueOffset"] == "5"


@pytest.mark.parametrize(("queue_id", "offset"), [(4, 0), (2**31 - 1, 0), (-1, 0), (0, -1)])
def test_a_commit_for_no_queue_or_offset_is_refused(
    peer: Peer, topic: str, group: str, broker: Broker, queue_id: int, offset: int
) -> None:
    peer.put(topic)
    answer = update(peer, topic, group, offset, queue_id)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "is illegal" in (answer.remark or "")
    assert broker.offsets.queues(group, topic) == {}


def test_a_pull_commits_no_negative_offset(peer: Peer, topic: str, broker: Broker) -> None:
    peer.put(topic)
    ext = peer.pull_header(topic, commit=0).to_ext() | {"commitOffset": "-5"}
    assert peer.ask(RequestCode.PULL_MESSAGE, headers.PullRequest.from_ext(ext)).code == ResponseCode.SUCCESS
    assert broker.offsets.get("billing", topic, 0) is None
