import asyncio
import logging
from collections.abc import Iterator

import pytest

from evenq.broker.scheduling.scheduler import Scheduler


def test_every_part_has_its_turn_whatever_the_others_say() -> None:
    calls = []
    answers = {"a": True, "b": False}

    def part(name: str) -> bool:
        calls.append(name)
        return answers[name]

    scheduler = Scheduler([lambda: part("a"), lambda: part("b")], 1.0)
    assert scheduler.run_due()
    answers["a"] = False
    assert not scheduler.run_due()
    assert calls == ["a", "b", "a", "b"]


def test_what_is_left_is_done_at_once_and_what_fails_later(caplog: pytest.LogCaptureFixture) -> None:
    pauses: list[float] = []
    steps: Iterator[bool | OSError] = iter([True, True, False, OSError("the disk is full"), False])

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def part() -> bool:
        step = next(steps, None)
        if step is None:
            raise asyncio.CancelledError
        if isinstance(step, OSError):
            raise step
        return step

    with caplog.at_level(logging.ERROR), pytest.raises(asyncio.CancelledError):
        asyncio.run(Scheduler([part], 0.1, sleep=sleep).run())
    assert pauses == [0.1, 0, 0, 0.1, 1.0, 0.1]
    assert "trying again in 1 s" in caplog.text


def test_a_part_that_fails_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def broken() -> bool:
        raise OSError("the disk is full")

    def sound() -> bool:
        calls.append("sound")
        return False

    scheduler = Scheduler([broken, sound], 1.0)
    for _ in range(5):
        assert not scheduler.run_due()
    assert calls == ["sound"] * 5
    [record] = caplog.records
    assert "broken failed: OSError: the disk is full" in record.getMessage()
