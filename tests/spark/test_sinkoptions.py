from collections.abc import Mapping

import pytest

from evenq.errors import ArgumentError
from evenq.spark.sinkoptions import COLUMNS, WRITE_OPTIONS, WriteOptions, check_columns, write_options
from tests.spark.test_options import CONNECTED

LEAST = {"namesrv": "127.0.0.1:9876"}


def test_every_option_is_read() -> None:
    given = {name: text for name, text in CONNECTED.items() if name != "pullTimeout"} | {
        "topic": "orders",
        "group": "shop",
        "selector": "MACHINE_ROOM",
        "rooms": "hz, sh",
        "batchBytes": "1000",
        "maxMessageSize": "2000",
        "sendTimeout": "5s",
        "rowsPerSecond": "100",
        "writerId": "nightly",
        "epoch": "7",
    }
    assert {name.lower() for name in given} == {row.name.lower() for row in WRITE_OPTIONS}
    found = write_options(given | {"checkpointLocation": "Spark's own"})
    assert found.connecting.timeouts.send == 5.0
    assert found == WriteOptions(
        connecting=found.connecting,
        topic="orders",
        group="shop",
        selector="machine_room",
        rooms=("hz", "sh"),
        batch_bytes=1000,
        max_message_size=2000,
        rows_per_second=100,
        writer="nightly",
        epoch=7,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t"}, "namesrv=None: this option is needed"),
        (LEAST | {"selector": "hashed"}, "selector='hashed': give round_robin or hash or random or machine_room"),
        (LEAST | {"selector": "machine_room"}, "rooms=None: selector=machine_room and the rooms belong together"),
        (LEAST | {"rooms": "hz"}, "rooms=.*belong together"),
        (LEAST | {"topics": "t"}, "topics='t': there is no such option; did you mean topic"),
        (LEAST | {"path": "t"}, "save.. takes no path"),
    ],
)
def test_errors_name_the_option_the_value_and_the_way_out(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        write_options(given)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": "binary", "key": "string"}, "column='key': there is no such column to write; there are value, "),
        ({"value": "int"}, "column value='int': make it binary or string"),
        ({"keys": "string"}, "columns='keys': one must be called value"),
        ({"value": "binary"}, "topic=None: say where to write"),
        ({"value": "binary", "topic": "string", "broker": "string"}, "column='broker': it counts with a column queue"),
    ],
)
def test_errors_name_the_column(columns: Mapping[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        check_columns(columns, write_options(LEAST))


def test_all_columns_may_be_there() -> None:
    check_columns({name: types[-1] for name, types in COLUMNS.items()}, write_options(LEAST))


def test_a_write_that_may_be_run_again_has_a_name_and_an_epoch() -> None:
    named = write_options(LEAST | {"writerId": "nightly1", "epoch": "0"})
    assert (named.writer, named.epoch) == ("nightly1", 0)
    for wrong, said in (
        ({"writerId": "nightly"}, "writerId and epoch belong together"),
        ({"epoch": "1"}, "writerId and epoch belong together"),
        ({"writerId": "a.b", "epoch": "1"}, "at most 16 letters and digits"),
        ({"writerId": "a", "epoch": "-1"}, "give a whole number, 0 or above"),
    ):
        with pytest.raises(ArgumentError, match=said):
            write_options(LEAST | wrong)
