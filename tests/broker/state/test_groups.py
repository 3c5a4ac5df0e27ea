import pytest

from evenq.broker.state.groups import ConsumerGroups, GroupConfigs, Member, ProducerGroups
from evenq.protocol.bodies import ConsumerData, GroupConfig, Subscription


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def groups(now: list[float]) -> ConsumerGroups[int]:
    return ConsumerGroups(lambda: now[0])


def data(group: str = "g", *subscriptions: Subscription, model: str = "CLUSTERING") -> ConsumerData:
    wanted = list(subscriptions) or [Subscription(topic="orders", sub_version=1)]
    return ConsumerData(group_name=group, subscription_data_set=wanted, message_model=model)


def test_a_new_member_changes_the_group_and_a_known_one_does_not(groups: ConsumerGroups[int]) -> None:
    assert groups.heartbeat(data(), Member("c1", 1))
    assert not groups.heartbeat(data(), Member("c1", 1))
    assert groups.heartbeat(data(), Member("c2", 2))
    group = groups.get("g")
    assert group is not None
    assert group.client_ids == ["c1", "c2"]


def test_a_client_with_two_connections_is_one_member(groups: ConsumerGroups[int]) -> None:
    groups.heartbeat(data(), Member("c1", 1))
    groups.heartbeat(data(), Member("c1", 2))
    group = groups.get("g")
    assert group is not None
    assert group.client_ids == ["c1"]
    groups.lose(1)
    assert group.client_ids == ["c1"]


@pytest.mark.parametrize(
    ("first", "second", "changed"),
    [
        ([("a", "*", 1)], [("a", "*", 2)], False),
        ([("a", "*", 1)], [("a", "x", 2)], True),
        ([("a", "x", 2)], [("a", "*", 1)], False),
        ([("a", "*", 1)], [("a", "*", 1), ("b", "*", 1)], True),
        ([("a", "*", 1), ("b", "*", 1)], [("a", "*", 1)], True),
    ],
)
def test_a_change_of_subscriptions_counts(
    groups: ConsumerGroups[int], first: list[tuple[str, str, int]], second: list[tuple[str, str, int]], changed: bool
) -> None:
    def beat(wanted: list[tuple[str, str, int]]) -> bool:
        found = [Subscription(topic=topic, sub_string=text, sub_version=version) for topic, text, version in wanted]
        return groups.heartbeat(data("g", *found), Member("c1", 1))

    beat(first)
    assert beat(second) is changed


def test_a_heartbeat_in_the_short_form_leaves_subscriptions_as_they_are(groups: ConsumerGroups[int]) -> None:
    groups.heartbeat(data(), Member("c1", 1))
    short = ConsumerData(group_name="g")
    assert not groups.heartbeat(short, Member("c1", 1), subscriptions=False)
    group = groups.get("g")
    assert group is not None
    assert list(group.subscriptions) == ["orders"]


def test_leaving_and_losing_say_what_changed(groups: ConsumerGroups[int]) -> None:
    for name in ("g", "h"):
        groups.heartbeat(data(name), Member("c1", 1))
    groups.heartbeat(data("g"), Member("c2", 2))
    assert groups.leave("g", 2)
    assert not groups.leave("g", 2)
    assert not groups.leave("nobody", 2)
    assert groups.lose(1) == ["g", "h"]
    assert groups.lose(1) == []
    assert groups.get("g") is None


def test_a_member_is_silent_after_two_minutes(groups: ConsumerGroups[int], now: list[float]) -> None:
    groups.heartbeat(data("g"), Member("c1", 1))
    groups.heartbeat(data("h"), Member("c1", 1))
    now[0] += 100
    groups.heartbeat(data("g"), Member("c2", 2))
    now[0] += 20
    assert groups.silent() == []
    now[0] += 1
    assert groups.silent() == [1]


def test_broadcasting_is_known(groups: ConsumerGroups[int]) -> None:
    groups.heartbeat(data("g", model="BROADCASTING"), Member("c1", 1))
    group = groups.get("g")
    assert group is not None
    assert group.is_broadcasting


def test_producers_come_and_go() -> None:
    producers: ProducerGroups[int] = ProducerGroups(lambda: 5.0)
    producers.heartbeat("shop", Member("p1", 1))
    producers.heartbeat("shop", Member("p1", 1))
    producers.heartbeat("shop", Member("p2", 2))
    assert [member.client_id for member in producers.members("shop")] == ["p1", "p2"]
    producers.leave("shop", 1)
    producers.leave("none", 1)
    producers.lose(2)
    assert producers.groups() == []


def test_a_producer_that_is_silent_is_asked_no_more() -> None:
    now = [0.0]
    producers: ProducerGroups[str] = ProducerGroups(lambda: now[0])
    producers.heartbeat("shop", Member("p1", "first"))
    now[0] = 60.0
    producers.heartbeat("shop", Member("p2", "second"))
    now[0] = 119.0
    producers.expire()
    assert len(producers.members("shop")) == 2
    now[0] = 121.0
    producers.expire()
    assert [producers.next("shop") for _ in range(3)] == ["second"] * 3
    assert producers.find("p1") is None
    now[0] = 181.0
    producers.expire()
    assert producers.groups() == []


def test_a_group_is_made_when_it_is_first_asked_for() -> None:
    calls: list[int] = []
    configs = GroupConfigs(clock=lambda: 5.0, changed=lambda: calls.append(1))
    made = configs.get("billing")
    assert made == GroupConfig(group_name="billing")
    assert configs.get("billing") is made
    assert len(calls) == 1


def test_no_group_is_made_where_that_is_forbidden_or_the_name_is_bad() -> None:
    assert GroupConfigs(clock=lambda: 5.0, auto_create=False).get("billing") is None
    assert GroupConfigs(clock=lambda: 5.0).get("bill ing") is None


@pytest.mark.parametrize(
    ("name", "bad"), [("g", False), ("", True), ("a b", True), ("x" * 120, False), ("x" * 121, True)]
)
def test_only_a_name_that_can_be_makes_a_group(name: str, bad: bool) -> None:
    assert (GroupConfigs(clock=lambda: 5.0).get(name) is None) is bad


def test_settings_are_kept_and_deleted() -> None:
    configs = GroupConfigs(clock=lambda: 5.0, auto_create=False)
    configs.put(GroupConfig(group_name="g", retry_max_times=3))
    again = GroupConfigs(clock=lambda: 6.0, saved=configs.table(), auto_create=False)
    found = again.get("g")
    assert found is not None
    assert found.retry_max_times == 3
    assert "TOOLS_CONSUMER" in {config.group_name for config in again}
    assert again.delete("g")
    assert not again.delete("g")
    assert again.get("g") is None
