"""SCXML files to machines: what `dsa import` reads.

Takes text or bytes, gives an `Imported`: the machine, or None, and with lines what could not be read. A file that `dsa export` wrote
carries its document, and that is read. Of other files: nested states, transitions with conditions and assignments, data over truth values,
whole numbers and enumerations, raise and send. Where SCXML's rules differ from the table's (the first transition that is enabled is
taken, and outer ones when no inner one is), the rows say it.
"""

from collections.abc import Iterable, Iterator, Sequence

import attrs

from dsa import expr
from dsa.declarations import OUTSIDE
from dsa.expr import Arithmetic, Boolean, Compare, Expr, Integer, Name, Symbol, walk
from dsa.lang.build import read_machine
from dsa.lang.scxml_actions import Actions, comes_back, is_delayed
from dsa.lang.scxml_exprs import ForeignError, read_foreign
from dsa.lang.scxml_states import NOT_READ, STATES, Finding, Log, Moved, Naming, Place, Places
from dsa.lang.scxml_tree import Element, ScxmlError, read_tree
from dsa.machine import Machine
from dsa.simplify import FALSE, Leaf, all_of, constant, negated, substituted
from dsa.tables import table_lines

_PLATFORM = ("done.state.", "done.invoke.", "error.execution", "error.communication", "error.platform")
_MOST_PATHS = 64


DOMAIN = "urn:dsa:machine domain"
_SCRATCH = "scratch"


@attrs.define
class _Datum:
    """A datum: what it starts with, and its domain as a table writes it, once known. `values` are an enumeration's.

    SCXML declares no domains. A truth value is `bool`; a text has the texts it meets; a whole number has the range of the numbers it is
    compared with or set to, which is a guess, unless `dsa:domain` says it.
    """

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
        for node in (node for each in expressions for node in walk(each)):
            if isinstance(node, Compare):
                sides = [node.first, *(operand for _, operand in node.rest)]
                if any(self._is_about(side) for side in sides):
                    yield from (side for side in sides if isinstance(side, Integer | Symbol))

    def _is_about(self, expr: Expr) -> bool:
        named = isinstance(expr, Name | Arithmetic)
        return named and any(isinstance(node, Name) and node.name == self.id for node in walk(expr))


def _datum_of(element: Element) -> _Datum:
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
    return _Datum(name, value, element.line, element.get(DOMAIN))


