"""Files that write down what is done with them, and what a disk may hold after the power has failed.

What is assumed of a file system:

| what | survives |
| --- | --- |
| bytes and sizes of a file | if a later sync of the file has returned; otherwise any of its writes and truncations may be missing, and any of the 512-byte sectors of a write |
| names in a directory | if a later sync of the directory has returned; otherwise they reach the disk in the order in which they changed, as in any journal of a file system, and it may stop anywhere |
| a rename | as a whole or not at all |
| between two files or directories, or between bytes and names | nothing: neither order nor cause |

The last line is less than ext4 gives, whose journal keeps all names in order and writes them with a file that is
synced. A store that holds here needs none of that.
"""  # noqa: E501 - a table

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tests.broker.store.failing import FailingFiles

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

__all__ = ["Journal", "RecordingFiles", "Unlucky", "lay_out"]

T = TypeVar("T")

SECTOR = 512
ROOT = 0


class Write(NamedTuple):
    file: int
    at: int
    data: bytes


class Truncation(NamedTuple):
    file: int
    size: int


class Sync(NamedTuple):
    """Of a file or a directory. What was done before the entry ``begun`` is on the disk."""

    number: int
    begun: int


class Renaming(NamedTuple):
    """A name in a directory begins to stand for a file or directory, or for nothing; another one may end with that."""

    directory: int
    name: str
    number: int | None
    ended: str | None = None


class Told(NamedTuple):
    """What clients had been told by then."""

    what: object


Entry = Write | Truncation | Sync | Renaming | Told
Content = dict[int, bytearray]
Names = dict[int, dict[str, int]]


