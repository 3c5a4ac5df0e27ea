"""A topic to another one: whole, in order, again after a failure, with its groups."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import evenq
from evenq.errors import ArgumentError
from evenq.model import Message, MessageQueue
from evenq.protocol.codes import RequestCode
from evenq.protocol.view import MessageView
from evenq.spark.jobs.groups import waiting
from evenq.spark.jobs.mirror import Mirrored, Side, mirror, translate
from evenq.spark.jobs.mirroring import BORN, SOURCE
from evenq.spark.jobs.progress import Stop
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.clusters import AnyCluster, create_topic
from tests.spark.jobs.test_publish import read, stored
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[evenq.testing.EmbeddedCluster]:
    """The other cluster, with one broker."""
    with evenq.testing.cluster(brokers=1) as cluster:
        yield cluster


def fill(namesrv: str, topic: str, first: int, many: int, queues: int = 2) -> None:
    """Numbered messages, of seven keys in turn; a key has its queue."""
    create_topic(namesrv, topic, queues=queues)
    with evenq.Producer(namesrv, group="mirror-tests") as producer:
        places = sorted(MessageQueue(topic, part, n) for part in _brokers(namesrv, topic) for n in range(queues))
        for number in range(first, first + many):
            body = b"%d" % number if number % 100 else b"%d " % number + b"x" * 6000
            producer.send(
                Message(topic, body, keys=[f"k{number % 7}", f"n{number}"], tags=f"t{number % 3}",
                        sharding_key=f"k{number % 7}", properties={"shop": "Köln", "number": str(number)}),
                queue=places[number % 7 % len(places)],
            )  # fmt: skip
    wait_until(lambda: stored(namesrv, topic) >= first + many, "all messages in their queues")


def _brokers(namesrv: str, topic: str) -> list[str]:
    with evenq.Admin(namesrv) as admin:
        return [part.broker for part in admin.route(topic)]


def numbers(rows: list[Any]) -> Counter[int]:
    return Counter(int(bytes(row.value).split()[0]) for row in rows)


def run(spark: SparkSession, source: Side, target: Side, folder: Path, **given: Any) -> Mirrored:
    done = mirror(spark, source, target, checkpoint=str(folder), once=True, **given)
    assert done.finished
    return done


def test_a_copy_has_all_that_the_message_had(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    namesrv, copy = any_cluster.namesrv, f"{topic}-copy"
    fill(namesrv, topic, 0, 300)
    done = run(spark, Side(namesrv, topic), Side(namesrv, copy), tmp_path, ordered=True)
    assert (done.messages, done.groups) == (300, ())

    here = read(spark, namesrv, topic, 300, includeProperties="true")
    there = read(spark, namesrv, copy, 300, includeProperties="true")
    assert len(there) == 300
    originals = {row.unique_key: row for row in here}
    for row in there:
        original = originals.pop(row.unique_key)
        assert (row.value, row.keys, row.tags) == (original.value, original.keys, original.tags)
        own = {"shop", "number", "KEYS", "TAGS", "UNIQ_KEY", "__SHARDINGKEY"}
        assert {n: row.properties[n] for n in own} == {n: original.properties[n] for n in own}
        assert set(row.properties) - set(original.properties) <= {SOURCE, BORN, "EVENQ_ROW"}
        assert row.properties[SOURCE] == f"{topic}:{original.broker}:{original.queue_id}:{original.offset}"
        assert int(row.properties[BORN]) == round(original.born_timestamp.timestamp() * 1000)
        assert (row.broker, row.queue_id, row.offset) == (original.broker, original.queue_id, original.offset)
    assert not originals


def test_a_mirror_that_was_cut_off_goes_on_and_is_read_once(
    spark: SparkSession, any_cluster: AnyCluster, elsewhere: evenq.testing.EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    source = Side(any_cluster.namesrv, topic, {"maxOffsetsPerTrigger": "40"})
    target = Side(elsewhere.namesrv, topic)
    fill(source.namesrv, topic, 0, 150)
    create_topic(target.namesrv, topic, queues=3)
    assert run(spark, source, target, tmp_path).messages == 150
    # as if the driver had died before it wrote down that the last batch was done
    last = max((path for path in (tmp_path / "commits").glob("[0-9]*")), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
    fill(source.namesrv, topic, 150, 30)
    again = run(spark, source, target, tmp_path)
    assert 30 < again.messages < 180
    with pytest.raises(ArgumentError, match=f"another job was begun there, with target '{topic} at"):
        run(spark, source, Side(any_cluster.namesrv, f"{topic}-b"), tmp_path)
    there = read(spark, target.namesrv, topic, 150 + again.messages)
    assert len(there) == 150 + again.messages
    assert set(numbers(there)) == set(range(180)), "no gap"
    once = read(spark, target.namesrv, topic, 180, deduplicate="true")
    assert numbers(once) == Counter(range(180))


@pytest.mark.parametrize("selector", ["same", "round_robin"])
def test_a_batch_that_fails_half_way_is_sent_again_and_read_once(
    spark: SparkSession,
    embedded_cluster: AnyCluster,
    elsewhere: evenq.testing.EmbeddedCluster,
    topic: str,
    tmp_path: Path,
    selector: str,
) -> None:
    """The other broker stores some of what a micro-batch sends, and then no more; then it is well again."""
    source = Side(embedded_cluster.namesrv, topic, {"maxOffsetsPerTrigger": "100"})
    target = Side(elsewhere.namesrv, topic, {"brokerTimeout": "50ms", "batchBytes": "1000"})
    fill(source.namesrv, topic, 0, 250)
    create_topic(target.namesrv, topic, queues=3)
    (broker,) = elsewhere.brokers.values()
    requests = count()
    broker.faults.add(RequestCode.SEND_BATCH_MESSAGE, when=lambda request: next(requests) >= 25)
    try:
        with pytest.raises(Exception, match="a fault on purpose"):
            run(spark, source, target, tmp_path, selector=selector)
    finally:
        broker.faults.clear()
    half = stored(target.namesrv, topic)
    assert 0 < half < 250
    run(spark, source, target, tmp_path, selector=selector)
    there = read(spark, target.namesrv, topic, 251)
    assert set(numbers(there)) == set(range(250)), "no gap"
    assert numbers(read(spark, target.namesrv, topic, 251, deduplicate="true")) == Counter(range(250))


@pytest.mark.parametrize("selector", ["same", "hash"])
def test_the_order_of_a_key_is_kept(
    spark: SparkSession,
    embedded_cluster: AnyCluster,
    elsewhere: evenq.testing.EmbeddedCluster,
    topic: str,
    tmp_path: Path,
    selector: str,
) -> None:
    source, target = (
        Side(embedded_cluster.namesrv, topic, {"maxOffsetsPerTrigger": "100"}),
        Side(elsewhere.namesrv, topic),
    )
    fill(source.namesrv, topic, 0, 350)
    create_topic(target.namesrv, topic, queues=3)
    run(spark, source, target, tmp_path, selector=selector, ordered=True)
    by_key: dict[str, list[int]] = defaultdict(list)
    places: dict[str, set[int]] = defaultdict(set)
    for row in read(spark, target.namesrv, topic, 350):
        number = int(bytes(row.value).split()[0])
        by_key[row.keys.split()[0]].append(number)
        places[row.keys.split()[0]].add(row.queue_id)
    assert by_key == {f"k{n}": list(range(n, 350, 7)) for n in range(7)}
    assert {len(queues) for queues in places.values()} == {1}


def test_groups_find_themselves_where_they_were(
    spark: SparkSession,
    any_cluster: AnyCluster,
    elsewhere: evenq.testing.EmbeddedCluster,
    topic: str,
    group: str,
    tmp_path: Path,
) -> None:
    """Eight queues go into three: the group gets all that it has not consumed, and little of the rest."""
    source, target = Side(any_cluster.namesrv, topic), Side(elsewhere.namesrv, topic)
    fill(source.namesrv, topic, 0, 210, queues=4)
    create_topic(target.namesrv, topic, queues=3)
    consumed: set[int] = set()
    with evenq.LitePullConsumer(source.namesrv, group=group, begin="first") as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            consumed.add(int(message.body.split()[0]))
            if len(consumed) == 90:
                break
    # the one that the loop was left with is not done: it will come again
    with Lookup(read_options(source.reading)) as lookup:
        before = lookup.stored(group, lookup.queues())
    done_there = sum(before.values())
    assert 0 < done_there <= 90

    done = run(spark, source, target, tmp_path, groups=[group, f"{group}-nobody"])
    (position,) = done.groups
    assert (position.group, position.waiting) == (group, 0)
    assert 210 - done_there <= position.ahead <= 210

    left: set[int] = set()
    with evenq.LitePullConsumer(target.namesrv, group=group, begin="last") as consumer:
        consumer.subscribe(topic)
        while len(left) < position.ahead:
            came = consumer.poll(timeout=30.0)
            assert came, f"{len(left)} of {position.ahead} came"
            left |= {int(message.body.split()[0]) for message in came}
        left |= {int(message.body.split()[0]) for message in consumer.poll(timeout=1.0)}
    assert consumed | left == set(range(210)), "nothing is skipped"
    assert len(left) == position.ahead

    # the group goes on in the source, and along in the target; and never back
    with Lookup(read_options(source.reading)) as lookup:
        queues = lookup.queues()
        lookup.commit(group, lookup.latest(queues))
    (later,) = translate(spark, source, target, [group])
    assert later.ahead == 0


def test_what_waits_for_another_try_is_counted(embedded_cluster: AnyCluster, topic: str, group: str) -> None:
    namesrv = embedded_cluster.namesrv
    options = read_options({"namesrv": namesrv, "subscribe": topic})
    assert waiting(options, group) == 0
    fill(namesrv, topic, 0, 3)
    failed: list[str] = []

    def handler(messages: Sequence[MessageView]) -> evenq.Retry:
        failed.extend(message.msg_id for message in messages)
        if len(failed) >= 3:
            consumer.stop()
        return evenq.Retry(1)

    with evenq.PushConsumer(namesrv, group=group, begin="first") as consumer:
        consumer.subscribe(topic)
        consumer.run(handler)
    wait_until(lambda: waiting(options, group) >= 3, "all that failed in the topic of retries")


def test_a_stream_follows_until_it_is_stopped_and_goes_on_from_there(
    spark: SparkSession,
    embedded_cluster: AnyCluster,
    elsewhere: evenq.testing.EmbeddedCluster,
    topic: str,
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evenq.spark.jobs.mirror.GROUPS_EVERY", 0.5)
    source, target = Side(embedded_cluster.namesrv, topic), Side(elsewhere.namesrv, topic)
    fill(source.namesrv, topic, 0, 20)
    create_topic(target.namesrv, topic, queues=2)
    with Lookup(read_options(source.reading)) as lookup:
        lookup.commit(group, lookup.latest(lookup.queues()))
    there = read_options(target.reading)

    def arrived() -> Counter[int]:
        return numbers(read(spark, target.namesrv, topic, 0, deduplicate="true"))

    def follow(first: int, many: int) -> Mirrored:
        stop = Stop()
        results: list[Mirrored] = []

        def body() -> None:
            results.append(
                mirror(spark, source, target, checkpoint=str(tmp_path), selector="hash", groups=[group], stop=stop)
            )

        thread = threading.Thread(target=body)
        thread.start()
        try:
            fill(source.namesrv, topic, first, many)
            wait_until(lambda: len(arrived()) == first + many, lambda: f"all that came: {sorted(arrived())}", 60)
            with Lookup(there) as lookup:
                wait_until(lambda: lookup.stored(group, lookup.queues()), "the group over there", 60)
        finally:
            stop.ask()
            thread.join()
        return results[0]

    assert not follow(20, 10).finished
    assert arrived() == Counter(range(30))
    # a stop may cut off the last batch, whose messages are sent again then
    assert not follow(30, 10).finished
    assert arrived() == Counter(range(40))


def test_mirrors_both_ways_do_not_go_round(
    spark: SparkSession,
    embedded_cluster: AnyCluster,
    elsewhere: evenq.testing.EmbeddedCluster,
    topic: str,
    tmp_path: Path,
) -> None:
    a, b = Side(embedded_cluster.namesrv, topic), Side(elsewhere.namesrv, topic)
    fill(a.namesrv, topic, 0, 10)
    fill(b.namesrv, topic, 0, 3)
    for _ in range(2):
        for source, target, folder in ((a, b, "a"), (b, a, "b")):
            run(spark, source, target, tmp_path / folder, selector="round_robin", born_here=True)
    for side in (a, b):
        assert sum(numbers(read(spark, side.namesrv, topic, 13)).values()) == 13


def test_what_makes_no_mirror_is_refused(spark: SparkSession, embedded_cluster: AnyCluster, tmp_path: Path) -> None:
    create_topic(embedded_cluster.namesrv, "t")
    here = Side(embedded_cluster.namesrv, "t")

    def error(source: Side, target: Side, **given: Any) -> str:
        with pytest.raises(ArgumentError) as caught:
            mirror(spark, source, target, checkpoint=str(tmp_path), **given)
        return str(caught.value)

    other = Side(embedded_cluster.namesrv, "u")
    assert "that is the source itself" in error(here, here)
    assert "give same or hash" in error(here, other, selector="random", ordered=True)
    assert "sees to that by itself" in error(here, Side(here.namesrv, "u", {"Topic": "v"}))
    divided = Side(here.namesrv, "t", {"minPartitions": "8"})
    assert "several tasks, which keep no order" in error(divided, other, ordered=True)
    assert "did you mean tags?" in error(Side(here.namesrv, "t", {"tag": "a"}), other)
    assert "plain word" in error(here, other, name="a:b")
    (tmp_path / "offsets").mkdir()
    assert "there are other things in it" in error(here, other), "a checkpoint of somebody else"
