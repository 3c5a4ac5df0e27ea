"""Broadcasting on both brokers: every member gets every message, and keeps its own offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

import evenq
from evenq import LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.client.group.localoffsets import OffsetFile
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


def send(namesrv: str, topic: str, *numbers: int) -> None:
    with Producer(namesrv) as producer:
        for number in numbers:
            assert producer.send(Message(topic, b"%d" % number)).ok


def read(consumer: LitePullConsumer, count: int) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        found.extend(int(message.body) for message in consumer.poll(0.05))
        return len(found) >= count

    wait_until(enough, lambda: f"{count} messages: {found}")
    return sorted(found)


def test_every_member_gets_every_message_and_goes_on_where_it_was(
    any_cluster: AnyCluster, topic: str, group: str, tmp_path: Path
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    seen: dict[str, list[int]] = {"c1": [], "c2": []}

    def member(name: str) -> PushConsumer:
        made = PushConsumer(
            namesrv, group, instance=name, model="BROADCASTING", begin="first", offsets_in=tmp_path, batch=4
        )
        made.subscribe(topic)
        made.start(lambda messages: seen[name].extend(int(message.body) for message in messages))
        return made

    with member("c1") as first, member("c2") as second:
        wait_until(lambda: len(first.queues) == len(second.queues) == 4, "all queues for both")
        send(namesrv, topic, *range(50))
        for numbers in seen.values():
            wait_until(lambda n=numbers: len(n) >= 50, "all messages for both")  # type: ignore[misc]
        path = tmp_path / first.client_id / group / "offsets.json"
    assert sum(OffsetFile(path).read().values()) == 50
    send(namesrv, topic, *range(50, 60))
    with member("c1"):
        wait_until(lambda: len(seen["c1"]) >= 60, "the rest for the one that is back")
    assert sorted(seen["c1"]) == list(range(60))
    assert sorted(seen["c2"]) == list(range(50))


def test_what_fails_is_not_tried_again(
    any_cluster: AnyCluster, topic: str, group: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    seen: list[bytes] = []

    def handler(messages: list[MessageView]) -> evenq.Retry:
        seen.extend(message.body for message in messages)
        return evenq.Retry()

    with PushConsumer(
        any_cluster.namesrv, group, model=evenq.MessageModel.BROADCASTING, begin="first", offsets_in=tmp_path
    ) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        send(any_cluster.namesrv, topic, 1, 2)
        wait_until(lambda: len(seen) == 2, "two messages")
    assert "broadcasting does not try again" in caplog.text
    assert "without an instance name: a restart begins anew" in caplog.text


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(evenq.ArgumentError, match="model='SHOUTING': give CLUSTERING or BROADCASTING"):
        PushConsumer("h:1", "g", model="SHOUTING")


def test_lite_pull_members_too_get_every_message_and_go_on(
    any_cluster: AnyCluster, topic: str, group: str, tmp_path: Path
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=2)

    def member(name: str) -> LitePullConsumer:
        made = LitePullConsumer(
            namesrv, group, instance=name, model="BROADCASTING", begin="first", offsets_in=tmp_path, auto_commit=False
        )
        made.subscribe(topic)
        made.start()
        return made

    send(namesrv, topic, *range(40))
    with member("c1") as first, member("c2") as second:
        wait_until(lambda: len(first.queues) == len(second.queues) == 4, "all queues for both")
        assert read(first, 40) == read(second, 40) == list(range(40))
        first.commit()
        path = tmp_path / first.client_id / group / "offsets.json"
        assert sum(OffsetFile(path).read().values()) == 40
        assert sum(first.committed(queue) or 0 for queue in first.queues) == 40
        assert {second.committed(queue) for queue in second.queues} <= {None, 0}
    with evenq.Admin(namesrv) as admin:
        assert not admin.members(group).members
    send(namesrv, topic, *range(40, 50))
    with member("c1") as first:
        assert read(first, 10) == list(range(40, 50))
    with member("c2") as second:
        assert read(second, 50) == list(range(50))


def test_assigned_queues_may_keep_their_offsets_in_a_file(
    any_cluster: AnyCluster, topic: str, group: str, tmp_path: Path
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=1)
    send(namesrv, topic, *range(6))
    queues = [MessageQueue(topic, broker, 0) for broker in ("broker-a", "broker-b")]

    def consumer() -> LitePullConsumer:
        made = LitePullConsumer(namesrv, group, instance="c1", model="BROADCASTING", begin="first", offsets_in=tmp_path)
        made.assign(queues)
        return made

    with consumer() as first:
        assert read(first, 6) == list(range(6))
    with consumer() as again:
        assert sum(again.position(queue) for queue in queues) == 6
    with LitePullConsumer(namesrv, group) as other:
        assert {other.committed(queue) for queue in queues} <= {None, 0}
