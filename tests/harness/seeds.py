"""The run's random seed. It is printed at the top of a run, and ``--seed`` takes it to repeat that run's random cases.

Each test draws from a generator of its own, made of the seed and the test's name (fixture ``rng``), so one test alone
gives the same cases as in the whole run. Hypothesis starts each of its tests from the same seed.
"""

from __future__ import annotations

import random

import hypothesis.core
import pytest

__all__ = ["add_option", "apply", "generator"]


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="seed of all random tests; the top of each run names its seed")


def apply(config: pytest.Config) -> None:
    """Settle the seed. A worker of pytest-xdist takes that of the controlling process."""
    if hasattr(config, "workerinput"):
        config.option.seed = config.workerinput["seed"]
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32)
    hypothesis.core.global_force_seed = config.option.seed


def generator(item: pytest.Item) -> random.Random:
    return random.Random(f"{item.config.option.seed} {item.nodeid}")
