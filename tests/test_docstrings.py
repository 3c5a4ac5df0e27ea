"""The examples in docstrings hold, in every module that has some."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules() -> list[str]:
    sources = [(path, ROOT / "src") for path in sorted((ROOT / "src" / "evenq").rglob("*.py"))]
    # helpers of the tests, too; importing a test's module would run what pytest runs better
    sources += [(path, ROOT) for path in sorted((ROOT / "tests").rglob("*.py")) if not path.name.startswith("test_")]
    found = [path.relative_to(root).with_suffix("") for path, root in sources if ">>> " in path.read_text()]
    return [".".join(path.parts).removesuffix(".__init__") for path in found]


MODULES = modules()


def test_examples_are_found() -> None:
    assert {"evenq", "evenq.protocol.frames", "evenq.spark.jobs.pace", "tests.waiting"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    if name.startswith("evenq.spark"):
        pytest.importorskip("pyspark", reason="PySpark is missing: install evenq[spark]")
    tried = doctest.testmod(import_module(name))
    assert (tried.attempted > 0, tried.failed) == (True, 0)