@attrs.frozen
class Written:
    """A document's text; `lines` has the file's line for each of its lines."""

    text: str
    lines: tuple[int, ...]

    def line_of(self, line: int, otherwise: int) -> int:
        """Give the file's line for a line of the text, from 1."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else otherwise


class Foreign(Log):
    """One file on its way to a document. Mutable, and private to `dsa.lang`."""

    def __init__(self, root: Element) -> None:
        super().__init__()
        self._root = root
        self._naming = Naming()
        self._places = Places(root, self._naming, self)
        self._data: dict[str, _Datum] = {}
        self._rows: list[tuple[Sequence[str], int]] = []
        self._judged: dict[str, dict[str, None]] = {}
        self._answered: dict[str, str] = {}  # the effect whose answer is an event that is raised

    def document(self) -> Written:
        """Write the document."""
        self._read_data()
        for place in self._places.by_id.values():
            self._read_moves(place)
        self._guess_domains()
        self._write_rows()
        return self._written()

    # -- data ---------------------------------------------------------------------------------------------------------

    def _read_data(self) -> None:
        models = [self._root, *(place.element for place in self._places.by_id.values())]
        for element in (m for owner in models for m in owner.children if m.tag == "datamodel"):
            for child in element.children:
                if child.tag != "data":
                    continue
                try:
                    datum = _datum_of(child)
                except ForeignError as fault:
                    self.error(child.line, str(fault))
                    continue
                if datum.id in self._data:
                    self.error(child.line, f"a second datum has the id '{datum.id}'")
                self._data[datum.id] = datum

    def _guess_domains(self) -> None:
        expressions = [node for move in self._moves for node in move_expressions(move)]
        assigned = [pair for move in self._moves for path in move.actions for pair in path.assigned]
        for datum in self._data.values():
            datum.learn(expressions, assigned)
        for datum in self._data.values():
            if datum.domain is None:
                self.error(datum.line, f"'{datum.id}' has no initial value that a table can have")
            elif datum.is_guess:
                text = f"SCXML gives no range for '{datum.id}'; {datum.domain} is a guess from the numbers it meets"
                self.note(datum.line, f"{text}, and 'dsa check' says where it is left")
        for move in self._moves:
            self._only_texts_are_texts(move)

    def _only_texts_are_texts(self, move: Moved) -> None:
        """Report texts that meet a datum which holds none."""
        met = [(name, value) for path in move.actions for name, value in path.assigned]
        for node in (
            node for whole in move_expressions(move) for node in expr.walk(whole) if isinstance(node, expr.Compare)
        ):
            sides = (node.first, *(operand for _, operand in node.rest))
            met += [(side.name, other) for side in sides if isinstance(side, expr.Name) for other in sides]
        for name, value in met:
            if isinstance(value, expr.Symbol) and not self._data[name].values:
                self.error(move.line, f"'{name}' holds no texts, and meets '{value.value}'")

    # -- transitions --------------------------------------------------------------------------------------------------

    def _read_moves(self, place: Place) -> None:
        for child in place.element.children:
            if child.tag == "transition":
                self._read_move(place, child)
            elif child.tag in {"onentry", "onexit"}:
                self._only_timers(child)
            elif child.tag not in {*STATES, *NOT_READ, "initial", "datamodel", "donedata"} and " " not in child.tag:
                self.error(child.line, f"<{child.tag}> is not read")

    def _only_timers(self, element: Element) -> None:
        for child in element.children:
            if child.tag == "send" and is_delayed(child) and comes_back(child):
                event = child.get("event")
                self.note(child.line, f"'{event}' is sent after a delay; it is read as an event from outside")
            elif child.tag not in {"log", "cancel"}:
                what = f"<{child.tag}> in <{element.tag}>"
                self.error(child.line, f"{what}: a table has no entry or exit actions; put it on the transitions")

    def _read_move(self, place: Place, element: Element) -> None:
        events = tuple((element.get("event") or "").split())
        if not events:
            self.error(element.line, "a transition without an event: a table moves on events only")
            return
        for event in events:
            if event.startswith(_PLATFORM):
                self.error(element.line, f"'{event}' is an event of the platform; a table has none")
        target = element.get("target")
        if target is not None and target not in self._places.by_id:
            several = "several targets at once" if len(target.split()) > 1 else f"the target '{target}' is not there"
            self.error(element.line, several)
            return
        try:
            condition = self._known(read_foreign(element.get("cond") or "true"))
            actions = Actions(self._known, self.note, _MOST_PATHS).read(element.children)
        except ForeignError as fault:
            self.error(element.line, str(fault))
            return
        place.moves.append(Moved(events, condition, target, actions, element.line))

    def _known(self, whole: expr.Expr) -> expr.Expr:
        """Check that an expression names data only; they become variables."""

        def leaf(node: Leaf) -> expr.Expr:
            if isinstance(node, expr.Name):
                if node.name not in self._data:
                    raise ForeignError(f"'{node.name}' is no datum of this file")
                return expr.Name(node.name, "variable")
            return node

        return substituted(whole, leaf)

    # -- rows ---------------------------------------------------------------------------------------------------------

    @property
    def _moves(self) -> Iterator[Moved]:
        return (move for place in self._places.by_id.values() for move in place.moves)

    def _events(self) -> tuple[str, ...]:
        """Give every event that is named in full, in the order met, and those raised that a transition takes under a shorter name."""
        named = (event.removesuffix("*").removesuffix(".") for move in self._moves for event in move.events)
        taken = (event for event in self._raised() if any(matches(event, move) for move in self._moves))
        return tuple(dict.fromkeys(event for event in (*named, *taken) if event))

    def _raised(self) -> list[str]:
        return sorted({event for move in self._moves for path in move.actions for event in path.raised})

    def _write_rows(self) -> None:
        events = self._events()
        for event in self._raised():
            if event in events:
                self._answered[event] = self._naming.give("raise", event, f"raise_{event}")
        for event in events:
            self._naming.give("event", event)
        for place in self._places.by_id.values():
            for event in events:
                self._write_candidates(place, event)

    def _write_candidates(self, place: Place, event: str) -> None:
        """Write the rows of one state for one event: its own, then those around it, each only where no earlier one is enabled."""
        if not any(matches(event, move) for move in place.moves):
            return
        tried = [move for around in place.around for move in around.moves if matches(event, move)]
        last = next((number for number, move in enumerate(tried) if move.condition == expr.TRUE), len(tried) - 1)
        for number, move in enumerate(tried[: last + 1]):
            earlier = [other.condition for other in tried[:number] if not exclusive(other.condition, move.condition)]
            self._write_row(place, event, move, earlier, is_last=number == last)

    def _write_row(self, place: Place, event: str, move: Moved, earlier: list[expr.Expr], *, is_last: bool) -> None:
        if place.element.tag == "final":
            self.error(move.line, f"a transition leaves '{place.id}', which is final")
        otherwise = is_last and bool(earlier)
        for path in move.actions:
            condition = all_of([move.condition, path.condition, *([] if otherwise else map(negated, earlier))])
            if condition == FALSE:
                continue
            for guard in expr.guards_read(condition):
                self._judged.setdefault(guard, {})[event] = None
            target = "=" if move.target is None else self._places.by_id[move.target].name
            updates = "; ".join(
                f"{self._naming.give('variable', name)} = {self._text(value)}"
                for name, value in path.updates
                if name in self._data and not self._data[name].is_scratch
            )
            if twice := [e for e in path.raised if e in self._answered and path.raised.count(e) > 1]:
                self.error(move.line, f"'{twice[0]}' is raised twice by one transition; an answer is waited for once")
            effects = ", ".join(self._effect(*sent) for sent in path.effects)
            cells = (place.name, self._naming.give("event", event), self._if(condition, otherwise=otherwise))
            self._rows.append(((*cells, updates, effects, target), move.line))

    def _if(self, condition: expr.Expr, *, otherwise: bool) -> str:
        if condition == expr.TRUE:
            return "else" if otherwise else ""
        text = self._text(condition)
        return text if not otherwise else f"else and ({text})" if isinstance(condition, expr.Or) else f"else and {text}"

    def _effect(self, event: str, comes_back: bool) -> str:  # noqa: FBT001  (a pair as it is kept)
        answered = self._answered.get(event) if comes_back else None
        return answered or self._naming.give("effect", event)

    def _text(self, whole: expr.Expr) -> str:
        def leaf(node: Leaf) -> expr.Expr:
            match node:
                case expr.Symbol(value):
                    return expr.Symbol(self._naming.value(value))
                case expr.Verdict(guard, outcome):
                    return expr.Verdict(self._naming.give("guard", guard), outcome)
                case expr.Name(name, _):
                    return expr.Name(self._naming.give("variable", name), "variable")

        return expr.unparse(substituted(whole, leaf))

    # -- the text -----------------------------------------------------------------------------------------------------

    def _written(self) -> Written:
        lines: list[tuple[str, int]] = [
            (f"# {self._naming.give('machine', self._root.get('name') or 'machine')}", self._root.line)
        ]

        def section(title: str, header: Sequence[str], rows: Sequence[tuple[Sequence[str], int]]) -> None:
            if rows:
                text = table_lines(header, [cells for cells, _ in rows])
                places = [self._root.line] * 2 + [line for _, line in rows]
                lines.extend([("", self._root.line), (f"## {title}", self._root.line), *zip(text, places, strict=True)])

        section("Variables", ("variable", "domain", "initial"), [
            ((self._naming.give("variable", d.id), self._domain(d), self._text(d.initial)), d.line)
            for d in self._data.values() if not d.is_scratch and d.domain is not None and d.initial is not None
        ])  # fmt: skip
        section("Events", ("event", "from"), [
            ((self._naming.give("event", e), self._answered.get(e, OUTSIDE)), self._root.line) for e in self._events()
        ])  # fmt: skip
        section("Guards", ("guard", "judges"), [
            ((self._naming.give("guard", g), ", ".join(self._naming.give("event", e) for e in events)), self._root.line)
            for g, events in self._judged.items()
        ])  # fmt: skip
        states = [((p.name, self._places.kind(p)), p.element.line) for p in self._places.by_id.values()]
        section("States", ("state", "kind"), states)
        section("Transitions", ("source", "event", "if", "update", "effects", "target"), self._rows)
        if not self._rows and not self.any_error:
            unnamed = "no transition names its event: what '*' stands for must be named somewhere"
            self.error(self._root.line, "there is no transition" if self._events() or not any(self._moves) else unnamed)
        return Written("\n".join(text for text, _ in lines) + "\n", tuple(line for _, line in lines))

    def _domain(self, datum: _Datum) -> str:
        if datum.values:
            return "{" + ", ".join(map(self._naming.value, datum.values)) + "}"
        return datum.domain or ""


def move_expressions(move: Moved) -> Iterator[expr.Expr]:
    """Give every expression of a transition."""
    yield move.condition
    for path in move.actions:
        yield path.condition
        yield from (value for _, value in path.updates)


def matches(event: str, move: Moved) -> bool:
    """Tell whether a transition is for an event: `a` and `a.*` are for `a` and `a.b`, `*` for all."""
    wanted = (descriptor.removesuffix("*").removesuffix(".") for descriptor in move.events)
    return any(not name or event == name or event.startswith(f"{name}.") for name in wanted)


def exclusive(left: expr.Expr, right: expr.Expr) -> bool:
    """Tell whether two conditions exclude each other by their verdicts and by what folding sees."""
    both = all_of([left, right])
    guards = sorted(expr.guards_read(both))
    if len(guards) != 1:
        return both == FALSE
    return all(_said(both, guards[0], outcome) == FALSE for outcome in expr.OUTCOMES)


def _said(whole: expr.Expr, guard: str, outcome: str) -> expr.Expr:
    def leaf(node: Leaf) -> expr.Expr:
        return constant(node.outcome == outcome) if isinstance(node, expr.Verdict) and node.guard == guard else node

    return substituted(whole, leaf)


#: The element in which an export carries its document.
DOCUMENT = "urn:dsa:machine document"


@attrs.frozen
class Imported:
    """What reading an SCXML file gave; `machine` is None exactly when a finding is an error.

    `document` is the text that the file carries, when it was taken from there.
    """

    machine: Machine | None
    findings: tuple[Finding, ...] = ()
    document: str | None = None


def from_scxml(text: str | bytes, *, carried: bool = True) -> Imported:
    """Read an SCXML file; without `carried`, its states and transitions even when it carries the document it was written from."""
    try:
        root = read_tree(text)
    except ScxmlError as fault:
        return Imported(None, (Finding(fault.line, str(fault)),))
    document = next((child for child in root.children if child.tag == DOCUMENT), None)
    if carried and document is not None:
        return _carried(document)
    foreign = Foreign(root)
    written = foreign.document()
    if foreign.any_error:
        return Imported(None, foreign.findings)
    reading = read_machine(written.text)
    if reading.machine is None:
        faults = (d for d in reading.diagnostics if d.severity == "error")
        found = (Finding(written.line_of(d.span.line, root.line), d.message) for d in faults)
        return Imported(None, (*foreign.findings, *dict.fromkeys(found)))
    return Imported(reading.machine, foreign.findings)


def _carried(document: Element) -> Imported:
    reading = read_machine(document.text)
    if reading.machine is None:
        fault = next(d for d in reading.diagnostics if d.severity == "error")
        message = f"the document that this file carries is no machine: its line {fault.span.line}: {fault.message}"
        return Imported(None, (Finding(document.line, message),))
    return Imported(reading.machine, document=document.text)
