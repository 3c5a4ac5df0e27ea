"""What went wrong, from Spark's long errors: one sentence for people. Pure."""

from __future__ import annotations

import re

__all__ = ["reason"]

# The last line of a Python traceback that Spark quotes: the error's class, and what it says.
_PYTHON = re.compile(r"^\s*(?:pyspark\.errors\.\S+: )?((?:\w+\.)*[A-Z]\w*): (\S.*)$", re.MULTILINE)
# The exceptions of the JVM around it, which say nothing by themselves.
_WRAPPED = re.compile(r"^:?\s*(?:(?:Caused by: )?(?:[a-z]\w*\.)+[A-Z]\w*: )+")
_CALLING = re.compile(r"^An error occurred while calling [^ ]+\.$")
_CLASS = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+(?:; line \d+ pos \d+;?)?\s*$")
_QUERY = re.compile(r"^Query \[id = .*?\] terminated with exception: ")


def reason(text: str) -> str:
    """The sentence that matters: evenq's own where it is in there, else what a Python worker or Spark said.

    >>> reason("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST")
    'Job aborted.'
    >>> reason("[PYTHON_DATA_SOURCE_ERROR] Failed to read: Traceback (most recent call last):\\n  File x, line 3\\n"
    ...        "evenq.errors.ArgumentError: subscribe=None: say what to read\\n SQLSTATE: 38000")
    'subscribe=None: say what to read'
    """
    found = [match for match in _PYTHON.findall(text) if "Traceback" in text]
    own = [said for kind, said in found if kind.startswith("evenq.")]
    if own:
        return _clean(own[-1])
    python = [
        f"{kind.rpartition('.')[2]}: {said}" for kind, said in found if not kind.startswith(("org.", "java.", "py4j."))
    ]
    if python:
        return _clean(python[-1])
    for line in filter(None, map(str.strip, text.splitlines())):
        if not _CALLING.match(line):
            return _clean(line)
    return "Spark failed without a word"


def _clean(line: str) -> str:
    before = None
    while line != before:
        before = line
        for pattern in (_WRAPPED, _CLASS, _QUERY, _STATE):
            line = pattern.sub("", line)
    return line.strip()
