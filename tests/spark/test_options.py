import pickle
from collections.abc import Mapping

import pytest

from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.spark.options import DEFAULT_GROUP, OPTIONS, Edge, ReadOptions, read_options

LEAST = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}


def options(**given: str) -> ReadOptions:
    return read_options(LEAST | given)


def test_what_holds_without_options() -> None:
    found = options()
    assert (found.namesrv, found.topics) == ("127.0.0.1:9876", ("orders",))
    assert (found.fail_on_data_loss, found.include_properties) == (True, False)
    assert (found.pull_group, found.group) == (DEFAULT_GROUP, None)
    assert found.batch_bounds() == (Edge.EARLIEST, Edge.LATEST)
    assert found.stream_start() is Edge.LATEST
    assert found.wanted_tags == frozenset()
    assert found.timeouts == Timeouts()


def test_every_option_is_read_whatever_the_case_of_its_name() -> None:
    given = {
        "NameSrv": "a:1; b:2",
        "SUBSCRIBE": "orders, returns,orders",
        "startingoffsets": '{"orders": {"broker-a": {"0": 23, "1": -2}}}',
        "endingOffsets": "Latest",
        "tags": "paid || refunded",
        "group": "billing",
        "minPartitions": "3",
        "maxoffsetspertrigger": "1000",
        "failOnDataLoss": "FALSE",
        "includeProperties": "true",
        "connectTimeout": "500ms",
        "requestTimeout": "2s",
        "pullTimeout": "1m",
    }
    assert {name.lower() for name in given} == {row.name.lower() for row in OPTIONS}
    assert read_options(given) == ReadOptions(
        namesrv="a:1;b:2",
        topics=("orders", "returns"),
        starting={MessageQueue("orders", "broker-a", 0): 23, MessageQueue("orders", "broker-a", 1): -2},
        ending=Edge.LATEST,
        tags="paid || refunded",
        group="billing",
        min_partitions=3,
        max_offsets_per_trigger=1000,
        fail_on_data_loss=False,
        include_properties=True,
        connect_timeout=0.5,
        request_timeout=2.0,
        pull_timeout=60.0,
    )


def test_the_value_travels_to_executors() -> None:
    found = options(startingOffsets='{"orders": {"b": {"0": 1}}}')
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "t"}, "namesrv=None: this option is needed"),
        ({"namesrv": "a:1"}, "subscribe=None: this option is needed"),
        ({"namesrv": "a:1", "subscribe": " , "}, "subscribe=' , ': give the name of a topic"),
        ({"namesrv": "localhost", "subscribe": "t"}, "namesrv='localhost': give host:port"),
        (LEAST | {"startingOffsets": "begin"}, "startingOffsets='begin': give earliest, latest, or JSON"),
        (LEAST | {"startingOffsets": '{"t": {"b": 5}}'}, "t.b is 5 where an object must be"),
        (LEAST | {"startingOffsets": '{"t": {"b": {"x": 5}}}'}, "key 'x' where the number of a queue must be"),
        (LEAST | {"startingOffsets": '{"t": {"b": {"0": -3}}}'}, "is -3: 0 and above, -1 latest, -2 earliest"),
        (LEAST | {"endingOffsets": '{"t": {"b": {"0": true}}}'}, "is True: 0 and above"),
        (LEAST | {"startingOffsets": "{}"}, "startingOffsets='{}': give earliest"),
        (LEAST | {"minPartitions": "0"}, "minPartitions='0': give a whole number above 0"),
        (LEAST | {"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many': give a whole number"),
        (LEAST | {"failOnDataLoss": "yes"}, "failOnDataLoss='yes': give true or false"),
        (LEAST | {"pullTimeout": "10"}, "pullTimeout='10': give a time with its unit, such as 500ms"),
        (LEAST | {"tags": "||"}, r"tags='\|\|': give tags like"),
        (LEAST | {"group": "my group"}, "group='my group': give up to 255 letters"),
        (LEAST | {"startingOffset": "latest"}, "startingOffset='latest': there is no such option; did you mean starti"),
        (LEAST | {"path": "x"}, "path='x': there is no such option; load"),
        (LEAST | {"zzz": "x"}, "zzz='x': there is no such option; there are connectTimeout, "),
    ],
)
def test_errors_name_the_option_the_value_and_the_way_out(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_options(given)


@pytest.mark.parametrize("bound", ["latest", '{"orders": {"b": {"0": 5, "1": -1}}}'])
def test_a_batch_query_cannot_begin_at_its_end(bound: str) -> None:
    with pytest.raises(ArgumentError, match=r"startingOffsets=.*latest \(-1\) is not possible here"):
        options(startingOffsets=bound).batch_bounds()


def test_a_batch_query_cannot_end_at_its_beginning() -> None:
    with pytest.raises(ArgumentError, match="endingOffsets='earliest'"):
        options(endingOffsets="earliest").batch_bounds()


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ArgumentError, match="endingOffsets='latest': a stream has no end"):
        options(endingOffsets="latest").stream_start()
