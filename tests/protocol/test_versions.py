import pytest

from evenq.protocol.command import VERSION
from evenq.protocol.versions import version_text


# numbers and names from the Java client's own list
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "3.x"),
        (211, "3.x"),
        (212, "4.0.0-SNAPSHOT"),
        (213, "4.0.0"),
        (393, "4.9.0"),
        (413, "5.0.0"),
        (493, "5.4.0"),
        (611, "5.9.9"),
        (612, "6 or later"),
    ],
)
def test_a_number_is_the_place_in_javas_list(number: int, text: str) -> None:
    assert version_text(number) == text


def test_we_speak_like_5_4_0() -> None:
    assert version_text(VERSION) == "5.4.0"
