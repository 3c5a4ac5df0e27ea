"""One JVM process with a home of its own, that ends with this process at the latest."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.realmq.kit import Kit
from tests.waiting import wait_until

__all__ = ["QUICK", "Jvm"]

# RocketMQ and the libraries under it reach into the JDK.
_OPENS = [
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
]
# Half the start-up time and memory, for a JVM that lives for seconds or minutes.
# Not for measurements: code stays at the first compiler's speed.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


class Jvm:
    """Runs ``arguments`` (main class first) in ``home``, where its logs and temporary files go.

    Its standard input is a pipe from us, and the Java side ends when that closes, so it does not matter how
    this process ends. It has a process group of its own: a Ctrl-C at the terminal is ours to handle first.
    """

    def __init__(
        self, kit: Kit, home: Path, arguments: Sequence[str], *, heap: Sequence[str], quick: bool, talks: bool = False
    ) -> None:
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        self.log = home / "output.log"
        flags = [
            *heap,
            *(QUICK if quick else ()),
            *_OPENS,
            "-XX:-UsePerfData",
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            f"-Djava.io.tmpdir={home / 'tmp'}",
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(kit.java), *flags, "-cp", kit.classpath, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else log,
                stderr=log,
                cwd=home,
                process_group=0,
            )

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """What it prints, for one that ``talks``; for any other it is in the log."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, text: str, seconds: float) -> None:
        """Wait until ``text`` stands in the log."""

        def said() -> bool:
            if text in self.output():
                return True
            if not self.running:
                raise RuntimeError(
                    f"JVM ended with {self._process.returncode}, last lines of its output:\n{self.tail()}"
                )
            return False

        wait_until(said, lambda: f"{text!r} in the output of a JVM; the last lines are:\n{self.tail()}", seconds)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        return "\n".join(self.output().splitlines()[-20:])

    def terminate(self) -> None:
        """Ask it to shut down in good order, and wait for that."""
        self._process.terminate()
        self._process.wait(60)
        self._close_pipes()

    def kill(self, reader: threading.Thread | None = None) -> None:
        """What ``reader`` still has to read of its output is read before that is closed."""
        self._process.kill()
        self._process.wait()
        if reader is not None:
            reader.join()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