class Journal:
    """What was done below a directory, in order. What was there before is on the disk. Files and directories have
    numbers, since their names come and go."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries: list[Entry] = []
        self._count = ROOT
        # as they were at the beginning
        self._content: Content = {}
        self._names: Names = {ROOT: {}}
        self._scan(root, ROOT)
        # as running processes see them
        self._seen: Names = {number: dict(names) for number, names in self._names.items()}

    def _scan(self, directory: Path, number: int) -> None:
        for path in sorted(directory.iterdir()):
            self._count += 1
            self._names[number][path.name] = child = self._count
            if path.is_dir():
                self._names[child] = {}
                self._scan(path, child)
            else:
                self._content[child] = bytearray(path.read_bytes())

    # -- what is done

    def tell(self, what: object) -> None:
        self.entries.append(Told(what))

    def number(self, path: Path) -> int:
        number = ROOT
        for name in path.relative_to(self.root).parts:
            number = self._seen[number][name]
        return number

    def make(self, path: Path, *, directory: bool = False) -> int:
        self._count += 1
        if directory:
            self._seen[self._count] = {}
        self.name(path, self._count)
        return self._count

    def name(self, path: Path, number: int | None, ended: str | None = None) -> None:
        parent = self.number(path.parent)
        entry = Renaming(parent, path.name, number, ended)
        _rename(self._seen, entry)
        self.entries.append(entry)

    # -- what is left of it

    def told(self, length: int) -> object:
        """What clients were told last."""
        return next(entry.what for entry in reversed(self.entries[:length]) if isinstance(entry, Told))

    def killed(self, length: int, rng: random.Random) -> tuple[Content, Names]:
        """What the system has after ``length`` entries, if the process was killed then; perhaps while it wrote."""
        entries = self.entries[:length]
        if entries and isinstance(last := entries[-1], Write):
            entries[-1] = last._replace(data=last.data[: rng.randint(0, len(last.data))])
        return self._replay(entries)

    def power_failed(self, length: int, rng: random.Random) -> tuple[Content, Names]:
        """What the disk may hold if the power failed after ``length`` entries."""
        # one that ended later may have begun before another one
        synced: defaultdict[int, int] = defaultdict(int)
        for entry in self.entries[:length]:
            if isinstance(entry, Sync):
                synced[entry.number] = max(synced[entry.number], entry.begun)
        kept: list[Entry] = []
        # how much of what was not synced is kept of each file, and how many names of each directory
        share: defaultdict[int, float] = defaultdict(lambda: rng.choice((0.0, 0.2, 0.5, 0.8, 1.0)))
        unsynced_names: dict[int, list[Renaming]] = defaultdict(list)
        for at, entry in enumerate(self.entries[:length]):
            match entry:
                case Renaming(directory):
                    if at < synced[directory]:
                        kept.append(entry)
                    else:
                        unsynced_names[directory].append(entry)
                case Write(file) | Truncation(file):
                    if at < synced[file] or rng.random() < share[file]:
                        kept.append(entry)
                    elif isinstance(entry, Write) and rng.random() < 0.5:
                        kept += _sectors(entry, rng)
        for renamings in unsynced_names.values():
            kept += renamings[: rng.choice((0, len(renamings), rng.randint(0, len(renamings))))]
        return self._replay(kept)

    def _replay(self, entries: list[Entry]) -> tuple[Content, Names]:
        content = defaultdict(bytearray, {number: bytearray(data) for number, data in self._content.items()})
        names = defaultdict(dict, {number: dict(names) for number, names in self._names.items()})
        for number in self._seen:
            names.setdefault(number, {})
        for entry in entries:
            match entry:
                case Write(file, at, data):
                    held = content[file]
                    held.extend(bytes(max(0, at + len(data) - len(held))))
                    held[at : at + len(data)] = data
                case Truncation(file, size):
                    held = content[file]
                    held.extend(bytes(max(0, size - len(held))))
                    del held[size:]
                case Renaming():
                    _rename(names, entry)
        return content, names


def _rename(names: Names, entry: Renaming) -> None:
    directory = names[entry.directory]
    if entry.ended is not None:
        directory.pop(entry.ended, None)
    if entry.number is None:
        directory.pop(entry.name, None)
    else:
        directory[entry.name] = entry.number


def _sectors(write: Write, rng: random.Random) -> Iterator[Write]:
    """Some of the sectors that a write touches."""
    at, end = write.at, write.at + len(write.data)
    while at < end:
        behind = min((at // SECTOR + 1) * SECTOR, end)
        if rng.random() < 0.5:
            yield Write(write.file, at, write.data[at - write.at : behind - write.at])
        at = behind


def lay_out(state: tuple[Content, Names], directory: Path, number: int = ROOT) -> Path:
    """Make a directory that holds this."""
    content, names = state
    directory.mkdir()
    for name, child in names[number].items():
        if child in names:
            lay_out(state, directory / name, child)
        else:
            (directory / name).write_bytes(content[child])
    return directory


class Unlucky(random.Random):
    """Chance that lets nothing survive which was not synced."""

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        return seq[0]

    def random(self) -> float:
        return 0.99


def _nothing() -> None:
    pass


class RecordingFiles(FailingFiles):
    """Writes into a journal what is done, and lets the disk keep nobody waiting."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        # what another thread does while the content of a file is waited for
        self.meanwhile: Callable[[], None] = _nothing
        self._numbers: dict[int, int] = {}

    def open(self, path: Path, *, create: bool = False, empty: bool = False) -> int:
        existed = path.exists()
        descriptor = super().open(path, create=create, empty=empty)
        number = self._numbers[descriptor] = self.journal.number(path) if existed else self.journal.make(path)
        if existed and empty:
            self.journal.entries.append(Truncation(number, 0))
        return descriptor

    def close(self, descriptor: int) -> None:
        del self._numbers[descriptor]
        super().close(descriptor)

    def pwrite(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        written = super().pwrite(descriptor, data, at)
        self.journal.entries.append(Write(self._numbers[descriptor], at, bytes(data[:written])))
        return written

    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        self.journal.entries.append(Truncation(self._numbers[descriptor], size))

    def datasync(self, descriptor: int) -> None:
        self._check("datasync", descriptor)
        begun = len(self.journal.entries)
        # whoever works meanwhile may wait for the disk as well
        meanwhile, self.meanwhile = self.meanwhile, _nothing
        meanwhile()
        self.meanwhile = meanwhile
        self.journal.entries.append(Sync(self._numbers[descriptor], begun))

    def sync_directory(self, path: Path) -> None:
        self._check("sync_directory", path)
        self.journal.entries.append(Sync(self.journal.number(path), len(self.journal.entries)))

    def rename(self, path: Path, target: Path) -> None:
        number = self.journal.number(path)
        super().rename(path, target)
        self.journal.name(target, number, ended=path.name)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.journal.name(path, None)

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self.journal.make(path, directory=True)

    def rmdir(self, path: Path) -> None:
        super().rmdir(path)
        self.journal.name(path, None)
