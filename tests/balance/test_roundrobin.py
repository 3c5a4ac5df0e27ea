"""Round robin: even for each thread and task by itself, and for many short ones together."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter as Tally
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.balance import RoundRobin, on_behalf_of
from tests.balance.cases import StartAt


def even(positions: list[int], n: int) -> bool:
    counts = Tally(positions)
    return max(counts.values()) - min(counts[position] for position in range(n)) <= 1


@given(start=st.integers(0, 2**31 - 1), n=st.integers(1, 70), skipped=st.integers(0, 100), length=st.integers(1, 300))
def test_any_window_is_even(start: int, n: int, skipped: int, length: int) -> None:
    counter = RoundRobin(StartAt(start)).counter()
    positions = [abs(counter.next()) % n for _ in range(skipped + length)]
    assert positions[0] == start % n
    assert even(positions[skipped:], n)


def test_no_seam_where_32_bits_end() -> None:
    counter = RoundRobin(StartAt(2**31 - 4)).counter()
    assert [counter.next() % 7 for _ in range(8)] == [(2**31 - 4 + step) % 7 for step in range(8)]


def test_the_start_is_the_randomness_given() -> None:
    starts = {RoundRobin(Random(seed)).counter().at for seed in range(20)}
    assert len(starts) == 20
    assert RoundRobin(Random(7)).counter().at == RoundRobin(Random(7)).counter().at


def test_each_thread_counts_for_itself() -> None:
    round_robin = RoundRobin(StartAt(100))
    together = threading.Barrier(4)

    def send() -> list[int]:
        together.wait(timeout=10)
        return [round_robin.counter().next() for _ in range(1000)]

    with ThreadPoolExecutor(4) as pool:
        runs = [future.result() for future in [pool.submit(send) for _ in range(4)]]
    assert sorted(run[0] for run in runs) == [100, 101, 102, 103]
    for run in runs:
        assert run == list(range(run[0], run[0] + 1000))


def test_each_task_counts_for_itself_however_they_interleave() -> None:
    round_robin = RoundRobin(StartAt(0))

    async def send() -> list[int]:
        taken = []
        for _ in range(60):
            taken.append(round_robin.counter().next())
            await asyncio.sleep(0)
        return taken

    async def main() -> list[list[int]]:
        return await asyncio.gather(*(send() for _ in range(8)))

    assert asyncio.run(main()) == [list(range(start, start + 60)) for start in range(8)]


@pytest.mark.parametrize("n", [1, 3, 8, 7])
def test_many_short_tasks_are_even_together(n: int) -> None:
    round_robin = RoundRobin(StartAt(5))

    async def send() -> int:
        return round_robin.counter().next() % n

    async def main() -> list[int]:
        return [await asyncio.create_task(send()) for _ in range(1000)]

    assert even(asyncio.run(main()), n)


def test_a_task_that_has_ended_leaves_nothing_behind() -> None:
    round_robin = RoundRobin(StartAt())

    async def send() -> None:
        round_robin.counter().next()

    async def main() -> int:
        tasks = [asyncio.create_task(send()) for _ in range(100)]
        await asyncio.gather(*tasks)
        return len(round_robin._local.counters)

    assert asyncio.run(main()) == 100
    gc.collect()
    assert len(round_robin._local.counters) == 0


def test_a_callback_of_the_loop_counts_for_its_thread() -> None:
    round_robin = RoundRobin(StartAt(0))
    taken: list[int] = []

    async def main() -> None:
        for _ in range(3):
            asyncio.get_running_loop().call_soon(lambda: taken.append(round_robin.counter().next()))
        await asyncio.sleep(0)

    asyncio.run(main())
    assert taken == [0, 1, 2]


def test_tasks_on_behalf_of_a_thread_share_its_counter() -> None:
    round_robin = RoundRobin(StartAt(0))
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()

    async def take() -> int:
        return round_robin.counter().next()

    def send() -> int:
        with on_behalf_of(threading.current_thread()):
            return asyncio.run_coroutine_threadsafe(take(), loop).result(timeout=10)

    try:
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            runs = [[pool.submit(send).result() for pool in (one, other)] for _ in range(5)]
        here = [send(), send()]
        outside = asyncio.run_coroutine_threadsafe(take(), loop).result(timeout=10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        runner.join(timeout=10)
        loop.close()
    assert runs == [[step, step + 1] for step in range(5)]
    assert here == [2, 3]
    assert outside == 3
