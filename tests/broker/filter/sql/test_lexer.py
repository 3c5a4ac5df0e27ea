"""Cutting expressions into tokens."""

from collections.abc import Iterator

from evenq.broker.filter.sql.lexer import Kind, Token, token_pieces


def tokens(expression: str) -> list[Token]:
    found: list[Token] = []

    def read() -> Iterator[None]:
        found.extend((yield from token_pieces(expression)))

    for _ in read():
        pass
    return found


def test_every_kind_is_told_apart_by_its_longest_form() -> None:
    found = [(token.kind, token.text) for token in tokens("not nota 'it''s' 5L 5. .5E-1 5e10 <>>= --x\n/**/$a_1")]

    assert found == [
        (Kind.KEYWORD, "NOT"),
        (Kind.NAME, "nota"),
        (Kind.STRING, "'it''s'"),
        (Kind.INTEGER, "5L"),
        (Kind.DECIMAL, "5."),
        (Kind.DECIMAL, ".5E-1"),
        (Kind.DECIMAL, "5e10"),
        (Kind.SYMBOL, "<>"),
        (Kind.SYMBOL, ">="),
        (Kind.NAME, "$a_1"),
        (Kind.END, ""),
    ]


def test_a_long_expression_is_cut_in_pieces() -> None:
    pieces = token_pieces(" OR ".join(["a = 1"] * 1000))
    assert sum(1 for _ in pieces) == 7
