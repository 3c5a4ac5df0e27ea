"""Resetting groups."""

from collections.abc import Callable

import pytest

from evenq.broker import Broker
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import Clock
from tests.broker.peers import Peer


def reset(
    peer: Peer, group: str, topic: str, timestamp: int = 0, queue_id: int = -1, offset: int | None = None
) -> Command:
    header = headers.ResetOffset(topic=topic, group=group, timestamp=timestamp, queue_id=queue_id, offset=offset)
    return peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def commit(peer: Peer, group: str, topic: str, offset: int) -> None:
    header = headers.UpdateOffset(topic=topic, queue_id=0, consumer_group=group, commit_offset=offset)
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0


def offset_of(peer: Peer, group: str, topic: str) -> int:
    header = headers.QueryOffset(topic=topic, queue_id=0, consumer_group=group)
    return int(peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, header).ext["offset"])


def pull(group: str, topic: str, offset: int, **more: str) -> headers.PullRequest:
    ext = Peer.pull_header(topic, offset).to_ext() | {"consumerGroup": group} | more
    return headers.PullRequest.from_ext(ext)


@pytest.fixture
def ready(peer: Peer, topic: str, group: str) -> Peer:
    """Five messages in queue 0, all of them consumed."""
    for number in range(5):
        peer.put(topic, b"%d" % number)
    commit(peer, group, topic, 5)
    return peer


def test_a_member_is_told_once_with_its_next_pull(ready: Peer, topic: str, group: str) -> None:
    answer = reset(ready, group, topic)
    table = bodies.QueueOffsets.decode(answer.body).offset_table
    assert table == {MessageQueue(topic, "broker-a", number): 0 for number in range(4)}
    assert offset_of(ready, group, topic) == 0
    commit(ready, group, topic, 5)
    assert offset_of(ready, group, topic) == 0

    told = ready.ask(RequestCode.PULL_MESSAGE, pull(group, topic, 5, sysFlag="5", commitOffset="5"))

    assert (told.code, told.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    assert offset_of(ready, group, topic) == 0
    assert ready.ask(RequestCode.PULL_MESSAGE, pull(group, topic, 0)).code == ResponseCode.SUCCESS
    commit(ready, group, topic, 3)
    assert offset_of(ready, group, topic) == 3


def test_a_pull_that_waits_is_told_at_once(ready: Peer, connect: Callable[..., Peer], topic: str, group: str) -> None:
    member = connect()
    waiting = member.send(RequestCode.PULL_MESSAGE, pull(group, topic, 5, sysFlag="6", suspendTimeoutMillis="20000"))
    assert not member.has_answer(waiting)
    reset(ready, group, topic, queue_id=0, offset=2)
    told = member.answer(waiting)
    assert (told.code, told.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")


def test_places_in_time(peer: Peer, topic: str, group: str, broker_clock: Clock) -> None:
    times = []
    for _ in range(3):
        peer.put(topic)
        times.append(peer.pull(topic)[-1].store_timestamp)
        broker_clock.advance(1)
    commit(peer, group, topic, 0)
    for timestamp, offset in ((times[1], 1), (times[1] + 1, 2), (times[2] + 1, 3), (-1, 3), (0, 0)):
        reset(peer, group, topic, timestamp)
        assert offset_of(peer, group, topic) == offset


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"topic": "no-such-topic"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "no-such-group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 0, "offset": 7}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_cannot_be_is_refused(ready: Peer, topic: str, group: str, how: dict[str, object], code: int) -> None:
    answer = reset(ready, **{"group": group, "topic": topic} | how)  # type: ignore[arg-type]
    assert answer.code == code
    assert offset_of(ready, group, topic) == 5


def test_one_group_takes_over_the_offsets_of_another(ready: Peer, topic: str, group: str) -> None:
    clone = f"{group}-clone"
    header = headers.CloneOffsets(src_group=group, dest_group=clone, topic=topic, offline=True)
    assert ready.ask(RequestCode.CLONE_GROUP_OFFSET, header).code == 0
    assert offset_of(ready, clone, topic) == 5
    ready.heartbeat(group, [f"{topic}-other"])
    commit(ready, group, topic, 2)
    ready.ask(RequestCode.CLONE_GROUP_OFFSET, headers.CloneOffsets(src_group=group, dest_group=clone))
    assert offset_of(ready, clone, topic) == 5
    ready.ask(RequestCode.CLONE_GROUP_OFFSET, headers.CloneOffsets(src_group=group, dest_group=clone, offline=True))
    assert offset_of(ready, clone, topic) == 2


def test_a_reset_does_not_outlive_its_topic(ready: Peer, topic: str, group: str, broker: Broker) -> None:
    reset(ready, group, topic)
    ready.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic=topic))
    ready.put(topic)
    assert ready.ask(RequestCode.PULL_MESSAGE, pull(group, topic, 0)).code == ResponseCode.SUCCESS


def test_a_queue_that_is_not_there_is_not_reset(ready: Peer, topic: str, group: str, broker: Broker) -> None:
    answer = reset(ready, group, topic, queue_id=4)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "has queues 0 to 3" in (answer.remark or "")
    assert broker.offsets.queues(group, topic) == {0: 5}


def test_offsets_are_cloned_to_no_impossible_group(ready: Peer, topic: str, group: str, broker: Broker) -> None:
    header = headers.CloneOffsets(src_group=group, dest_group="a@b", topic=topic, offline=True)
    assert ready.ask(RequestCode.CLONE_GROUP_OFFSET, header).code == ResponseCode.INVALID_PARAMETER
    assert broker.offsets.queues("a@b", topic) == {}
