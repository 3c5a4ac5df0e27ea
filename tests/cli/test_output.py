"""What commands print."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from evenq.cli.output import cell, plain, print_json, print_table
from evenq.client.admin import QueueStatus
from evenq.model import MessageQueue, SendStatus

QUEUE = MessageQueue("orders", "broker-a", 3)
NOON = datetime(2026, 1, 2, 12, 0, 0, 5000, UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (1234.56, "1,234.6"),
        (QUEUE, "broker-a:3"),
        (b"text", "text"),
        (b"\xff\x00", "2 bytes, not text"),
        ("tab\tand\x1b[31m", "tab?and?[31m"),
        (("a", "b\n"), "a, b?"),
        ({0: "here", "k": 1}, "0=here, k=1"),
        (NOON, f"{NOON.astimezone():%Y-%m-%d %H:%M:%S}.005"),
    ],
)
def test_a_cell_is_what_people_read(value: object, text: str) -> None:
    assert cell(value) == text


def test_json_has_everything_and_what_follows_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    status = QueueStatus(queue=QUEUE, min_offset=2, max_offset=5, last_stored=NOON)
    print_json([status, SendStatus.SEND_OK, {1: b"text"}, b"\xff"])
    assert json.loads(capsys.readouterr().out) == [
        {
            "queue": {"topic": "orders", "broker": "broker-a", "queue_id": 3},
            "min_offset": 2,
            "max_offset": 5,
            "last_stored": "2026-01-02T12:00:00.005000+00:00",
            "messages": 3,
        },
        "SEND_OK",
        {"1": "text"},
        {"base64": "/w=="},
    ]


def test_json_keeps_what_is_json_already() -> None:
    value: dict[str, Any] = {"a": [1, 2.5, None, True, "x"]}
    assert plain(value) == value


def test_numbers_stand_to_the_right_and_the_footer_below(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count"], [["a", 5], ["long name", 1000]], footer=["all", 1005])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "name       count",
        "a              5",
        "long name  1,000",
        "all        1,005",
    ]


def test_a_table_without_rows_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count"], [])
    assert capsys.readouterr().out.split() == ["name", "count"]


def test_a_long_line_is_not_broken_where_there_is_no_screen(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["text"], [["x" * 500]])
    assert "x" * 500 in capsys.readouterr().out
