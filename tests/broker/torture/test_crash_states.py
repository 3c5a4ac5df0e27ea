"""The power fails, or the process is killed, at any moment: what is on the disk then is opened, and holds what clients
were told."""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from evenq.broker.store.files import Files
from tests.broker.stores import Hand, message
from tests.broker.torture.recording import Journal, RecordingFiles, lay_out
from tests.broker.torture.workload import GROUP, QUEUES, TOPIC, TOPICS, Client, Outcome, Process
from tests.harness.scale import scaled

# how many days there are, and how many ends each of them has
DAYS = scaled(10, 100)
ENDS = 20
STEPS = 14


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


class HastyFiles(Files):
    """Waits for no disk: what is written here need not survive."""

    def datasync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


def a_day(directory: Path, rng: random.Random, *, flush_sync: bool, full_disks: bool = False) -> Journal:
    """Let a broker do this and that in any order, and write down what it did and told."""
    directory.mkdir()
    journal = Journal(directory)
    outcome = Outcome(lambda outcome: journal.tell(outcome.copy()))
    journal.tell(outcome.copy())
    process = Process(directory, Hand(), RecordingFiles(journal), flush_sync=flush_sync)
    client = Client(process, outcome)
    client.creates_topic()
    steps: list[Callable[[], None]] = [
        client.singles,
        client.pipelined,
        client.batches,
        client.refused,
        client.delayed,
        client.transactions,
        client.commits_offset,
        client.other_topic,
        client.checkpoint,
        lambda: client.busy_checkpoint(files_of(client)),
        client.time_passes,
        client.time_passes,
        client.creates_topic,
        lambda: client.restarts(cleanly=True),
        lambda: client.restarts(cleanly=False),
    ]
    if full_disks:
        steps += [lambda: fill_disk(client, rng)] * 5
    if rng.random() < 0.3:
        steps.append(client.removes_old_files)
    for step in rng.choices(steps, k=STEPS):
        step()
    if rng.random() < 0.3:
        client.restarts(cleanly=True)
    client.process.end()
    return journal


def files_of(client: Client) -> RecordingFiles:
    assert isinstance(client.process.files, RecordingFiles)
    return client.process.files


def fill_disk(client: Client, rng: random.Random) -> None:
    """One of the next writes does not fit on the disk, perhaps in the midst of a message."""
    files_of(client).fail(at=rng.randint(1, 4), operation="pwrite", short=rng.randint(1, 2000))


def start(directory: Path, files: Files, *, flush_sync: bool = True) -> Process:
    """Start long after the crash, and deliver what is due."""
    hand = Hand()
    hand.now += 1000
    process = Process(directory, hand, files, flush_sync=flush_sync)
    process.deliver()
    return process


def check(process: Process, outcome: Outcome) -> dict[tuple[str, int, int], bytes]:
    """Compare what is there with what clients were told."""
    messages = process.messages()
    found = Counter(messages.values())
    twice = [body for body, count in found.items() if count > 1]
    assert not twice, f"there more than once: {twice}"
    seen = outcome.refused & found.keys()
    assert not seen, f"refused, deleted or not committed, and there: {seen}"
    unknown = found.keys() - outcome.placed.values() - outcome.later - outcome.asked
    assert not unknown, f"nobody sent this: {unknown}"
    for place, body in outcome.placed.items():
        topic, queue_id, offset = place
        if process.store.log.start == 0 or offset >= process.store.bounds(topic, queue_id)[0]:
            assert messages.get(place) == body, f"{body!r} is lost, {messages.get(place)!r} is at {place}"
    if process.store.log.start == 0:
        assert not outcome.later - found.keys(), f"lost: {outcome.later - found.keys()}"
    saved = process.store.config.load_offsets().get((TOPIC, GROUP), {}).get(0, 0)
    assert outcome.offset <= saved <= max(outcome.offset, outcome.perhaps_offset)
    return messages


def go_on(process: Process, messages: dict[tuple[str, int, int], bytes]) -> dict[tuple[str, int, int], bytes]:
    """Let each queue take one more message; everything that must be there then."""
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            body = f"new in {queue_id} of {topic}".encode()
            end = process.store.bounds(topic, queue_id)[1]
            assert process.store.append(message(body, topic=topic, queue_id=queue_id)).queue_offset == end
            messages = {**messages, (topic, queue_id, end): body}
    process.commit()
    return messages


def check_state(directory: Path, outcome: Outcome, rng: random.Random) -> None:
    process = start(directory, HastyFiles())
    messages = go_on(process, check(process, outcome))
    if rng.random() < 0.5:
        process.store.checkpoint()()
    process.end()
    again = start(directory, HastyFiles())
    assert again.messages() == messages
    again.end()


def power_failures(tmp_path: Path, rng: random.Random, journal: Journal) -> None:
    for number in range(ENDS):
        length = rng.randrange(1, len(journal.entries) + 1)
        outcome = journal.told(length)
        assert isinstance(outcome, Outcome)
        directory = lay_out(journal.power_failed(length, rng), tmp_path / f"{number}")
        if rng.random() < 0.3:
            # it fails once more while the store starts, or soon after that
            second = Journal(directory)
            process = start(directory, RecordingFiles(second))
            if rng.random() < 0.5:
                process.store.checkpoint()()
            process.end()
            length = rng.randrange(len(second.entries) + 1)
            directory = lay_out(second.power_failed(length, rng), tmp_path / f"{number}-again")
        check_state(directory, outcome, rng)
        for left in tmp_path.glob(f"{number}*"):
            shutil.rmtree(left)


def test_power_failures_lose_nothing_acknowledged(tmp_path: Path, rng: random.Random) -> None:
    for day in range(DAYS):
        journal = a_day(tmp_path / f"day-{day}", rng, flush_sync=True)
        power_failures(tmp_path, rng, journal)


def test_power_failures_on_full_disks_lose_nothing_acknowledged(tmp_path: Path, rng: random.Random) -> None:
    for day in range(DAYS // 2):
        journal = a_day(tmp_path / f"day-{day}", rng, flush_sync=True, full_disks=True)
        power_failures(tmp_path, rng, journal)


def test_kills_lose_nothing_acknowledged_without_syncs(tmp_path: Path, rng: random.Random) -> None:
    for day in range(DAYS // 2):
        journal = a_day(tmp_path / f"day-{day}", rng, flush_sync=False)
        for number in range(ENDS):
            length = rng.randrange(1, len(journal.entries) + 1)
            outcome = journal.told(length)
            assert isinstance(outcome, Outcome)
            directory = lay_out(journal.killed(length, rng), tmp_path / f"{number}")
            check_state(directory, outcome, rng)
            shutil.rmtree(directory)
