"""Where copies go, and what they tell of where they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.spark.jobs.mirroring import SELECTORS, check_selector, queue_map, selection, source_text

queues = st.sets(
    st.builds(MessageQueue, st.just("t"), st.sampled_from(["a", "b", "c"]), st.integers(0, 7)), min_size=1, max_size=16
)


@given(queues, queues)
def test_every_queue_goes_to_one_and_the_target_is_used_evenly(
    source: set[MessageQueue], target: set[MessageQueue]
) -> None:
    found = queue_map(list(source), list(target))
    assert found.keys() == source
    assert set(found.values()) <= target
    loads = [list(found.values()).count(queue) for queue in target]
    assert max(loads) - min(loads) <= 1


@given(queues)
def test_topics_that_are_alike_have_the_same_queues(source: set[MessageQueue]) -> None:
    assert queue_map(sorted(source, reverse=True), list(source)) == {queue: queue for queue in source}


def test_order_is_not_promised_where_it_is_not_kept() -> None:
    for selector in SELECTORS:
        check_selector(selector, ordered=False)
    for selector in ("same", "hash"):
        check_selector(selector, ordered=True)
    for selector in ("round_robin", "random"):
        with pytest.raises(ArgumentError, match="consumed in any order: give same or hash"):
            check_selector(selector, ordered=True)
    with pytest.raises(ArgumentError, match="give same or hash or round_robin or random"):
        check_selector("nearest", ordered=False)


def test_the_source_is_told_with_the_name_of_its_cluster() -> None:
    queue = MessageQueue("orders", "broker-a", 3)
    assert source_text(queue) == "orders:broker-a:3"
    assert source_text(queue, "berlin") == "berlin/orders:broker-a:3"


def test_a_queue_is_named_only_where_order_depends_on_it() -> None:
    places = {MessageQueue("t", "it's", 0): MessageQueue("t", "b", 1)}
    assert len(selection("round_robin", places)) == 3
    assert [part.rpartition(" ")[2] for part in selection("same", places)] == [
        "value", "unique_key", "properties", "broker", "queue_id",
    ]  # fmt: skip
    assert any("'it\\'s:0'" in part for part in selection("same", places))
