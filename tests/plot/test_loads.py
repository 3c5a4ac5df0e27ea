from __future__ import annotations

from xml.etree import ElementTree

from evenq.plot.loads import ALARM, Load, calm, columns, ladder, ranked

SVG = "{http://www.w3.org/2000/svg}"


def hints(picture: object) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(str(picture)).iter(f"{SVG}title")][1:]


def test_every_load_has_a_column_as_high_as_it_is() -> None:
    picture = columns(
        [Load("0", "broker-a", 100), Load("1", "broker-a", 50), Load("0", "broker-b", 300, alarming=True)],
        title="Messages",
        unit="messages",
    )
    root = ElementTree.fromstring(str(picture))
    rects = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert hints(picture) == ["broker-a 0: 100 messages", "broker-a 1: 50 messages", "broker-b 0: 300 messages"]
    heights = [float(rect.attrib["height"]) for rect in rects]
    assert heights[0] / heights[1] == 2
    assert [rect.attrib["fill"] for rect in rects] == [calm(0), calm(0), ALARM]
    assert "mean 150" in str(picture)


def test_hundreds_of_columns_stay_on_the_page() -> None:
    picture = columns([Load(str(number), "b", 5) for number in range(500)], title="Many", unit="messages")
    for rect in ElementTree.fromstring(str(picture)).iter(f"{SVG}rect"):
        if "x" in rect.attrib:
            assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= 560.01


def test_nothing_is_a_picture_too() -> None:
    for picture in (columns([], title="x", unit="y"), ranked({}, title="x", unit="y"), ladder({}, title="x")):
        ElementTree.fromstring(str(picture))


def test_long_names_are_cut_and_told_in_full() -> None:
    name = "a very long key " * 10
    picture = ranked({name: 7}, title="Keys", unit="messages", alarming=frozenset({name}))
    assert hints(picture) == [f"{name}: 7 messages"]
    assert "…" in str(picture)
    assert ALARM in str(picture)


def test_marks_of_a_ladder_stand_in_order() -> None:
    picture = ladder({"way": {"p50": 2, "p99": 90, "max": 4000}}, title="Durations")
    circles = [float(circle.attrib["cx"]) for circle in ElementTree.fromstring(str(picture)).iter(f"{SVG}circle")]
    assert circles == sorted(circles)
    assert hints(picture) == ["p50: 2 ms", "p99: 90 ms", "max: 4 s"]
    assert ">p50 2 ms<" in str(picture)
    assert ">max 4 s<" in str(picture)
