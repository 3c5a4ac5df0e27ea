"""README.md: its snippets run in order against an embedded cluster, and its table and links are right."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import evenq.testing
from evenq.balance.registry import STRATEGIES
from evenq.balance.simulation import STICKY
from evenq.cli import main

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

# something that stands in one snippet only -> the last line that this snippet prints
LAST_LINES = {
    "testing.cluster()": """('o-1',) b'{"total": 12}'""",
    "send_async": "100 stored",
    "%DLQ%": "[b'created', b'paid', b'shipped']",
    "evenq.Admin": "204 messages, lag 204",
    "parquet": "204",
}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with evenq.testing.cluster(brokers=2) as cluster:
        yield cluster.namesrv


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 10
    for marker in LAST_LINES:
        assert sum(marker in snippet for snippet in SNIPPETS) == 1, marker


@pytest.mark.live
@pytest.mark.spark
def test_the_snippets_run_one_after_the_other(namesrv: str, tmp_path: Path) -> None:
    for snippet in SNIPPETS:
        command = [sys.executable, "-W", "error::ResourceWarning", "-c", snippet.replace("127.0.0.1:9876", namesrv)]
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            try:
                if "until SIGTERM" in snippet:
                    # it runs until it is told to end: once it has a message
                    assert program.stdout is not None
                    assert program.stdout.readline()
                    program.terminate()
                stdout, stderr = program.communicate(timeout=120)
            finally:
                program.kill()
        done = subprocess.CompletedProcess(command, program.returncode, stdout, stderr)
        assert done.returncode == 0, f"{snippet}\n{done.stdout}\n{done.stderr}"
        for marker, line in LAST_LINES.items():
            if marker in snippet:
                assert done.stdout.splitlines()[-1] == line, snippet


def test_the_table_of_strategies_is_what_the_simulation_finds(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if line.startswith("| `")]
    simulated = {event: _simulated(event, capsys) for event in ("join", "leave")}
    found = [
        [name, *(f"{simulated[event][name][0]:.1f}" for event in simulated), f"{simulated['join'][name][1]:.1f}"]
        for name in (*STRATEGIES, STICKY)
    ]
    assert [[row[0].strip("`"), *row[2:]] for row in rows] == found


def _simulated(event: str, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[float, float]]:
    """By strategy: how many queues move, and how uneven the shares are after that. Means over all groups."""
    command = f"simulate --queues 16 --members 4 --event {event} --groups 20000"
    assert command.replace("leave", "join") in TEXT
    with pytest.raises(SystemExit):
        main([*command.split(), "--json"])
    results = json.loads(capsys.readouterr().out)["strategies"]
    return {
        each["strategy"].removesuffix("-AVG"): (each["moved"] / each["groups"], each["mean_spread"]) for each in results
    }


def test_links_lead_to_files() -> None:
    targets = re.findall(r"\]\(([^)#]+)", TEXT)
    assert {"DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/spark.md", "docs/jobs.md"} <= set(targets)
    for target in targets:
        assert (README.parent / target).exists(), target
