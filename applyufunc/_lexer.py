"""The text of a signature is cut into tokens, read one after the other.

In: text. Out: a `Reader` that stands at a token, knows the next one, and makes errors that point at the character. Must
not know: what an operand or an expression is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ._errors import SignatureError

__all__ = ["MAX_SIZE", "Reader", "Token", "shortened"]

# NumPy's intp on a 64-bit machine; it also keeps every integer below the number of digits that int() and str() refuse.
MAX_SIZE: Final = 2**63 - 1


class Token:
    """A piece of a signature. Its kind is ``"name"``, ``"integer"``, ``"end"``, or else its own text."""

    __slots__ = ("kind", "start", "text")

    def __init__(self, kind: str, text: str, start: int) -> None:
        self.kind, self.text, self.start = kind, text, start


class Reader:
    """The tokens of a text one after the other, the one that follows, and the use of each name so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = _scan(text)
        self.token = next(self._tokens)
        self.following = next(self._tokens, self.token)
        self._seen: dict[str, tuple[bool, int]] = {}

    def advance(self) -> Token:
        """Go on to the next token, and return the one left behind."""
        token = self.token
        self.token = self.following
        self.following = next(self._tokens, self.following)
        return token

    def accept(self, kind: str) -> bool:
        """Go on if the token is of this kind, and say whether it was."""
        if self.token.kind != kind:
            return False
        self.advance()
        return True

    def take(self, kind: str, expected: str, hints: Mapping[str, str] | None = None) -> Token:
        """Go on if the token is of this kind, else fail."""
        if self.token.kind != kind:
            raise self.error(expected, (hints or {}).get(self.token.kind, ""))
        return self.advance()

    def take_name(self, *, optional: bool = False) -> str:
        """Take a name, and compare with its other uses: ``?`` stands after all of them or none, as in NumPy."""
        name = self.take("name", "a name")
        seen_optional, seen_start = self._seen.setdefault(name.text, (optional, name.start))
        if seen_optional is not optional:
            quoted = shortened(name.text)
            if seen_optional:
                hint = f"{quoted!r} has one at position {seen_start}: it needs one everywhere, and no expression has it"
                raise self.error("'?'", hint)
            raise self.error("no '?'", f"{quoted!r} has none at position {seen_start}, so it has none anywhere")
        return name.text

    def take_integer(self) -> int:
        """Take a decimal number that is a possible size."""
        digits = self.token.text.lstrip("0") or "0"
        if len(digits) > _MAX_DIGITS or int(digits) > MAX_SIZE:
            raise self.error("an integer up to 2**63 - 1")
        self.advance()
        return int(digits)

    def error(self, expected: str, hint: str = "") -> SignatureError:
        """Describe what stands at the token instead of what was expected."""
        found = "the end" if self.token.kind == "end" else repr(shortened(self.token.text))
        if not hint and not self.token.text.isascii():
            hint = "a name is made of ASCII letters, digits and '_'"
        message = f"signature at position {self.token.start}: expected {expected}, found {found}"
        return SignatureError(f"{message}{hint and f' ({hint})'}\n{_pointed(self.text, self.token.start)}")


def shortened(text: str) -> str:
    """Cut a text that is too long to quote."""
    return text if len(text) <= 2 * _REACH else f"{text[: 2 * _REACH]}..."


# The module `string` has these as well, and takes a millisecond to import.
_DIGITS: Final = frozenset("0123456789")
_NAME_START: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
_NAME_PART: Final = _NAME_START | _DIGITS

_MAX_DIGITS: Final = len(str(MAX_SIZE))

# Characters shown on either side of the one that an error points at, and of any other text that a message quotes.
_REACH: Final = 30


def _scan(text: str) -> Iterator[Token]:
    """Cut a text into tokens; what the grammar does not know becomes a token of one character."""
    position = 0
    while position < len(text):
        start = position
        position += 1
        if text[start] in _NAME_START:
            position = _end_of_run(text, position, _NAME_PART)
            yield Token("name", text[start:position], start)
        elif text[start] in _DIGITS:
            position = _end_of_run(text, position, _DIGITS)
            yield Token("integer", text[start:position], start)
        elif text.startswith(("->", "//"), start):
            position += 1
            yield Token(text[start:position], text[start:position], start)
        elif not text[start].isspace():
            yield Token(text[start], text[start], start)
    yield Token("end", "", len(text))


def _end_of_run(text: str, position: int, characters: frozenset[str]) -> int:
    while position < len(text) and text[position] in characters:
        position += 1
    return position


def _pointed(text: str, position: int) -> str:
    """Quote the text around a position, with a caret below."""
    start, end = max(0, position - _REACH), position + _REACH
    head = "..." if start else ""
    tail = "..." if end < len(text) else ""
    # One column each, so that the caret stays below its character.
    shown = "".join(character if character.isprintable() else " " for character in text[start:end])
    return f"    {head}{shown}{tail}\n    {' ' * (len(head) + position - start)}^"
