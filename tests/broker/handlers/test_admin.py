"""The broker's own figures and settings."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from evenq.broker import Broker, BrokerSettings
from evenq.errors import ArgumentError
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import Clock
from tests.broker.peers import Peer


@pytest.fixture
def unchanged(broker: Broker) -> Iterator[None]:
    """Gives the broker its settings back."""
    settings = broker.settings
    yield
    broker.change(settings)


def figures(peer: Peer) -> dict[str, str]:
    return bodies.KvTable.decode(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table


def settings(peer: Peer) -> dict[str, str]:
    lines = peer.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def change(peer: Peer, text: str) -> Command:
    return peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


def test_running_figures(peer: Peer, topic: str, broker: Broker, broker_clock: Clock) -> None:
    before = figures(peer)
    for _ in range(3):
        peer.put(topic)
    peer.pull(topic)
    broker_clock.advance(90)
    table = figures(peer)
    assert table["brokerVersionDesc"].startswith("evenq ")
    assert int(table["commitLogMaxOffset"]) == broker.store.log.end
    assert int(table["msgPutTotalTodayNow"]) - int(before["msgPutTotalTodayNow"]) == 3
    assert int(table["msgGetTotalTodayNow"]) - int(before["msgGetTotalTodayNow"]) == 3
    assert int(table["bootTimestamp"]) <= int(table["earliestMessageTimeStamp"]) < broker.now_ms()
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    assert "1 minutes" in table["runtime"] or int(broker_clock.now()) - int(broker.started) > 120
    assert all(float(word) >= 0 for word in table["putTps"].split())


def test_counters_over_time(peer: Peer, topic: str, group: str) -> None:
    def counted(name: str, of: str) -> Command:
        return peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, headers.BrokerStats(stats_name=name, stats_key=of))

    missing = counted("TOPIC_PUT_NUMS", topic)
    assert (missing.code, missing.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"The stats <TOPIC_PUT_NUMS> <{topic}> not exist",
    )
    for _ in range(7):
        peer.put(topic)
    ext = Peer.pull_header(topic, most=4).to_ext() | {"consumerGroup": group}
    peer.ask(RequestCode.PULL_MESSAGE, headers.PullRequest.from_ext(ext))
    for name, of, count in (("TOPIC_PUT_NUMS", topic, 7), ("GROUP_GET_NUMS", f"{topic}@{group}", 4)):
        body = bodies.BrokerStatsBody.decode(counted(name, of).body)
        for span in (body.stats_minute, body.stats_hour, body.stats_day):
            assert span is not None
            assert span.sum == count
            assert 0 < span.tps <= count


def test_settings_are_told_under_javas_names(peer: Peer) -> None:
    told = settings(peer)
    assert (
        told.items()
        >= {
            "brokerName": "broker-a",
            "brokerClusterName": "DefaultCluster",
            "flushDiskType": "ASYNC_FLUSH",
            "maxMessageSize": "4194304",
        }.items()
    )


@pytest.mark.usefixtures("unchanged")
def test_settings_are_changed_and_count_at_once(peer: Peer, topic: str, group: str) -> None:
    assert (
        change(peer, "maxMessageSize=100\n\nautoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n").code == 0
    )
    told = settings(peer)
    assert (told["maxMessageSize"], told["autoCreateTopicEnable"]) == ("100", "false")
    assert peer.put(topic).code == ResponseCode.TOPIC_NOT_EXIST
    assert peer.heartbeat(group).code == 0
    assert peer.members(group) == []
    assert change(peer, "autoCreateTopicEnable=true\nflushDiskType=SYNC_FLUSH").code == 0
    assert peer.put(topic, bytes(100)).code == 0
    assert peer.put(topic, bytes(101)).code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokerName=other", "brokerName cannot be changed while the broker runs; these can: maxMessageSize"),
        ("maxMessageSize=many", "maxMessageSize cannot be 'many'"),
        ("flushDiskType=NO_FLUSH", "flushDiskType cannot be 'NO_FLUSH'"),
        ("maxMessageSize=5\nbrokerId=1", "brokerId cannot be changed"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_nothing_else_is_done(peer: Peer, text: str, words: str) -> None:
    before = settings(peer)
    answer = change(peer, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert words in (answer.remark or "")
    assert settings(peer) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fileReservedTime=nan", "fileReservedTime cannot be 'nan': give a finite number, more than 0"),
        ("fileReservedTime=inf", "fileReservedTime cannot be 'inf'"),
        ("fileReservedTime=-1", "fileReservedTime cannot be '-1'"),
        ("maxMessageSize=-1", "maxMessageSize cannot be '-1': give bytes of a body, 1 to 2147483647"),
        ("maxMessageSize=0", "maxMessageSize cannot be '0'"),
        ("maxMessageSize=1_000", "maxMessageSize cannot be '1_000': give a whole number of bytes"),
        ("maxMessageSize=" + "9" * 5000, "maxMessageSize cannot be '9999"),
        ("maxMessageSize=9\nfileReservedTime=nan", "fileReservedTime cannot be 'nan'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(peer: Peer, text: str, words: str) -> None:
    before = settings(peer)
    answer = change(peer, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert words in (answer.remark or "")
    assert settings(peer) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_hours": math.nan},
        {"keep_hours": 0},
        {"keep_bytes": 0},
        {"max_message": -1},
        {"max_topic": 256},
        {"delivery_seconds": 0},
        {"housekeeping_seconds": math.inf},
        {"flush": "never"},
    ],
    ids=str,
)
def test_a_broker_cannot_be_set_so_at_its_start(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ArgumentError, match=f"{name}=.*: give"):
        BrokerSettings(**wrong)
