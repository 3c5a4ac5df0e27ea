"""The layers of DESIGN.md: who may import whom. Imports inside functions count too."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import evenq

ROOT = Path(evenq.__file__).parent

# part of evenq -> the other parts that it may import
ALLOWED = {
    "_version": set(),
    "errors": set(),
    "model": {"errors"},
    "balance": {"errors", "model"},
    "protocol": {"errors", "model"},
    "supervision": {"errors"},
    "plot": {"errors", "model", "balance"},
    "client": {"errors", "model", "balance", "protocol", "supervision"},
    "aio": {"client"},
    "broker": {"errors", "model", "protocol", "supervision"},
    "testing": {"errors", "model", "protocol", "broker", "client"},
    "spark": {"errors", "model", "balance", "protocol", "client", "plot"},
    "cli": {"errors", "model", "balance", "protocol", "client", "aio", "broker", "testing", "spark", "plot"},
    "web": {"errors", "model", "balance", "protocol", "client", "plot"},
    # python -m evenq
    "__main__": {"cli"},
    # the surface itself
    "__init__": {"errors", "model", "balance", "client", "aio", "protocol", "testing"},
}

# room of evenq.client -> the other rooms that it may import; all may import what lies beside the rooms
ROOMS = {
    "net": set(),
    "produce": {"net"},
    "read": {"net"},
    "group": {"net"},
    "consume": {"net", "produce", "read", "group"},
    "admin": {"net", "read"},
    "sync": {"admin", "produce", "consume"},
}

# the same for evenq.broker
BROKER_ROOMS = {
    "store": set(),
    "state": {"store"},
    "scheduling": {"store", "state"},
    "filter": {"store"},
    "handlers": {"store", "state", "scheduling", "filter"},
}

MODULES = sorted(ROOT.rglob("*.py"))


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module or "")
            if node.module == "evenq":
                found |= {f"evenq.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "evenq" and name != "evenq"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert part in ALLOWED, f"{part} is new: give it a place in the layers"
    wrong = {name for name in imports(path) if part_of(name) not in ALLOWED[part] | {part, "_version"}}
    assert not wrong


@pytest.mark.parametrize(
    "path", sorted((ROOT / "client").rglob("*/*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_rooms_of_the_client_are_built_on_each_other(path: Path) -> None:
    check_room(path, "client", ROOMS)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "broker").rglob("*/*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_rooms_of_the_broker_are_built_on_each_other(path: Path) -> None:
    check_room(path, "broker", BROKER_ROOMS)


def check_room(path: Path, part: str, rooms: dict[str, set[str]]) -> None:
    room = path.relative_to(ROOT / part).parts[0]
    assert room in rooms, f"{room} is new: give it a place in the layers"
    found = {name.split(".")[2] for name in imports(path) if name.startswith(f"evenq.{part}.")}
    assert found & rooms.keys() <= rooms[room] | {room}


def test_every_layer_is_there() -> None:
    present = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in MODULES}
    assert present == set(ALLOWED)


@pytest.mark.live
def test_import_evenq_loads_nothing_heavy() -> None:
    code = "import sys, evenq; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "pyarrow", "pandas", "pyspark", "typer", "rich", "starlette", "uvicorn", "lz4", "zstandard"}
    assert "evenq" in loaded
    assert not heavy & set(loaded)
