"""A live test that fails is run once more at the end, alone. If it passes then, it is unstable, not broken.

The run stays green, its summary names the test with both outputs, and ``tests/unstable.txt`` gets the test's name.
That file should be empty: whoever finds a name there mends the test and removes the line. There is no second try where
more than a few tests fail: then something is broken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

__all__ = ["SecondTry", "add_option"]

MOST = 8
# tests of this module have a file of their own
UNSTABLE = Path(os.environ.get("EVENQ_UNSTABLE") or Path(__file__).parents[1] / "unstable.txt")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-try", action="store_true", help="run live tests that failed once more, alone, at the end"
    )


class SecondTry:
    """The plugin, in the process that controls the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed: list[pytest.TestReport] = []
        self._unstable: list[tuple[pytest.TestReport, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        names = {report.nodeid for report in self._failed if "live" in report.keywords}
        if not 0 < len(names) <= MOST:
            return
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(reporter, TerminalReporter)
        for name in sorted(names):
            reporter.write_line(f"\nonce more, alone: {name}")
            done = self._run(name)
            if done.returncode == 0:
                self._note(reporter, name, done.stdout)
        broken = [report for report in self._failed if report not in [each for each, _ in self._unstable]]
        if self._unstable and not broken and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        for report, output in self._unstable:
            terminalreporter.section(f"unstable: {report.nodeid}", yellow=True)
            terminalreporter.write_line(f"the first time, beside other tests:\n{report.longreprtext}")
            for title, text in report.sections:
                terminalreporter.write_line(f"{title}:\n{text}")
            terminalreporter.write_line(f"the second time, alone:\n{output}")

    def _run(self, name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "no:cacheprovider",
                "-rA",
                f"--seed={self._config.option.seed}",
                name,
            ],
            cwd=self._config.rootpath,
            env={**os.environ, "PYTEST_ADDOPTS": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def _note(self, reporter: TerminalReporter, name: str, output: str) -> None:
        """Count the test's failures as unstable."""
        for report in [each for each in self._failed if each.nodeid == name]:
            for category in ("failed", "error"):
                if report in reporter.stats.get(category, []):
                    reporter.stats[category].remove(report)
            reporter.stats.setdefault("unstable", []).append(report)
            self._unstable.append((report, output))
        known = UNSTABLE.read_text() if UNSTABLE.exists() else ""
        if name not in known.splitlines():
            UNSTABLE.write_text(f"{known}{name}\n")
