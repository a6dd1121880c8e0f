"""The names and states of an SCXML file, nested by dots as a table nests them, and what was found on the way.

Takes the tree of elements, gives places; knows nothing of transitions but where they will be kept.
"""

import re
from collections.abc import Iterator

import attrs

from dsa.expr import Expr
from dsa.lang.exprs import MAX_NAME, RESERVED
from dsa.lang.scxml_actions import Effect
from dsa.lang.scxml_tree import Element

_OUTCOMES = frozenset({"passed", "failed", "fatal"})


class Naming:
    """Gives every name of a file the table's name for it, the same one each time."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._used: set[str] = set()

    def give(self, kind: str, name: str, wanted: str | None = None) -> str:
        """Give the name of a `state`, `event`, `effect`, `variable` or `guard`; `wanted` is tried first."""
        key = (kind, name)
        if key not in self._given:
            found = well_formed(name if wanted is None else wanted)
            while found in self._used:
                found += f"_{kind}"
            self._used.add(found)
            if kind == "guard":
                self._used |= {f"{found}.{outcome}" for outcome in _OUTCOMES}
            self._given[key] = found
        return self._given[key]

    def value(self, name: str) -> str:
        """Give the name of an enumeration's value: it may occur in several domains, but be nothing else."""
        return self.give("value", name)


def well_formed(name: str) -> str:
    """Give the nearest name that the language allows."""
    return ".".join(map(_part, name.split(".")))[:MAX_NAME].rstrip(".")


def _part(part: str) -> str:
    found = re.sub(r"\W", "_", part, flags=re.ASCII) or "_"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if found in RESERVED else found


STATES = ("state", "final")
NOT_READ = {
    "parallel": "parallel states: a table is in one state at a time",
    "history": "history: a table forgets where it was",
    "invoke": "invoke: an effect with answers is what a table has for it",
    "script": "scripts: a table computes by assignments only",
}


@attrs.frozen
class Finding:
    """Something of a file that is not read as it stands: at which line, what, and whether that is an error."""

    line: int
    message: str
    is_error: bool = True


class Log:
    """What was found in a file. Mutable, and private to `dsa.lang`."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found, once each, by line."""
        return tuple(sorted(dict.fromkeys(self._found), key=lambda finding: finding.line))

    @property
    def any_error(self) -> bool:
        """Tell whether something that matters could not be read."""
        return any(finding.is_error for finding in self._found)

    def error(self, line: int, message: str) -> None:
        """Add something that matters and is not read."""
        self._found.append(Finding(line, message))

    def note(self, line: int, message: str) -> None:
        """Add something that is left out or guessed."""
        self._found.append(Finding(line, message, is_error=False))


@attrs.frozen
class Moved:
    """A transition: its events as written, its condition, where it leads (None: nowhere), its paths of actions."""

    events: tuple[str, ...]
    condition: Expr
    target: str | None
    actions: tuple[Effect, ...]
    line: int


@attrs.define
class Place:
    """A state of the file with its full name in the table; `initial` is the id of the child entered first."""

    id: str
    name: str
    element: Element
    parent: "Place | None"
    moves: list[Moved] = attrs.field(factory=list)
    children: list["Place"] = attrs.field(factory=list)
    initial: str | None = None

    @property
    def around(self) -> "Iterator[Place]":
        """The state and those around it, from the inside out."""
        here: Place | None = self
        while here is not None:
            yield here
            here = here.parent


class Places:
    """The states of a file: `by_id`, and the id of the one at the top level that it starts in."""

    def __init__(self, root: Element, naming: Naming, log: Log) -> None:
        self._root, self._naming, self._log = root, naming, log
        self.by_id: dict[str, Place] = {}
        self.start: str | None = None
        self._top: list[Place] = []
        for child in root.children:
            self._place(child, None)
        if not self._top:
            log.error(root.line, "there is no state")
        self._mark_initial()

    def _place(self, element: Element, parent: Place | None) -> None:
        if element.tag in NOT_READ:
            self._log.error(element.line, f"{NOT_READ[element.tag]} (<{element.tag}>)")
        elif element.tag in STATES:
            name = element.get("id")
            if not name:
                self._log.error(element.line, f"a <{element.tag}> has no id")
                return
            if name in self.by_id:
                self._log.error(element.line, f"a second state has the id '{name}'")
                return
            place = Place(name, self._full_name(name, parent), element, parent)
            self.by_id[name] = place
            (parent.children if parent else self._top).append(place)
            for child in element.children:
                self._place(child, place)
        elif parent is None and element.tag != "datamodel" and " " not in element.tag:
            self._log.error(element.line, f"<{element.tag}> is not read here")

    def _full_name(self, name: str, parent: Place | None) -> str:
        """Nest by dots; an id that repeats its parent's is cut: `review_draft` in `review` is `review.draft`."""
        if parent is None:
            return self._naming.give("state", name, name.replace(".", "_"))
        last = next(
            (name.removeprefix(f"{parent.id}{mark}") for mark in "._" if name.startswith(f"{parent.id}{mark}")), name
        )
        return self._naming.give("state", name, f"{parent.name}.{last.replace('.', '_') or '_'}")

    def _mark_initial(self) -> None:
        """Note the child that each state enters first; what the file starts in must agree with it."""
        for place in self.by_id.values():
            if place.children:
                element = next((child for child in place.element.children if child.tag == "initial"), None)
                inner = (
                    next((child for child in element.children if child.tag == "transition"), None) if element else None
                )
                wanted = (
                    place.element.get("initial") or (inner.get("target") if inner else None) or place.children[0].id
                )
                self._enter(place, wanted, place.element.line)
                if inner is not None and inner.children:
                    self._log.error(inner.line, "what happens on the way into an initial state is not read")
        if self._top:
            wanted = self._root.get("initial") or self._top[0].id
            self._enter(None, wanted, self._root.line)

    def _enter(self, place: Place | None, wanted: str, line: int) -> None:
        if wanted not in self.by_id:
            self._log.error(line, f"the initial state '{wanted}' is not there")
            return
        way = list(self.by_id[wanted].around)
        if place is not None and place not in way:
            self._log.error(line, f"the initial state '{wanted}' does not lie inside '{place.id}'")
            return
        for inner in way:
            if inner is place:
                break
            if inner.parent is None:
                self.start = inner.id
            elif inner.parent.initial not in {None, inner.id}:
                self._log.error(
                    line, f"'{inner.parent.id}' is entered in two ways; a table's states have one initial child"
                )
            else:
                inner.parent.initial = inner.id

    def kind(self, place: Place) -> str:
        """Give the kind that a table gives a state; a nested final state ends a table's run only if nothing around it goes on."""
        first = self.start if place.parent is None else place.parent.initial
        if place.id == first:
            return "initial"
        return "final" if place.element.tag == "final" and not any(around.moves for around in place.around) else ""
