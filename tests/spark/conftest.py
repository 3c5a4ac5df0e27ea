"""Topics with something in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

import evenq
from evenq.model import SendResult
from tests.clusters import AnyCluster, create_topic, wait_shown

Send = Callable[[Iterable[evenq.Message]], list[SendResult]]


@pytest.fixture
def send(any_cluster: AnyCluster, topic: str) -> Iterator[Send]:
    """Sends to a topic that is there on all brokers with two queues each; gives the receipts when all can be read."""
    create_topic(any_cluster.namesrv, topic, queues=2)
    timeouts = evenq.Timeouts(send=30)
    with evenq.Producer(any_cluster.namesrv, group="spark-tests", timeouts=timeouts) as producer:

        def send_all(messages: Iterable[evenq.Message]) -> list[SendResult]:
            receipts = [future.result() for future in [producer.send_async(message) for message in messages]]
            wait_shown(any_cluster.namesrv, receipts)
            return receipts

        yield send_all
