import asyncio
import concurrent.futures
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

import evenq
from evenq import Message, Producer
from evenq.client.consume.calls import Calls
from evenq.client.consume.stats import Stats
from evenq.client.sync.facade import _LoopThread
from evenq.client.sync.pending import Pending
from evenq.errors import StateError
from evenq.protocol.codes import RequestCode
from tests.clusters import AnyCluster
from tests.waiting import wait_until


def test_the_sync_surface_has_the_signatures_of_the_async_one() -> None:
    for name in evenq.aio.__all__:
        sync, async_ = getattr(evenq, name), getattr(evenq.aio, name)
        assert inspect.signature(sync) == inspect.signature(async_), name
        assert sync.__doc__ == async_.__doc__
        methods = {method for method, _ in inspect.getmembers(async_, callable) if not method.startswith("_")}
        # a sync client starts when it is made
        assert methods - {"start"} <= set(dir(sync)), f"{name} lacks {methods - set(dir(sync))}"


def test_a_fork_cannot_use_its_parents_client() -> None:
    producer = evenq.Producer("127.0.0.1:1")
    producer._pid += 1
    with pytest.raises(
        StateError, match=r"made in process \d+ and cannot be used in its fork \d+: make a new one here"
    ):
        producer.send(evenq.Message("t", b"x"))
    producer._pid = os.getpid()
    producer.close()


def test_a_closed_client_says_so_and_closes_twice() -> None:
    producer = evenq.Producer("127.0.0.1:1")
    producer.close()
    producer.close()
    with pytest.raises(StateError, match="this producer is closed: make a new one"):
        producer.send(evenq.Message("t", b"x"))


def test_nothing_blocks_a_running_loop() -> None:
    producer = evenq.Producer("127.0.0.1:1")

    async def scenario() -> None:
        with pytest.raises(StateError, match=r"use evenq\.aio\.Producer here"):
            producer.send_async(evenq.Message("t", b"x"))

    asyncio.run(scenario())
    producer.close()


@pytest.mark.live
def test_a_process_ends_quietly_with_clients_that_nobody_closed() -> None:
    code = """
import evenq
producer = evenq.Producer("127.0.0.1:1")
consumer = evenq.PushConsumer("127.0.0.1:1", "g")
consumer.subscribe("t")
consumer.start(lambda messages: None)
print("done")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert "Task was destroyed" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.live
def test_whoever_sends_faster_than_brokers_store_waits(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    monkeypatch.setattr("evenq.client.sync.surface.ROOM", 10)
    with evenq.testing.cluster() as running, evenq.Producer(running.namesrv) as producer:
        producer.send(evenq.Message(topic, b"makes the topic"))
        (broker,) = running.brokers.values()
        broker.faults.add(RequestCode.SEND_MESSAGE_V2, delay=0.3)
        begun: list[concurrent.futures.Future[evenq.SendResult]] = []

        def send() -> None:
            begun.extend(producer.send_async(evenq.Message(topic, b"x")) for _ in range(30))

        thread = threading.Thread(target=send)
        thread.start()
        wait_until(lambda: len(begun) == 10, "as many sends as there is room for")
        assert not any(each.done() for each in begun)
        thread.join()
        assert all(each.result().ok for each in begun)
        assert producer._room.qsize() == 10


def test_what_goes_wrong_in_the_loop_is_raised_to_the_caller() -> None:
    with evenq.Producer("127.0.0.1:1") as producer:
        with pytest.raises(evenq.ArgumentError, match="at least one byte"):
            producer.send(evenq.Message("t", b""))
        with pytest.raises(evenq.ArgumentError, match="selector=1: give a selector"):
            producer.send(evenq.Message("t", b"x"), selector=1)  # type: ignore[arg-type]
        assert isinstance(producer.send_async(evenq.Message("t", b"")).exception(), evenq.ArgumentError)


def test_calls_after_the_end_of_the_loop_are_refused() -> None:
    async def work() -> None: ...

    thread = _LoopThread()
    thread.submit(work()).result(10)
    thread._stop()
    for _ in range(3):
        promise: Pending[None] = Pending()
        thread.soon(promise, lambda promise: promise.set_result(None), ())
        with pytest.raises(StateError, match="this process is ending"):
            promise.result(10)
        with pytest.raises(StateError, match="this process is ending"):
            thread.submit(work())


def test_calls_that_meet_the_end_of_the_loop_are_all_answered() -> None:
    async def work() -> None: ...

    thread = _LoopThread()
    begun: list[concurrent.futures.Future[None]] = []
    refused = threading.Event()

    def call() -> None:
        while not refused.is_set():
            promise: Pending[None] = Pending()
            thread.soon(promise, lambda promise: promise.set_result(None), ())
            begun.append(promise)
            try:
                begun.append(thread.submit(work()))
            except StateError:
                refused.set()

    caller = threading.Thread(target=call)
    caller.start()
    wait_until(lambda: len(begun) > 100, "some calls")
    thread._stop()
    caller.join(10)
    assert refused.is_set()
    for future in begun:
        error = future.exception(10) if not future.cancelled() else None
        assert error is None or isinstance(error, StateError)


@pytest.mark.live
def test_calls_at_the_end_of_the_process_raise() -> None:
    code = """
