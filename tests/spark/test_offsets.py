import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.read.ranges import QueueRange
from evenq.errors import ProtocolError
from evenq.model import MessageQueue
from evenq.spark.offsets import Progress, by_queue, by_topic

queues = st.builds(MessageQueue, st.sampled_from("tuv"), st.sampled_from(["a", "b"]), st.integers(0, 30))


@given(st.dictionaries(queues, st.integers(0)))
def test_nested_and_flat_are_the_same(values: dict[MessageQueue, int]) -> None:
    assert by_queue(json.loads(json.dumps(by_topic(values)))) == values


@given(st.dictionaries(queues, st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_a_checkpoint_gives_back_what_was_written(ends: dict[MessageQueue, tuple[int, int]]) -> None:
    progress = Progress(tuple(QueueRange(queue, low, low + more) for queue, (low, more) in sorted(ends.items())))
    text = json.dumps(progress.to_json())
    assert Progress.from_json(json.loads(text)) == progress
    # Spark compares the text: what was read must be written alike
    assert json.dumps(Progress.from_json(json.loads(text)).to_json()) == text


@pytest.mark.parametrize("value", [{"index": 5}, {"t": {"b": {"0": 5}}}, {"t": {"b": {"0": {"from": 1}}}}, []])
def test_an_offset_of_another_source_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError, match=r"did not write.*Use a checkpoint folder of this source"):
        Progress.from_json(value)
