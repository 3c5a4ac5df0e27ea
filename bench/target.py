"""A broker as a process: what it has used of the machine, and whether it still works behind its answers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import sysconf
from pathlib import Path

__all__ = ["Target", "quiet", "rest"]

# A broker rests when it uses less than this share of a processor for so many seconds.
RESTING = 0.05
PAUSE = 0.3


@dataclass(frozen=True, slots=True)
class Target:
    """A broker's address, and its process, whose children are counted with it."""

    address: str
    pid: int

    def _processes(self) -> list[int]:
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        children = [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
        return [self.pid, *children]

    def cpu(self) -> float:
        """Seconds of the processor that it has used."""
        # Linux's number of another process's clock
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self._processes())

    def memory(self) -> float:
        """MiB of memory that it has, with the pages of its files that it has in use."""
        statuses = [Path(f"/proc/{pid}/status").read_text() for pid in self._processes()]
        return sum(int(re.findall(r"VmRSS:\s+(\d+)", each)[0]) for each in statuses) / 1024


def rest(target: Target) -> None:
    """Wait until a broker has nothing to do."""
    _settle(target.cpu, RESTING)


def quiet() -> None:
    """The same for the whole machine, whoever works on it."""
    _settle(_used, 2 * RESTING)


def _settle(used: Callable[[], float], share: float) -> None:
    """Wait until hardly any more seconds of the processor are used, but not for ever."""
    for _ in range(100):
        before = used()
        time.sleep(PAUSE)
        if used() - before < share * PAUSE:
            return


def _used() -> float:
    """Seconds that processors were in use since the machine began."""
    fields = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / sysconf("SC_CLK_TCK")
