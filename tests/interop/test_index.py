"""The index on disk: what one broker wrote, the other finds, and goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenq import Producer
from evenq.model import Message, SendResult
from evenq.protocol import RequestCode, ResponseCode, decode_messages, headers
from evenq.testing import cluster
from tests.clusters import AnyCluster, ask, brokers, create_topic
from tests.realmq import RealCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.live

COUNT = 500


def fill(running: AnyCluster, topic: str, part: str) -> dict[str, SendResult]:
    """Send messages; their receipts by key."""
    with Producer(running.namesrv) as producer:
        futures = {
            f"{part}-{number}": producer.send_async(
                Message(topic, f"{part} {number}".encode(), keys=[f"{part}-{number}", f"{part}-ü-{number % 7}"])
            )
            for number in range(COUNT)
        }
        return {key: future.result() for key, future in futures.items()}


def find(address: str, topic: str, key: str, *, unique: bool = False, most: int = 64) -> set[bytes]:
    header = headers.QueryMessage(
        topic=topic, key=key, max_num=most, begin_timestamp=0, end_timestamp=2**60, unique_key=unique or None
    )
    answer = ask(address, RequestCode.QUERY_MESSAGE, header)
    return {message.body for message in decode_messages(answer.body)} if answer.code == ResponseCode.SUCCESS else set()


def check(running: AnyCluster, topic: str, receipts: dict[str, SendResult]) -> None:
    """Whether everything is found, by each of its keys."""
    (address,) = brokers(running.namesrv).values()
    last_part, _, last = next(reversed(receipts)).rpartition("-")
    wait_until(lambda: find(address, topic, f"{last_part}-{last}"), "the index has caught up")
    for key, receipt in receipts.items():
        part, _, number = key.rpartition("-")
        body = f"{part} {number}".encode()
        assert find(address, topic, key) == {body}
        assert find(address, topic, receipt.msg_id, unique=True) == {body}
    for part in {key.rpartition("-")[0] for key in receipts}:
        among = {f"{part} {number}".encode() for number in range(COUNT)}
        found = find(address, topic, f"{part}-ü-3")
        assert len(found) == 64
        assert found <= among
    assert find(address, topic, "no-such-key") == set()


def test_the_index_is_handed_from_one_broker_to_the_other_and_back(tmp_path: Path, topic: str) -> None:
    with cluster(brokers=1, data=tmp_path) as ours:
        create_topic(ours.namesrv, topic, queues=2)
        receipts = fill(ours, topic, "ours")
        check(ours, topic, receipts)

    with RealCluster(brokers=1, data=tmp_path) as theirs:
        check(theirs, topic, receipts)
        receipts |= fill(theirs, topic, "theirs")
        check(theirs, topic, receipts)
        theirs.stop_broker("broker-a")

    with cluster(brokers=1, data=tmp_path) as ours:
        check(ours, topic, receipts)
        receipts |= fill(ours, topic, "again")
        check(ours, topic, receipts)
    assert len(list((tmp_path / "broker-a" / "index").iterdir())) == 1
