"""The limits as values: what they may be, and that the documentation names them all."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from evenq.broker import Limits
from evenq.errors import ArgumentError


@pytest.mark.parametrize(
    "wrong",
    [
        {"idle_timeout_s": 0},
        {"idle_timeout_s": math.nan},
        {"max_suspend_s": math.inf},
        {"max_topics": 0},
        {"max_topics": -1},
        {"max_topics": 1.5},
        {"max_topics": True},
        {"max_frame_bytes": "16"},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ArgumentError, match=f"{name}=.*more than 0"):
        Limits(**wrong)


def test_the_documentation_names_each_limit() -> None:
    text = (Path(__file__).parents[2] / "docs" / "behaviour.md").read_text()
    section = text.partition("## Embedded broker: limits")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`(?=[,:]| \|)", section))
    assert {field.name for field in fields(Limits)} <= named
