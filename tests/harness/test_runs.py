"""The rules that the suites run by, each seen in a run of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
PARALLEL = ("--dist", "load", "--maxschedchunk", "1")  # as in the Makefile
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs files of tests under the rules of ``tests/conftest.py``; gives the exit code and what was printed."""

    unstable = tmp_path / "unstable.txt"

    def ran(source: str, *options: str, files: Iterable[str] = ("test_made.py",)) -> tuple[int, str]:
        for name in files:
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"import os, random, subprocess, time\nimport pytest\n\n{source}")
        rules = {"PYTHONPATH": str(ROOT), "PYTEST_PLUGINS": "tests.conftest", "EVENQ_UNSTABLE": str(unstable)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *files],
            cwd=tmp_path,
            env={**os.environ, **rules},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
        )
        return done.returncode, done.stdout

    return ran


STARTS = """
def test_starts():
    subprocess.run(["true"], check=True)
"""


def test_only_live_tests_may_start_processes(run: Run) -> None:
    code, printed = run(STARTS)
    assert code == 1
    assert "calls Popen.__init__ and is not marked: add @pytest.mark.live" in printed
    assert run(f"@pytest.mark.live{STARTS}")[0] == 0


@pytest.mark.parametrize("workers", [(), ("-n", "1", *PARALLEL)])
def test_a_live_test_that_passes_alone_is_unstable(run: Run, tmp_path: Path, workers: tuple[str, ...]) -> None:
    mark = tmp_path / "once"
    source = f"""
@pytest.mark.live
def test_fails_once():
    if not os.path.exists({str(mark)!r}):
        open({str(mark)!r}, "w").close()
        raise AssertionError("the first time")
"""
    code, printed = run(source, "--second-try", *workers)
    assert code == 0, printed
    assert "the first time" in printed
    assert "1 unstable" in printed
    assert (tmp_path / "unstable.txt").read_text() == "test_made.py::test_fails_once\n"


@pytest.mark.parametrize("mark", ["@pytest.mark.live", ""])
def test_a_test_that_fails_twice_or_is_not_live_fails(run: Run, mark: str) -> None:
    code, printed = run(f"{mark}\ndef test_fails():\n    assert False\n", "--second-try")
    assert code == 1
    assert "1 failed" in printed
    assert "unstable" not in printed


def test_half_of_the_workers_begin_with_spark(run: Run, tmp_path: Path) -> None:
    source = f"""
@pytest.mark.parametrize("number", range(4))
def test_notes_its_worker(worker_id, number):
    with open({str(tmp_path / "notes")!r}, "a") as notes:
        print(worker_id, __file__, file=notes)
"""
    files = ["tests/broker/test_rest.py", "tests/spark/test_made.py"]
    code, printed = run(source, "-n", "2", *PARALLEL, files=files)
    assert code == 0, printed
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    assert len(notes) == 8
    # which of the two is ready first is chance
    first = {worker: "/spark/" in path for worker, path in reversed(notes)}
    assert sorted(first.values()) == [False, True]


def test_a_test_that_hangs_fails_and_shows_where(run: Run) -> None:
    code, printed = run("@pytest.mark.timeout(0.5)\ndef test_hangs():\n    time.sleep(60)  # here\n")
    assert code == 1
    assert "# here" in printed
    assert "Timeout (>0.5s)" in printed


def test_the_seed_of_a_run_can_be_given_again(run: Run) -> None:
    source = "def test_draws(rng):\n    raise AssertionError(f'drawn {rng.random()}')\n"
    _, printed = run(source, "-n", "1")
    seed = re.findall(r"--seed (\d+)", printed)[0]
    _, again = run(source, "--seed", seed)
    drawn = set(re.findall(r"drawn 0\.\d+", printed))
    assert len(drawn) == 1
    assert drawn == set(re.findall(r"drawn 0\.\d+", again))
