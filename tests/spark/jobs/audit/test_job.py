"""The audit of topics on both kinds of cluster: what was planted is found, and nothing else."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import evenq
from evenq.client.read.ranges import QueueRange
from evenq.errors import ArgumentError, TopicNotFound
from evenq.model import Message
from evenq.spark.jobs.audit.facts import PROPERTY_COLUMNS, message_facts, places
from evenq.spark.jobs.audit.findings import Audit, Kind, Order
from evenq.spark.jobs.audit.job import audit, follow
from evenq.spark.jobs.audit.rawfacts import write_facts
from evenq.spark.jobs.audit.store import Facts
from evenq.spark.jobs.progress import Stop
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, create_topic
from tests.spark.jobs.audit.planting import Seed, faults, plant, tidy
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def counts(found: Audit) -> dict[Kind, int]:
    totals: dict[Kind, int] = {}
    for finding in found.findings:
        totals[finding.kind] = totals.get(finding.kind, 0) + finding.count
    return totals


def test_planted_faults_are_found_and_nothing_else(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    seeds = faults(tidy())
    plant(any_cluster.namesrv, topic, seeds)

    found = audit(spark, [topic], str(tmp_path), namesrv=any_cluster.namesrv, trace=False)

    assert counts(found) == {Kind.GAP: 1, Kind.DUPLICATE: 3, Kind.LATE: 2, Kind.HOT_KEY: 1}
    (one,) = found.topics
    assert one.order is Order.KEYED
    assert one.messages == len(seeds) - 1
    twice = {seed.unique_key for number, seed in enumerate(seeds) if seed in seeds[:number]}
    broken = next(seed for seed in seeds if seed.broken)
    assert {copy.unique_key for copy in one.copies} == twice | {tidy()[320].unique_key}
    assert sorted(late.key for late in one.late) == ["customer-3", "customer-50"]
    assert [(key.key, key.messages) for key in one.keys if key.hot] == [("vip", 400)]
    (gap,) = one.gaps
    line = [seed for seed in seeds if seed.queue == broken.queue]
    assert (gap.first, gap.messages) == (line.index(broken), 1)
    tables = {path.stem: pq.read_table(path).num_rows for path in (tmp_path / "tables").glob("*.parquet")}
    assert (tables["gaps"], tables["duplicates"], tables["late"], tables["findings"]) == (1, 3, 2, 4)
    assert "1 message is missing, 3 are there twice, 2 are out of order and 1 key is hot" in report(tmp_path)


def test_clean_topics_have_no_findings(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, group: str, tmp_path: Path
) -> None:
    ordered, around = f"{topic}-ordered", f"{topic}-around"
    for name in (ordered, around):
        create_topic(any_cluster.namesrv, name, queues=2)
    seeds = tidy(sharded=True)
    plant(any_cluster.namesrv, ordered, seeds)
    # born before others of its key, and in its queue a second from now: that is what it was to do
    delayed = Seed(1, "customer-1", seeds[1].born, "LATER", properties={"DELAY": "1", "__SHARDINGKEY": "customer-1"})
    plant(any_cluster.namesrv, ordered, [delayed])
    with evenq.Producer(any_cluster.namesrv, group="audit-tests") as producer:
        # the same keys all over the place, many at once: no order is meant
        sends = [producer.send_async(Message(around, b"x", keys=[f"k{number % 50}"])) for number in range(800)]
        places = [send.result() for send in sends]
    with evenq.PushConsumer(any_cluster.namesrv, group, begin="first") as consumer:
        got: list[object] = []
        consumer.subscribe(around)
        consumer.start(got.extend)
        wait_until(lambda: len(got) >= len(places), "all messages consumed")

    found = wait_until_all(spark, any_cluster, [ordered, around], tmp_path, len(seeds) + 1 + len(places))

    assert found.findings == ()
    by_name = {one.topic: one for one in found.topics}
    assert by_name[ordered].order in (Order.KEYED, Order.SHARDED)
    assert by_name[around].order is Order.NONE
    (lag,) = [one for one in found.groups if one.group == group]
    assert lag.behind == 0
    assert len(lag.latest) == 4
    assert "All is well" in report(tmp_path)


def wait_until_all(spark: SparkSession, cluster: AnyCluster, topics: list[str], folder: Path, messages: int) -> Audit:
    """Audit again until the last message has come: each goes on where the one before ended."""
    found: list[Audit] = []

    def look() -> bool:
        found.append(audit(spark, topics, str(folder), namesrv=cluster.namesrv, trace=False))
        return found[-1].messages >= messages

    wait_until(look, f"{messages} messages", 300)
    return found[-1]


def report(folder: Path) -> str:
    return (folder / "report.html").read_text()


def test_both_ways_to_facts_give_the_same(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    plant(any_cluster.namesrv, topic, faults(tidy()))
    with evenq.Producer(any_cluster.namesrv) as producer:
        producer.send(Message(topic, b"no key at all"))
        producer.send(Message(topic, b"sharded", keys=["k"], sharding_key="s"))
    given = {
        "namesrv": any_cluster.namesrv,
        "subscribe": topic,
        "failOnDataLoss": "false",
        "propertyColumns": ",".join(PROPERTY_COLUMNS),
    }
    by_rows = message_facts(spark.read.format("rocketmq").options(**given).load())
    options = read_options(given)
    with Lookup(options) as lookup:
        ends = lookup.latest(lookup.queues())
    ranges = [QueueRange(queue, 0, end) for queue, end in ends.items()]
    write_facts(spark, options, ranges, places(spark, ends), tmp_path / "facts")
    by_workers = spark.read.parquet(str(tmp_path / "facts"))
    assert by_workers.dtypes == by_rows.dtypes
    assert by_rows.count() > 1000
    assert by_rows.exceptAll(by_workers).count() == by_workers.exceptAll(by_rows).count() == 0


def test_an_audit_that_was_cut_off_goes_on(
    spark: SparkSession,
    embedded_cluster: AnyCluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    plant(namesrv, topic, faults(tidy()))
    taken: list[str] = []
    real = Facts._done

    def failing(self: Facts, name: str, ranges: Any) -> None:
        if name == "2" and len(taken) == 2:
            # the facts are written, and then the power goes
            raise OSError("the disk is gone")
        taken.append(name)
        real(self, name, ranges)

    monkeypatch.setattr(Facts, "_done", failing)

    def look() -> Audit:
        return audit(
            spark, [topic], str(tmp_path), namesrv=namesrv, trace=False, options={"maxOffsetsPerTrigger": "300"}
        )

    with pytest.raises(Exception, match="the disk is gone"):
        look()
    assert not (tmp_path / "report.html").exists()
    taken.append("again")
    found = look()
    assert counts(found) == {Kind.GAP: 1, Kind.DUPLICATE: 3, Kind.LATE: 2, Kind.HOT_KEY: 1}
    # what was done before the failure was not done again
    assert taken == ["0", "1", "again", "2", "3", "4"]

    # many small batches become one, and nothing is counted twice, also if the small ones are still there
    facts = Facts(spark, _folder(spark, tmp_path), "topics")
    single = (tmp_path / "state/topics/ranges/0.json").read_bytes()
    assert facts.put_together(many=2)
    (tmp_path / "state/topics/ranges/0.json").write_bytes(single)
    assert facts.batches() == ["0-4"]
    plant(namesrv, topic, [Seed(0, "customer-0", found.at, "AGAIN")])
    more = look()
    assert more.messages == found.messages + 1
    assert counts(more) == counts(found)
    assert facts.batches() == ["0-4", "5"]


def _folder(spark: SparkSession, path: Path) -> Any:
    from evenq.spark.jobs.folder import Folder

    return Folder(spark, str(path))


def test_a_folder_is_for_the_topics_it_began_with(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(TopicNotFound):
        audit(spark, [topic], str(tmp_path), namesrv=embedded_cluster.namesrv)
    with pytest.raises(ArgumentError, match=f"it holds an audit of {topic}: give another folder"):
        audit(spark, [f"{topic}-2"], str(tmp_path), namesrv=embedded_cluster.namesrv)
    with pytest.raises(ArgumentError, match="give at least one topic"):
        audit(spark, [], str(tmp_path / "other"), namesrv=embedded_cluster.namesrv)


def test_a_report_is_kept_current(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    plant(namesrv, topic, tidy())
    heard: list[Audit] = []
    stop = Stop()

    def run() -> None:
        follow(spark, [topic], str(tmp_path), namesrv=namesrv, trace=False, every=0.2, stop=stop, heard=heard.append)

    following = threading.Thread(target=run)
    following.start()
    try:
        wait_until(lambda: heard and heard[-1].messages == len(tidy()), "the first report", 300)
        assert heard[-1].clean
        copy = tidy()[5]
        plant(namesrv, topic, [copy])
        wait_until(lambda: heard[-1].messages == len(tidy()) + 1, "a report with one more", 300)
    finally:
        stop.ask()
        following.join(180)
    assert counts(heard[-1]) == {Kind.DUPLICATE: 1}
    assert "1 is there twice" in report(tmp_path)
    assert not following.is_alive()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], embedded_cluster: AnyCluster, monkeypatch: pytest.MonkeyPatch) -> Evenq:
    monkeypatch.setenv("EVENQ_NAMESRV", embedded_cluster.namesrv)
    return Evenq(capsys)


def test_the_command_tells_by_its_exit_code(
    spark: SparkSession, command: Evenq, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=2)
    plant(embedded_cluster.namesrv, topic, tidy())
    out = str(tmp_path / "clean")
    code, said, _ = command.run("audit", topic, "--out", out, "--no-trace")
    assert (code, said.splitlines()) == (
        0,
        ["All is well: 960 messages, none missing, none twice, the load is even.", f"report: {out}/report.html"],
    )
    plant(embedded_cluster.namesrv, topic, [tidy()[7]])
    code, said, _ = command.run("audit", topic, "--out", out, "--no-trace", "--json")
    found = json.loads(said)
    assert (code, found["clean"], found["messages"]) == (1, False, 961)
    assert [(finding["kind"], finding["count"]) for finding in found["findings"]] == [("duplicate", 1)]
    assert json.loads((tmp_path / "clean/audit.json").read_text()) == found
    assert "topic" in command.error("audit", f"{topic}-none", "--out", str(tmp_path / "none"))
    assert "--every=-1.0: give seconds" in command.error("audit", topic, "--out", out, "--every", "-1")
