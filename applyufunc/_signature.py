"""The text of a gufunc signature becomes a value, and back.

In: text. Out: a `Signature`, two tuples of operands, each a tuple of `CoreDim`. Must not know: arrays, shapes, options.

The grammar, with white space between any two tokens::

    signature  := [ operand ("," operand)* ] "->" operand ("," operand)* [","]
    operand    := "(" [ dim ("," dim)* [","] ] ")"
    dim        := NAME | NAME "?" | INT          in inputs and outputs
                | NAME "|1"                      in inputs only
                | expression                     in outputs only
    expression := term (("+" | "-") term)*
    term       := factor (("*" | "//") factor)*
    factor     := NAME | INT | "(" expression ")"

NAME is an ASCII identifier, INT a decimal number up to 2**63 - 1. ``?`` stands after every occurrence of a name or
none, never in an expression. Every step is a loop that looks one token ahead: time is linear in the text and nothing
recurses, however hostile it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from ._errors import DimensionError, OptionError
from ._expressions import PRECEDENCE, Postfix, evaluate, names, read_expression, to_text
from ._lexer import Reader, shortened

__all__ = ["CoreDim", "Signature"]


@dataclass(frozen=True, slots=True)
class CoreDim:
    """One core dimension of one operand, as the signature writes it.

    Parameters
    ----------
    label : str
        A name (``"n"``), a fixed size (``"3"``) or an expression in canonical text (``"m+n-1"``). Equal labels are one
        dimension.
    size : int, optional
        The fixed size; None where the signature does not fix it.
    optional : bool
        Written ``n?``: the dimension may be absent, from all operands at once.
    stretches : bool
        Written ``n|1``: in this operand, size 1 broadcasts to the size that the dimension has elsewhere.
    expression : tuple of str and int, optional
        An output's size in terms of others, in postfix order: names, integers, and the operators
        ``"+"``, ``"-"``, ``"*"`` and ``"//"``. ``m+n-1`` is ``("m", "n", "+", 1, "-")``.
    """

    label: str
    size: int | None = None
    optional: bool = False
    stretches: bool = False
    expression: Postfix | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the size depends on, each once, in the order written; the dimension's own if it is a name."""
        return names(self._postfix)

    def evaluate(self, sizes: Mapping[str, int | None]) -> int | None:
        """Return the size of this dimension where the names have these sizes.

        Parameters
        ----------
        sizes : mapping of str to int or None
            A size for every name; None: unknown.

        Returns
        -------
        int or None
            The size; None where it depends on an unknown size.

        Raises
        ------
        KeyError
            If a name has no entry in `sizes`.
        DimensionError
            If the expression divides by zero, is negative, or passes 2**63 - 1 on the way.

        Examples
        --------
        >>> convolved = Signature.parse("(m),(n)->(m+n-1)").outputs[0][0]
        >>> convolved.evaluate({"m": 5, "n": 3})
        7
        """
        return evaluate(self._postfix, sizes)

    def __str__(self) -> str:
        return self.label + ("?" if self.optional else "") + ("|1" if self.stretches else "")

    @property
    def _postfix(self) -> Postfix:
        if self.expression is not None:
            return self.expression
        return (self.label if self.size is None else self.size,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Signature:
    """A gufunc signature as a value: the core dimensions of every input and output.

    Two signatures are equal if their canonical texts are: white space, needless parentheses and leading zeros do not
    count, names do. Make one with `Signature.parse`.

    Parameters
    ----------
    inputs, outputs : tuple of tuples of CoreDim
        The core dimensions of each operand, in the order of its last axes.
    always_tuple : bool
        A comma follows the last output: a call gives a tuple even if there is one output.

    Attributes
    ----------
    text : str
        The canonical text; `Signature.parse` makes an equal signature from it.
    input_labels, output_labels : tuple of tuples of str
        The labels of each operand's core dimensions.
    """

    inputs: tuple[tuple[CoreDim, ...], ...]
    outputs: tuple[tuple[CoreDim, ...], ...]
    always_tuple: bool = False
    text: str = field(init=False)
    input_labels: tuple[tuple[str, ...], ...] = field(init=False)
    output_labels: tuple[tuple[str, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        text = f"{_operands_text(self.inputs)}->{_operands_text(self.outputs)}{',' if self.always_tuple else ''}"
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "input_labels", _labels(self.inputs))
        object.__setattr__(self, "output_labels", _labels(self.outputs))

    @classmethod
    def parse(cls, text: str) -> Signature:
        r"""Return the signature that a text stands for.

        Parameters
        ----------
        text : str
            For example ``"(m,n),(n)->(m)"``. A name followed by ``?`` may be absent (from all operands), one followed
            by ``|1`` stretches where its size is 1, an integer is a fixed size, and an output may compute a size from
            others: ``"(m),(n)->(m+n-1)"``. A comma at the end asks for a tuple even if there is one output.

        Returns
        -------
        Signature
            The same object for the same text, while it is cached.

        Raises
        ------
        OptionError
            If `text` is not a string.
        SignatureError
            If `text` does not follow the grammar. The message points at the character.

        Examples
        --------
        >>> signature = Signature.parse("(m, n), (n) -> (m)")
        >>> signature
        Signature.parse('(m,n),(n)->(m)')
        >>> signature.input_labels
        (('m', 'n'), ('n',))
        """
        return _parse(_checked_text(text))

    @property
    def nin(self) -> int:
        """The number of inputs."""
        return len(self.inputs)

    @property
    def nout(self) -> int:
        """The number of outputs."""
        return len(self.outputs)

    def absent(self, ndims: Sequence[int | None]) -> frozenset[str]:
        """Return the optional dimensions that inputs with these numbers of axes leave out.

        The rule is NumPy's (``_validate_num_dims`` in ``numpy/_core/src/umath/ufunc_object.c``): each input in turn
        that has fewer axes than core dimensions loses its optional ones from the left until the numbers agree; a
        dimension lost in one operand is lost in all.

        Parameters
        ----------
        ndims : sequence of int or None, one per input
            The number of axes of each input; None: no array is there, and anything fits.

        Returns
        -------
        frozenset of str
            Labels of the dimensions that are absent from every operand.

        Raises
        ------
        DimensionError
            If an input has too few axes even without its optional dimensions.

        Examples
        --------
        >>> sorted(Signature.parse("(m?,n),(n,p?)->(m?,p?)").absent([1, 2]))
        ['m']
        """
        absent: set[str] = set()
        for index, (dims, ndim) in enumerate(zip(self.inputs, ndims, strict=True)):
            if ndim is None:
                continue
            wanted = _without(dims, absent) if absent else dims
            if ndim >= len(wanted):
                continue
            absent |= _left_out(wanted, ndim)
            wanted = _without(dims, absent)
            if ndim < len(wanted):
                raise DimensionError(self._too_few(index, ndim, wanted))
        return frozenset(absent)

    def without(self, absent: frozenset[str]) -> Signature:
        """Return the signature with these dimensions left out of every operand.

        Parameters
        ----------
        absent : frozenset of str
            Labels, as `absent` gives them.

        Returns
        -------
        Signature
            The dimensions left keep their flags.

        Examples
        --------
        >>> Signature.parse("(m?,n),(n,p?)->(m?,p?)").without(frozenset({"m"}))
        Signature.parse('(n),(n,p?)->(p?)')
        """
        inputs = tuple(_without(dims, absent) for dims in self.inputs)
        outputs = tuple(_without(dims, absent) for dims in self.outputs)
        return Signature(inputs, outputs, self.always_tuple)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Signature) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Signature.parse({self.text!r})"

    def _too_few(self, index: int, ndim: int, wanted: tuple[CoreDim, ...]) -> str:
        dims = shortened(_operands_text([wanted]))
        left = " once its optional ones are left out" if len(wanted) < len(self.inputs[index]) else ""
        return (
            f"argument {index} has {ndim} dimension{'' if ndim == 1 else 's'}, but expected at least {len(wanted)}: "
            f"signature {shortened(self.text)!r} gives it the core dimensions {dims}{left}"
        )


_Dims: TypeAlias = tuple[CoreDim, ...]

_OPERAND_HINTS: Final[Mapping[str, str]] = dict.fromkeys(
    ["name", "integer"], "the core dimensions of each operand stand in parentheses"
)
_INPUT_HINTS: Final[Mapping[str, str]] = {
    **dict.fromkeys([*PRECEDENCE, "("], "only outputs take expressions"),
    **dict.fromkeys("?|", "'?' and '|1' follow a name, one of them at most"),
}
_OUTPUT_HINTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(PRECEDENCE, "an optional dimension cannot be part of an expression"),
    "?": "'?' follows a name that stands alone, once",
    "|": "only inputs stretch",
}


