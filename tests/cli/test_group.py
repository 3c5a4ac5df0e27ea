"""``evenq group``."""

from __future__ import annotations

import pytest

from evenq import Message, MessageView, Producer, PushConsumer, Retry
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import cluster
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, create_topic, wait_shown
from tests.waiting import wait_until


def test_a_group_from_beginning_to_end(at_cluster: Evenq, group: str) -> None:
    evenq = at_cluster
    made = evenq.json("group", "create", group, "--max-retries", "3")
    assert made == [
        {
            "group": group,
            "brokers": ["broker-a", "broker-b"],
            "consume": True,
            "broadcast": True,
            "max_retries": 3,
            "retry_queues": 1,
        }
    ]
    assert made[0] in evenq.json("group", "list")
    assert evenq("group", "update", group, "--no-consume")[1].split() == [
        group, "no", "3", "1", "broker-a,", "broker-b",
    ]  # fmt: skip
    assert evenq("group", "members", group) == [f"group {group} has no members online"]
    assert "it is there already" in evenq.error("group", "create", group)
    assert evenq("group", "delete", group) == [f"group {group} is deleted"]
    assert not [each for each in evenq.json("group", "list") if each["group"] == group]
    assert "no broker knows this consumer group" in evenq.error("group", "delete", group)


def test_members_and_subscriptions_are_shown(
    at_cluster: Evenq, any_cluster: AnyCluster, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with PushConsumer(any_cluster.namesrv, group, instance="c1") as consumer:
        consumer.subscribe(topic, "paid")
        consumer.start(lambda messages: None)
        found = wait_until(lambda: at_cluster.json("group", "members", group)["members"], "a member")
        assert [each["client_id"] for each in found] == [consumer.client_id]
        lines = at_cluster("group", "members", group)
        assert lines[1].split()[0] == consumer.client_id
        assert [topic, "paid"] in [line.split() for line in lines]


def test_members_that_differ_are_shown(at_cluster: Evenq, any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with (
        PushConsumer(any_cluster.namesrv, group, instance="c1") as first,
        PushConsumer(any_cluster.namesrv, group, instance="c2", strategy="AVG_BY_CIRCLE") as second,
    ):
        for consumer in (first, second):
            consumer.subscribe(topic)
            consumer.start(lambda messages: None)
        text = f"strategy: AVG ({first.client_id}), AVG_BY_CIRCLE ({second.client_id})"
        wait_until(lambda: at_cluster.json("group", "members", group)["differences"] == [text], "the difference")
        lines = at_cluster("group", "members", group)
        assert lines[-2:] == ["WARNING: messages may be lost: members differ in", text]


def test_a_group_is_moved(at_cluster: Evenq, any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        wait_shown(any_cluster.namesrv, [producer.send(Message(topic, b"x")) for _ in range(4)])
    at_cluster("group", "create", group)

    def moved(*arguments: str) -> list[list[str]]:
        return [line.split() for line in at_cluster("group", "reset", group, topic, *arguments)[1:]]

    assert moved("--to", "last")[0][::2] == ["broker-a:0", "2"]
    assert moved("--to", "first") == [["broker-a:0", "2", "0"], ["broker-b:0", "2", "0"]]
    assert moved("--offset", "broker-a:0=1") == [["broker-a:0", "0", "1"]]
    assert moved("--to", "2020-01-01") == [["broker-a:0", "1", "0"], ["broker-b:0", "0", "0"]]
    as_json = at_cluster.json("group", "reset", group, topic, "--to", "2020-01-01T00:00:00Z")
    assert [(each["queue"]["broker"], each["after"]) for each in as_json] == [("broker-a", 0), ("broker-b", 0)]


def test_progress_adds_up(at_cluster: Evenq, any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        wait_shown(any_cluster.namesrv, [producer.send(Message(topic, b"x")) for _ in range(4)])
    at_cluster("group", "create", group)
    at_cluster("group", "reset", group, topic, "--offset", "broker-a:0=1", "--offset", "broker-b:0=2")
    lines = at_cluster("group", "progress", group)
    assert lines[0].split() == ["topic", "queue", "offset", "end", "lag", "consumed", "up", "to", "member"]
    assert [line.split()[:5] for line in lines[1:3]] == [
        [topic, "broker-a:0", "1", "2", "1"],
        [topic, "broker-b:0", "2", "2", "0"],
    ]
    assert lines[3].split() == ["all", "1"]
    assert at_cluster.json("group", "progress", group)["lag"] == 1


def give_up(namesrv: str, group: str, topic: str) -> None:
    """Make dead letters of two messages of a group, one on each broker."""
    create_topic(namesrv, topic, queues=1)
    with Producer(namesrv) as producer:
        for number in range(2):
            producer.send(Message(topic, f"body {number}".encode(), keys=[f"k-{number}"]))
    seen: list[MessageView] = []

    def handler(messages: list[MessageView]) -> Retry:
        seen.extend(messages)
        return Retry(delay_level=-1)

    # closing waits until the broker has what failed
    with PushConsumer(namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        wait_until(lambda: len(seen) == 2, "both messages")


def test_dead_letters_are_shown_and_sent_again(
    at_cluster: Evenq, any_cluster: AnyCluster, topic: str, group: str
) -> None:
    give_up(any_cluster.namesrv, group, topic)
    found = wait_until(
        lambda: letters if len(letters := at_cluster.json("group", "dead-letters", group)) == 2 else None, "both"
    )
    lines = at_cluster("group", "dead-letters", group)
    assert lines[0].split() == ["given", "up", "topic", "id", "tries", "keys", "tags", "dead", "letter", "body"]
    for line, letter in zip(lines[1:], found, strict=True):
        message = letter["message"]
        assert line.split()[2:6] == [topic, message["unique_key"], "1", message["keys"][0]]
        assert line.split()[7] == message["msg_id"]
        assert line.endswith(message["body"])
    assert len(at_cluster("group", "dead-letters", group, "--limit", "1")) == 2

    one = found[0]["message"]
    sent = at_cluster.json("group", "resend", group, "--id", one["unique_key"])
    assert sent == {"group": group, "sent": [one["msg_id"]], "failed": []}
    seen: list[MessageView] = []
    with PushConsumer(any_cluster.namesrv, group) as consumer:
        consumer.subscribe(topic)
        consumer.start(seen.extend)
        assert at_cluster("group", "resend", group) == [
            f"2 of 2 dead letters of group {group} are sent again, to this group only"
        ]
        wait_until(lambda: len(seen) == 3, "one of them twice, the other once")


def test_a_group_without_dead_letters_gets_one_line(at_cluster: Evenq, group: str) -> None:
    at_cluster("group", "create", group)
    assert at_cluster("group", "dead-letters", group) == [f"group {group} has no dead letters"]
    assert at_cluster("group", "resend", group) == [f"group {group} has no dead letters"]
    assert at_cluster("group", "resend", group, "--begin", "2020-01-01") == [
        f"group {group} has no dead letters of this time"
    ]
    assert at_cluster.json("group", "dead-letters", group, "--end", "2020-01-01") == []
    assert at_cluster.json("group", "resend", group) == {"group": group, "sent": [], "failed": []}
    for command in ("dead-letters", "resend"):
        assert "no broker knows this consumer group" in at_cluster.error("group", command, f"{group}-other")
    assert "no dead letter with this id" in at_cluster.error("group", "resend", group, "--id", "nonsense")
    assert "give a time" in at_cluster.error("group", "resend", group, "--end", "soon")
    both = at_cluster.error("group", "resend", group, "--id", "a", "--end", "2020-01-01")
    assert "give letters or a time, not both" in both


@pytest.mark.live
def test_dead_letters_that_were_not_sent_are_named(evenq: Evenq, topic: str, group: str) -> None:
    with cluster(brokers=2) as running:
        give_up(running.namesrv, group, topic)
        place = ("--namesrv", running.namesrv)
        letters = evenq.json("group", "dead-letters", group, *place)
        running.brokers["broker-a"].faults.add(RequestCode.SEND_MESSAGE_V2, error=ResponseCode.MESSAGE_ILLEGAL)
        code, out, err = evenq.run("group", "resend", group, *place)
        (key,) = (each["message"]["unique_key"] for each in letters if each["message"]["broker"] == "broker-a")
        first, second = out.splitlines()
        assert (code, err) == (1, "")
        assert first == f"1 of 2 dead letters of group {group} are sent again, to this group only"
        assert second.startswith(f"not sent: dead letter {key} of group {group}: ")
