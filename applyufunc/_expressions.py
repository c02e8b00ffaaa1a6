"""Expressions for the sizes of an output's dimensions: text to postfix order, postfix order to text, and their value.

In: a `Reader` at an expression's first token. Out: a postfix tuple of names, integers and operators. Must not know:
operands, and which names there are. Everything is a loop over a stack, so that no nesting is too deep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ._errors import DimensionError
from ._lexer import MAX_SIZE, Reader, shortened

__all__ = ["PRECEDENCE", "Postfix", "evaluate", "names", "read_expression", "to_text"]

Postfix: TypeAlias = tuple[str | int, ...]
"""``m+n-1`` is ``("m", "n", "+", 1, "-")``."""

PRECEDENCE: Final[Mapping[str, int]] = {"+": 1, "-": 1, "*": 2, "//": 2}
"""The operators, and how tightly each binds; all are left-associative, as in Python."""


def read_expression(reader: Reader) -> Postfix:
    """Turn an expression into postfix order, by Dijkstra's shunting yard."""
    postfix: list[str | int] = []
    waiting: list[str] = []
    n_open = 0
    while True:
        while reader.accept("("):
            waiting.append("(")
            n_open += 1
        postfix.append(_read_atom(reader))
        # A ")" that closes nothing here is the operand's own.
        while n_open and reader.accept(")"):
            _release(waiting, postfix, 1)
            waiting.pop()
            n_open -= 1
        if reader.token.kind not in PRECEDENCE:
            break
        operator = reader.advance().kind
        _release(waiting, postfix, PRECEDENCE[operator])
        waiting.append(operator)
    if n_open or reader.token.kind == "/":
        raise reader.error("an operator or ')'", "division is '//'" if reader.token.kind == "/" else "")
    _release(waiting, postfix, 1)
    return tuple(postfix)


def to_text(postfix: Postfix) -> str:
    """Write a postfix expression with no more parentheses than its order needs.

    Leaves come in the same order in both forms, and every leaf but the first has one operator in front of it, so that
    each leaf collects what stands around it, and all is joined once.
    """
    leaves: list[str] = []
    operators: list[str] = []
    n_opened: list[int] = []
    n_closed: list[int] = []
    stack: list[tuple[int, int]] = []  # of each part: its first leaf, and how tightly it binds
    for token in postfix:
        if isinstance(token, int) or token not in PRECEDENCE:
            stack.append((len(leaves), _ATOM))
            leaves.append(str(token))
            operators.append("")
            n_opened.append(0)
            n_closed.append(0)
            continue
        precedence = PRECEDENCE[token]
        right, right_precedence = stack.pop()
        left, left_precedence = stack.pop()
        if left_precedence < precedence:
            n_opened[left] += 1
            n_closed[right - 1] += 1
        if right_precedence <= precedence:
            n_opened[right] += 1
            n_closed[-1] += 1
        operators[right] = token
        stack.append((left, precedence))
    parts = zip(operators, n_opened, leaves, n_closed, strict=True)
    return "".join(f"{operator}{'(' * opened}{leaf}{')' * closed}" for operator, opened, leaf, closed in parts)


def names(postfix: Postfix) -> tuple[str, ...]:
    """Return the names in an expression, each once, in the order written."""
    return tuple(dict.fromkeys(token for token in postfix if isinstance(token, str) and token not in PRECEDENCE))


def evaluate(postfix: Postfix, sizes: Mapping[str, int | None]) -> int | None:
    """Return the size that an expression comes to; None: it depends on an unknown one."""
    try:
        result = _run(postfix, sizes)
    except ArithmeticError as error:
        raise DimensionError(f"{_with_sizes(postfix, sizes)} {error}") from None
    if result is not None and result < 0:
        raise DimensionError(f"{_with_sizes(postfix, sizes)} has size {result}, but expected a size of 0 or more")
    return result


_ATOM: Final = 3


def _read_atom(reader: Reader) -> str | int:
    if reader.token.kind == "integer":
        return reader.take_integer()
    if reader.token.kind != "name":
        raise reader.error("a name, an integer or '('")
    return reader.take_name()


def _release(waiting: list[str], postfix: list[str | int], precedence: int) -> None:
    """Move the operators that bind at least as tightly, back to the last open parenthesis."""
    while waiting and PRECEDENCE.get(waiting[-1], 0) >= precedence:
        postfix.append(waiting.pop())


def _run(postfix: Postfix, sizes: Mapping[str, int | None]) -> int | None:
    """Work out a postfix expression on a stack."""
    stack: list[int | None] = []
    for token in postfix:
        if isinstance(token, int):
            stack.append(token)
        elif token in PRECEDENCE:
            right = stack.pop()
            stack.append(_combine(token, stack.pop(), right))
        else:
            stack.append(sizes[token])
    (result,) = stack
    return result


def _combine(operator: str, left: int | None, right: int | None) -> int | None:
    """Apply one operator; an unknown operand makes the result unknown."""
    if operator == "//" and right == 0:
        raise ZeroDivisionError("divides by zero")
    if left is None or right is None:
        return None
    if operator == "+":
        result = left + right
    elif operator == "-":
        result = left - right
    elif operator == "*":
        result = left * right
    else:
        result = left // right
    if type(result) is int and abs(result) > MAX_SIZE:  # a symbol, of a program for any size, has no limits yet
        raise OverflowError(f"comes to {result}, but expected at most 2**63 - 1")
    return result


def _with_sizes(postfix: Postfix, sizes: Mapping[str, int | None]) -> str:
    """Name a dimension and the sizes that it depends on, for a message."""
    given = ", ".join(f"{name}={'unknown' if sizes[name] is None else sizes[name]}" for name in names(postfix))
    return f"dimension {shortened(to_text(postfix))!r}" + (f" with {shortened(given)}" if given else "")
