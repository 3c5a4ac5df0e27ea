from hypothesis import given
from hypothesis import strategies as st

from evenq.protocol.command import Command
from evenq.protocol.template import Template

NUMBERS = st.integers(-(2**63), 2**63 - 1)
# what would be mistaken for a place to fill, or for the header's own fields
TEXTS = st.text() | st.sampled_from(["100%", "%d", '"opaque":0', '"extFields":{}', "}", '{"a":"%s"}'])


@given(
    st.dictionaries(TEXTS, TEXTS, max_size=4),
    st.lists(st.tuples(TEXTS, NUMBERS), unique_by=lambda field: field[0], max_size=3),
    st.integers(0, 2**31 - 1),
    st.integers(0, 999),
)
def test_requests_are_those_that_would_be_made_one_by_one(
    common: dict[str, str], varying: list[tuple[str, int]], opaque: int, code: int
) -> None:
    common = {name: text for name, text in common.items() if name not in dict(varying)}
    template = Template(Command(code, ext=common), *(name for name, _ in varying))
    values = [value for _, value in varying]
    alone = template.command(*values)
    assert alone == Command(code, ext=common | {name: str(value) for name, value in varying})
    alone.opaque = opaque
    assert template.frames([(*values, opaque)] * 2) == alone.encode() * 2
    assert template.code == code
