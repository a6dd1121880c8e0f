"""Uses of event data: what a machine's prompts and guards read, and at which moment (rules D2, D3 and D5 of `specs/semantics.md`).

The functions take a machine and return the references of a prompt, of a guard, or of the emission of an effect. The module knows no run.
"""

import re
from collections.abc import Container, Iterable, Iterator

import attrs

from dsa.declarations import (
    OUTSIDE,
    PLACEHOLDER,
    STAY,
    TIMER_PREFIX,
    Cancel,
    Emit,
    Prompt,
    Reference,
    ReferenceFault,
    Transition,
    index_in,
    read_reference,
    without_index,
)
from dsa.errors import Span
from dsa.expr import OUTCOMES, And, Expr, Name, Or, Verdict
from dsa.machine import Machine, read_guards, step_of

#: The effect that asks a model for a step's artifact, with the step's prompt.
GENERATING_EFFECT = "query_llm"
#: The generator for a step that names none.
DEFAULT_GENERATOR = "llm"
#: The values in a prompt beside event data: the task that the event of this name brings, and the feedback on the previous attempt.
SPECIFICATION, FEEDBACK = "specification", "feedback"


@attrs.frozen
class Use:
    """A reference and its reader: `the prompt of query_llm`, `guard grounded`. `when` is true at the moments of reading, `at` is their effect or event."""

    reader: str
    reference: Reference
    at: str
    when: Expr
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


def prompt_for(machine: Machine, step: str, effect: str) -> Prompt | None:
    """Return the prompt of an effect. For the generating effect it is the step's prompt, with the step's task if it has none of its own.

    Return None when the document has no prompt.
    """
    sections = {prompt.name: prompt for prompt in machine.prompts}
    if effect != GENERATING_EFFECT:
        return sections.get(effect) or _prompt_of_member(machine, sections.get(without_index(effect)), index_in(effect))
    step_row = machine.step_named.get(step)
    prompt = sections.get(step) or sections.get(effect) or Prompt(step, span=step_row.span if step_row else None)
    prompt = attrs.evolve(prompt, task=prompt.task or (step_row.task if step_row else ""))
    return prompt if any((prompt.system, prompt.role, prompt.constraints, prompt.task, prompt.feedback)) else None


def _prompt_of_member(machine: Machine, prompt: Prompt | None, index: str | None) -> Prompt | None:
    """Return the prompt of a family's effects for one index: `{f}` is the index, and `{x[f]}` is about the event with it."""
    families = _families_with(machine, index)
    if prompt is None or not families:
        return prompt
    words = re.compile(rf"(?<!\{{)\{{({'|'.join(families)})\}}|\[({'|'.join(families)})\](?=[^{{}}\n]*\}})")
    parts = ("system", "role", "constraints", "task", "feedback")
    changes = {
        part: words.sub(lambda match: str(index) if match[1] else f"[{index}]", getattr(prompt, part)) for part in parts
    }
    return attrs.evolve(prompt, **changes)  # type: ignore[arg-type]  # each part gets what it had, changed


def prompt_references(machine: Machine, step: str, effect: str) -> tuple[Reference, ...]:
    """Return the references to event data in the prompt of an effect, each once."""
    key = "prompt references", step, effect
    references: tuple[Reference, ...] | None = machine.worked_out.get(key)
    if references is None:
        prompt = prompt_for(machine, step, effect)
        references = machine.worked_out[key] = () if prompt is None else _referred_to(machine, step, prompt)
    return references


def _referred_to(machine: Machine, step: str, prompt: Prompt) -> tuple[Reference, ...]:
    step_row = machine.step_named.get(step)
    others = {SPECIFICATION, *(name for name, _ in (step_row.uses if step_row else ()))}
    words = [*_words((prompt.system, prompt.role, prompt.constraints, prompt.task), others)]
    words += _words((prompt.feedback,), {*others, FEEDBACK})
    return tuple(dict.fromkeys(_reference(each, machine) for each in words))


def _reference(words: str, machine: Machine) -> Reference:
    reference = read_reference(words, machine.event_named)
    if isinstance(reference, ReferenceFault):  # in a machine that was made in Python: documents are checked
        raise ValueError(f"machine {machine.name}: {reference}")  # noqa: TRY004  (its text is wrong, not its type)
    return reference


def _words(texts: Iterable[str], others: Container[str]) -> Iterator[str]:
    """Return the words of the placeholders in texts, except those that do not stand for event data."""
    names = (match[1] for text in texts for match in PLACEHOLDER.finditer(text) if match[1])
    return (each for each in names if each not in others)


def guard_uses(machine: Machine, guard: str, event: str) -> tuple[tuple[str, str, Reference], ...]:
    """Return the event data that a guard and its parts use where it judges an event: the part, the name of the argument, and the reference."""
    index = index_in(event)
    key = "guard uses", guard, index
    references: tuple[tuple[str, str, Reference], ...] | None = machine.worked_out.get(key)
    if references is None:
        families, here = {family.name for family in machine.families}, _families_with(machine, index)
        references = tuple(
            (part, name, _at_index(reference, here, index))
            for part, name, reference in _declared_uses(machine, guard)
            if reference.event not in families
        )
        machine.worked_out[key] = references
    return references


def guard_indices(machine: Machine, guard: str, event: str) -> tuple[tuple[str, str, int | str], ...]:
    """Return the index of a judged event where a guard and its parts use it: the part, the name of the argument, and the index."""
    indices = {
        family.name: each for family in machine.families for each in family.indices if str(each) == index_in(event)
    }
    uses = _declared_uses(machine, guard) if indices else ()
    return tuple((part, name, indices[words.event]) for part, name, words in uses if words.event in indices)