import atexit
def late():
    for _ in range(2):
        for call in (lambda: producer.send(evenq.Message("t", b"x")), producer.flush):
            try:
                call()
            except evenq.StateError as error:
                print(error)
atexit.register(late)
import evenq
producer = evenq.Producer("127.0.0.1:1")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert ended.stderr == ""
    assert ended.stdout.count("this process is ending, and evenq's event loop has stopped") == 4


def test_run_notices_a_signal_that_does_not_wake_it(embedded_cluster: AnyCluster, topic: str, group: str) -> None:
    with Producer(embedded_cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"))
    # a signal that comes just before the main thread begins to wait does not wake it, like one to another thread
    program = f"""
import signal, sys, threading, time, traceback
import evenq

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

def main_waits_in_run():
    frames = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
    return [frame.name for frame in frames][-3:] == ["run", "wait", "wait"]

def handler(messages):
    while not main_waits_in_run():
        time.sleep(0.01)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with evenq.PushConsumer({embedded_cluster.namesrv!r}, group={group!r}, begin="first") as consumer:
    consumer.subscribe({topic!r})
    consumer.run(handler)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")


def test_a_call_that_a_close_interrupts_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        # a TLS handshake that nobody answers
        admin = evenq.Admin(f"127.0.0.1:{mute.getsockname()[1]}", tls=evenq.Tls())
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                admin.topics()
            except BaseException as error:  # noqa: BLE001 - looked at below
                raised.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: admin._inner._session.connections._opening, "a connection that is being made")
        admin.close()
        asking.join(20)
        [error] = raised
        assert isinstance(error, StateError)
        assert "this client was closed while it connected to 127.0.0.1" in str(error)


def test_slow_calls_are_counted_while_calls_come_and_go() -> None:
    running = Calls(lambda messages: None, "g", timeout=900, stats=Stats())

    class Coming:
        """A call at whose sight another one begins, as it may in the loop while another thread counts."""

        @property
        def reported(self) -> bool:
            running._running[len(running._running)] = cast(Any, SimpleNamespace(reported=True))
            return True

    running._running[0] = cast(Any, Coming())
    assert running.slow == 1


@pytest.mark.parametrize("block", [False, True], ids=["plain", "with"])
def test_a_second_interrupt_ends_the_drain_at_once(
    embedded_cluster: AnyCluster, topic: str, group: str, block: bool
) -> None:
    with Producer(embedded_cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"))
    program = f"""
import contextlib, os, signal, sys, threading, time, traceback
import evenq

def wait_for_main(*functions):
    while True:
        frames = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
        names = [frame.name for frame in frames]
        if all(function in names for function in functions) and names[-1] == "wait":
            return
        time.sleep(0.01)

def handler(messages):
    wait_for_main("run")
    os.kill(os.getpid(), signal.SIGINT)
    wait_for_main("run", "close", "result")
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)

timeouts = evenq.Timeouts(drain=600)
consumer = evenq.PushConsumer({embedded_cluster.namesrv!r}, group={group!r}, begin="first", timeouts=timeouts)
consumer.subscribe({topic!r})
with consumer if {block} else contextlib.nullcontext():
    consumer.run(handler)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "CancelledError" not in done.stderr
    assert "Task" not in done.stderr
