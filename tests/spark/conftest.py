"""Topics with something in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

import evenq
from evenq.model import SendResult
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

Send = Callable[[Iterable[evenq.Message]], list[SendResult]]


@pytest.fixture
def send(any_cluster: AnyCluster, topic: str) -> Iterator[Send]:
    """Sends to a topic that is there on all brokers with two queues each; gives the receipts.

    A real broker takes a moment to enter a message in its queue: the messages can be read when this returns.
    """
    create_topic(any_cluster.namesrv, topic, queues=2)
    options = read_options({"namesrv": any_cluster.namesrv, "subscribe": topic})
    with evenq.Producer(any_cluster.namesrv, group="spark-tests") as producer, Lookup(options) as lookup:

        def send_all(messages: Iterable[evenq.Message]) -> list[SendResult]:
            receipts = [future.result() for future in [producer.send_async(message) for message in messages]]
            ends = {receipt.queue: receipt.offset + 1 for receipt in sorted(receipts, key=lambda sent: sent.offset)}
            wait_until(
                lambda: all(end >= ends[queue] for queue, end in lookup.latest(ends).items()),
                "all messages that were sent in their queues",
            )
            return receipts

        yield send_all