def _declared_uses(machine: Machine, guard: str) -> Iterator[tuple[str, str, Reference]]:
    for part in dict.fromkeys(_parts(machine, guard, ())):
        yield from ((part, *use) for use in machine.guard_named[part].uses)


def _families_with(machine: Machine, index: str | None) -> list[str]:
    return [family.name for family in machine.families if any(str(each) == index for each in family.indices)]


def _at_index(reference: Reference, families: Iterable[str], index: str | None) -> Reference:
    event, since = reference.event, reference.since
    for family in families:
        event = event.replace(f"[{family}]", f"[{index}]")
        since = since and since.replace(f"[{family}]", f"[{index}]")
    return attrs.evolve(reference, event=event, since=since)


def _parts(machine: Machine, guard: str, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the declared guards that a guard is composed of, itself first."""
    declaration = machine.guard_named.get(guard)
    if declaration is None or guard in above:
        return
    yield guard
    names = [
        declaration.kind,
        *(part.strip() for key, value in declaration.options if key == "of" for part in value.split(",")),
    ]
    for part in names:
        yield from _parts(machine, part, (*above, guard))


def read_before(machine: Machine, effect: str, target: str) -> tuple[tuple[str, Reference], ...]:
    """Return the event data that is read when a row into `target` emits an effect: by the prompt, and by the guards of its answers."""
    key = "read before", effect, target
    reads: tuple[tuple[str, Reference], ...] | None = machine.worked_out.get(key)
    if reads is None:
        prompt = prompt_references(machine, step_of(machine, target), effect)
        of_prompt = [(f"the prompt of '{effect}'", each) for each in prompt]
        reads = machine.worked_out[key] = tuple(dict.fromkeys([*of_prompt, *_of_guards(machine, effect, target)]))
    return reads


def _of_guards(machine: Machine, effect: str, target: str) -> Iterator[tuple[str, Reference]]:
    """Yield what the guards of an effect's answers read, in every state that a run may be in before the answer."""
    answers = machine.answers.get(effect, ())
    states = _while_outstanding(machine, effect, target) if answers else ()
    for answer in answers:
        for state in states:
            for guard in read_guards(machine.rows_for(state, answer)):
                for part, _, reference in guard_uses(machine, guard, answer):
                    if reference.event != answer:  # a guard sees what it judges
                        yield f"guard {part}", reference


def _while_outstanding(machine: Machine, effect: str, target: str) -> tuple[str, ...]:
    """Return the leaves that rows lead to, starting at one, while an effect is neither answered nor cancelled."""
    over = {*machine.answers[effect], f"{effect}.failed"}
    leaves, todo = {target: None}, [target]
    while todo:
        leaf = todo.pop()
        for row in _rows_at(machine, leaf):
            ends = any(isinstance(item, Cancel) and item.effect in {None, effect} for item in row.effects)
            after = leaf if row.target == STAY else machine.entry_leaf(row.target)
            if row.event not in over and not ends and after not in leaves:
                leaves[after] = None
                todo.append(after)
    return tuple(leaves)


def uses(machine: Machine) -> tuple[Use, ...]:
    """Return every use of data by prompts and guards."""
    if not any(guard.uses for guard in machine.guards) and not _has_prompts(machine):
        return ()
    return (*_before_effects(machine), *_of_outside_events(machine))


def _has_prompts(machine: Machine) -> bool:
    return bool(machine.prompts) or any(step.task for step in machine.steps)


def _before_effects(machine: Machine) -> Iterator[Use]:
    emissions: dict[str, dict[str, None]] = {}
    for effect, target in _emissions(machine):
        emissions.setdefault(effect, {})[target] = None
    for effect, targets in emissions.items():
        readers: dict[tuple[str, Reference], list[str]] = {}
        for target in targets:
            for use in read_before(machine, effect, target):
                readers.setdefault(use, []).append(target)
        for (reader, reference), there in readers.items():
            emission = Name(effect, "effect")
            states = [Name(state, "state") for state in there]
            into = states[0] if len(states) == 1 else Or(tuple(states))
            when = emission if len(there) == len(targets) else And((emission, into))
            yield Use(reader, reference, effect, when, _place(machine, reader, effect, there[0]))


def _emissions(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield each effect with the target leaves of the rows that emit it."""
    for leaf in machine.leaves:
        for row in _rows_at(machine, leaf):
            target = leaf if row.target == STAY else machine.entry_leaf(row.target)
            for item in row.effects:
                if isinstance(item, Emit):
                    yield item.effect, target


def _rows_at(machine: Machine, leaf: str) -> Iterator[Transition]:
    events = dict.fromkeys(row.event for row in machine.transitions if not row.event.startswith(TIMER_PREFIX))
    for event in events:
        yield from machine.rows_for(leaf, event)
    for timer in machine.armed_timers(leaf):
        yield from machine.rows_from[timer]


def _of_outside_events(machine: Machine) -> Iterator[Use]:
    """Yield what the guards of outside events read: they see the data that exists when the event comes."""
    for guard in machine.guards:
        outside = [
            each for each in guard.judges if each in machine.event_named and machine.event_named[each].origin == OUTSIDE
        ]
        for event in outside:
            verdicts = Or(tuple(Verdict(guard.name, outcome) for outcome in OUTCOMES))
            for part, _, reference in guard_uses(machine, guard.name, event):
                if reference.event != event:
                    span = machine.guard_named[part].span
                    yield Use(f"guard {part}", reference, event, And((Name(event, "event"), verdicts)), span)


def _place(machine: Machine, reader: str, effect: str, target: str) -> Span | None:
    guard = machine.guard_named.get(reader.removeprefix("guard "))
    if guard is not None:
        return guard.span
    prompt = prompt_for(machine, step_of(machine, target), effect)
    return None if prompt is None else prompt.span
