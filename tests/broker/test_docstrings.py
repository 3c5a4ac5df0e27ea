"""The examples in the docstrings say what is so."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import evenq.broker

MODULES = [module.name for module in pkgutil.walk_packages(evenq.broker.__path__, "evenq.broker.")]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0
