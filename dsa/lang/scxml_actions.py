"""What a transition does: assignments one after the other, if and else, raise and send, as updates that all read the values before.

Takes the elements inside a transition, gives one `Effect` for each way through its conditions.
"""

from collections.abc import Callable, Sequence

import attrs

from dsa.expr import TRUE, Expr, Name
from dsa.lang.scxml_exprs import ForeignError, read_foreign
from dsa.lang.scxml_tree import Element
from dsa.simplify import FALSE, Leaf, all_of, negated, substituted

_INSIDE = (None, "", "#_internal", "internal")
_PROCESSOR = (None, "", "scxml", "http://www.w3.org/TR/scxml/", "http://www.w3.org/TR/scxml/#SCXMLEventProcessor")


@attrs.frozen
class Effect:
    """One way through a transition: when it is taken, what each datum is set to in terms of the values before, what is sent.

    `effects` say of each event that is sent whether it comes back to the same machine; `assigned` are the assignments as written.
    """

    condition: Expr = TRUE
    updates: tuple[tuple[str, Expr], ...] = ()
    effects: tuple[tuple[str, bool], ...] = ()
    assigned: tuple[tuple[str, Expr], ...] = ()

    @property
    def raised(self) -> tuple[str, ...]:
        """The events that come back."""
        return tuple(event for event, comes_back in self.effects if comes_back)

    def now(self, expr: Expr) -> Expr:
        """Give an expression that is read here in terms of the values before the transition."""
        values = dict(self.updates)

        def leaf(node: Leaf) -> Expr:
            return values.get(node.name, node) if isinstance(node, Name) else node

        return substituted(expr, leaf)


class Actions:
    """Reads the content of a transition; `known` checks an expression's names, `note` takes what is left out."""

    def __init__(self, known: Callable[[Expr], Expr], note: Callable[[int, str], None], most: int) -> None:
        self._known, self._note, self._most = known, note, most

    def read(self, elements: Sequence[Element]) -> tuple[Effect, ...]:
        """Give every way through. Raises ForeignError."""
        return tuple(self._through(elements, [Effect()]))

    def _through(self, elements: Sequence[Element], ways: list[Effect]) -> list[Effect]:
        for element in elements:
            if element.tag == "if":
                ways = [found for way in ways for found in self._choice(element, way)]
            else:
                ways = [self._after(element, way) for way in ways]
            if len(ways) > self._most:
                raise ForeignError(f"more than {self._most} ways lead through its <if>s")
        return ways

    def _choice(self, element: Element, way: Effect) -> list[Effect]:
        branches: list[tuple[Expr, list[Element]]] = [(self._condition(element), [])]
        for child in element.children:
            if child.tag in {"elseif", "else"}:
                branches.append((self._condition(child) if child.tag == "elseif" else TRUE, []))
            else:
                branches[-1][1].append(child)
        found: list[Effect] = []
        before: list[Expr] = []
        for condition, inside in [*branches, (TRUE, [])]:
            here = all_of([way.condition, *before, way.now(condition)])
            if here != FALSE:
                found += self._through(inside, [attrs.evolve(way, condition=here)])
            before.append(negated(way.now(condition)))
        return found

    def _condition(self, element: Element) -> Expr:
        return self._known(read_foreign(element.get("cond") or ""))

    def _after(self, element: Element, way: Effect) -> Effect:
        match element.tag:
            case "assign":
                return self._assigned(element, way)
            case "raise" | "send":
                return self._sent(element, way)
            case "log":
                self._note(element.line, "a <log> is left out")
            case "cancel":
                self._note(element.line, "a <cancel> of a delayed event is left out")
            case tag if " " not in tag:
                raise ForeignError(f"<{tag}> is not read")
        return way

    def _assigned(self, element: Element, way: Effect) -> Effect:
        location = element.get("location") or ""
        self._known(Name(location))
        written = self._known(read_foreign(element.get("expr") or element.text))
        updates = {**dict(way.updates), location: way.now(written)}
        return attrs.evolve(way, updates=tuple(updates.items()), assigned=(*way.assigned, (location, written)))

    def _sent(self, element: Element, way: Effect) -> Effect:
        event = element.get("event")
        if not event:
            raise ForeignError("an event that is computed (eventexpr) is not read")
        if element.get("targetexpr") or element.get("typeexpr"):
            raise ForeignError(f"where '{event}' goes is computed (targetexpr, typeexpr), which is not read")
        if is_delayed(element):
            if comes_back(element):
                self._note(element.line, f"'{event}' is sent after a delay; it is read as an event from outside")
                return way
            self._note(element.line, f"'{event}' is sent after a delay, which is left out")
        return attrs.evolve(way, effects=(*way.effects, (event, comes_back(element))))


def comes_back(element: Element) -> bool:
    """Tell whether a `<raise>` or `<send>` is for the machine itself."""
    if element.tag == "raise":
        return True
    is_here = element.get("target") in _INSIDE and element.get("type") in _PROCESSOR
    return is_here and not element.get("targetexpr") and not element.get("typeexpr")


def is_delayed(element: Element) -> bool:
    """Tell whether a `<send>` has a delay."""
    return bool(element.get("delay") or element.get("delayexpr"))
