import asyncio
import threading
from collections.abc import Callable
from typing import Any

from evenq.client.calling import call


def plain(text: str, *, mark: str) -> tuple[str, threading.Thread]:
    return text + mark, threading.current_thread()


async def coroutine(text: str, *, mark: str) -> tuple[str, threading.Thread]:
    return plain(text, mark=mark)


class WithCall:
    async def __call__(self, text: str, *, mark: str) -> tuple[str, threading.Thread]:
        return plain(text, mark=mark)


def test_a_plain_function_runs_in_a_thread_and_a_coroutine_function_in_the_loop() -> None:
    async def scenario() -> None:
        here = threading.current_thread()
        cases: list[tuple[Callable[..., Any], bool]] = [(plain, False), (coroutine, True), (WithCall(), True)]
        for function, in_the_loop in cases:
            text, thread = await call(function, "a", mark="!")
            assert (text, thread is here) == ("a!", in_the_loop)

    asyncio.run(scenario())
