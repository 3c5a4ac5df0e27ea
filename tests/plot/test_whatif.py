"""Pictures of groups of many sizes."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

from evenq.balance.groups import Population, simulate_chunk
from evenq.balance.groups_result import GroupsResult
from evenq.balance.groups_sizes import Shape, Sizes, shapes_of
from evenq.balance.scenario import Event, Scenario
from evenq.plot.svg import Picture
from evenq.plot.whatif import lines, page_of, picture_by_size


def by_shape(queues: str, members: str) -> dict[Shape, list[GroupsResult]]:
    shapes = shapes_of(Sizes.parse(queues), Sizes.parse(members))
    population = Population.of(Scenario(events=(Event("join"),)), 200, shapes, ["AVG", "STICKY"])
    return {chunk.shape: simulate_chunk(population, chunk) for chunk in population.chunks}


def texts(picture: Picture) -> list[str]:
    return [
        element.text or "" for element in ElementTree.fromstring(str(picture)).iter() if element.tag.endswith("text")
    ]


def test_there_is_a_picture_for_each_size_that_differs() -> None:
    both = picture_by_size(by_shape("uniform:4-6", "uniform:2-3"))
    assert [picture.title for picture in both] == [
        "Queues moved, by members of the group",
        "Queues moved, by queues of the group",
        "The fullest member",
    ]
    alike = picture_by_size(by_shape("8", "3"))
    assert [picture.title for picture in alike] == ["The fullest member"]
    for picture in both:
        assert {"AVG", "STICKY"} <= set(texts(picture))


def test_names_at_the_ends_of_lines_do_not_touch() -> None:
    picture = lines({name: [(1, 1), (2, 2)] for name in "abcd"}, title="t", x_label="x", y_label="y", ideal=1)
    heights = sorted(
        float(element.get("y", "0"))
        for element in ElementTree.fromstring(str(picture)).iter()
        if element.tag.endswith("text") and (element.text or "") in "abcd"
    )
    assert len(heights) == 4
    assert all(after - before >= 16 for before, after in pairwise(heights))


def test_a_page_holds_all_and_escapes_what_people_wrote() -> None:
    page = page_of("a < b", picture_by_size(by_shape("8", "3")))
    assert "<title>a &lt; b</title>" in page
    assert page.count("<svg") == 1
