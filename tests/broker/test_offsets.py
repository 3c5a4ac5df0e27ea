from evenq.broker.offsets import GroupOffsets


def test_an_offset_may_go_back() -> None:
    offsets = GroupOffsets()
    offsets.commit("billing", "orders", 0, 9)
    offsets.commit("billing", "orders", 0, 4)
    assert offsets.get("billing", "orders", 0) == 4
    assert offsets.get("billing", "bills", 0) is None


def test_what_was_saved_is_taken_over_as_a_copy() -> None:
    saved = {("orders", "billing"): {0: 3}}
    offsets = GroupOffsets(saved)
    offsets.commit("billing", "orders", 0, 5)
    assert saved == {("orders", "billing"): {0: 3}}
    assert offsets.table() == {("orders", "billing"): {0: 5}}


def test_every_change_raises_the_version() -> None:
    offsets = GroupOffsets()
    seen = [offsets.version]
    offsets.commit("g", "t", 0, 1)
    seen.append(offsets.version)
    offsets.commit("g", "t", 0, 1)
    seen.append(offsets.version)
    offsets.forget_topic("t")
    seen.append(offsets.version)
    assert seen == sorted(set(seen))
    offsets.forget_topic("t")
    assert offsets.version == seen[-1]


def test_topics_and_groups_are_found_by_each_other_and_forgotten() -> None:
    offsets = GroupOffsets()
    for group, topic in (("g1", "a"), ("g1", "b"), ("g2", "a")):
        offsets.commit(group, topic, 1, 7)
    assert (offsets.topics("g1"), offsets.groups("a")) == (["a", "b"], ["g1", "g2"])
    assert offsets.queues("g1", "a") == {1: 7}
    offsets.forget_topic("a")
    assert (offsets.topics("g1"), offsets.groups("a")) == (["b"], [])
    offsets.forget_group("g1")
    assert offsets.table() == {}


def test_a_reset_counts_until_it_was_told_and_commits_count_after_that() -> None:
    offsets = GroupOffsets()
    offsets.commit("g", "t", 0, 9)
    offsets.reset("g", "t", 0, 3)
    offsets.commit("g", "t", 0, 10)
    offsets.commit("g", "t", 1, 10)
    assert (offsets.get("g", "t", 0), offsets.get("g", "t", 1)) == (3, 10)
    offsets.reset("g", "t", 0, 4)
    assert [offsets.take_reset("g", "t", 0) for _ in range(2)] == [4, None]
    offsets.commit("g", "t", 0, 5)
    assert offsets.get("g", "t", 0) == 5


def test_what_is_in_hand_is_never_less_than_what_is_committed() -> None:
    offsets = GroupOffsets()
    assert offsets.in_hand("g", "t", 0) == 0
    offsets.pulled("g", "t", 0, 32)
    assert offsets.in_hand("g", "t", 0) == 32
    offsets.commit("g", "t", 0, 40)
    assert offsets.in_hand("g", "t", 0) == 40
    offsets.forget_group("g")
    assert offsets.in_hand("g", "t", 0) == 0


def test_a_clone_is_a_copy() -> None:
    offsets = GroupOffsets({("t", "g"): {0: 3}})
    offsets.clone("g", "h", "t")
    offsets.commit("h", "t", 0, 5)
    offsets.clone("nobody", "i", "t")
    assert offsets.table() == {("t", "g"): {0: 3}, ("t", "h"): {0: 5}}
