"""``evenq demo`` as it is called, without Spark: what it says is what the files say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evenq.cli import main
from evenq.cli.demo.crowd import Crowd
from evenq.cli.demo.verdict import Consumed
from tests.cli.demo.count import count
from tests.waiting import wait_until


def run(out: Path, *arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--no-spark", "--seconds", "5", "--rate", "300", "--out", str(out), *arguments])
    return ended.value.code


@pytest.mark.live
def test_a_message_that_goes_missing_is_named_and_ends_in_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = Crowd.consumed

    def forgetful(self: Crowd) -> list[Consumed]:
        return [one for one in honest(self) if one.key != "o-77"]

    monkeypatch.setattr(Crowd, "consumed", forgetful)
    out = tmp_path / "demo"
    assert run(out) == 1
    told = capsys.readouterr().out
    assert "lost 1, " in told
    assert "o-77 (broker-" in told
    assert "NOT as it should be" in told
    verdict = json.loads((out / "verdict.json").read_text())
    counted = count(out)
    # but for what was made up, the files say the same
    assert verdict["sent"] == len(counted.sent) > 1000
    assert verdict["stored"] == sum(counted.stored.values()) == len(counted.places)
    assert counted.consumed.keys() == counted.places, "nothing is lost in truth"
    assert sorted(counted.by) == ["c1", "c2", "c3", "c4"]
    assert sum(verdict["consumed"].values()) == counted.consumed.total() - 1
    twice = {place for place, times in counted.consumed.items() if times > 1}
    assert {tuple(one["place"]) for one in verdict["twice"]} == twice
    assert all(one["why"].startswith("c2 was killed") and "c2" in one["who"] for one in verdict["twice"])
    committed = verdict["killed"]["c2"]
    assert all(offset >= committed[f"{broker}:{queue}"] for broker, queue, offset in twice), "of what was in its hands"
    for moment in ("c2 is killed (SIGKILL to process", "connections of broker-b are cut", "c1 leaves", "moved: "):
        assert moment in told


def processes_about(text: str) -> list[str]:
    """The command lines of all processes that speak of it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in found if text in line]


@pytest.mark.live
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the system has no /proc to look for processes in")
def test_ctrl_c_ends_everything_that_was_started(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    # a shell lets what it starts in the background ignore Ctrl-C, and this may be such a run
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from evenq.cli import main; main()"
    command = [
        sys.executable,
        "-u",
        "-c",
        code,
        "demo",
        "--no-spark",
        "--out",
        str(out),
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True) as demo:
        assert demo.stdout is not None
        try:
            for line in demo.stdout:
                if "c3 joins" in line:
                    break
            wait_until(lambda: len(processes_about(str(out / "members"))) == 3, "three members")
            os.killpg(demo.pid, signal.SIGINT)
            demo.stdout.read()
            assert demo.wait(60) == 130
        finally:
            demo.kill()
    assert processes_about(str(out)) == []


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    assert run(tmp_path) == 2
    assert "it holds something that no demo wrote" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


def test_an_unknown_strategy_is_named_before_anything_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "demo", "--strategy", "FAIR") == 2
    assert "FAIR" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
