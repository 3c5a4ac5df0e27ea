"""A data directory changes hands between evenq and the Java broker while messages wait in it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from evenq.broker import BrokerSettings, TransactionSettings
from evenq.model import Begin, Message
from evenq.testing import cluster
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost, RealCluster
from tests.waiting import wait_until

# Long enough for the other broker to start, short enough to wait for.
LATER = 25
LEVELS = f"1s {LATER}s"


def evenq_broker(data: Path) -> AbstractContextManager[AnyCluster]:
    settings = BrokerSettings(
        delay_levels=LEVELS, transactions=TransactionSettings(timeout=LATER, check_every=1), log_file_size=1 << 30
    )
    return cluster(data=data, settings=settings)


def java_broker(data: Path) -> AbstractContextManager[AnyCluster]:
    conf = {
        "messageDelayLevel": LEVELS,
        "transactionTimeOut": str(LATER * 1000),
        "transactionCheckInterval": "1000",
        "transactionOpBatchInterval": "100",
        "timerFlushIntervalMs": "500",
    }
    return RealCluster(brokers=1, data=data, conf=conf)


Start = Callable[[Path], AbstractContextManager[AnyCluster]]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(evenq_broker, java_broker), (java_broker, evenq_broker)])
def test_what_waits_is_delivered_once_by_whoever_has_the_directory_then(
    first: Start, second: Start, java: JavaHost, topic: str, group: str, tmp_path: Path
) -> None:
    shop = f"{group}-shop"
    with first(tmp_path) as running:
        create_topic(running.namesrv, topic, queues=1)
        member = java.push(running.namesrv, group, topic, begin=Begin.FIRST)
        java.producer(running.namesrv).send(
            [
                Message(topic, b"level, soon", delay_level=1),
                Message(topic, b"level, later", delay_level=2),
                Message(topic, b"timer, soon", properties={"TIMER_DELAY_SEC": "1"}),
                Message(topic, b"timer, later", properties={"TIMER_DELAY_SEC": str(LATER)}),
                Message(topic, b"timer, soon too", properties={"TIMER_DELAY_SEC": "2"}),
            ]
        )
        producer = java.transactions(running.namesrv, shop)
        producer.send([Message(topic, b"half, committed")], "COMMIT_MESSAGE")
        producer.send([Message(topic, b"half, open")], "UNKNOW")
        wait_until(lambda: len(member.messages) >= 4, lambda: f"what is due soon: {member.messages}")
        soon = Counter(received.message.body for received in member.messages)
        assert soon == Counter([b"level, soon", b"timer, soon", b"timer, soon too", b"half, committed"])
        producer.stop()
        member.stop()
        running.stop_broker("broker-a")
    with second(tmp_path) as running:
        member = java.push(running.namesrv, group, topic, begin=Begin.FIRST)
        producer = java.transactions(running.namesrv, shop)
        producer.send([Message(topic, b"half, new")], "ROLLBACK_MESSAGE")
        member.wait_for(3)
        asked = producer.wait_for(1)
        later = Counter(received.message.body for received in member.messages)
        assert later == Counter([b"level, later", b"timer, later", b"half, open"])
        # an answer that is late is asked for again
        assert {received.message.body for received in asked} == {b"half, open"}
        java.stop_clients()
    shutil.rmtree(tmp_path)
