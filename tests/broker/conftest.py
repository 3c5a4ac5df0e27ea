"""One embedded broker for all tests of handlers; each test has topics and groups of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from evenq.broker import Broker
from evenq.testing import Clock, EmbeddedCluster, cluster
from tests.broker.peers import Peer


@pytest.fixture(scope="session")
def broker_clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def one_broker(broker_clock: Clock) -> Iterator[EmbeddedCluster]:
    with cluster(clock=broker_clock.now) as running:
        yield running


@pytest.fixture
def broker(one_broker: EmbeddedCluster) -> Iterator[Broker]:
    found = one_broker.brokers["broker-a"]
    yield found
    found.faults.clear()


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[..., Peer]]:
    """Makes peers of the broker, which are closed after the test."""
    peers: list[Peer] = []

    def make(client_id: str = "peer") -> Peer:
        peers.append(Peer(broker.address, client_id))
        return peers[-1]

    yield make
    for peer in peers:
        peer.socket.close()


@pytest.fixture
def peer(connect: Callable[..., Peer]) -> Peer:
    return connect()
