import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.lineage import made_of, source_of
from evenq.protocol.flags import SysFlag
from tests.broker.store.messages import incoming, open_store

OFFSETS = st.integers(0, 2**62)


@given(OFFSETS, st.sampled_from([0, SysFlag.COMMIT, SysFlag.COMPRESSED]))
def test_a_record_names_the_one_it_was_made_of(offset: int, sys_flag: int) -> None:
    assert source_of(made_of(offset), sys_flag) == offset


@given(OFFSETS)
def test_a_committed_message_names_its_half_message_as_java_has_it(offset: int) -> None:
    assert source_of(offset, SysFlag.COMMIT | SysFlag.COMPRESSED) == offset
    assert source_of(offset, 0) is None
    assert source_of(offset, SysFlag.PREPARED) is None
    assert source_of(offset, SysFlag.ROLLBACK) is None


def test_a_start_after_a_kill_finds_what_others_were_made_of(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    first = store.append(incoming("waits"))
    store.append(incoming("made of it")._replace(prepared_transaction_offset=made_of(first.log_offset)))
    store.append(incoming("made of nothing"))
    store.settle()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    again = open_store(tmp_path / "copy")
    assert again.sources == {first.log_offset}
    again.close()
    closed = open_store(tmp_path / "copy")
    assert closed.sources == set()
    closed.close()
