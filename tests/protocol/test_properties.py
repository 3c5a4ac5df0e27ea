import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.protocol.properties import decode_properties, encode_properties, find_property

words = st.text(st.characters(exclude_characters="\x01\x02"), min_size=1, max_size=10)


@given(st.dictionaries(words, words))
def test_there_and_back(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b=c\x02", {"a": "b=c"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01\x02b\x01c\x02", {"b": "c"}),
        ("\x01a\x02b\x02\x02", {}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
    ],
)
def test_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "ba", "\x01", "\x02", "\x01\x02", "é", "\0"]), max_size=14).map("".join)
)
def test_one_of_them_is_found_as_if_all_were_read(text: str) -> None:
    found = decode_properties(text)
    for name in ("a", "b", "ab"):
        value = find_property(text.encode(), name.encode())
        assert (value and value.decode()) == found.get(name)
