"""``evenq demo`` with its Spark query, in a process of its own: what was sent, counted again from the files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from evenq.balance.groups_traffic import Traffic
from tests.cli.demo.count import count
from tests.spark.processes import environment

pytestmark = pytest.mark.live

COMMAND = "from evenq.cli import main; main()"


def test_members_and_the_query_consume_everything_between_them(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "demo", "--seconds", "9", "--rate", "300", "--out", str(out)],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = count(out)
    assert sorted(counted.by) == ["Spark", "c1", "c2", "c3", "c4"]
    assert all(places for places in counted.by.values()), "everybody had a share"
    assert counted.stored.keys() >= counted.sent
    assert counted.consumed.keys() == counted.places, "nothing is lost, and nothing is made up"
    twice = {place for place, times in counted.consumed.items() if times > 1}
    assert all(counted.consumed[place] == 2 and counted.by["c2"][place] == 1 for place in twice), (
        "only of the killed one"
    )
    verdict = json.loads((out / "verdict.json").read_text())
    committed = verdict["killed"]["c2"]
    assert all(offset >= committed[f"{broker}:{queue}"] for broker, queue, offset in twice), "of what was in its hands"
    assert (verdict["clean"], verdict["missing"], verdict["lost"], verdict["unknown"]) == (True, [], [], [])
    assert verdict["sent"] == len(counted.sent)
    assert verdict["stored"] == len(counted.places)
    assert verdict["consumed"] == {name: places.total() for name, places in counted.by.items()}
    assert {tuple(one["place"]) for one in verdict["twice"]} == twice
    assert f"lost 0, twice {len(twice)}: as it should be" in done.stdout
    assert f"The audit report: {out}/audit/report.html ({verdict['stored']:,} messages: " in done.stdout
    assert "</html>" in (out / "audit" / "report.html").read_text()
    queues = pq.ParquetFile(out / "audit" / "tables" / "queues.parquet").read().to_pylist()
    by_queue = Counter((broker, queue) for broker, queue, _ in counted.places)
    assert {(row["broker"], row["queue_id"]): row["messages"] for row in queues} == by_queue
    assert Traffic.of(queues).topics, "which a simulation can go by"