def _labels(operands: Sequence[_Dims]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(dim.label for dim in dims) for dims in operands)


def _operands_text(operands: Sequence[_Dims]) -> str:
    """Write operands in canonical text."""
    return ",".join(f"({','.join(map(str, dims))})" for dims in operands)


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        given = f"{type(text).__name__} {shortened(repr(text))}"
        raise OptionError(f"signature: expected a string such as '(m,n),(n)->(m)', got {given}")
    return text


@lru_cache(maxsize=256)
def _parse(text: str) -> Signature:
    """Read a whole signature."""
    reader = Reader(text)
    inputs = _read_inputs(reader)
    reader.take("->", "',' or '->'" if inputs else "'(' or '->'", _OPERAND_HINTS)
    outputs, always_tuple = _read_outputs(reader)
    reader.take("end", "',' or the end")
    return Signature(inputs, outputs, always_tuple)


def _without(dims: _Dims, absent: AbstractSet[str]) -> _Dims:
    return tuple(dim for dim in dims if dim.label not in absent)


def _left_out(dims: _Dims, ndim: int) -> set[str]:
    """Choose, from the left, the optional dimensions that an operand with `ndim` axes has to do without."""
    absent: set[str] = set()
    n_core = len(dims)
    occurrences = Counter(dim.label for dim in dims)
    for dim in dims:
        if dim.optional and dim.label not in absent:
            absent.add(dim.label)
            n_core -= occurrences[dim.label]
        # Equality is NumPy's test: where "(n?,n?,p?)" meets two axes, n is one too few, and p goes as well.
        if n_core == ndim:
            break
    return absent


