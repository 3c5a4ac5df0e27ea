"""Pictures of simulations show what was simulated."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from evenq.balance.groups import simulate_groups
from evenq.balance.measures import holders
from evenq.balance.scenario import Event, Scenario
from evenq.balance.simulation import names_for, simulate
from evenq.plot.simulation import _letter, holdings, picture_of_groups, picture_of_runs
from evenq.plot.svg import INK, Picture

SVG = "{http://www.w3.org/2000/svg}"


def elements(picture: Picture, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(str(picture)).iter(f"{SVG}{tag}"))


def cells(picture: Picture) -> list[ElementTree.Element]:
    """Those of queues have a hint: queue and holder."""
    return [rect for rect in elements(picture, "rect") if len(rect)]


def test_every_queue_is_shown_with_its_holder_at_every_stage() -> None:
    (run,) = simulate(Scenario(events=[Event("join"), Event("leave"), Event("replace")]), ["CONFIG"])
    hints = [rect[0].text for rect in cells(holdings([run]))]
    expected = [
        f"{queue}: {holders(shares).get(queue, 'nobody')}"
        for shares in (run.start, *(step.after for step in run.steps))
        for queue in run.steps[0].queues
    ]
    assert hints == expected
    assert any(hint.endswith("nobody") for hint in expected)


def test_a_holder_has_one_colour_everywhere_and_moves_are_marked() -> None:
    runs = simulate(Scenario(events=[Event("join")]), ["AVG", "STICKY"])
    picture = holdings(runs)
    colours = {((rect[0].text or "").rpartition(": ")[2], rect.get("fill")) for rect in cells(picture)}
    assert len(colours) == len({member for member, _ in colours}) == 5
    marks = [rect for rect in elements(picture, "rect") if rect.get("fill") == INK and not len(rect)]
    # one of them explains the mark
    assert len(marks) - 1 == sum(len(run.steps[0].moved) for run in runs)


def test_many_members_topics_and_queues_fit() -> None:
    runs = simulate(Scenario(queues=60, members=30, topics=2, brokers=5, events=[Event("join")]))
    picture = holdings(runs)
    for rect in cells(picture):
        assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= picture.width
    assert "AE" in [text.text for text in elements(picture, "text")], "the 31st member has two letters"


def test_pictures_name_all_strategies_once_in_each_panel() -> None:
    scenario = Scenario(events=[Event("join")])
    of_runs = picture_of_runs(simulate(scenario), "Title", "Subtitle")
    of_groups = picture_of_groups(simulate_groups(scenario, 50), "Title", "Subtitle")
    for picture in (of_runs, of_groups):
        texts = Counter(text.text for text in elements(picture, "text"))
        assert all(texts[name] == 2 for name in names_for(scenario))
        assert texts["Title"] == texts["Subtitle"] == texts["ideal"] == texts["least: 3"] == 1


def test_nothing_has_to_happen() -> None:
    picture = picture_of_runs(simulate(Scenario(events=[]), ["AVG"]), "Quiet")
    assert len(cells(picture)) == 16


def test_more_members_than_two_letters_can_name() -> None:
    letters = [_letter(number) for number in range(20_000)]
    assert len(set(letters)) == 20_000
    assert letters[25:28] + letters[701:703] == ["Z", "AA", "AB", "ZZ", "AAA"]
