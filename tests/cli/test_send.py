"""``evenq send``, and ``evenq message`` to see what came of it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from evenq import HashSelector, Message, MessageQueue
from evenq.cli import main
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


@pytest.fixture
def wide(any_cluster: AnyCluster, topic: str) -> str:
    create_topic(any_cluster.namesrv, topic, queues=2)
    return topic


def test_a_message_arrives_whole(at_cluster: Evenq, wide: str) -> None:
    (receipt,) = at_cluster.json(
        "send", wide, "hello", "--keys", "o-1", "--keys", "o-2", "--tags", "paid", "--property", "colour=a=b"
    )
    assert (receipt["status"], receipt["ok"]) == ("SEND_OK", True)
    found = at_cluster.json("message", "get", receipt["offset_msg_id"])
    assert (found["body"], found["keys"], found["tags"], found["properties"]["colour"]) == (
        "hello",
        ["o-1", "o-2"],
        "paid",
        "a=b",
    )
    assert (found["unique_key"], found["queue"]) == (receipt["msg_id"], receipt["queue"])
    lines = at_cluster("message", "get", receipt["offset_msg_id"])
    assert ["keys", "o-1,", "o-2"] in [line.split() for line in lines]
    assert lines[-1] == "hello"


def test_every_line_of_a_pipe_is_a_message(at_cluster: Evenq, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n\nthree")))
    at_cluster("send", wide, "--lines", "--queue", "broker-a:1")

    def bodies() -> list[str]:
        return [message["body"] for message in at_cluster.json("message", "read", wide, "broker-a:1", "0")]

    # the Java broker acknowledges a message before its queue shows it
    wait_until(lambda: len(bodies()) == 3, lambda: f"three messages: {bodies()}")
    assert bodies() == ["one", "two", "three"]


def test_a_file_arrives_byte_by_byte(
    any_cluster: AnyCluster, wide: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    def run(*arguments: str) -> bytes:
        with pytest.raises(SystemExit, match="0"):
            main([*arguments, "--namesrv", any_cluster.namesrv])
        return capsysbinary.readouterr().out

    content = bytes(range(256)) + b"\r\n"
    (tmp_path / "body").write_bytes(content)
    (receipt,) = json.loads(run("send", wide, "--file", str(tmp_path / "body"), "--json"))
    assert run("message", "get", receipt["offset_msg_id"], "--body") == content


def test_what_is_not_text_does_not_reach_the_terminal(at_cluster: Evenq, wide: str) -> None:
    at_cluster("send", wide, "\x1b[2J[bold]red", "--queue", "broker-a:0")
    (line,) = wait_until(lambda: at_cluster("message", "read", wide, "broker-a:0", "0")[1:], "the message")
    assert line.endswith("?[2J[bold]red")


def test_the_same_argument_goes_to_the_same_queue(at_cluster: Evenq, wide: str) -> None:
    receipts = at_cluster.json("send", wide, "x", "--selector", "hash", "--arg", "o-1", "--count", "5")
    queues = [MessageQueue(wide, broker, n) for broker in ("broker-a", "broker-b") for n in range(2)]
    chosen = HashSelector().select(queues, Message(wide, b"x"), "o-1")
    assert [(each["queue"]["broker"], each["queue"]["queue_id"]) for each in receipts] == [
        (chosen.broker, chosen.queue_id)
    ] * 5


def test_many_messages_are_counted_by_queue(at_cluster: Evenq, wide: str) -> None:
    lines = at_cluster("send", wide, "x", "--count", "2400")
    assert [line.split() for line in lines[:6]] == [
        ["queue", "messages"],
        *([f"{broker}:{n}", "600"] for broker in ("broker-a", "broker-b") for n in range(2)),
        ["all", "2,400"],
    ]
    assert lines[-1].endswith("messages a second")


def test_messages_are_found_by_key_and_by_the_producers_id(at_cluster: Evenq, wide: str) -> None:
    receipts = at_cluster.json("send", wide, "x" * 100, "--keys", "o-1", "--count", "3")
    wait_until(lambda: len(at_cluster.json("message", "find", wide, "o-1")) == 3, "three messages in the index")
    lines = at_cluster("message", "find", wide, "o-1", "--limit", "2", "--begin", "2020-01-01")
    assert len(lines) == 3
    assert lines[1].endswith("x" * 59 + "…")
    assert at_cluster("message", "find", wide, "o-1", "--end", "2020-01-01")[1:] == []
    found = at_cluster.json("message", "get", receipts[1]["msg_id"], "--topic", wide)
    assert found["msg_id"] == receipts[1]["offset_msg_id"]
    assert "has no message with this unique key" in at_cluster.error("message", "get", "0" * 32, "--topic", wide)
