"""A simulation for people and for machines: tables, sentences, JSON, a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.table import Table

from evenq.balance.scenario import Scenario
from evenq.balance.simulation import Run, Step

if TYPE_CHECKING:
    from evenq.balance.groups import GroupsResult
    from evenq.plot import Picture

__all__ = ["GroupsReport", "Report", "RunsReport"]


class Report(Protocol):
    """What a simulation found."""

    def tables(self) -> Iterable[str | Table]:
        """Tables, each after its title."""
        ...

    def sentences(self) -> Iterable[str]:
        """What the tables show, in words."""
        ...

    def as_json(self) -> dict[str, Any]: ...
    def picture(self) -> Picture: ...

    @property
    def notes(self) -> Sequence[str]:
        """Lines about the work itself."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One strategy in short: queues moved, the spread, and queues that nobody held, as many as a group has."""

    strategy: str
    moved: float
    spread: int
    unheld: float


@dataclass(frozen=True, slots=True)
class RunsReport:
    """One group under each strategy."""

    scenario: Scenario
    runs: Sequence[Run]
    steps: bool = False

    @property
    def notes(self) -> Sequence[str]:
        return ()

    def tables(self) -> Iterable[str | Table]:
        yield f"{_title(self.scenario)}: queues moved by each event"
        yield self._summary()
        if self.steps:
            yield "Every change"
            yield self._steps()

    def sentences(self) -> list[str]:
        findings = [Finding(run.strategy, run.moved, run.spread, run.unheld) for run in self.runs]
        least = self.runs[0].least
        return [f"To stay even, this group has to move {_count(least, 'queue')}.", *_in_words(findings, least)]

    def as_json(self) -> dict[str, Any]:
        return {"scenario": _scenario_json(self.scenario), "strategies": [_run_json(run) for run in self.runs]}

    def picture(self) -> Picture:
        from evenq.plot.simulation import picture_of_runs

        return picture_of_runs(self.runs, _title(self.scenario), " ".join(self.sentences()))

    def _summary(self) -> Table:
        table = _table()
        events = [event for event, _ in self.runs[0].by_event()]
        for heading in (*events, "in all", "× least", "spread"):
            table.add_column(heading, justify="right")
        for run in self.runs:
            moved = [sum(len(step.moved) for step in steps) for _, steps in run.by_event()]
            spread = _judged(run.spread, run.spread <= 1)
            table.add_row(run.strategy, *map(str, moved), str(run.moved), _ratio(run.ratio), spread)
        table.add_section()
        least = [sum(step.least for step in steps) for _, steps in self.runs[0].by_event()]
        table.add_row("least possible", *map(str, least), str(self.runs[0].least), "1.00", "≤ 1")
        return table

    def _steps(self) -> Table:
        table = _table()
        table.add_column("event", no_wrap=True)
        table.add_column("change", min_width=len("+member-000"))
        for heading in ("moved", "least", "spread", "unheld"):
            table.add_column(heading, justify="right")
        table.add_column("queues by member")
        for run in self.runs:
            for step in run.steps:
                numbers = (len(step.moved), step.least, step.spread, len(step.unheld))
                table.add_row(run.strategy, step.event, _change(step), *map(str, numbers), _loads(step))
            table.add_section()
        return table


