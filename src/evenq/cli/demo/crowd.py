"""The Python consumers of the demo: processes that come, go, and are killed, and what each has noted."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from evenq.cli.demo.verdict import Committed, Consumed, Place

__all__ = ["Crowd", "read_notes"]

# Seconds that a member has to leave properly.
PATIENCE = 20.0


class Crowd:
    """Members by name. Notes are in ``folder``, a file for each."""

    def __init__(self, namesrv: str, group: str, topic: str, strategy: str, folder: Path) -> None:
        self._arguments = (namesrv, group, topic)
        self._strategy = strategy
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # name → what the group had committed then in the queues that it held
        self.killed: dict[str, Committed] = {}
        self.left: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever happened, no process stays behind."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            _ended(process)
        self._running.clear()

    @property
    def names(self) -> list[str]:
        """All who were ever there."""
        return sorted({*self._running, *self.killed, *self.left})

    @property
    def running(self) -> list[str]:
        return sorted(self._running)

    def join(self, name: str) -> None:
        notes = self._folder / f"{name}.txt"
        command = [sys.executable, "-P", "-m", "evenq.cli.demo.member", *self._arguments]
        command += [name, self._strategy, str(notes)]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=_environment()
            )

    def leave(self, name: str) -> None:
        """Let a member hand over and go, and wait for it."""
        process = self._running.pop(name)
        self.left.append(name)
        process.terminate()
        _ended(process)

    def kill(self, name: str, committed: Committed) -> int:
        """SIGKILL: no hand-over, no last commit, no goodbye. Gives the process id."""
        process = self._running.pop(name)
        self.killed[name] = committed
        process.kill()
        _ended(process)
        return process.pid

    def leave_all(self) -> None:
        for process in self._running.values():
            process.terminate()
        for name in self.running:
            self.leave(name)

    def counts(self) -> dict[str, int]:
        """How many each has noted so far."""
        return {name: _lines(self._folder / f"{name}.txt") for name in self.names}

    def consumed(self) -> list[Consumed]:
        """What all of them have noted so far."""
        return [one for name in self.names for one in read_notes(self._folder / f"{name}.txt")]


def _environment() -> dict[str, str]:
    """Ours, with this very evenq to import."""
    source = str(Path(__file__).parents[3])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))}


def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def read_notes(path: Path) -> list[Consumed]:
    """The messages that a member is done with; it has the file's name. A line without an end is still being written."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    found = []
    for line in whole.splitlines():
        key, broker, queue_id, offset = line.split(" ")
        found.append(Consumed(path.stem, key, Place(broker, int(queue_id), int(offset))))
    return found
