import asyncio
import socket
from pathlib import Path

import pytest

from evenq.broker.broker import Broker
from evenq.broker.cluster import Cluster, broker_names
from evenq.errors import ArgumentError, StateError


def test_brokers_are_named_by_letters() -> None:
    assert broker_names(3) == ["broker-a", "broker-b", "broker-c"]
    names = broker_names(800)
    assert len(set(names)) == 800
    assert (names[25], names[26], names[701], names[702]) == ("broker-z", "broker-aa", "broker-zz", "broker-aaa")
    with pytest.raises(ArgumentError, match="brokers=0: give at least 1"):
        broker_names(0)


def free_port() -> int:
    """The first of some ports that are free, for brokers that are 10 apart."""
    for first in range(20_000, 30_000, 50):
        try:
            for port in (first, first + 10):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no free ports")


@pytest.mark.live
def test_the_next_brokers_are_ten_ports_on(tmp_path: Path) -> None:
    port = free_port()

    async def scenario() -> list[str]:
        cluster = Cluster(tmp_path, brokers=2, namesrv_port=0, broker_port=port)
        await cluster.start()
        addresses = [broker.address for broker in cluster.brokers.values()]
        await cluster.stop()
        return addresses

    assert asyncio.run(scenario()) == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 10}"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-a", "broker-b"]


@pytest.mark.live
def test_what_was_started_before_a_failure_is_stopped(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def scenario() -> None:
            cluster = Cluster(tmp_path, brokers=1, namesrv_port=0, broker_port=port)
            with pytest.raises(StateError, match=f"broker broker-a cannot listen on 127.0.0.1:{port}"):
                await cluster.start()
            assert not cluster.brokers
            with pytest.raises(OSError, match="Connect call failed"):
                await asyncio.open_connection(*cluster.namesrv.split(":"))

        asyncio.run(scenario())


@pytest.mark.live
def test_a_broker_is_stopped_and_started_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path, brokers=2, namesrv_port=0, broker_port=0)
        await cluster.start()
        address = cluster.brokers["broker-b"].address
        await cluster.stop_broker("broker-b")
        assert list(cluster.nameserver.routes.brokers()) == ["broker-a"]
        with pytest.raises(ArgumentError, match="the brokers that run are broker-a"):
            await cluster.stop_broker("broker-b")
        with pytest.raises(ArgumentError, match="this broker is running"):
            await cluster.start_broker("broker-a")
        with pytest.raises(ArgumentError, match="the brokers are broker-a, broker-b"):
            await cluster.start_broker("broker-z")
        assert (await cluster.start_broker("broker-b")).address == address
        assert list(cluster.nameserver.routes.brokers()) == ["broker-a", "broker-b"]
        await cluster.stop()

    asyncio.run(scenario())


@pytest.mark.live
def test_a_clean_end_leaves_no_abort_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = Cluster(tmp_path, namesrv_port=0, broker_port=0)
        await first.start()
        assert (tmp_path / "broker-a" / "abort").exists()
        await first.stop()
        assert not (tmp_path / "broker-a" / "abort").exists()

    asyncio.run(scenario())


@pytest.mark.live
def test_a_broker_that_fails_to_stop_does_not_keep_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Broker.stop

    async def fail(broker: Broker) -> None:
        await stop(broker)
        if broker.settings.name == "broker-a":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Broker, "stop", fail)

    async def scenario() -> list[str]:
        cluster = Cluster(tmp_path, brokers=2, namesrv_port=0, broker_port=0)
        await cluster.start()
        addresses = [cluster.namesrv, *(broker.address for broker in cluster.brokers.values())]
        await cluster.stop()
        return addresses

    for address in asyncio.run(scenario()):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    assert "broker-a did not stop as it should" in caplog.text
