"""Members in processes of their own: they note what they are done with, leave properly, and can be killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import evenq
from evenq.cli.demo.crowd import Crowd, read_notes
from evenq.cli.demo.verdict import Consumed, Place
from evenq.cli.demo.watching import Watcher
from evenq.testing import cluster
from tests.clusters import create_topic
from tests.waiting import wait_until


def test_notes_are_read_line_by_line_and_only_whole_ones(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "c1.txt") == []
    (tmp_path / "c1.txt").write_text("o-1 broker-a 0 7\no-2 broker-b 3 1")
    assert read_notes(tmp_path / "c1.txt") == [Consumed("c1", "o-1", Place("broker-a", 0, 7))]


@pytest.mark.live
def test_members_share_hand_over_and_die(topic: str, group: str, tmp_path: Path) -> None:
    with cluster(brokers=2) as brokers, Crowd(brokers.namesrv, group, topic, "AVG", tmp_path) as crowd:
        create_topic(brokers.namesrv, topic, queues=2)
        watcher = Watcher(brokers, group, topic)

        def held() -> dict[str, int]:
            watcher.look(set(crowd.names))
            return {name: len(watcher.last.held_by(name)) for name in crowd.names}

        for name in ("c1", "c2"):
            crowd.join(name)
        wait_until(lambda: held() == {"c1": 2, "c2": 2}, lambda: f"two queues each: {held()}")
        with evenq.Producer(brokers.namesrv) as producer:
            for number in range(40):
                producer.send(evenq.Message(topic, b"x", keys=[f"o-{number}"]))
        wait_until(lambda: len(crowd.consumed()) == 40, lambda: f"40 messages: {crowd.counts()}")
        assert {one.key for one in crowd.consumed()} == {f"o-{number}" for number in range(40)}
        assert sum(crowd.counts().values()) == 40
        assert {one.who for one in crowd.consumed()} == {"c1", "c2"}

        process = crowd.kill("c2", {})
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        wait_until(lambda: held() == {"c1": 4, "c2": 0}, lambda: f"all with c1: {held()}")
        assert watcher.moves >= 2
        assert watcher.last.members == ("c1",)
        wait_until(lambda: held() and watcher.last.behind == 0, "everything committed")
        crowd.join("c3")
        wait_until(lambda: held()["c3"] == 2, "a share for c3")
        crowd.leave("c1")
        wait_until(lambda: held()["c3"] == 4, "all with c3")
        assert (crowd.running, crowd.killed, crowd.left) == (["c3"], {"c2": {}}, ["c1"])
        survivor = crowd._running["c3"]
    assert survivor.poll() is not None, "no process stays behind"
