"""What people see: lines in a log, a picture on a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from evenq.cli.demo.screen import Row, Screen, State
from evenq.model import MessageQueue
from tests.waiting import wait_until

QUEUES = [MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 3)]
STATE = State(
    [Row("c1", "in", QUEUES, 1234, 17), Row("c2", "killed", [], 5, 0), Row("Spark", "coming", [], 0, 0)],
    sent=5000,
    stored=4999,
    behind=17,
    moves=3,
)


def test_a_line_says_who_holds_what() -> None:
    assert STATE.line == "sent 5,000, lag 17, moves 3; held: c1 a0 b3"


def test_a_log_gets_what_happens_line_by_line() -> None:
    file = StringIO()
    with Screen(lambda: STATE, console=Console(file=file, width=100)) as screen:
        screen.say("c2 is killed [really]")
    assert file.getvalue().endswith(" s  c2 is killed [really]\n")


def test_a_terminal_gets_a_picture_that_changes() -> None:
    file = StringIO()
    console = Console(file=file, width=100, force_terminal=True, color_system=None)
    with Screen(lambda: STATE, console=console) as screen:
        screen.say("c2 is killed")
        wait_until(lambda: "1,234" in file.getvalue(), "the picture")
    shown = file.getvalue()
    assert "sent 5,000 · stored 4,999 · lag 17 · moves 3" in shown
    assert "a0 b3" in shown
    assert "killed" in shown
    assert "c2 is killed" in shown
