"""The namespace: every declared name and its one meaning.

`Declarations.names` returns `Names`, which make the scopes of all expressions. `require_unique` and `require_references` report names with two meanings, and
references to nothing.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

import attrs

from dsa.declarations import OUTSIDE, Effect, Event, Guard, RunParameter, State, Variable
from dsa.errors import Span
from dsa.expr import OUTCOMES, Domain, EnumDomain, NameKind
from dsa.lang.cells import WrittenName
from dsa.lang.expression_parser import Findings, Scope
from dsa.text import closest

_ARTICLES = {"event": "an event", "effect": "an effect"}


@attrs.frozen(slots=False)
class Names:
    """The declared names by kind. `effects` maps each to whether it has answers; `events` holds `E.failed` too."""

    parameters: dict[str, Domain]
    variables: dict[str, Domain]
    variable_scopes: dict[str, str]
    guards: dict[str, tuple[str, ...]]
    judged_events: dict[str, tuple[str, ...]]
    events: dict[str, str]
    effects: dict[str, bool]
    states: dict[str, str]
    final_states: frozenset[str]
    symbols: frozenset[str]

    @cached_property
    def _ending(self) -> dict[str, list[str]]:
        """The full names of the states, by their last part."""
        names: dict[str, list[str]] = {}
        for full in self.states:
            names.setdefault(full.rpartition(".")[2], []).append(full)
        return names

    def full_state(self, name: str) -> str | None:
        """Return the full name of a state written in full, or by its last part where that is unique."""
        if name in self.states:
            return name
        matches = self._ending.get(name, [])
        return matches[0] if len(matches) == 1 else None

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of every name, in words."""
        kinds = dict.fromkeys(self.states, "a state")
        kinds |= dict.fromkeys(self.events, "an event") | dict.fromkeys(self.effects, "an effect")
        kinds |= dict.fromkeys(self.guards, "a guard") | dict.fromkeys(self.parameters, "a parameter")
        return kinds | dict.fromkeys(self.variables, "a variable")

    @cached_property
    def conditions(self) -> Scope:
        """The scope of `if` cells: variables, parameters, verdicts and `pending`."""
        effects = self._effects_with_answers
        return attrs.evolve(
            self.updates, place="a condition", guards=self.guards, effects_with_answers=effects, has_pending=True
        )

    @cached_property
    def _effects_with_answers(self) -> frozenset[str]:
        return frozenset(effect for effect, has_answers in self.effects.items() if has_answers)

    @cached_property
    def updates(self) -> Scope:
        """The scope of `update` cells: variables and parameters."""
        return Scope(
            "an update", parameters=self.parameters, variables=self.variables, symbols=self.symbols, others=self.kinds
        )

    def moments(self, place: str) -> Scope:
        """Return the scope of a property: everything, with states by their last part where that is unique."""
        kinds: dict[str, NameKind] = dict.fromkeys(self.states, "state")
        full = {}
        for state in self.states:
            short = state.rpartition(".")[2]
            if short not in self.kinds and self.full_state(short) == state:
                kinds[short], full[short] = "state", state
        kinds.update(dict.fromkeys(self.events, "event"))
        kinds.update(dict.fromkeys(self.effects, "effect"))
        return Scope(
            place,
            self.parameters,
            self.variables,
            self.guards,
            self.symbols,
            kinds,
            full,
            self._effects_with_answers,
            has_pending=True,
            others=self.kinds,
        )

    def report_unknown(self, kind: str, place: WrittenName, findings: Findings) -> None:
        """Report a name that is not declared as the kind that it is used as."""
        tables: dict[str, Iterable[str]] = {
            "state": self.states,
            "event": self.events,
            "effect": self.effects,
            "variable": self.variables,
        }
        article = _ARTICLES.get(kind, f"a {kind}")
        actual = self.kinds.get(place.name)
        same_end = self._ending.get(place.name, [])
        if kind == "state" and len(same_end) > 1:
            message, hint = f"'{place.name}' may be {' or '.join(same_end)}", "write the full name"
        else:
            message = (
                f"'{place.name}' is {actual}, not {article}" if actual else f"{kind} '{place.name}' is not declared"
            )
            hint = closest(place.name, tables[kind], f"the document declares no {kind}s")
            if kind == "state" and place.name.rpartition(".")[2].lower() in {"h", "history"}:
                hint = "there is no history: remember the state in a variable, and write a row for each value"
            if kind == "event" and place.name in {"entry", "exit"}:
                hint = "effects stand in the rows that lead into a state, or out of it"
        findings.error("DSA201", message, place.span, hint, about=place.name)


