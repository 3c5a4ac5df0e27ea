"""``evenq simulate``, as it is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenq.balance.scenario import Event, Scenario
from evenq.balance.simulation import names_for, simulate
from evenq.cli import main


class Output:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        """What the command prints when it succeeds."""
        with pytest.raises(SystemExit) as ended:
            main(["simulate", *arguments])
        out, err = self._capsys.readouterr()
        assert ended.value.code == 0, err
        return out

    def json(self, *arguments: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self(*arguments, "--json"))
        return read

    def error(self, *arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["simulate", *arguments])
        out, err = self._capsys.readouterr()
        assert ended.value.code == 2
        assert not out
        return err.strip()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Output:
    return Output(capsys)


def row(output: str, name: str) -> list[str]:
    (found,) = [line.split() for line in output.splitlines() if line.startswith(f" {name} ")]
    return found[1:]


def test_alone_it_shows_all_strategies_and_says_what_that_means(run: Output) -> None:
    output = run()
    runs = simulate(Scenario())
    for expected in runs:
        moved = [str(sum(len(step.moved) for step in steps)) for _, steps in expected.by_event()]
        assert row(output, expected.strategy)[:6] == [*moved, str(expected.moved)]
    assert row(output, "least possible")[1:7] == row(output, "STICKY")[:6]
    assert f"To stay even, this group has to move {runs[0].least} queues. STICKY moved 1.00 times that" in output
    assert "got uneven" in output
    assert "queues to nobody" in output


def test_options_reach_the_simulation(run: Output) -> None:
    options = "--queues 6 --members 3 --topics 2 --brokers 3 --rooms 1 --seed 9 -e join:2 -e restart:1 -s AVG -s STICKY"
    found = run.json(*options.split(), "--virtual-nodes", "5")
    scenario = Scenario(
        queues=6,
        members=3,
        topics=2,
        brokers=3,
        rooms=1,
        seed=9,
        events=[Event("join", 2), Event("restart", 1)],
    )
    assert found["scenario"] | {"events": scenario.events} == {
        name: getattr(scenario, name) for name in found["scenario"]
    }
    assert found["scenario"]["events"] == ["join:2", "restart:1"]
    assert [strategy["strategy"] for strategy in found["strategies"]] == ["AVG", "STICKY"]
    for read, expected in zip(found["strategies"], simulate(scenario, ["AVG", "STICKY"]), strict=True):
        assert (read["moved"], read["least"], read["ratio"]) == (expected.moved, expected.least, expected.ratio)
        for step, expected_step in zip(read["steps"], expected.steps, strict=True):
            assert step["load"] == expected_step.load
            assert step["moved"] == sorted(map(str, expected_step.moved))
            assert (step["joined"], step["left"]) == (expected_step.joined, expected_step.left)


def test_virtual_nodes_and_machine_rooms_matter(run: Output) -> None:
    few, many = (run.json("-s", "CONSISTENT_HASH", "--virtual-nodes", nodes) for nodes in ("1", "200"))
    assert few["strategies"][0]["spread"] > many["strategies"][0]["spread"]
    one = run.json("-s", "MACHINE_ROOM", "--machine-room", "room-b")
    assert one["strategies"][0]["unheld"] == 8


def test_every_step_can_be_shown(run: Output) -> None:
    output = run("-s", "STICKY", "-e", "join", "--steps")
    (step,) = simulate(Scenario(events=[Event("join")]), ["STICKY"])[0].steps
    loads = " ".join(str(step.load[member]) for member in sorted(step.load))
    assert f"+{step.joined[0]}" in output
    assert loads in output


def test_many_groups(run: Output) -> None:
    found = run.json("--groups", "500")
    assert found["groups"] == 500
    assert [strategy["strategy"] for strategy in found["strategies"]] == names_for(Scenario())
    sticky = found["strategies"][-1]
    assert sticky["exact"] == 500
    assert sticky["ratio"] == 1
    assert sum(sticky["loads"].values()) == 500 * 5
    output = run("--groups", "500", "-e", "leave", "-s", "STICKY", "-s", "AVG")
    assert output.startswith("500 groups of 16 queues, 4 members, leave; means over all groups")
    assert row(output, "STICKY")[1:3] == ["1.00", "100.0%"]
    assert "To stay even, a group has to move 4.00 queues on average. STICKY moved 1.00 times that and AVG" in output


def test_groups_of_many_sizes(run: Output, tmp_path: Path) -> None:
    found = run.json("--groups", "400", "--queues", "uniform:4-8", "--members", "zipf:1.5:1-5", "-s", "STICKY")
    (sticky,) = found["strategies"]
    assert (found["groups"], sticky["exact"]) == (400, 400)
    assert sum(sticky["spreads"].values()) == 400
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("queues,members,groups\n8,2,30\n16,4,70\n")
    from_file = run.json("--sizes", str(sizes), "-s", "STICKY")
    assert from_file["groups"] == 100, "as many as the file has"
    assert set(from_file["strategies"][0]["loads"]) <= {"2", "3", "4"}
    assert "members" not in from_file["scenario"]
    sizes.write_text("queues,members\n8,7\n")
    assert run.json("--sizes", str(sizes), "-e", "leave:6", "-s", "STICKY")["groups"] == 1
    output = run("--sizes", str(sizes), "--groups", "50", "-s", "STICKY")
    assert output.startswith("50 groups of sizes of sizes.csv, join; means over all groups")


def test_traffic_of_an_audit_weighs_the_queues(run: Output, tmp_path: Path) -> None:
    rows = [
        {"topic": "orders", "broker": "broker-a", "queue_id": number, "messages": count, "bytes": 10}
        for number, count in enumerate([1] * 7 + [93])
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "queues.parquet")
    arguments = ["--groups", "300", "--queues", "8", "-s", "STICKY", "--traffic", str(tmp_path / "queues.parquet")]
    hot, even = (run.json(*arguments, "--unit", unit)["strategies"][0] for unit in ("messages", "bytes"))
    assert hot["moved"] == even["moved"]
    assert hot["mean_traffic_peak"] > 0.93 * 5 > 2 > even["mean_traffic_peak"]
    assert "With this traffic, the busiest member has 4." in run(*arguments)


@pytest.mark.parametrize("mode", [[], ["--groups", "100"]])
def test_the_picture_has_both_panels(run: Output, tmp_path: Path, mode: list[str]) -> None:
    path = tmp_path / "out.svg"
    assert f"Picture: {path}" in run("--picture", str(path), *mode)
    texts = [element.text or "" for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert "Movement against evenness" in texts
    assert ("Queues of a member after the change" if mode else "Who holds what, before and after") in texts
    assert set(names_for(Scenario())) <= set(texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--queues 0", "--queues=0: give at least 1"),
        ("--virtual-nodes -1", "--virtual-nodes=-1: give 0 or more; Java's default is 10"),
        ("-e jion", "--event='jion': it begins with one of join, leave, crash, replace, restart"),
        ("-e leave:4", "--event='leave:4': only 4 members are there then, and one must stay"),
        ("-s AVERAGE", "--strategy='AVERAGE': "),
        ("--rooms 0 -s MACHINE_ROOM", "--strategy='MACHINE_ROOM': it needs brokers with rooms"),
        ("--machine-room x", "--machine-room='x': the rooms here are room-a, room-b"),
        ("--groups 0", "--groups=0: give at least 1"),
        ("--groups 9 -e restart", "--event='restart': many groups take one event"),
        ("--queues uniform:4-8", "--queues='uniform:4-8': one group has one size: say with --groups how many"),
        ("--members x", "--members='x': give a number, or uniform:LOW-HIGH"),
        ("--traffic t", "--traffic='t': it is for many groups"),
        ("--groups 9 --traffic no/such", "--traffic='no/such': there is no such file"),
        ("--sizes no/such.csv", "--sizes='no/such.csv': there is no such file"),
        ("--sizes a.csv --members 3", "--sizes='a.csv': it says queues and members: leave --queues and --members out"),
        ("--groups 9 --unit grams", "--unit='grams': give messages or bytes"),
        ("--spark", "--groups=None: say how many groups there are"),
        ("--spark --groups 9", "--out=None: --spark and --out go together"),
        ("--groups 9 --out x", "--out='x': --spark and --out go together"),
        ("--groups 9 --members uniform:1-4 -e leave", "--event='leave': only 1 members are there then"),
        ("--groups 9 --queues uniform:1-999 --members uniform:1-999", "--sizes='998,001 combinations"),
        ("--groups 9 --steps", "--steps=True: it is for one group"),
        ("--picture out.png", "--picture='out.png': pictures are SVG; give a name that ends in .svg"),
        ("--picture no/such/out.svg", "--picture='no/such/out.svg': there is no folder no/such; make it first"),
    ],
)
def test_a_mistake_is_one_line_with_option_value_and_way_out(run: Output, arguments: str, message: str) -> None:
    error = run.error(*arguments.split())
    assert error.startswith(f"evenq: error: {message}")
    assert "\n" not in error
