"""What the verdicts of a check rely on and nobody has seen to: effects that need not answer, and failures that no row is for (S12).

Takes the judged properties of a machine, gives one warning for each effect.
"""

from collections.abc import Iterator, Sequence

from dsa.checks.places import place
from dsa.checks.verdicts import Judged, PropertyResult
from dsa.errors import Diagnostic
from dsa.machine import Machine


def reliance(machine: Machine, results: Sequence[PropertyResult], judged: Sequence[Judged]) -> tuple[Diagnostic, ...]:
    """Give a warning for each effect that a verdict relies on and that has no time limit, or whose failure would stop the run."""
    return (*_silent(machine, results), *_failing(machine, results), *_ignored(machine, results, judged))


def _silent(machine: Machine, results: Sequence[PropertyResult]) -> Iterator[Diagnostic]:
    for effect in machine.effects_with_answers:
        relying = next((result for result in results if effect in result.relies_on), None)
        declared = machine.effect_named[effect]
        if relying is not None and declared.time_limit_ms is None:
            message = f"{effect} has no time limit, and '{relying.text}' holds only if it answers"
            hint = f"give it a time limit in Effects, or the states that wait for it a timer; 'even if {effect} never answers' asks for the worst"
            yield Diagnostic("DSA314", "warning", message, place(declared.span), hint)


def _failing(machine: Machine, results: Sequence[PropertyResult]) -> Iterator[Diagnostic]:
    for effect in machine.effects_with_answers:
        relying = next((result for result in results if effect in result.unfailing), None)
        declared = machine.effect_named[effect]
        if relying is not None and not declared.on_failure:
            message = f"no row is for {effect}.failed, which stops the run, and '{relying.text}' holds only if it does not come"
            yield Diagnostic("DSA315", "warning", message, place(declared.span), _hint(effect))


def _ignored(machine: Machine, results: Sequence[PropertyResult], judged: Sequence[Judged]) -> Iterator[Diagnostic]:
    """Give the failures that a row ignores where nothing is left that would bring what is owed: such a row counts as none."""
    for effect in machine.effects_with_answers:
        declared = machine.effect_named[effect]
        for number, result in enumerate(results):
            if declared.on_failure or not any(effect in at.judgements[number].ignored for at in judged):
                continue
            why = "nothing is left to answer and no timer is armed"
            message = f"a row ignores {effect}.failed where {why}, so the run stays there while '{result.text}' is owed"
            yield Diagnostic("DSA315", "warning", message, place(declared.span), _hint(effect))
            break


def _hint(effect: str) -> str:
    return f"add a row for {effect}.failed that leads on; column 'on failure' of Effects: stop, says that it is meant"