@attrs.frozen
class Declarations:
    """All declarations of a document."""

    parameters: tuple[RunParameter, ...]
    variables: tuple[Variable, ...]
    events: tuple[Event, ...]
    guards: tuple[Guard, ...]
    effects: tuple[Effect, ...]
    states: tuple[State, ...]

    def names(self) -> Names:
        """Return the names by kind."""
        origins = {event.origin for event in self.events} - {OUTSIDE}
        effects = {effect.name: effect.name in origins for effect in self.effects}
        events = {event.name: event.origin for event in self.events}
        domains = [p.domain for p in self.parameters] + [v.domain for v in self.variables]
        return Names(
            {parameter.name: parameter.domain for parameter in self.parameters},
            {variable.name: variable.domain for variable in self.variables},
            {variable.name: variable.scope for variable in self.variables},
            {guard.name: guard.outcomes for guard in self.guards},
            {guard.name: guard.judges for guard in self.guards},
            events | {f"{effect}.failed": effect for effect, has_answers in effects.items() if has_answers},
            effects,
            {state.name: state.kind for state in self.states},
            frozenset(state.name for state in self.states if state.kind == "final"),
            frozenset(value for domain in domains if isinstance(domain, EnumDomain) for value in domain.values),
        )


def require_unique(declarations: Declarations, findings: Findings) -> None:
    """Report names that are declared twice, or that are an implicit name or a value of an enumeration too.

    A value may have the name of a state, event or effect: the context decides between them (`dsa.lang.expression_parser`).
    """
    first_uses: dict[str, tuple[str, int]] = {}
    for name, what, span in _declarations(declarations):
        if name in first_uses and span is not None:
            before, line = first_uses[name]
            message = f"'{name}' is already {before}" + (f" (line {line})" if line else "")
            findings.error("DSA202", message, span, "names are unique over the whole document")
        first_uses.setdefault(name, (what, span.line if span else 0))
    for name, what, span in _implicit_names(
        declarations
    ):  # values come last: one of them may be a value of several domains
        if name not in first_uses and not what.startswith("a value"):
            first_uses[name] = (what, span.line)
        elif (
            name in first_uses
            and first_uses[name][0] != what
            and not (what.startswith("a value") and _is_moment(first_uses[name][0]))
        ):
            kind, line = first_uses[name]
            where = f" (line {line})" if line else ""
            message = f"'{name}' is used as {what}, but it is already {kind}{where}"
            hint = "a value may have the name of a state, event or effect, and of nothing else"
            is_value = what.startswith("a value")
            findings.error("DSA202", message, span, hint if is_value else "names are unique over the whole document")


def _is_moment(what: str) -> bool:
    return what in {"a state", "an event", "an effect"} or what.startswith("the failure of")


def _declarations(declarations: Declarations) -> Iterator[tuple[str, str, Span | None]]:
    kinds: dict[str, tuple[RunParameter | Variable | Event | Guard | Effect | State, ...]] = {
        "a parameter": declarations.parameters,
        "a variable": declarations.variables,
        "an event": declarations.events,
        "a guard": declarations.guards,
        "an effect": declarations.effects,
        "a state": declarations.states,
    }
    for what, items in kinds.items():
        for item in items:
            yield item.name, what, item.span


def _implicit_names(declarations: Declarations) -> Iterator[tuple[str, str, Span]]:
    for guard in declarations.guards:
        for outcome in OUTCOMES:
            if guard.span is not None:
                yield f"{guard.name}.{outcome}", f"a verdict of guard {guard.name}", guard.span
    origins = {event.origin for event in declarations.events}
    for effect in declarations.effects:
        if effect.name in origins and effect.span is not None:
            yield f"{effect.name}.failed", f"the failure of effect {effect.name}", effect.span
    holders = [(p.name, p.domain, p.span) for p in declarations.parameters]
    holders += [(v.name, v.domain, v.span) for v in declarations.variables]
    for name, domain, span in holders:
        if isinstance(domain, EnumDomain) and span is not None:
            for value in domain.values:
                yield value, f"a value of {name}", span


def require_references(
    declarations: Declarations,
    origins: Iterable[WrittenName],
    judged_events: Iterable[WrittenName],
    findings: Findings,
    *,
    effects_listed: bool,
) -> None:
    """Report origins that are not effects, and judged events that are not declared."""
    names = declarations.names()
    for origin in origins:
        if origin.name != OUTSIDE and origin.name not in names.effects:
            reason = "the Effects table does not list it" if effects_listed else "no row emits it"
            hint = closest(origin.name, [*names.effects, OUTSIDE])
            message = f"'{origin.name}' is not an effect: {reason}"
            findings.error("DSA201", message, origin.span, hint, about=origin.name)
    for event in judged_events:
        if event.name not in names.events:
            names.report_unknown("event", event, findings)
            findings.doubt(event.span.text)  # that its guard judges nothing else follows from it
