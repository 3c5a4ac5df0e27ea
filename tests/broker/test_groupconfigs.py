import pytest

from evenq.broker.groupconfigs import GroupConfigs
from evenq.protocol.bodies import GroupConfig


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
