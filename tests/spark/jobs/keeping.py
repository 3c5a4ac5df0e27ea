"""A format for tests that is not files in folders: it keeps values as it likes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

__all__ = ["Keeping", "kept"]


class Keeping(DataSource):
    @classmethod
    def name(cls) -> str:
        return "kept"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Writer(self.options["path"])


class _Writer(DataSourceWriter):
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [(bytes(row["value"]).decode(), str(row["date"]), row["topic"]) for row in iterator]
        (folder / f"{uuid4().hex}.kept").write_text(json.dumps(rows))
        return WriterCommitMessage()


def kept(folder: Path) -> list[tuple[str, str, str]]:
    """Values, dates and topics."""
    return sorted(tuple(row) for path in folder.glob("*.kept") for row in json.loads(path.read_text()))
