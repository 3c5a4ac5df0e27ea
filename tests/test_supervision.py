"""Background tasks go on after failures, which are logged by name and counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from evenq.errors import ConnectError
from evenq.supervision import QUIET_S, FailureLog, Outages, Supervisor
from evenq.testing import Clock


class EndOfTestError(BaseException):
    """Ends a task that would go on for ever."""


def run(step: Callable[[int], None], steps: int) -> list[float]:
    """Run so many steps, each with its number; gives the pauses between them."""
    pauses: list[float] = []
    number = 0

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def once() -> None:
        nonlocal number
        number += 1
        if number > steps:
            raise EndOfTestError
        step(number)

    with pytest.raises(EndOfTestError):
        asyncio.run(Supervisor("the task", max_pause_s=1.0).repeat(once, sleep=sleep))
    return pauses


def fail(number: int) -> None:
    raise KeyError(number)


def test_a_task_goes_on_after_failures_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    assert run(fail, 6) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    [record] = caplog.records
    assert record.getMessage() == "the task failed: KeyError: 1; trying again in 0.1 s"
    assert record.exc_info


def test_a_success_resets_the_pause() -> None:
    def every_second(number: int) -> None:
        if number % 2:
            fail(number)

    assert run(every_second, 6) == [0.1, 0.1, 0.1]


def test_many_failures_are_logged_as_counts(caplog: pytest.LogCaptureFixture) -> None:
    run(fail, 150)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the task failed",
        "the task failed 10 times",
        "the task failed 100 times",
    ]


def test_another_kind_of_failure_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog("the task")
    for error in (KeyError("a"), KeyError("b"), ConnectError("h:1", "lost"), ConnectError("h:1", "lost")):
        failures.record(error)
    assert [(record.levelno, bool(record.exc_info)) for record in caplog.records] == [
        (logging.ERROR, True),
        (logging.WARNING, False),
    ]


def test_a_failure_after_a_quiet_time_is_logged_as_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    failures = FailureLog("the task", clock=clock.now)
    failures.record(KeyError("a"))
    failures.record(KeyError("b"))
    clock.advance(QUIET_S + 1)
    failures.record(KeyError("c"))
    assert [record.getMessage() for record in caplog.records] == [
        "the task failed: KeyError: 'a'",
        "the task failed: KeyError: 'c'",
    ]


def test_a_cancelled_task_ends() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(Supervisor("the task").repeat(asyncio.Event().wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_an_outage_is_logged_at_its_beginning_by_counts_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    outages.ended("pull")
    for number in range(1, 101):
        outages.failed("pull", ValueError(number))
    outages.failed("commit", ValueError("other"))
    outages.ended("pull")
    outages.ended("pull")
    assert [record.getMessage() for record in caplog.records] == [
        "pull failed and is repeated until it works: 1",
        "pull failed 10 times: 10",
        "pull failed 100 times: 100",
        "commit failed and is repeated until it works: other",
        "pull works again after 100 failures",
    ]
