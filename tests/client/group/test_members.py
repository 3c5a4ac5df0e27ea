import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from evenq.client.group import members as module
from evenq.client.group.members import Members
from evenq.client.net.remote import Remote
from evenq.errors import ConnectError


class Masters:
    """Masters that give the next of their answers each time, the last one for ever."""

    def __init__(self, **answers: list[list[str] | None]) -> None:
        self.answers = answers
        self.asked = 0
        self.addresses: set[str] = set()

    async def members(self, address: str, group: str) -> list[str]:
        self.asked += 1
        self.addresses.add(address)
        answers = self.answers[address]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            raise ConnectError(address, "gone")
        return answer


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0)


def ask(masters: Masters, brokers: Mapping[str, Sequence[str]] | None = None) -> list[str] | None:
    brokers = brokers or {name: [name] for name in masters.answers}
    return asyncio.run(Members(cast(Remote, masters), "g").ask(brokers))


def test_masters_that_agree_are_asked_once_and_answered_in_java_order() -> None:
    masters = Masters(a=[["y", "x", "\U0001f680", "￮"]], b=[["x", "y", "￮", "\U0001f680"]])
    assert ask(masters) == ["x", "y", "\U0001f680", "￮"]
    assert masters.asked == 2


def test_masters_that_differ_are_asked_again_until_they_agree() -> None:
    assert ask(Masters(a=[["x"], ["x", "y"]], b=[["x", "y"]])) == ["x", "y"]


def test_after_a_while_whoever_is_known_to_one_counts() -> None:
    assert ask(Masters(a=[["x"]], b=[["y"]])) == ["x", "y"]


def test_a_master_that_is_gone_has_no_say() -> None:
    assert ask(Masters(a=[None], b=[["x"]])) == ["x"]
    assert ask(Masters(a=[None])) is None


def test_slaves_tell_of_members_that_their_master_does_not_know() -> None:
    brokers = {"broker-a": ["a", "a-slave"], "broker-b": ["b", "b-slave"], "broker-c": ["c-slave"]}
    masters = Masters(a=[["x"]], b=[None])
    masters.answers |= {"a-slave": [["y"]], "b-slave": [["x"]], "c-slave": [["x"]]}
    assert ask(masters, brokers) == ["x", "y"]
    assert masters.addresses == {"a", "a-slave", "b", "b-slave", "c-slave"}


@pytest.mark.parametrize(("java_on", "strangers"), [("a", True), ("a-slave", False), ("b-slave", True)])
def test_a_slave_tells_of_strangers_only_without_its_master(java_on: str, strangers: bool) -> None:
    class Brokers:
        async def connected(self, address: str, group: str) -> object:
            if address == "b":
                raise ConnectError(address, "gone")
            language = "JAVA" if address == java_on else "PYTHON"
            return SimpleNamespace(connection_set=[SimpleNamespace(language=language)])

    brokers = {"broker-a": ["a", "a-slave"]} if java_on.startswith("a") else {"broker-b": ["b", "b-slave"]}
    assert asyncio.run(Members(cast(Remote, Brokers()), "g").has_strangers(brokers)) == strangers
