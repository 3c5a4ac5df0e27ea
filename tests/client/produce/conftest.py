"""What the suites of the producer share."""

from collections.abc import Iterator

import pytest

from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import AnyCluster, create_topic


@pytest.fixture
def wide(any_cluster: AnyCluster, topic: str) -> str:
    """A topic with four queues on each of two brokers."""
    create_topic(any_cluster.namesrv, topic, queues=4)
    return topic


@pytest.fixture
def own_cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers that a test may harm."""
    with cluster(brokers=2) as running:
        yield running
