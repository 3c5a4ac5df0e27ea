from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from evenq.plot.svg import Picture
from evenq.spark.jobs.audit.findings import Audit, GroupAudit
from evenq.spark.jobs.audit.pictures import by_key, by_queue, durations, holders, inline, lag, over_time
from evenq.spark.jobs.audit.report import page
from evenq.spark.jobs.audit.tables import as_json, tables
from tests.spark.jobs.audit.samples import BEGAN, clean_topic, faulty_topic, traced_group, whole_audit


class Reader(HTMLParser):
    """Texts and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_needs_nothing_else() -> None:
    text = page(whole_audit())
    assert not [name for name, _ in Reader(text).attributes if name in ("src", "href", "onload", "onclick")]
    assert "<script" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}


def test_the_page_tells_what_is_wrong_and_by_how_much() -> None:
    said = " ".join(Reader(page(whole_audit())).texts)
    for words in (
        "1 message is missing, 3 are there twice, 2 are out of order and 1 key is hot.",
        "key '<vip>' alone has 23.1% of all messages (1,200)",
        "even",
        "group billing",
        "1 change of hands",
        "10.0.0.2@12",
        "half within 2 ms, 99% within 50 ms",
    ):
        assert words in said


def test_a_clean_audit_says_so() -> None:
    audit = Audit(at=BEGAN, topics=(clean_topic(),), groups=(), traced=False)
    text = page(audit)
    assert "All is well: 4,000 messages" in text
    assert "class='card verdict'" in text
    assert "The message trace is off" in text


def test_an_audit_of_nothing_is_a_page_too() -> None:
    assert "There is nothing to audit" in page(Audit(at=BEGAN, topics=(), groups=(), traced=False))


@pytest.mark.parametrize(
    "picture",
    [
        by_queue(faulty_topic()),
        over_time(faulty_topic()),
        over_time(replace(clean_topic(), slots=())),
        by_key(faulty_topic()),
        durations({"a": traced_group().consumed_after, "b": None}),
        lag(traced_group()),
        lag(replace(traced_group(), lag=())),
        holders(traced_group()),
    ],
)
def test_pictures_are_well_formed_and_take_the_colours_of_the_page(picture: Picture | None) -> None:
    assert picture is not None
    text = inline(picture)
    ElementTree.fromstring(text)
    assert "#ffffff" not in text
    assert "var(--" in text
    assert 'width="100%"' not in text


def test_what_is_not_known_has_no_picture() -> None:
    nothing = GroupAudit(group="g", samples=())
    assert (lag(nothing), holders(nothing), durations({"a": None})) == (None, None, None)


def test_tables_hold_what_was_found() -> None:
    found = {name: pq.read_table(BytesIO(data)).to_pylist() for name, data in tables(whole_audit()).items()}
    assert [row["kind"] for row in found["findings"]] == ["gap", "duplicate", "out of order", "hot key"]
    assert [(row["broker"], row["queue_id"], row["messages"]) for row in found["queues"]] == [
        ("broker-a", 0, 2200), ("broker-a", 1, 1000), ("broker-b", 0, 1000), ("broker-b", 1, 1000),
    ]  # fmt: skip
    assert found["keys"][0]["queues"] == [("broker-a:0", 1200)]
    assert found["late"][0]["born"].timestamp() * 1000 == BEGAN
    assert {row["stage"] for row in found["latency"]} == {
        "born to stored", "stored to consumed", "born to consumed", "handling",
    }  # fmt: skip
    assert [row["of"] for row in found["skew"]] == ["queues", "brokers", "keys"]
    assert (len(found["holdings"]), len(found["moves"]), len(found["waiting"]), len(found["lag"])) == (240, 1, 60, 8)


def test_empty_tables_have_their_columns() -> None:
    found = {
        name: pq.read_table(BytesIO(data))
        for name, data in tables(Audit(at=0, topics=(), groups=(), traced=False)).items()
    }
    assert found["gaps"].column_names == ["topic", "broker", "queue_id", "first", "end"]
    assert not sum(table.num_rows for table in found.values())


def test_json_is_for_programs() -> None:
    found = as_json(whole_audit())
    assert found["clean"] is False
    assert [finding["count"] for finding in found["findings"]] == [1, 3, 2, 1]
    assert found["topics"][0]["hot_keys"] == [{"key": "<vip>", "messages": 1200}]
    assert found["groups"][0]["moves"] == 1
