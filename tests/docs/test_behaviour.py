"""docs/behaviour.md: its links lead to tests that exist, and its names and numbers are those of the code."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from evenq.balance import STRATEGIES, faults
from evenq.balance.faults import CLASSIC, V5, BackOff
from evenq.balance.simulation import STICKY
from evenq.balance.strategies import ConsistentHash
from evenq.broker import registrar, routes
from evenq.broker.state import groups, locks
from evenq.client.consume import push
from evenq.client.group import held, offsets, rebalance
from evenq.client.produce.producer import Producer
from evenq.client.settings import FlowControl, Intervals, Timeouts

PAGE = Path(__file__).parents[2] / "docs" / "behaviour.md"
TEXT = PAGE.read_text()
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)}
TEST_LINK = re.compile(r"\[`(test_\w+\.py)::(test_\w+)`\]\(([^)]+)\)")
# what the page says of others
JAVA_DRAIN_S = 1


def rows(section: str) -> list[list[str]]:
    """The cells of all tables in a section, without their heads."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    heads = [at for at, row in enumerate(cells) if set(row) == {"---"}]
    return [row for at, row in enumerate(cells) if at not in heads and at + 1 not in heads]


CLAIMS = [row for section in SECTIONS for row in rows(section) if "](" in row[-1]]


@cache
def names_in(path: Path) -> set[str]:
    """The names of all test functions, those of classes too."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name for function in functions if function.name.startswith("test_")}


def test_every_claim_has_a_test() -> None:
    assert len(CLAIMS) > 100
    for section, part in SECTIONS.items():
        if "| tests |" in part:
            unlinked = [row[0] for row in rows(section) if "](" not in row[-1] and not row[-1][:1].isdigit()]
            assert unlinked == [], section
    for row in CLAIMS:
        assert TEST_LINK.sub("", row[-1]).replace(",", "").strip() == "", f"not only tests: {row[0]}"


def test_every_link_leads_to_a_test_of_that_name() -> None:
    links = TEST_LINK.findall(TEXT)
    assert len(links) > 200
    for file, name, target in links:
        path = (PAGE.parent / target).resolve()
        assert path.is_file(), target
        assert path.name == file
        assert name in names_in(path), f"{target} has no {name}"


def test_other_links_lead_to_files_and_sections() -> None:
    anchors = {heading.lower().replace(" ", "-") for heading in SECTIONS}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (PAGE.parent / target).exists(), target


def number(text: str) -> float:
    return float(text.replace(" ", ""))


def fault_table(place: int) -> tuple[dict[float, float], tuple[float, float]]:
    """Latency and time out of use, and the same for a failure, from one half of the table."""
    table = [row[place : place + 2] for row in rows("Latency fault avoidance") if "](" not in row[-1]]
    *latencies, (failed, failed_out) = table
    counted_as = failed.removeprefix("failed, as ")
    return {number(at): number(out) for at, out in latencies}, (number(counted_as), number(failed_out))


@pytest.mark.parametrize(("place", "back_off"), [(0, CLASSIC), (2, V5)], ids=["classic", "v5"])
def test_the_tables_of_fault_avoidance_are_those_of_the_code(place: int, back_off: BackOff) -> None:
    table, failed = fault_table(place)
    assert table == dict(zip(back_off.latencies, back_off.durations, strict=True))
    assert failed == (back_off.failure, back_off.away(back_off.failure))


def test_the_strategies_are_those_that_there_are() -> None:
    named = [row[0].strip("`") for row in rows("Strategies") if len(row) == 3]
    assert list(dict.fromkeys(named)) == ["AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY",
                                          "CONSISTENT_HASH", "STICKY"]  # fmt: skip
    assert set(named) == {*STRATEGIES, STICKY}


DEFAULTS: dict[str, float] = {
    "Intervals.routes": Intervals().routes,
    "Intervals.heartbeat": Intervals().heartbeat,
    "Intervals.rebalance": Intervals().rebalance,
    "Intervals.first_look": Intervals().first_look,
    "Intervals.queue_check": Intervals().queue_check,
    "Timeouts.hold": Timeouts().hold,
    "Timeouts.drain": Timeouts().drain,
    "FlowControl.messages": FlowControl().messages,
    "FlowControl.bytes": FlowControl().bytes,
    "FlowControl.span": FlowControl().span,
    "consume.push.RETRIES": push.RETRIES,
    "consume.push.STALE": push.STALE,
    "group.held.LEASE_VALID_S": held.LEASE_VALID_S,
    "group.rebalance.DEAD_AFTER_S": rebalance.DEAD_AFTER_S,
    "broker.state.locks.LOCK_SECONDS": locks.LOCK_SECONDS,
    "broker.state.groups.SILENCE_SECONDS": groups.SILENCE_SECONDS,
    "broker.registrar.REGISTER_EVERY": registrar.REGISTER_EVERY,
    "broker.routes.SILENCE_SECONDS": routes.SILENCE_SECONDS,
    "ConsistentHash.virtual_nodes": ConsistentHash().virtual_nodes,
    "balance.faults._PROBE_EVERY_MS": faults._PROBE_EVERY_MS / 1000,
    "PushConsumer.ramp_up": inspect.signature(push.PushConsumer).parameters["ramp_up"].default,
    "group.offsets.CHECK_STORED_S": offsets.CHECK_STORED_S,
    "Producer.retries": inspect.signature(Producer).parameters["retries"].default,
}
QUANTITY = re.compile(r"\b(\d{1,3}(?: \d{3})+|\d+(?:\.\d+)?) (s|ms|MiB)\b")
UNITS = {"s": 1.0, "ms": 0.001, "MiB": 1024.0 * 1024.0}


def quantity(text: str) -> float:
    """A number with its unit, if it has one, in seconds or bytes."""
    found = QUANTITY.fullmatch(text)
    return number(found[1]) * UNITS[found[2]] if found else number(text)


def test_the_defaults_are_those_of_the_code() -> None:
    assert {name.strip("`"): quantity(value) for _, value, name in rows("Defaults")} == DEFAULTS


def test_numbers_in_other_tables_are_among_the_defaults() -> None:
    """So a number cannot be changed in the code without being changed in every row that has it."""
    in_tables = {
        quantity(f"{ms} ms") for back_off in (CLASSIC, V5) for ms in (*back_off.latencies, *back_off.durations)
    }
    known = {*DEFAULTS.values(), *in_tables, JAVA_DRAIN_S}
    for row in CLAIMS:
        for value, unit in QUANTITY.findall(" ".join(row[:-1])):
            assert quantity(f"{value} {unit}") in known, f"{value} {unit}: {row[0]}"
    for text in (
        f"After {push.RETRIES} retries",
        f"{FlowControl().messages} messages or {FlowControl().bytes // (1 << 20)} MiB",
        f"span {FlowControl().span}",
    ):
        assert text in TEXT
