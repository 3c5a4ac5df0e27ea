"""How texts of a command line are read; what cannot be read is in the table of test_main.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from evenq.cli.options import read_pair, read_queue, read_time
from evenq.model import MessageQueue


@pytest.mark.parametrize(("text", "broker", "number"), [("broker-a:3", "broker-a", 3), ("hz@b:1:0", "hz@b:1", 0)])
def test_a_queue_is_a_broker_and_a_number(text: str, broker: str, number: int) -> None:
    assert read_queue("orders", text) == MessageQueue("orders", broker, number)


def test_a_value_may_hold_what_separates_it() -> None:
    assert read_pair("name=a=b", argument="--property") == ("name", "a=b")
    assert read_pair("name=", argument="--property") == ("name", "")


def test_a_time_has_its_zone_or_this_machines() -> None:
    assert read_time("2026-01-02T03:04:05Z", argument="--to") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert read_time("2026-01-02T03:04:05+02:00", argument="--to").utctimetuple().tm_hour == 1
    local = read_time("2026-01-02", argument="--to")
    assert local.replace(tzinfo=None) == datetime(2026, 1, 2)
    assert local.utcoffset() == datetime(2026, 1, 2).astimezone().utcoffset()
