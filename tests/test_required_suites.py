"""The rule of conftest.py: a suite whose needs are missing skips, and fails where EVENQ_REQUIRE names it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[1]
TEST = "tests/interop/test_harness.py::test_mqadmin_answers_and_its_errors_are_raised"


def run_without_java(tmp_path: Path, require: str) -> str:
    """Run a test as on a machine that has neither Java nor Maven, nor the jars."""
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "EVENQ_REQUIRE": require}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", TEST]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("require", ["spark", "spark,interop"])
def test_a_missing_java_is_named(tmp_path: Path, require: str) -> None:
    printed = run_without_java(tmp_path, require)

    assert "no java found: install a JDK 17 or newer" in printed
    if "interop" in require:
        assert "EVENQ_REQUIRE does not let this skip" in printed
        assert "2 errors" in printed
    else:
        assert "2 skipped" in printed