@dataclass(slots=True)
class GroupsReport:
    """Many groups under each strategy. ``sizes`` tells of their sizes where not all have the scenario's; ``weighted``
    where their queues have traffic of their own. ``notes`` are lines about the work."""

    scenario: Scenario
    results: Sequence[GroupsResult]
    sizes: str | None = None
    weighted: bool = False
    notes: Sequence[str] = ()

    def tables(self) -> Iterable[str | Table]:
        yield f"{self.title}; means over all groups"
        table = _table()
        for heading in ("moved", "× least", "exact", "spread", "widest", "fullest", "unheld"):
            table.add_column(heading, justify="right")
        for heading in ("busiest", "in 99%", "shifted") if self.weighted else ():
            table.add_column(heading, justify="right")
        for result in self.results:
            table.add_row(
                result.strategy,
                f"{result.moved / result.groups:.2f}",
                _ratio(result.ratio),
                f"{result.exact / result.groups:.1%}",
                _judged(f"{result.mean_spread:.2f}", result.max_spread <= 1),
                str(result.max_spread),
                f"{result.mean_peak:.2f}",
                f"{result.unheld / result.groups:.2f}",
                *(self._traffic(result) if self.weighted else ()),
            )
        yield table

    def _traffic(self, result: GroupsResult) -> tuple[str, ...]:
        return (
            f"{result.mean_traffic_peak:.2f}",
            f"≤ {result.fullness_at(0.99):.2f}",
            f"{result.traffic_moved / result.groups:.1%}",
        )

    def sentences(self) -> list[str]:
        findings = [
            Finding(result.strategy, result.moved / result.groups, result.max_spread, result.unheld / result.groups)
            for result in self.results
        ]
        least = self.results[0].least / self.results[0].groups
        said = [f"To stay even, a group has to move {least:.2f} queues on average.", *_in_words(findings, least)]
        if self.weighted:
            best = min(self.results, key=lambda result: (result.unheld > 0, result.mean_traffic_peak))
            said.append(
                f"With this traffic, the busiest member has {best.mean_traffic_peak:.2f} times the mean of its group "
                f"under {best.strategy}, where it has least; in 99% of groups at most {best.fullness_at(0.99):.2f}."
            )
        return said

    def as_json(self) -> dict[str, Any]:
        strategies = [
            asdict(result)
            | {
                "ratio": result.ratio,
                "mean_spread": result.mean_spread,
                "max_spread": result.max_spread,
                "mean_peak": result.mean_peak,
                "mean_traffic_peak": result.mean_traffic_peak,
            }
            for result in self.results
        ]
        return {
            "scenario": _without_sizes(self.scenario) if self.sizes else _scenario_json(self.scenario),
            "sizes": self.sizes,
            "groups": self.results[0].groups,
            "strategies": strategies,
            "notes": list(self.notes),
        }

    def picture(self) -> Picture:
        from evenq.plot.simulation import picture_of_groups

        return picture_of_groups(self.results, self.title, " ".join(self.sentences()))

    @property
    def title(self) -> str:
        sizes = self.sizes or _title(self.scenario)
        return f"{self.results[0].groups:,} groups of {sizes}, {self.scenario.events[0]}"


def _in_words(findings: Sequence[Finding], least: float) -> Iterable[str]:
    """What a reader should take from the table."""
    held = [finding for finding in findings if not finding.unheld]
    even = sorted((finding for finding in held if finding.spread <= 1), key=lambda finding: finding.moved)
    uneven = [finding for finding in held if finding.spread > 1]
    times = " times that" if least else ""

    def moves(finding: Finding) -> str:
        return f"{finding.moved / least:.2f}" if least else f"{finding.moved:.3g}"

    if even:
        first, *rest = even
        others = [f"{finding.strategy} {moves(finding)}" for finding in rest]
        yield f"{_series([f'{first.strategy} moved {moves(first)}{times}', *others])}."
    if uneven:
        names = _series([f"{finding.strategy} ({moves(finding)})" for finding in uneven])
        spreads = _series([str(finding.spread) for finding in uneven])
        yield f"{names} got uneven: up to {spreads} queues between the fullest and the emptiest member."
    for finding in findings:
        if finding.unheld:
            yield f"{finding.strategy} moved {moves(finding)}{times}, and left {finding.unheld:.3g} queues to nobody."


def _series(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _table() -> Table:
    table = Table(box=SIMPLE_HEAD, padding=0)
    table.add_column("strategy", no_wrap=True)
    return table


def _title(scenario: Scenario) -> str:
    queues = _count(scenario.queues, "queue")
    if scenario.topics > 1:
        queues += f" in each of {scenario.topics} topics"
    return f"{queues}, {_count(scenario.members, 'member')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else _judged(f"{ratio:.2f}", ratio <= 1.005)


def _judged(value: object, good: bool) -> str:
    return f"[green]{value}[/]" if good else f"[yellow]{value}[/]"


def _change(step: Step) -> str:
    return " ".join([*(f"+{member}" for member in step.joined), *(f"-{member}" for member in step.left)])


def _loads(step: Step) -> str:
    return " ".join(str(count) for _, count in sorted(step.load.items()))


def _scenario_json(scenario: Scenario) -> dict[str, Any]:
    return asdict(scenario) | {"events": list(map(str, scenario.events))}


def _without_sizes(scenario: Scenario) -> dict[str, Any]:
    return {name: value for name, value in _scenario_json(scenario).items() if name not in ("queues", "members")}


def _run_json(run: Run) -> dict[str, Any]:
    return {
        "strategy": run.strategy,
        "moved": run.moved,
        "least": run.least,
        "ratio": run.ratio,
        "spread": run.spread,
        "peak": run.peak,
        "unheld": run.unheld,
        "start": {member: list(map(str, share)) for member, share in run.start.items()},
        "steps": [_step_json(step) for step in run.steps],
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "event": step.event,
        "number": step.number,
        "joined": step.joined,
        "left": step.left,
        "moved": sorted(map(str, step.moved)),
        "least": step.least,
        "to_even": step.to_even,
        "ratio": step.ratio,
        "spread": step.spread,
        "peak": step.peak,
        "gini": step.gini,
        "unheld": sorted(map(str, step.unheld)),
        "load": step.load,
        "shares": {member: list(map(str, share)) for member, share in step.after.items()},
    }
