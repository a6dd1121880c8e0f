"""Data of an SCXML file as variables: initial values, and domains, which SCXML does not declare.

Takes data elements and the expressions they are met in. A truth value is `bool`; a text has the texts it meets; a whole number has the
range of the numbers it is compared with or set to, which is a guess, unless `dsa:domain` says it.
"""

from collections.abc import Iterable

import attrs

from dsa.expr import Arithmetic, Boolean, Compare, Expr, Integer, Name, Symbol, walk
from dsa.lang.scxml_exprs import ForeignError, read_foreign
from dsa.lang.scxml_tree import Element

DOMAIN = "urn:dsa:machine domain"
_SCRATCH = "scratch"


@attrs.define
class Datum:
    """A datum: what it starts with, and its domain as a table writes it, once known. `values` are an enumeration's."""

    id: str
    initial: Expr | None
    line: int
    declared: str | None = None
    domain: str | None = None
    values: tuple[str, ...] = ()
    is_guess: bool = False

    @property
    def is_scratch(self) -> bool:
        """Tell whether it only keeps a value aside within a transition."""
        return self.declared == _SCRATCH

    def learn(self, expressions: Iterable[Expr], assigned: Iterable[tuple[str, Expr]]) -> None:
        """Work the domain out."""
        met = [self.initial, *(value for name, value in assigned if name == self.id), *self._compared(expressions)]
        if self.declared is not None and not self.declared.startswith("{"):
            self.domain = self.declared
        elif isinstance(self.initial, Boolean):
            self.domain = "bool"
        elif isinstance(self.initial, Symbol):
            texts = self.declared.strip("{} ").split(",") if self.declared else []
            found = [text.strip() for text in texts] + [item.value for item in met if isinstance(item, Symbol)]
            self.values = tuple(dict.fromkeys(found))
            self.domain = "{" + ", ".join(self.values) + "}"
        elif isinstance(self.initial, Integer):
            numbers = [item.value for item in met if isinstance(item, Integer)]
            self.domain, self.is_guess = f"{min(numbers)}..{max(numbers)}", True

    def _compared(self, expressions: Iterable[Expr]) -> Iterable[Expr]:
        """Give the constants that this is compared with, by itself or within a sum."""
        for node in (node for expr in expressions for node in walk(expr)):
            if isinstance(node, Compare):
                sides = [node.first, *(operand for _, operand in node.rest)]
                if any(self._is_about(side) for side in sides):
                    yield from (side for side in sides if isinstance(side, Integer | Symbol))

    def _is_about(self, expr: Expr) -> bool:
        named = isinstance(expr, Name | Arithmetic)
        return named and any(isinstance(node, Name) and node.name == self.id for node in walk(expr))


def datum_of(element: Element) -> Datum:
    """Read a `<data>`. Raises ForeignError."""
    name = element.get("id") or ""
    if not name or not name.isidentifier():
        raise ForeignError(f"a <data> needs an id that is a name, not '{name}'")
    if element.get("src"):
        raise ForeignError(f"'{name}' is read from elsewhere (src); write its value")
    text = element.get("expr") or element.text.strip()
    if not text:
        raise ForeignError(f"'{name}' has no initial value")
    value = read_foreign(text)
    if not isinstance(value, Boolean | Integer | Symbol):
        raise ForeignError(f"'{name}' must start with a truth value, a whole number or a text, not '{text}'")
    return Datum(name, value, element.line, element.get(DOMAIN))