def _read_inputs(reader: Reader) -> tuple[_Dims, ...]:
    inputs: list[_Dims] = []
    if reader.token.kind == "(":
        inputs.append(_read_operand(reader, is_output=False))
        while reader.accept(","):
            inputs.append(_read_operand(reader, is_output=False))
    return tuple(inputs)


def _read_outputs(reader: Reader) -> tuple[tuple[_Dims, ...], bool]:
    """Read at least one output, and say whether a comma follows the last."""
    outputs = [_read_operand(reader, is_output=True)]
    while reader.accept(","):
        if reader.token.kind == "end":
            return tuple(outputs), True
        outputs.append(_read_operand(reader, is_output=True))
    return tuple(outputs), False


def _read_operand(reader: Reader, *, is_output: bool) -> _Dims:
    """Read one operand's core dimensions with the parentheses around them."""
    read_dim, hints = (_read_output_dim, _OUTPUT_HINTS) if is_output else (_read_input_dim, _INPUT_HINTS)
    starts = ("name", "integer", "(") if is_output else ("name", "integer")
    reader.take("(", "'('", _OPERAND_HINTS)
    dims: list[CoreDim] = []
    while reader.token.kind != ")":
        if reader.token.kind not in starts:
            expected = "a name, an integer, '(' or ')'" if is_output else "a name, an integer or ')'"
            raise reader.error(expected, "" if is_output else hints.get(reader.token.kind, ""))
        dims.append(read_dim(reader))
        if not reader.accept(","):
            break
    reader.take(")", "',' or ')'", hints)
    return tuple(dims)


def _read_input_dim(reader: Reader) -> CoreDim:
    if reader.token.kind == "integer":
        return _fixed(reader.take_integer())
    if reader.following.kind == "?":
        return _read_optional(reader)
    return CoreDim(reader.take_name(), stretches=_read_stretches(reader))


def _fixed(size: int) -> CoreDim:
    return CoreDim(str(size), size=size)


def _read_optional(reader: Reader) -> CoreDim:
    name = reader.take_name(optional=True)
    reader.take("?", "'?'")
    return CoreDim(name, optional=True)


def _read_stretches(reader: Reader) -> bool:
    """Read ``|1`` if it is there."""
    if not reader.accept("|"):
        return False
    if reader.token.text.lstrip("0") != "1":
        raise reader.error("'1'", "a dimension that broadcasts is written 'n|1'")
    reader.advance()
    return True


def _read_output_dim(reader: Reader) -> CoreDim:
    """Read a name, an integer or an expression; parentheses around the first two say nothing and are dropped."""
    if reader.token.kind == "name" and reader.following.kind == "?":
        return _read_optional(reader)
    expression = read_expression(reader)
    if len(expression) > 1:
        return CoreDim(to_text(expression), expression=expression)
    (atom,) = expression
    return _fixed(atom) if isinstance(atom, int) else CoreDim(atom)
