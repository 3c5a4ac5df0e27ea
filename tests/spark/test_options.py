import pickle
from collections.abc import Mapping

import pytest

from evenq.client.net.acl import Credentials
from evenq.client.net.tls import Tls
from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.spark.bounds import AtTime, Bound, Place
from evenq.spark.connecting import Connecting
from evenq.spark.options import DEFAULT_GROUP, OPTIONS, ReadOptions, read_options

LEAST = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}
A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def options(given: Mapping[str, str] | None = None, **more: str) -> ReadOptions:
    return read_options(LEAST | dict(given or {}) | more)


def test_what_holds_without_options() -> None:
    found = options()
    assert found.connecting == Connecting(namesrv="127.0.0.1:9876", timeouts=Timeouts(), patience=120.0)
    assert (found.topics, found.pattern, found.assigned) == (("orders",), None, None)
    assert (found.fail_on_data_loss, found.include_properties, found.deduplicate) == (True, False, False)
    assert (found.pull_group, found.group, found.join) == (DEFAULT_GROUP, None, False)
    assert found.batch_bounds() == (Bound("startingOffsets", Place.EARLIEST), Bound("endingOffsets", Place.LATEST))
    assert found.stream_start() == Bound("startingOffsets", Place.LATEST)
    assert (found.expression, found.wanted_tags) == (("*", "TAG"), frozenset())
    assert found.max_trigger_delay == 900.0


