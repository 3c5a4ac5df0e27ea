"""Each operation on files fails once, or from some moment on all of them do: nothing acknowledged is lost, nothing
refused is ever seen, and the next start succeeds."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evenq.broker.store.files import Files
from tests.broker.store.failing import NEED_SPACE, FailingFiles
from tests.broker.stores import Hand
from tests.broker.torture.workload import GROUP, TOPIC, Outcome, Process, run
from tests.harness.scale import scaled

FOR_EVER = 1_000_000
# every so many-th operation in `make test`, each in `make test-long`
STEP = scaled(7, 1)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def operations(tmp_path: Path) -> int:
    """How many operations the script needs when none fails."""
    files = FailingFiles()
    process = Process(tmp_path / "dry", Hand(), files)
    run(process, Outcome())
    process.end()
    return files.count


def check(directory: Path, hand: Hand, outcome: Outcome, context: str) -> None:
    """Start again, deliver what is due, and compare with what clients were told."""
    process = Process(directory, hand, Files())
    hand.now += 100
    process.deliver()
    messages = process.messages()
    found = Counter(messages.values())
    for place, body in outcome.placed.items():
        topic, queue_id, offset = place
        if offset >= process.store.bounds(topic, queue_id)[0]:
            assert messages.get(place) == body, f"{body!r} is not at {place} {context}"
    if process.store.log.start == 0:
        assert not outcome.later - found.keys(), f"lost: {outcome.later - found.keys()} {context}"
    assert not outcome.refused & found.keys(), f"refused and there: {outcome.refused & found.keys()} {context}"
    twice = {body for body, count in found.items() if count > 1}
    assert not twice, f"there more than once: {twice} {context}"
    saved = process.store.config.load_offsets().get((TOPIC, GROUP), {}).get(0, 0)
    assert saved in (outcome.offset, outcome.perhaps_offset), f"offset {saved} {context}"
    process.end()


@pytest.mark.parametrize(
    "fault",
    [
        {"error": errno.ENOSPC},
        {"error": errno.EIO},
        {"error": errno.ENOSPC, "short": 7},
        {"error": errno.ENOSPC, "times": FOR_EVER, "operations": NEED_SPACE},
    ],
    ids=["full once", "broken once", "cut short once", "full for good"],
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, fault: dict[str, Any]) -> None:
    count = operations(tmp_path)
    assert count > 200
    for number in range(1, count + 1, STEP):
        directory, hand, outcome, files = tmp_path / f"{number}", Hand(), Outcome(), FailingFiles()
        files.fail(at=number, **fault)
        try:
            process = Process(directory, hand, files)
        except OSError:
            # it did not start, with an error that says why
            continue
        run(process, outcome)
        process.end()
        check(directory, hand, outcome, f"after operation {number} failed: {files.failed}")
