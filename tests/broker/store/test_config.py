import json
from pathlib import Path

import pytest

from evenq.broker.store.config import ConfigFiles
from evenq.errors import StateError
from evenq.protocol.bodies import DataVersion, GroupConfig, GroupConfigTable, TopicConfig, TopicConfigTable

# in fastjson's form: numbers as keys stand without quotes
JAVA_OFFSETS = """{
\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1763231000000},
\t"offsetTable":{
\t\t"orders@billing":{0:7,1:12},
\t\t"%RETRY%billing@billing":{0:0}
\t}
}"""


def test_topics_are_saved_under_javas_names(tmp_path: Path) -> None:
    files = ConfigFiles(tmp_path)
    table = TopicConfigTable(
        topic_config_table={"orders": TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=8)},
        data_version=DataVersion(counter=2, timestamp=5),
    )
    files.save_topics(table)
    assert files.load_topics() == table
    saved = json.loads((tmp_path / "topics.json").read_text())
    assert saved["topicConfigTable"]["orders"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }
    assert saved["dataVersion"] == {"counter": 2, "stateVersion": 0, "timestamp": 5}


def test_groups_are_saved_and_found_again(tmp_path: Path) -> None:
    files = ConfigFiles(tmp_path)
    assert files.load_groups() == GroupConfigTable()
    table = GroupConfigTable(subscription_group_table={"g": GroupConfig(group_name="g", retry_max_times=3)})
    files.save_groups(table)
    assert files.load_groups() == table


def test_offsets_are_read_in_fastjsons_form(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text(JAVA_OFFSETS)
    assert ConfigFiles(tmp_path).load_offsets() == {
        ("orders", "billing"): {0: 7, 1: 12},
        ("%RETRY%billing", "billing"): {0: 0},
    }


def test_offsets_are_saved_as_plain_json(tmp_path: Path) -> None:
    files = ConfigFiles(tmp_path)
    files.save_offsets({("orders", "billing"): {0: 7}})
    assert json.loads((tmp_path / "consumerOffset.json").read_text())["offsetTable"] == {"orders@billing": {"0": 7}}
    assert files.load_offsets() == {("orders", "billing"): {0: 7}}


def test_a_file_that_cannot_be_read_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text("{broken")
    with pytest.raises(StateError, match=r"topics\.json cannot be read .*, nor can its \.bak: mend or remove them"):
        ConfigFiles(tmp_path).load_topics()
