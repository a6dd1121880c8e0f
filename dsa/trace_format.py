"""Trace formats: traces as JSON Lines (one line for the start, one for each step), and in the Informal Trace Format of Apalache and Quint.

The functions read and write a `RecordedTrace`. Other programs may have written the text: a step needs only its `event`, with its `verdicts` and a timer's
`source`; everything else is kept for comparison. They raise ValueError, with the line, for text that is not a trace. The module knows no files and no machine.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from dsa.expr import OUTCOMES, Outcome, Value
from dsa.semantics import Occurrence
from dsa.trace import RecordedStep, RecordedTrace

#: The names in the Informal Trace Format of everything but variables; no variable can have them.
_STATE, _EVENT, _VERDICTS, _SOURCE, _LINE = (
    "dsa::state",
    "mbt::actionTaken",
    "dsa::verdicts",
    "dsa::source",
    "dsa::line",
)
_EFFECTS, _CANCELLATIONS = "dsa::effects", "dsa::cancelled"
#: The keys of the first line of JSON Lines.
_HEAD = frozenset({"machine", "parameters", "state", "values", "loop"})


def to_jsonl(trace: RecordedTrace) -> str:
    """Write a trace as JSON Lines."""
    head = {
        "machine": trace.machine,
        "parameters": dict(trace.parameters),
        "state": trace.state,
        "values": dict(trace.values),
        "loop": trace.loop,
    }
    return "".join(f"{json.dumps(line)}\n" for line in (head, *map(step_as_json, trace.steps)))


def step_as_json(step: RecordedStep) -> dict[str, Any]:
    """Return a step as a JSON object."""
    return {
        "event": step.occurrence.event,
        "verdicts": dict(step.occurrence.verdicts),
        "source": step.occurrence.source,
        "line": step.line,
        "state": step.state,
        "changed": None if step.changed is None else dict(step.changed),
        "effects": None if step.effects is None else list(step.effects),
        "cancelled": None if step.cancelled is None else list(step.cancelled),
    }


def _fault(message: str, line: int | None = None) -> ValueError:
    return ValueError(f"line {line}: {message}" if line else message)


def from_text(text: str) -> RecordedTrace:
    """Read a trace in either format. Raises ValueError."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return from_jsonl(text)
    return from_itf(whole) if isinstance(whole, dict) and "states" in whole else from_jsonl(text)


