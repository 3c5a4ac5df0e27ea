"""``evenq serve`` as a process: ready, useful, stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evenq.protocol.codes import ResponseCode
from tests.broker.peers import Peer
from tests.clusters import brokers, route

pytestmark = pytest.mark.live


def command(data: Path, *more: str) -> list[str]:
    start = "from evenq.cli import main; main()"
    return [sys.executable, "-c", start, "serve", "--data", str(data), *more]


@contextmanager
def serving(data: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address of its name server."""
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    process = subprocess.Popen(command(data, *ports, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.fullmatch(r"ready namesrv=(127\.0\.0\.1:\d+)\n", process.stdout.readline())
        assert ready, process.communicate()
        yield process, ready[1]
    finally:
        process.kill()
        process.communicate()


def processor_seconds(process: subprocess.Popen[str]) -> float:
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def memory_mb(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_clients_can_connect_when_it_is_ready_and_a_signal_ends_it_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path, "--brokers", "2") as (process, namesrv):
        addresses = brokers(namesrv)
        assert list(addresses) == ["broker-a", "broker-b"]
        assert route(namesrv, "TBW102") == {"broker-a": 8, "broker-b": 8}
        with Peer(addresses["broker-b"]) as peer:
            assert peer.put("orders").code == 0
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (0, "", "")
    assert not (tmp_path / "broker-b" / "abort").exists()


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, flush: str) -> None:
    for turn in range(3):
        with serving(tmp_path, "--flush", flush) as (process, namesrv), Peer(brokers(namesrv)["broker-a"]) as peer:
            found = [message.body for message in peer.pull("orders")]
            assert found == [b"%d" % number for number in range(turn * 50)]
            for number in range(turn * 50, turn * 50 + 50):
                assert peer.put("orders", b"%d" % number).code == 0
            process.kill()


def test_limits_are_set_on_the_command_line(tmp_path: Path) -> None:
    limits = ["--max-message", "100", "--max-topic", "10", "--max-connections", "2"]
    with serving(tmp_path, *limits) as (_, namesrv), Peer(brokers(namesrv)["broker-a"]) as peer:
        assert peer.put("t" * 10, bytes(100)).code == ResponseCode.SUCCESS
        assert peer.put("t" * 10, bytes(101)).code == ResponseCode.MESSAGE_ILLEGAL
        assert peer.put("t" * 11).code == ResponseCode.INVALID_PARAMETER
        address = "{}:{}".format(*peer.socket.getpeername())
        with Peer(address) as second, Peer(address) as third:
            assert second.put("orders").code == ResponseCode.SUCCESS
            assert third.put("orders").code == ResponseCode.SYSTEM_BUSY


@pytest.mark.slow
def test_it_is_ready_soon_and_small_when_idle(tmp_path: Path) -> None:
    with serving(tmp_path, "--brokers", "2") as (process, _):
        # by the processor's clock: what else the machine does at that moment is no fault of the broker
        assert processor_seconds(process) < 1.0
        assert memory_mb(process) < 120


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            command(tmp_path, "--namesrv-port", str(port)), capture_output=True, text=True, timeout=30, check=False
        )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        f"evenq: error: the name server cannot listen on 127.0.0.1:{port}: Address already in use; "
        "stop what listens there, or give another port\n"
    )


def test_a_data_directory_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with serving(tmp_path):
        more = ["--namesrv-port", "0", "--broker-port", "0"]
        ended = subprocess.run(command(tmp_path, *more), capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert re.fullmatch(r"evenq: error: the data directory \S+ is in use by another broker: .*\n", ended.stderr)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.255.255.1"])
def test_other_machines_are_let_in_only_if_that_is_wanted(tmp_path: Path, host: str) -> None:
    done = subprocess.run(command(tmp_path, "--host", host), capture_output=True, text=True, check=False, timeout=30)

    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "add --allow-unauthenticated" in line
    assert not any(tmp_path.iterdir())


def test_a_host_may_be_a_name(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "localhost") as (_, namesrv), Peer(brokers(namesrv)["broker-a"]) as peer:
        assert peer.put("orders").code == ResponseCode.SUCCESS


def test_a_name_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    start = command(tmp_path, "--host", "nowhere.invalid")
    done = subprocess.run(start, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "the name server cannot listen on 'nowhere.invalid'" in line


def test_it_may_listen_everywhere_if_that_is_wanted(tmp_path: Path) -> None:
    everywhere = ["--host", "0.0.0.0", "--allow-unauthenticated", "--namesrv-port", "0", "--broker-port", "0"]
    process = subprocess.Popen(command(tmp_path, *everywhere), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready namesrv=0.0.0.0:")
    finally:
        process.kill()
        process.communicate()
