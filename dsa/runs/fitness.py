"""Whether what a module binds to the names of a table can do its work: kinds of objects, async functions, the arguments that they take.

Takes a machine and what a module gives, gives faults. It calls nothing of anybody's.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from dsa.declarations import Guard
from dsa.edge.binding import Bindings
from dsa.errors import BindingError, Span
from dsa.machine import Machine
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.policies import Answering


def misfits(machine: Machine, given: Bindings) -> Iterator[BindingError]:
    """Give what is bound to a name and cannot do the work: a class where an object is meant, a `def` where an `async def` is, other arguments."""
    for name, policy in given.effects.items():
        yield from _of_policy(f"the effect '{name}'", policy)
    for name, guard in given.guards.items():
        yield from _of_guard(machine, name, guard)
    for name, generator in given.generators.items():
        if not isinstance(generator, GeneratorInterface):
            yield BindingError(
                f"the generator '{name}' is bound to {kind_of_object(generator)}, not to a GeneratorInterface object"
            )
        else:
            yield from _of_arguments(f"the generator '{name}'", generator.generate, ("context", "template"), ())


def kind_of_object(given: object) -> str:
    """Say what something is: `the class Grounded itself`, `int`."""
    return f"the class {given.__name__} itself" if isinstance(given, type) else type(given).__name__


def _of_policy(owner: str, policy: object) -> Iterator[BindingError]:
    called = policy.policy if isinstance(policy, Answering) else policy
    if not callable(called) or isinstance(called, type):
        yield BindingError(f"{owner} is bound to {kind_of_object(policy)}, not to an async function")
    elif _is_plain(called):
        yield BindingError(
            f"{owner} is bound to {_named(called)}, which is no async function", None, "write `async def`"
        )
    else:
        yield from _of_arguments(owner, called, ("action", "context"), ())


def _is_plain(called: Callable[..., Any]) -> bool:
    """Tell whether a function is surely not asynchronous: a `def` that wraps nothing and is not said to return what can be awaited."""
    while isinstance(called, partial):
        called = called.func
    function = called if inspect.isfunction(called) or inspect.ismethod(called) else type(called).__call__
    if not (inspect.isfunction(function) or inspect.ismethod(function)) or inspect.iscoroutinefunction(function):
        return False
    said = str(getattr(function, "__annotations__", {}).get("return", ""))
    return not (hasattr(function, "__wrapped__") or "Awaitable" in said or "Coroutine" in said)


def _of_guard(machine: Machine, name: str, guard: object) -> Iterator[BindingError]:
    if not isinstance(guard, GuardInterface):
        yield BindingError(f"the guard '{name}' is bound to {kind_of_object(guard)}, not to a GuardInterface object")
        return
    for owner, names, span in _asked_as(machine, name):
        yield from _of_arguments(owner, guard.validate, ("artifact",), names, span)


def _asked_as(machine: Machine, name: str) -> Iterator[tuple[str, tuple[str, ...], Span | None]]:
    """Give as what a guard is asked, by its name or its kind: with which data and artifacts, and where that stands."""
    rows = [row for row in machine.guards if name in (row.name, row.kind)] or [Guard(name)]
    for row in rows:
        data = tuple(argument for argument, _ in row.uses)
        steps = [step for step in machine.steps if {row.name, name} & {*step.guards, step.name}]
        for step in steps:
            yield (
                f"the guard '{row.name}' of step {step.name}",
                (*data, *(used for used, _ in step.uses)),
                row.span or step.span,
            )
        if not steps:
            yield f"the guard '{row.name}'", data, row.span


def _of_arguments(
    owner: str,
    called: Callable[..., Any],
    positional: tuple[str, ...],
    named: tuple[str, ...],
    span: Span | None = None,
) -> Iterator[BindingError]:
    """Report a function that cannot be called with these arguments; of one whose signature nobody can read nothing is said."""
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*positional, **dict.fromkeys(named))
    except TypeError as fault:
        given = ", ".join((*positional, *(f"{name}=.." for name in named)))
        yield BindingError(
            f"{owner} is bound to {_named(called)}, which takes {signature} and is called with ({given}): {fault}", span
        )


def _named(called: object) -> str:
    name = getattr(called, "__qualname__", type(called).__qualname__)
    code = getattr(called, "__code__", None)
    return f"`{name}`" + (f" (line {code.co_firstlineno})" if code is not None else "")
