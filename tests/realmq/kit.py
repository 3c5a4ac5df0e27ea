"""What is needed to run RocketMQ's Java programs: Java, the jars (through Maven), our own classes.

Made once and kept in the user's cache folder::

    ~/.cache/evenq/rocketmq-5.4.0/lib/*.jar
    ~/.cache/evenq/rocketmq-5.4.0/proxy/*.jar
    ~/.cache/evenq/rocketmq-5.4.0/classes-<hash of the sources>/
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

__all__ = ["VERSION", "Kit", "Unavailable", "find_kit", "find_proxy_kit"]

VERSION = "5.4.0"
_ARTIFACTS = "rocketmq-namesrv rocketmq-broker rocketmq-client rocketmq-tools".split()
_SOURCES = Path(__file__).parent / "java"
_JAVA = 17

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>evenq</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>org.apache.rocketmq</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""


class Unavailable(Exception):
    """The real RocketMQ cannot be run here; the text says what to install or to look at."""


@dataclass(frozen=True, slots=True)
class Kit:
    """Where things are."""

    java: Path
    lib: Path
    classes: Path

    @property
    def classpath(self) -> str:
        return f"{self.classes}{os.pathsep}{self.lib}/*"


@cache
def find_kit() -> Kit:
    """Everything that is needed, fetched and compiled where it is not there yet.

    The first call on a machine takes about a minute (Maven brings some 140 jars), later ones a moment.
    """
    java, javac = _find_java("java"), _find_java("javac")
    home = _cache_home() / "evenq" / f"rocketmq-{VERSION}"
    lib = _make_once(home / "lib", _fetch_jars)
    sources = sorted(path for path in _SOURCES.iterdir() if path.is_file())
    mark = hashlib.sha256(b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in sources)).hexdigest()
    classes = _make_once(home / f"classes-{mark[:16]}", lambda to: _compile(javac, sources, lib, to))
    return Kit(java, lib, classes)


@cache
def find_proxy_kit() -> Kit:
    """The same with the jars of RocketMQ's proxy."""
    kit = find_kit()
    lib = _make_once(kit.lib.parent / "proxy", lambda to: _fetch_jars(to, ["rocketmq-proxy"]))
    return replace(kit, lib=lib)


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _find_java(program: str) -> Path:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(program, path=str(Path(home) / "bin") if home else None)
    remedy = f"install a JDK {_JAVA} or newer (Debian: apt-get install openjdk-17-jdk-headless) or set JAVA_HOME"
    if found is None:
        raise Unavailable(f"no {program} found{f' in JAVA_HOME={home}' if home else ''}: {remedy}")
    said = _run([found, "-version"])
    version = re.search(r"(\d+)", said)
    if version is None or int(version[1]) < _JAVA:
        raise Unavailable(f"{found} is too old ({said.splitlines()[0]}): {remedy}")
    return Path(found)


def _make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Fill ``target``, all or nothing: it is made beside and renamed, so runs side by side do not meet half of it."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        make(beside)
        beside.chmod(0o755)
        try:
            beside.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another run was faster: what it made is as good
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _fetch_jars(to: Path, artifacts: Sequence[str] = _ARTIFACTS) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("no Maven (mvn) found to fetch the RocketMQ jars: install it (Debian: apt-get install maven)")
    with tempfile.TemporaryDirectory(prefix="evenq-pom-") as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(_POM.format("".join(_DEPENDENCY.format(name, VERSION) for name in artifacts)))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={to}", "-DincludeScope=runtime"]
        _run([maven, "-q", "-B", "-f", str(pom), *goal])
    if not list(to.glob(f"rocketmq-broker-{VERSION}.jar")):
        raise Unavailable(f"Maven brought no rocketmq-broker-{VERSION}.jar: check that it reaches Maven Central")


def _compile(javac: Path, sources: list[Path], lib: Path, to: Path) -> None:
    code = [str(path) for path in sources if path.suffix == ".java"]
    _run(
        [str(javac), "-nowarn", "--release", str(_JAVA), "-encoding", "UTF-8", "-cp", f"{lib}/*", "-d", str(to), *code]
    )
    for path in sources:
        if path.suffix != ".java":
            shutil.copy(path, to)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise Unavailable(f"{Path(command[0]).name} ended with {done.returncode}: {tail or 'it said nothing'}")
    return done.stdout
