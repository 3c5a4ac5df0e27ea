"""Filters of any text and messages of any properties: a filter answers yes or no, or is refused."""

from __future__ import annotations

import random
import resource
import sys
import time

from evenq.broker.filter.sql import Filter, sql_filter
from evenq.broker.limits import Limits
from evenq.errors import ArgumentError
from tests.harness.scale import scaled

EXPRESSIONS = scaled(5_000, 100_000)
LONGEST = Limits().max_sql_chars
MESSAGES = 2

NAMES = ["a", "b", "_c$9", "TAGS", "e5", "nullable"]
WORDS = [
    *NAMES, "AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "CONTAINS", "STARTSWITH", "ENDSWITH", "TRUE", "FALSE",
    "=", "<>", "<", "<=", ">", ">=", "+", "-", "(", ")", ",", ";", "*", "/*", "*/", "--", "'", "''", "'x'", "'it''s'",
    "0", "1", "-1", "1.5", ".5", "1.", "1e400", "2147483648", "9223372036854775808", "9" * 400, "0x1p3", "1_0", "１２",
    "\0", "\n", "\ud800", "İ", "\x01KEYS\x02",
]  # fmt: skip
CONTENTS = [
    "", "0", "-0", "+5", " 5", "5 ", "1.5", "1e999", "-1e999", "NaN", "-Infinity", "0x1p99999", "true", "x", "１２",
    "1_0", "9" * 30, "9" * 4401, "1" * 400 + "e", "." * 300, "\0", "\ud800", "é",
    "1" * 30_000 + "x", "0x" + "1" * 30_000,
]  # fmt: skip


def phrase(rng: random.Random, depth: int = 0) -> str:
    """Something that is mostly legal."""
    name, word = rng.choice(NAMES), rng.choice
    number = word(["1", "-1", "1.5", "9" * 30, word(NAMES)])
    texts = ", ".join(word(["'x'", "''", "'it''s'"]) for _ in range(rng.randint(1, 4)))
    no = word(["", "NOT "])
    if depth < 4 and rng.random() < 0.5:
        left, right = phrase(rng, depth + 1), phrase(rng, depth + 1)
        return word([f"({left})", f"NOT ({left})", f"{left} AND {right}", f"{left} OR {right}"])
    return word(
        [
            f"{name} {word(['=', '<>', '<', '<=', '>', '>='])} {number}",
            f"{name} = 'x'",
            f"{name} IS {no}NULL",
            f"{name} {no}IN ({texts})",
            f"{name} {no}BETWEEN {number} AND {number}",
            f"{name} {no}{word(['CONTAINS', 'STARTSWITH', 'ENDSWITH'])} 'x'",
        ]
    )


def expression(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return phrase(rng)
    if kind < 0.7:
        return word_soup(rng)
    if kind < 0.98:
        return damaged(rng, phrase(rng))
    piece = rng.choice([*WORDS, "NOT ", "00", "/*a", "a = 1 OR ", "a IN ('x') = ", "a<b=", phrase(rng) + " AND "])
    return (piece * (LONGEST // len(piece)))[: LONGEST - 5] + rng.choice(["", "a = 1", ")", "'"])


def word_soup(rng: random.Random) -> str:
    return rng.choice(["", " "]).join(rng.choice(WORDS) for _ in range(rng.randint(0, 20)))


def damaged(rng: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(letters))
        letters[at : at + rng.randint(0, 3)] = rng.choice([[], [rng.choice(WORDS)], [chr(rng.randrange(1, 0x3000))]])
        letters = letters or ["a"]
    return "".join(letters)


def test_any_filter_answers_or_is_refused(rng: random.Random) -> None:
    took, answers = 0.0, {True: 0, False: 0}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(EXPRESSIONS):
        text = expression(rng)
        began = time.process_time()
        found = filter_of(text)
        if found is not None:
            for _ in range(MESSAGES):
                answer = found({name: rng.choice(CONTENTS) for name in NAMES if rng.random() < 0.7})
                answers[answer] += 1
        took = max(took, time.process_time() - began)
    assert min(answers.values()) > EXPRESSIONS // 20
    assert took < 1.0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown / (1 << 20 if sys.platform == "darwin" else 1 << 10) < 100


def filter_of(text: str) -> Filter | None:
    try:
        return sql_filter(text)
    except ArgumentError:
        return None
