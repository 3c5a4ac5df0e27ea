"""What people see of the demo: a picture that changes on a terminal, lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evenq.model import MessageQueue

__all__ = ["Row", "Screen", "State", "short"]

# Seconds between two looks, and between two lines where there is no terminal.
LOOK = 0.25
LINE = 3.0
EVENTS = 9


def short(queue: MessageQueue) -> str:
    """
    >>> short(MessageQueue("orders", "broker-a", 3))
    'a3'
    """
    return f"{queue.broker.rpartition('-')[2]}{queue.queue_id}"


@dataclass(frozen=True, slots=True)
class Row:
    """A member: what became of it, what it holds, how many messages it is done with, how many wait for it."""

    name: str
    state: str
    queues: Sequence[MessageQueue]
    consumed: int
    lag: int


@dataclass(frozen=True, slots=True)
class State:
    """What there is to see at one moment."""

    rows: Sequence[Row]
    sent: int
    stored: int
    behind: int
    moves: int

    @property
    def line(self) -> str:
        held = ", ".join(
            f"{row.name} {' '.join(map(short, row.queues)) or '–'}" for row in self.rows if row.state == "in"
        )
        return f"sent {self.sent:,}, lag {self.behind:,}, moves {self.moves}; held: {held}"


class Screen:
    """Shows ``state()`` again and again, and what is said between."""

    def __init__(self, state: Callable[[], State], *, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._state = state
        self._began = self._told = time.monotonic()
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evenq-demo-screen", daemon=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()
            for event in self._events:
                self._console.print(event, soft_wrap=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Something happened."""
        event = f"{self.seconds:5.1f} s  {text}"
        with self._lock:
            self._events.append(event)
        if self._live is None:
            self._console.print(event, soft_wrap=True, markup=False)

    def _run(self) -> None:
        while not self._stop.wait(LOOK):
            state = self._state()
            if self._live is not None:
                self._live.update(self._picture(state), refresh=True)
            elif time.monotonic() - self._told >= LINE:
                self._told = time.monotonic()
                self._console.print(f"{self.seconds:5.1f} s  {state.line}", soft_wrap=True, markup=False)

    def _picture(self, state: State) -> RenderableType:
        table = Table()
        for heading in ("member", "", "holds"):
            table.add_column(heading)
        for heading in ("consumed", "lag"):
            table.add_column(heading, justify="right")
        for row in state.rows:
            colour = {"in": "green", "killed": "red"}.get(row.state, "dim")
            held = " ".join(map(short, row.queues))
            table.add_row(row.name, Text(row.state, colour), held, f"{row.consumed:,}", f"{row.lag:,}")
        with self._lock:
            events = [Text(event) for event in self._events]
        head = f"sent {state.sent:,} · stored {state.stored:,} · lag {state.behind:,} · moves {state.moves}"
        return Group(Text(head, "bold"), table, *events)
