import pytest

from evenq.broker.store.levels import DEFAULT_LEVELS, DelayLevels
from evenq.errors import ArgumentError


def test_the_levels_are_javas() -> None:
    minute, hour = 60_000, 3_600_000
    assert DEFAULT_LEVELS.delays == (
        *(1000, 5000, 10_000, 30_000),
        *(minutes * minute for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
        *(hour, 2 * hour),
    )


def test_days_are_known_too() -> None:
    assert DelayLevels.parse("1s  2d") == DelayLevels((1000, 2 * 86_400_000))


@pytest.mark.parametrize("text", ["", "  ", "1", "s", "1 s", "1s,5s", "-1s", "1w", "1.5s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="give times like '1s 5s"):
        DelayLevels.parse(text)


def test_a_level_beyond_the_highest_waits_as_long_as_the_highest() -> None:
    levels = DelayLevels.parse("1s 5s")
    assert [levels.due(level, 100) for level in (1, 2, 3, 99)] == [1100, 5100, 5100, 5100]