# what a user may write, the field, and what it becomes; those of a connection are below
READ = [
    ({"SUBSCRIBE": "orders, returns,orders"}, "topics", ("orders", "returns")),
    ({"subscribePattern": "or.*s"}, "pattern", "or.*s"),
    ({"assign": '{"orders": {"broker-a": [1, 0]}}'}, "assigned", (A0, A1)),
    (
        {"startingoffsets": '{"orders": {"broker-a": {"0": 23, "1": -2}}}'},
        "starting",
        Bound("startingOffsets", {A0: 23, A1: -2}),
    ),
    ({"startingOffsets": "Group", "group": "g"}, "starting", Bound("startingOffsets", Place.GROUP)),
    ({"startingTimestamp": "1700000000000"}, "starting", Bound("startingTimestamp", AtTime(1_700_000_000_000, None))),
    (
        {"startingTimestamp": "2023-11-14T22:13:20Z", "startingOffsetsByTimestampStrategy": "LATEST"},
        "starting",
        Bound("startingTimestamp", AtTime(1_700_000_000_000, Place.LATEST)),
    ),
    (
        {"startingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 9}}}'},
        "starting",
        Bound("startingOffsetsByTimestamp", AtTime({A0: 9}, None)),
    ),
    ({"endingOffsets": "Latest"}, "ending", Bound("endingOffsets", Place.LATEST)),
    ({"endingTimestamp": "5"}, "ending", Bound("endingTimestamp", AtTime(5, Place.LATEST))),
    (
        {"endingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 9}}}'},
        "ending",
        Bound("endingOffsetsByTimestamp", AtTime({A0: 9}, Place.LATEST)),
    ),
    ({"tags": "paid || refunded"}, "wanted_tags", {"paid", "refunded"}),
    ({"sql": "total > 10"}, "expression", ("total > 10", "SQL92")),
    ({"group": "billing"}, "pull_group", "billing"),
    ({"group": "billing", "group.join": "true"}, "join", True),
    ({"group": "billing", "group.join": "true", "strategy": "STICKY"}, "strategy", "STICKY"),
    ({"minPartitions": "3"}, "min_partitions", 3),
    ({"maxRecordsPerPartition": "7"}, "max_records_per_partition", 7),
    ({"maxoffsetspertrigger": "1000"}, "max_offsets_per_trigger", 1000),
    ({"minOffsetsPerTrigger": "10"}, "min_offsets_per_trigger", 10),
    ({"minOffsetsPerTrigger": "10", "maxTriggerDelay": "2m"}, "max_trigger_delay", 120.0),
    ({"failOnDataLoss": "FALSE"}, "fail_on_data_loss", False),
    ({"deduplicate": "true"}, "deduplicate", True),
    ({"includeProperties": "true"}, "include_properties", True),
    ({"propertyColumns": "__SHARDINGKEY, colour"}, "property_columns", ("__SHARDINGKEY", "colour")),
]

CONNECTED = {
    "NameSrv": "a:1; b:2",
    "accessKey": "me",
    "secretKey": "12345678",
    "securityToken": "t",
    "tls": "true",
    "tlsCa": "ca.pem",
    "tlsCert": "me.pem",
    "tlsKey": "me.key",
    "tlsHostname": "false",
    "tlsVerify": "false",
    "connectTimeout": "500ms",
    "requestTimeout": "2s",
    "pullTimeout": "1m",
    "brokerTimeout": "10s",
}


@pytest.mark.parametrize(("given", "field", "value"), READ)
def test_what_an_option_becomes(given: dict[str, str], field: str, value: object) -> None:
    what = {} if {name.lower() for name in given} & {"subscribe", "subscribepattern", "assign"} else LEAST
    assert getattr(read_options({"namesrv": "127.0.0.1:9876"} | what | given), field) == value


def test_how_to_connect() -> None:
    assert read_options(CONNECTED | {"subscribe": "t"}).connecting == Connecting(
        namesrv="a:1;b:2",
        credentials=Credentials("me", "12345678", "t"),
        tls=Tls("ca.pem", "me.pem", "me.key", hostname=False, verify=False),
        timeouts=Timeouts(connect=0.5, request=2.0, pull=60.0),
        patience=10.0,
    )


def test_every_option_was_tried() -> None:
    tried = {name.lower() for given, _, _ in READ for name in given} | {name.lower() for name in CONNECTED}
    assert tried == {row.name.lower() for row in OPTIONS}


def test_the_value_travels_to_executors_and_shows_no_secret() -> None:
    found = options(CONNECTED, startingOffsets='{"orders": {"b": {"0": 1}}}')
    assert pickle.loads(pickle.dumps(found)) == found
    assert "12345678" not in repr(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "t"}, "namesrv=None: this option is needed"),
        ({"namesrv": "a:1"}, "subscribe=None: say what to read: give one of subscribe, subscribePattern, assign"),
        ({"namesrv": "a:1", "subscribe": " , "}, "subscribe=' , ': give a name, or several with commas"),
        ({"namesrv": "a:1", "subscribe": "or ders"}, "subscribe='or ders': topic 'or ders' has characters other"),
        (LEAST | {"subscribePattern": "x"}, "subscribePattern='x': say in one way what to read, not subscribe and su"),
        ({"namesrv": "a:1", "subscribePattern": "(x"}, r"subscribePattern='\(x': .* give a regular expression"),
        ({"namesrv": "a:1", "assign": '{"t": {"b": 1}}'}, "assign=.*t.b is 1 where a list of queue numbers must be"),
        ({"namesrv": "a:1", "assign": "{}"}, "assign='{}': give JSON such as"),
        ({"namesrv": "localhost", "subscribe": "t"}, "namesrv='localhost': give host:port"),
        (LEAST | {"startingOffsets": "begin"}, "startingOffsets='begin': give earliest, latest, group, or JSON"),
        (LEAST | {"startingOffsets": '{"t": {"b": 5}}'}, "t.b is 5 where an object must be"),
        (LEAST | {"startingOffsets": '{"t": {"b": {"x": 5}}}'}, "key 'x' where the number of a queue must be"),
        (LEAST | {"startingOffsets": '{"t": {"b": {"0": -3}}}'}, "is -3: 0 and above, -1 latest, -2 earliest"),
        (LEAST | {"endingOffsets": '{"t": {"b": {"0": true}}}'}, "is True: 0 and above"),
        (LEAST | {"startingOffsets": "{}"}, "startingOffsets='{}': give earliest"),
        (LEAST | {"startingOffsets": "group"}, "group=None: group as a bound needs the option group"),
        (LEAST | {"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday': give milliseconds since 1970"),
        (LEAST | {"startingTimestamp": "2024-05-01"}, "startingTimestamp='2024-05-01': give milliseconds"),
        (
            LEAST | {"startingTimestamp": "1", "startingOffsets": "latest"},
            "startingTimestamp='1': say in one way where to begin, not startingOffsets and startingTimestamp",
        ),
        (LEAST | {"endingOffsetsByTimestamp": '{"t": {"b": {"0": -1}}}'}, "is -1: milliseconds since 1970"),
        (LEAST | {"startingOffsetsByTimestampStrategy": "latest"}, "this counts with startingTimestamp or starting"),
        (LEAST | {"maxTriggerDelay": "1s"}, "maxTriggerDelay='1s': this counts with minOffsetsPerTrigger only"),
        (
            LEAST | {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger=5: give at most maxOffsetsPerTrigger, which is 4",
        ),
        (LEAST | {"minPartitions": "0"}, "minPartitions='0': give a whole number above 0"),
        (LEAST | {"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many': give a whole number"),
        (LEAST | {"failOnDataLoss": "yes"}, "failOnDataLoss='yes': give true or false"),
        (LEAST | {"pullTimeout": "10"}, "pullTimeout='10': give a time with its unit, such as 500ms"),
        (LEAST | {"tags": "||"}, r"tags='\|\|': give tags like"),
        (LEAST | {"tags": "a", "sql": "b > 1"}, "sql='b > 1': brokers filter by one of them, not tags and sql"),
        (LEAST | {"sql": " "}, "sql=' ': give a condition"),
        (LEAST | {"group": "my group"}, "group='my group': group 'my group' has characters"),
        (LEAST | {"group.join": "true"}, "group.join='true': this counts with group only: give that too"),
        (LEAST | {"group": "g", "group.join": "true", "strategy": "AVGE"}, "strategy='AVGE': .*AVG"),
        (LEAST | {"accessKey": "me"}, "secretKey=None: accessKey and secretKey belong together"),
        (LEAST | {"tlsCa": "x"}, "tlsCa='x': this counts with tls=true only"),
        (LEAST | {"startingOffset": "latest"}, "startingOffset='latest': there is no such option; did you mean starti"),
        (LEAST | {"propertyColumns": "Offset"}, "propertyColumns='Offset': there is another column Offset: use inclu"),
        (LEAST | {"path": "x"}, "path='x': there is no such option; load"),
        (LEAST | {"zzz": "x"}, "zzz='x': there is no such option; there are accessKey, "),
    ],
)
def test_errors_name_the_option_the_value_and_the_way_out(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_options(given)


def test_an_error_about_a_secret_does_not_show_it() -> None:
    with pytest.raises(ArgumentError, match=r"secretKey='\*\*\*'"):
        options(accessKey="me", secretKey=" ")


@pytest.mark.parametrize("bound", ["latest", '{"orders": {"b": {"0": 5, "1": -1}}}'])
def test_a_batch_query_cannot_begin_at_its_end(bound: str) -> None:
    with pytest.raises(ArgumentError, match=r"startingOffsets=.*latest is not possible here"):
        options(startingOffsets=bound).batch_bounds()


def test_a_batch_query_cannot_end_at_its_beginning() -> None:
    with pytest.raises(ArgumentError, match="endingOffsets='earliest'"):
        options(endingOffsets="earliest").batch_bounds()


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ArgumentError, match="endingTimestamp=5: a stream has no end"):
        options(endingTimestamp="5").stream_start()


def test_a_member_reads_where_its_group_is() -> None:
    joined = {"group": "g", "group.join": "true"}
    with pytest.raises(ArgumentError, match=r"group\.join=True: only a stream"):
        options(joined).batch_bounds()
    with pytest.raises(ArgumentError, match=r"startingOffsets=.*the group's offsets count"):
        options(joined, startingOffsets='{"orders": {"b": {"0": 5}}}').stream_start()
