"""Every Python snippet of the README runs, in order, against an embedded cluster."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import evenq.testing

README = Path(__file__).parents[2] / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with evenq.testing.cluster(brokers=2) as cluster:
        yield cluster.namesrv


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 6


@pytest.mark.spark
def test_the_snippets_run_one_after_the_other(namesrv: str, tmp_path: Path) -> None:
    for snippet in SNIPPETS:
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", snippet.replace("127.0.0.1:9876", namesrv)],
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{snippet}\n{done.stdout}\n{done.stderr}"
        if "parquet" in snippet:
            assert done.stdout.split()[-1] == "204", "all that the snippets before it sent"
