"""Which SQL makes messages of a table."""

import pytest

from evenq.errors import ArgumentError
from evenq.spark.jobs.messages import WHOLE_ROW, MessageColumns, conversions


def test_the_whole_row_is_the_value_unless_another_is_named() -> None:
    assert MessageColumns().selections() == {"value": WHOLE_ROW}
    chosen = MessageColumns(value="body", keys="id", deliver_at="due").selections()
    assert chosen == {"value": "body", "keys": "id", "deliver_at": "due"}


def test_names_of_properties_are_texts_in_sql() -> None:
    found = MessageColumns(properties={"it's": "a", "b\\": "c + 1"}).selections()["properties"]
    assert found == "map('it\\'s', cast((a) as string), 'b\\\\', cast((c + 1) as string))"


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("value", "binary", "value as value"),
        ("value", "string", "cast(value as string) as value"),
        ("value", "array<int>", "to_json(value) as value"),
        ("value", "double", "cast(value as string) as value"),
        ("keys", "array<bigint>", "cast(keys as array<string>) as keys"),
        ("tags", "date", "cast(tags as string) as tags"),
        ("delay_level", "bigint", "cast(delay_level as int) as delay_level"),
        ("deliver_at", "timestamp_ntz", "cast(deliver_at as timestamp) as deliver_at"),
        ("properties", "map<string,string>", "properties as properties"),
    ],
)
def test_types_become_those_of_the_sink(name: str, kind: str, wanted: str) -> None:
    assert conversions({name: kind}) == [wanted]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("tags", "array<string>", "give a text"),
        ("keys", "struct<a:int>", "or an array of texts"),
        ("sharding_key", "binary", "give a text"),
        ("delay_level", "string", "give a whole number"),
        ("deliver_at", "bigint", "such as timestamp_millis"),
    ],
)
def test_what_cannot_be_a_part_of_a_message_is_refused(name: str, kind: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name}='{kind}': .*{said}"):
        conversions({name: kind})
