"""For what only Apache RocketMQ's broker answers so far."""

import pytest

__all__ = ["real_only"]

real_only = pytest.mark.parametrize(
    "any_cluster", [pytest.param("real_cluster", marks=pytest.mark.interop)], indirect=True
)
