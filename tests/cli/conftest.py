"""The command line as it is called, in this process, against whichever cluster a test runs on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evenq.cli import main
from tests.clusters import AnyCluster


class Evenq:
    """``evenq`` with some arguments: what it prints when it succeeds, or what it complains of."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[object, str, str]:
        """Exit code, standard output, standard error."""
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return (ended.value.code, *self._capsys.readouterr())

    def __call__(self, *arguments: str) -> list[str]:
        """The lines that it prints; nothing is wrong."""
        code, out, err = self.run(*arguments)
        assert (code, err) == (0, "")
        return [line.rstrip() for line in out.splitlines()]

    def json(self, *arguments: str) -> Any:
        code, out, err = self.run(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    def error(self, *arguments: str) -> str:
        """The one line that says what is wrong."""
        code, out, err = self.run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("evenq: error: ")
        assert err.count("\n") == 1
        return err.removeprefix("evenq: error: ").rstrip("\n")


@pytest.fixture
def evenq(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Evenq:
    monkeypatch.delenv("EVENQ_NAMESRV", raising=False)
    return Evenq(capsys)


@pytest.fixture
def at_cluster(evenq: Evenq, any_cluster: AnyCluster, monkeypatch: pytest.MonkeyPatch) -> Evenq:
    """The same, where the environment names the cluster."""
    monkeypatch.setenv("EVENQ_NAMESRV", any_cluster.namesrv)
    return evenq
