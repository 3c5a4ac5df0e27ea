import asyncio
import subprocess
import sys
import threading
import time

import pytest

from evenq.client.consume.workers import Workers


def test_results_and_errors_come_back() -> None:
    def half(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number // 2

    async def scenario() -> None:
        workers = Workers(half, "w")
        for _ in range(50):
            outcomes = await asyncio.gather(*map(workers.run, range(20)), return_exceptions=True)
            assert outcomes[::2] == list(range(10))
            assert all(isinstance(outcome, ValueError) for outcome in outcomes[1::2])
        workers.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [StopIteration, SystemExit, KeyboardInterrupt])
def test_what_would_end_a_loop_is_only_a_failure(kind: type[BaseException]) -> None:
    def call(number: int) -> None:
        raise kind

    async def scenario() -> None:
        workers = Workers(call, "w")
        with pytest.raises(RuntimeError, match=kind.__name__):
            await workers.run(1)
        workers.close()

    asyncio.run(scenario())


def test_calls_that_wait_get_a_thread_each() -> None:
    gate = threading.Barrier(8)

    async def scenario() -> None:
        workers: Workers[int, int] = Workers(lambda number: gate.wait(10), "w")
        async with asyncio.timeout(10):
            # none gets through the gate before all have come
            await asyncio.gather(*map(workers.run, range(8)))
        workers.close()

    asyncio.run(scenario())


def test_a_call_behind_one_that_blocks_is_not_kept_waiting() -> None:
    free = threading.Event()

    def call(number: int) -> int:
        if number == 0:
            free.wait(10)
        return number

    async def scenario() -> None:
        workers = Workers(call, "w")
        blocked = workers.run(0)
        began = time.monotonic()
        for number in range(1, 200):
            assert await workers.run(number) == number
        assert time.monotonic() - began < 5
        assert not blocked.done()
        free.set()
        assert await blocked == 0
        workers.close()

    asyncio.run(scenario())


def test_threads_end_when_they_are_let_go() -> None:
    async def scenario() -> list[threading.Thread]:
        workers: Workers[int, int] = Workers(lambda number: number, "w-ending")
        await workers.run(1)
        workers.close()
        return [thread for thread in threading.enumerate() if thread.name.startswith("w-ending")]

    for thread in asyncio.run(scenario()):
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.live
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_that_never_returns_does_not_keep_the_process(cancelled: bool) -> None:
    code = f"""
import asyncio, threading
from evenq.client.consume.workers import Workers

started = threading.Event()

def never_return(number):
    started.set()
    threading.Event().wait()

async def scenario():
    future = Workers(never_return, "w").run(1)
    while not started.is_set():
        await asyncio.sleep(0)
    if {cancelled}:
        future.cancel()

asyncio.run(scenario())
print("done")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_a_result_that_cannot_be_passed_on_does_not_hold_up_others() -> None:
    class Broken:
        def returned(self, result: int) -> None:
            raise KeyError("on purpose")

        def raised(self, error: Exception) -> None:
            raise KeyError("on purpose")

    async def scenario() -> None:
        workers: Workers[int, int] = Workers(lambda number: number, "w")
        for number in range(20):
            workers.submit(number, Broken())
        async with asyncio.timeout(5):
            assert await asyncio.gather(*map(workers.run, range(20))) == list(range(20))
        assert workers._busy == 0
        workers.close()

    asyncio.run(scenario())
