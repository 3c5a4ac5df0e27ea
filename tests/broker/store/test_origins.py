import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.origins import origin_field, origin_of
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import encode_properties
from tests.broker.store.messages import incoming, open_store

OFFSETS = st.integers(0, 2**62)


@given(OFFSETS, st.sampled_from([0, SysFlag.COMMIT, SysFlag.COMPRESSED]))
def test_a_record_names_the_one_it_was_made_of(offset: int, sys_flag: int) -> None:
    assert origin_of(origin_field(offset), sys_flag) == offset


@given(OFFSETS)
def test_a_committed_message_names_its_half_message_as_java_has_it(offset: int) -> None:
    assert origin_of(offset, SysFlag.COMMIT | SysFlag.COMPRESSED) == offset
    assert origin_of(offset, 0) is None
    assert origin_of(offset, SysFlag.PREPARED) is None
    assert origin_of(offset, SysFlag.ROLLBACK) is None


def test_a_start_after_a_kill_finds_what_others_were_made_of(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    waits = incoming("waits", topic="SCHEDULE_TOPIC_XXXX")
    first = store.append(waits._replace(properties=encode_properties({"REAL_TOPIC": "orders"})))
    store.append(incoming("made of it")._replace(prepared_transaction_offset=origin_field(first.log_offset)))
    store.append(incoming("made of nothing"))
    store.commit()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    again = open_store(tmp_path / "copy")
    assert again.delivered_origins == {first.log_offset}
    again.close()
    closed = open_store(tmp_path / "copy")
    assert closed.delivered_origins == set()
    closed.close()


@pytest.mark.parametrize(
    ("topic", "properties"),
    [("orders", {}), ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "bills"}), ("bills", {"REAL_TOPIC": "orders"})],
    ids=["no record that waits", "a record for another topic", "a record that only looks so"],
)
def test_a_record_of_nothing_that_waited_counts_for_nothing(
    tmp_path: Path, topic: str, properties: dict[str, str]
) -> None:
    store = open_store(tmp_path / "data")
    first = store.append(incoming("first", topic=topic)._replace(properties=encode_properties(properties)))
    assert first.log_offset == 0
    # what an ordinary send with the flag of a commit has: it names the record at 0
    store.append(incoming("forged")._replace(sys_flag=int(SysFlag.COMMIT)))
    store.append(incoming("beyond")._replace(prepared_transaction_offset=origin_field(10**12)))
    store.append(incoming("between")._replace(prepared_transaction_offset=origin_field(1)))
    store.commit()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    again = open_store(tmp_path / "copy")
    assert again.delivered_origins == set()
    again.close()
    store.close()
