"""``python -m bench``: what there is to measure, one line each."""

import ast
from pathlib import Path

for path in sorted(Path(__file__).parent.glob("*.py")):
    tree = ast.parse(path.read_text())
    if any(isinstance(node, ast.If) for node in tree.body) and path.name != "__main__.py":
        summary = (ast.get_docstring(tree) or "").partition("\n")[0]
        print(f"python -m bench.{path.stem:<10}  {summary}")
