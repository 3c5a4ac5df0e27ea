"""A checkpoint is used for what it was made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenq.errors import ArgumentError
from evenq.spark.jobs.files import LocalFiles
from evenq.spark.jobs.subscription import remember, subscription


def test_topics_may_be_added_and_nothing_else_may_change(tmp_path: Path) -> None:
    files, folder = LocalFiles(), str(tmp_path)
    remember(files, folder, subscription({"subscribe": "a", "tags": "x"}))
    remember(files, folder, subscription({"subscribe": "a", "tags": "x", "maxOffsetsPerTrigger": "7"}))
    remember(files, folder, subscription({"subscribe": "b,a", "tags": "x"}))
    for other in (
        {"subscribe": "a", "tags": "x"},
        {"subscribe": "a,b,c", "tags": "y"},
        {"subscribe": "a,b"},
        {"subscribePattern": "a|b", "tags": "x"},
    ):
        with pytest.raises(ArgumentError, match=f"the checkpoint {folder} was made for"):
            remember(files, folder, subscription(other))