def from_jsonl(text: str) -> RecordedTrace:
    """Read JSON Lines. The first line may say where the run began; the default is the machine's start."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    objects = [(number, _object(number, line)) for number, line in lines]
    head = objects.pop(0)[1] if objects and "event" not in objects[0][1] else {}
    if head and not _HEAD & head.keys():
        keys = f"'event', which a step has, nor any of {', '.join(sorted(_HEAD))}, which a first line has"
        raise _fault(f"it has neither {keys}", lines[0][0])
    steps = tuple(_step(number, record) for number, record in objects)
    if not steps and not head:
        raise _fault('the trace is empty: write one line for each step, such as {"event": "specification"}')
    first = lines[0][0]
    return RecordedTrace(
        steps,
        _text(first, head, "machine"),
        _values(first, head, "parameters") or (),
        _text(first, head, "state"),
        _values(first, head, "values") or (),
        _loop(first, head, len(steps)),
    )


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise _fault(
            f"not JSON ({getattr(fault, 'msg', 'nested too deeply')}); write one object a line", number
        ) from None
    if not isinstance(value, dict):
        raise _fault('not an object; write one such as {"event": "specification"}', number)
    return value


def _step(number: int, record: dict[str, Any]) -> RecordedStep:
    event = _text(number, record, "event")
    if event is None:
        raise _fault("a step has no 'event'", number)
    occurrence = Occurrence(event, _verdicts(number, record.get("verdicts")), _text(number, record, "source"))
    line = record.get("line")
    return RecordedStep(
        occurrence,
        line if isinstance(line, int) else None,
        _text(number, record, "state"),
        _values(number, record, "changed"),
        _names(number, record, "effects"),
        _names(number, record, "cancelled"),
    )


def _verdicts(number: int, verdicts: object) -> tuple[tuple[str, Outcome], ...]:
    if verdicts is None:
        return ()
    if not isinstance(verdicts, dict) or not all(verdict in OUTCOMES for verdict in verdicts.values()):
        raise _fault(f"'verdicts' maps guards to {', '.join(OUTCOMES)}", number)
    return tuple(cast(dict[str, Outcome], verdicts).items())


def _text(number: int, record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise _fault(f"'{key}' is a text", number)
    return value


def _values(number: int, record: Mapping[str, Any], key: str) -> tuple[tuple[str, Value], ...] | None:
    values = record.get(key)
    if values is None:
        return None
    if not isinstance(values, dict) or not all(isinstance(value, bool | int | str) for value in values.values()):
        raise _fault(f"'{key}' maps names to numbers, true, false or texts", number)
    return tuple(values.items())


def _names(number: int, record: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = record.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _fault(f"'{key}' is a list of names", number)
    return tuple(names)


def _loop(number: int, head: Mapping[str, Any], steps: int) -> int | None:
    loop = head.get("loop")
    if loop is not None and not (isinstance(loop, int) and 0 <= loop <= steps):
        raise _fault(f"'loop' is a number of steps, 0 to {steps}", number)
    return loop


def to_itf(trace: RecordedTrace) -> str:
    """Return a trace in the Informal Trace Format: every state with all variables, and its numbers."""
    assert trace.state is not None, "a trace that is written whole says where it begins"
    values, state, states = dict(trace.values), trace.state, []
    for number, step in enumerate((None, *trace.steps)):
        values |= dict(step.changed or ()) if step else {}
        state = (step.state or state) if step else state
        itf_state: dict[str, Any] = {"#meta": {"index": number}, _STATE: state}
        itf_state |= {name: _itf(value) for name, value in values.items()}
        states.append(itf_state | _moment(step))
    meta = {"format": "ITF", "machine": trace.machine, "parameters": dict(trace.parameters)}
    variables = [_STATE, *values, *_moment(None)]
    whole = {"#meta": meta, "vars": variables, "states": states}
    return json.dumps(whole | ({} if trace.loop is None else {"loop": trace.loop}), indent=2) + "\n"


def _moment(step: RecordedStep | None) -> dict[str, Any]:
    occurrence = step.occurrence if step else None
    return {
        _EVENT: occurrence.event if occurrence else "start",
        _VERDICTS: {"#map": [list(pair) for pair in occurrence.verdicts] if occurrence else []},
        _SOURCE: (occurrence.source or "") if occurrence else "",
        _EFFECTS: list(step.effects or ()) if step else [],
        _CANCELLATIONS: list(step.cancelled or ()) if step else [],
        _LINE: _itf((step.line or 0) if step else 0),
    }


def _itf(value: Value) -> Any:  # noqa: ANN401  (JSON)
    return {"#bigint": str(value)} if isinstance(value, int) and not isinstance(value, bool) else value


def from_itf(whole: dict[str, Any]) -> RecordedTrace:
    """Read a trace in the Informal Trace Format, as `to_itf` writes it."""
    states = whole["states"]
    if not isinstance(states, list) or not states or not all(isinstance(s, dict) and _EVENT in s for s in states):
        raise _fault(f"'states' is not a list of states that each have '{_EVENT}'")
    meta = whole.get("#meta")
    head = dict(meta) if isinstance(meta, dict) else {}
    valuations = [dict(_own(state)) for state in states]
    steps = []
    for before, after, state in zip(valuations, valuations[1:], states[1:], strict=False):
        changes = {name: value for name, value in after.items() if before.get(name) != value}
        steps.append(_step(1, _as_step(state) | {"changed": changes}))
    first = {**head, "state": states[0].get(_STATE), "values": valuations[0], "loop": whole.get("loop")}
    return RecordedTrace(
        tuple(steps),
        _text(1, first, "machine"),
        _values(1, first, "parameters") or (),
        _text(1, first, "state"),
        _values(1, first, "values") or (),
        _loop(1, first, len(steps)),
    )


def _as_step(state: dict[str, Any]) -> dict[str, Any]:
    verdicts = state.get(_VERDICTS)
    pairs = verdicts.get("#map", []) if isinstance(verdicts, dict) else []
    good = isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs)  # noqa: PLR2004  (a pair)
    if not good:
        raise _fault(f"'{_VERDICTS}' is not a map of pairs")
    return {
        "event": state[_EVENT],
        "verdicts": dict(pairs),
        "source": state.get(_SOURCE) or None,
        "line": _plain(state.get(_LINE)) or None,
        "state": state.get(_STATE),
        "effects": state.get(_EFFECTS),
        "cancelled": state.get(_CANCELLATIONS),
    }


def _own(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the machine's variables in a state."""
    for name, value in state.items():
        if "::" not in name and not name.startswith("#"):
            yield name, _plain(value)


def _plain(value: Any) -> Any:  # noqa: ANN401  (JSON)
    if isinstance(value, dict) and "#bigint" in value:
        try:
            return int(value["#bigint"])
        except (TypeError, ValueError):
            raise _fault(f"'#bigint' is a number written as a text, not {value['#bigint']!r}") from None
    return value
