import asyncio
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

    async def members(self, address: str, group: str) -> list[str]:
        self.asked += 1
        answers = self.answers[address]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            raise ConnectError(address, "gone")
        return answer


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0)


def ask(masters: Masters) -> list[str] | None:
    return asyncio.run(Members(cast(Remote, masters), "g").ask(masters.answers))


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
