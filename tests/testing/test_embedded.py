import threading
from pathlib import Path

import pytest

from evenq.errors import ArgumentError
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import Clock, cluster
from tests.broker.peers import Peer
from tests.clusters import brokers, route

pytestmark = pytest.mark.live


def test_a_cluster_is_there_for_the_block_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    threads = set(threading.enumerate())
    with cluster(brokers=2) as running:
        assert brokers(running.namesrv) == {name: broker.address for name, broker in running.brokers.items()}
        assert list(running.brokers) == ["broker-a", "broker-b"]
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
    assert set(threading.enumerate()) <= threads
    with pytest.raises(ConnectionError):
        Peer(running.namesrv)


def test_data_that_is_given_a_place_stays_there(tmp_path: Path) -> None:
    for expected in ("0", "1"):
        with cluster(data=tmp_path) as running, Peer(running.brokers["broker-a"].address) as peer:
            assert peer.put("orders").ext["queueOffset"] == expected


def test_brokers_stop_and_start() -> None:
    with cluster(brokers=2) as running:
        running.stop_broker("broker-a")
        assert list(running.brokers) == ["broker-b"]
        assert route(running.namesrv, "TBW102") == {"broker-b": 8}
        running.start_broker("broker-a")
        assert route(running.namesrv, "TBW102") == {"broker-a": 8, "broker-b": 8}
        with pytest.raises(ArgumentError, match="the brokers are broker-a, broker-b"):
            running.start_broker("broker-c")


def test_faults_are_set_from_outside() -> None:
    with cluster() as running:
        broker = running.brokers["broker-a"]
        broker.faults.add(RequestCode.SEND_MESSAGE_V2, error=ResponseCode.SYSTEM_BUSY, times=1)
        with Peer(broker.address) as peer:
            assert [peer.put("orders").code for _ in range(2)] == [ResponseCode.SYSTEM_BUSY, 0]


def test_the_clock_is_the_brokers(tmp_path: Path) -> None:
    clock = Clock()
    clock.advance(86_400)
    with cluster(clock=clock.now) as running, Peer(running.brokers["broker-a"].address) as peer:
        peer.put("orders")
        (message,) = peer.pull("orders")
        assert abs(message.store_timestamp / 1000 - clock.now()) < 10


def test_a_look_at_the_tables_happens_in_their_thread() -> None:
    with cluster() as running:
        assert running.call(threading.current_thread) is not threading.current_thread()
