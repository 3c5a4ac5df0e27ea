"""Delay levels: the fixed waiting times that RocketMQ counts from 1, and the topic in which messages wait."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from evenq.errors import ArgumentError

__all__ = ["DEFAULT_LEVELS", "LEVELS", "SCHEDULE_TOPIC", "DelayLevels"]

# The queue of a level is its number less 1; what stands in its consume queue for the tag is the time of delivery.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d+)([smhd])")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """How long a message waits at each level, in milliseconds.

    >>> levels = DelayLevels.parse("1s 5s 2m")
    >>> levels.highest, levels.due(2, 1000), levels.due(99, 1000)
    (3, 6000, 121000)
    """

    delays: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``messageDelayLevel`` as brokers are configured with it: ``1s 5s 10s 30s 1m``."""
        found = [_LEVEL.fullmatch(word) for word in text.split()]
        if not found or None in found:
            raise ArgumentError("delay_levels", text, "give times like '1s 5s 10s 30s 1m 2h 1d', the shortest first")
        return cls(tuple(int(level[1]) * _UNITS[level[2]] for level in found if level))

    @property
    def highest(self) -> int:
        return len(self.delays)

    def delay(self, level: int) -> int:
        """How long a message waits at a level; beyond the highest as long as there."""
        return self.delays[min(level, self.highest) - 1]

    def due(self, level: int, stored: int) -> int:
        """When a message is delivered that was stored at a level at the time ``stored``."""
        return stored + self.delay(level)


DEFAULT_LEVELS = DelayLevels.parse(LEVELS)
