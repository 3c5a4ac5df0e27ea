"""An admin client for whichever cluster a test runs on, and a topic with queues on both of its brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenq import Admin, Message, Producer, SendResult
from tests.clusters import AnyCluster, create_topic, wait_shown


@pytest.fixture
def admin(any_cluster: AnyCluster) -> Iterator[Admin]:
    with Admin(any_cluster.namesrv) as client:
        yield client


@pytest.fixture
def wide(any_cluster: AnyCluster, topic: str) -> str:
    """A topic with two queues on each of two brokers."""
    create_topic(any_cluster.namesrv, topic, queues=2)
    return topic


@pytest.fixture
def sent(any_cluster: AnyCluster, wide: str) -> list[SendResult]:
    """Receipts of twelve messages in the wide topic, three in each queue; their keys are ``k-0`` to ``k-3``."""
    with Producer(any_cluster.namesrv) as producer:
        receipts = [producer.send(Message(wide, f"{n}".encode(), keys=[f"k-{n % 4}"])) for n in range(12)]
    wait_shown(any_cluster.namesrv, receipts)
    return receipts
