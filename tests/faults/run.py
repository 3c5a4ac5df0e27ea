"""One run: members come, go, are killed and stopped, brokers restart, and a producer sends all the time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from evenq import EvenqError, Message, Producer
from evenq.client.group.held import LEASE_VALID_S
from tests.clusters import AnyCluster
from tests.faults.member import NOTES_PER_S
from tests.waiting import wait_until

__all__ = ["FaultRun", "Outcome"]

# Seconds after the last fault within which every queue must have a holder.
HOLDER_S = 5.0
# What a member handled so many seconds before a fault may not be committed yet: it commits ten times a second, and this
# machine may be busy.
UNCOMMITTED_S = 0.6
# The Java broker writes offsets to disk every 5 s: one that is killed knows those of 5 s before.
OFFSETS_LOST_S = 5.5
# A handler that has the message when its member is cut off, and the member's next look at its connections.
IN_HAND_S = 0.3
# In order nobody can take a lock whose owner is dead and known to nobody: somebody must have been there for so long
# before a member is killed, and have so long to notice it. One that starts needs a second for that.
KNOWN_S = 1.0
# A member that was stopped just before it called its handler calls it as soon as it goes on.
GOING_ON_S = 0.1
# Members may take a second to find a broker again.
RECONNECT_S = 1.2


@dataclass
class Member:
    name: str
    notes: Path
    process: subprocess.Popen[bytes]


@dataclass
class Handling:
    """One call of a handler for one message. ``end`` is infinite for one that did not come to its end."""

    member: str
    queue: str
    body: str
    start: float
    end: float = float("inf")


@dataclass
class Fault:
    """Something that was done to a member, or to all of them (``member`` is empty), from ``begin`` to ``end``."""

    what: str
    member: str
    begin: float
    end: float

    def explains(self, handling: Handling) -> bool:
        """Whether the message was in hand, or handled and not committed, when the fault came."""
        before = OFFSETS_LOST_S if self.what == "kill broker" else UNCOMMITTED_S
        mine = self.member in ("", handling.member)
        return mine and handling.end >= self.begin - before and handling.start <= self.end + IN_HAND_S

    def held_up(self, handling: Handling) -> bool:
        """Whether the message was in the hands of a member that was stopped, and was handled when that went on."""
        mine = self.what == "stop" and self.member == handling.member
        return mine and self.begin <= handling.start <= self.end + GOING_ON_S


@dataclass
class Outcome:
    """What must be empty, and how long the group took."""

    lost: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    no_holder: str = ""
    sent: int = 0
    repeated: int = 0
    holder_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {len(self.lost)} lost {self.lost[:5]}, {self.repeated} repeated, "
            f"{len(self.unexplained)} of them unexplained {self.unexplained[:5]}, {len(self.overlaps)} times two "
            f"holders {self.overlaps[:3]}, every queue held after {self.holder_s:.1f} s {self.no_holder}; faults: "
            + "; ".join(f"{fault.what} {fault.member} {fault.begin:.2f}-{fault.end:.2f}" for fault in self.faults)
        )


class FaultRun:
    """``queues`` are the names that members give the queues of ``topic``.

    ``kill_broker`` takes a broker down without a goodbye, ``cut`` closes some connections; either may be missing.
    Members count on a lock for ``lease_s`` seconds, and are stopped for at most ``stop_s``.
    """

    def __init__(
        self,
        rng: random.Random,
        cluster: AnyCluster,
        topic: str,
        group: str,
        folder: Path,
        *,
        strategy: str,
        kind: str,
        queues: set[str],
        kill_broker: Callable[[str], None] | None = None,
        cut: Callable[[random.Random], None] | None = None,
        lease_s: float = LEASE_VALID_S,
        stop_s: float = 3.0,
    ) -> None:
        self._random = rng
        self._cluster, self._topic, self._group, self._folder = cluster, topic, group, folder
        self._strategy, self._kind, self._queues = strategy, kind, queues
        self._kill_broker, self._cut = kill_broker, cut
        self._lease_s, self._stop_s = lease_s, stop_s
        self._members: list[Member] = []
        self._all: list[Member] = []
        self._faults: list[Fault] = []
        self._acknowledged: list[str] = []

    def run(self, faults: int) -> Outcome:
        """So many random faults, one after the other."""

        def suffer() -> None:
            for _ in range(faults):
                time.sleep(self._random.uniform(0.2, 2.0))
                self._random.choice(self._possible())()

        return self._run(suffer)

    def run_after_all_died(self, times: int = 1) -> Outcome:
        """All members are killed in one moment; a new one takes over, and a second one joins it. So many times."""

        def suffer() -> None:
            for _ in range(times):
                kill_all()

        def kill_all() -> None:
            begin = time.monotonic()
            for member in self._members:
                member.process.kill()
            for member in self._members:
                member.process.wait()
                self._faults.append(Fault("kill", member.name, begin, time.monotonic()))
            self._members.clear()
            self._start_member()
            self._wait_held(30)
            self._start_member()

        return self._run(suffer, lambda: all(self._held()))

    def _run(self, suffer: Callable[[], None], is_divided: Callable[[], bool] = lambda: True) -> Outcome:
        try:
            with self._traffic():
                for _ in range(3):
                    self._start_member()
                self._wait_held(60)
                time.sleep(self._random.uniform(0.5, 1.0))
                suffer()
                last = time.monotonic()
                outcome = Outcome(faults=self._faults)
                try:
                    wait_until(is_divided, lambda: f"the queues to be divided: {self._held()}", 60)
                    self._wait_held(30)
                except TimeoutError as error:
                    outcome.no_holder = str(error)
                outcome.holder_s = time.monotonic() - last
            self._wait_consumed()
            for member in self._members:
                member.process.send_signal(signal.SIGTERM)
            for member in self._members:
                member.process.wait(30)
        finally:
            for member in self._all:
                member.process.kill()
                member.process.wait()
        return self._check(outcome)

    # faults

    def _possible(self) -> list[Callable[[], None]]:
        possible = [self._restart_broker, self._stop_and_continue]
        if len(self._members) > 1:
            possible.append(self._leave)
            if self._kind != "orderly" or sum(map(self._is_known, self._members)) > 1:
                possible += [self._kill, self._kill_and_replace]
        if self._cut is not None:
            possible += [self._cut_connections] * 2
        if len(self._members) < 5:
            possible.append(self._start_member)
        return possible

    def _start_member(self) -> None:
        name = f"m{len(self._all)}"
        notes = self._folder / name
        notes.touch()
        arguments = [self._cluster.namesrv, self._group, self._topic, self._strategy, self._kind, name, str(notes)]
        process = subprocess.Popen([sys.executable, "-m", "tests.faults.member", *arguments, str(self._lease_s)])
        member = Member(name, notes, process)
        self._members.append(member)
        self._all.append(member)
        if len(self._all) > 3:
            now = time.monotonic()
            self._faults.append(Fault("join", name, now, now))

    def _take_one(self) -> Member:
        return self._members.pop(self._random.randrange(len(self._members)))

    def _kill(self) -> None:
        member = self._take_one()
        now = time.monotonic()
        member.process.kill()
        member.process.wait()
        self._faults.append(Fault("kill", member.name, now, time.monotonic()))
        if self._kind == "orderly":
            time.sleep(KNOWN_S)

    @staticmethod
    def _is_known(member: Member) -> bool:
        """Whether the member has been in the group for long enough to know the others and to be known to them."""
        return member.notes.read_text().count("Q ") >= KNOWN_S * NOTES_PER_S

    def _kill_and_replace(self) -> None:
        self._kill()
        self._start_member()

    def _leave(self) -> None:
        """No fault: nothing is consumed twice for it."""
        member = self._take_one()
        # one that is only starting has not said yet what SIGTERM is to do
        wait_until(lambda: "Q " in member.notes.read_text(), f"the start of {member.name}", 30)
        member.process.send_signal(signal.SIGTERM)
        assert member.process.wait(30) == 0, f"{member.name} did not end well"

    def _stop_and_continue(self) -> None:
        member = self._random.choice(self._members)
        begin = time.monotonic()
        os.kill(member.process.pid, signal.SIGSTOP)
        time.sleep(self._random.uniform(0.2, self._stop_s))
        os.kill(member.process.pid, signal.SIGCONT)
        self._faults.append(Fault("stop", member.name, begin, time.monotonic()))

    def _cut_connections(self) -> None:
        assert self._cut is not None
        begin = time.monotonic()
        self._cut(self._random)
        self._faults.append(Fault("cut", "", begin, time.monotonic() + RECONNECT_S))

    def _restart_broker(self) -> None:
        name = self._random.choice(sorted(self._cluster.brokers))
        begin = time.monotonic()
        if self._kill_broker is not None and self._random.random() < 0.7:
            what = "kill broker"
            self._kill_broker(name)
        else:
            what = "restart broker"
            self._cluster.stop_broker(name)
        if self._random.random() < 0.5:
            time.sleep(self._random.uniform(0, 2.0))
        self._cluster.start_broker(name)
        self._faults.append(Fault(what, "", begin, time.monotonic() + RECONNECT_S))

    # traffic

    @contextmanager
    def _traffic(self) -> Iterator[None]:
        stop = threading.Event()

        def send() -> None:
            number = 0
            with Producer(self._cluster.namesrv) as producer:
                while not stop.wait(0.004):
                    body, number = f"m{number}", number + 1
                    try:
                        producer.send(Message(self._topic, body.encode()))
                    except EvenqError:
                        continue
                    self._acknowledged.append(body)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    # what came of it

    def _held(self) -> list[list[str]]:
        found = []
        for member in self._members:
            with member.notes.open("rb") as notes:
                notes.seek(max(0, member.notes.stat().st_size - 4096))
                lines = notes.read().decode(errors="replace").splitlines()
            last = next((line.split() for line in reversed(lines[:-1]) if line.startswith("Q ")), [])
            found.append(last[2].split(",") if len(last) == 3 else [])
        return found

    def _wait_held(self, seconds: float) -> None:
        wait_until(
            lambda: sorted(queue for held in self._held() for queue in held) == sorted(self._queues),
            lambda: f"one holder for each queue: {[member.name for member in self._members]} hold {self._held()}",
            seconds,
        )

    def _wait_consumed(self) -> None:
        def missing() -> set[str]:
            return set(self._acknowledged) - {handling.body for handling in self._handlings() if handling.end < 1e300}

        try:
            wait_until(lambda: not missing(), "everything consumed", 30)
        except TimeoutError:
            # the check names what is lost
            return

    def _handlings(self) -> list[Handling]:
        found: list[Handling] = []
        for member in self._all:
            running: dict[tuple[str, str], Handling] = {}
            for line in member.notes.read_text().splitlines():
                match line.split():
                    case ["S", start, queue, body]:
                        running[queue, body] = handling = Handling(member.name, queue, body, float(start))
                        found.append(handling)
                    case ["E", end, queue, body]:
                        running.pop((queue, body)).end = float(end)
        return found

    def _check(self, outcome: Outcome) -> Outcome:
        handlings = self._handlings()
        by_body: defaultdict[str, list[Handling]] = defaultdict(list)
        for handling in handlings:
            by_body[handling.body].append(handling)
        outcome.sent = len(self._acknowledged)
        ended = {handling.body for handling in handlings if handling.end < 1e300}
        outcome.lost = [body for body in self._acknowledged if body not in ended]
        for body, times in by_body.items():
            times.sort(key=lambda each: each.start)
            for first, second in pairwise(times):
                outcome.repeated += 1
                if not any(fault.explains(first) or fault.held_up(second) for fault in self._faults):
                    outcome.unexplained.append(
                        f"{body} of {first.queue}: "
                        + ", ".join(f"{each.member} {each.start:.3f}-{each.end:.3f}" for each in times)
                    )
        if self._kind == "orderly":
            outcome.overlaps = list(self._find_overlaps(handlings))
        return outcome

    def _find_overlaps(self, handlings: list[Handling]) -> Iterator[str]:
        """Two members that had messages of one queue at a time, beside what a stopped or killed one had in hand."""
        by_queue: defaultdict[str, list[Handling]] = defaultdict(list)
        for handling in handlings:
            by_queue[handling.queue].append(handling)
        for queue, calls in by_queue.items():
            calls.sort(key=lambda each: each.start)
            for one, two in pairwise(calls):
                if two.start < one.end and one.member != two.member:
                    mine = [fault for fault in self._faults if fault.member == one.member]
                    if any(fault.explains(one) for fault in mine) or any(fault.held_up(two) for fault in self._faults):
                        continue
                    yield f"{queue}: {one.member} {one.start:.3f}-{one.end:.3f}, {two.member} from {two.start:.3f}"
