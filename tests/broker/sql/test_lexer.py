"""Cutting expressions into tokens."""

from evenq.broker.sql.lexer import Kind, tokens


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
