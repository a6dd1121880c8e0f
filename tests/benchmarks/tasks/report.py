"""The report: the numbers in tables, and in sentences that are made from them.

Takes the rows and what is known of how they were made, gives Markdown.
"""

from collections.abc import Iterable, Sequence

import attrs
from benchmarks.tasks.arms import Arm
from benchmarks.tasks.intervals import wilson
from benchmarks.tasks.summary import ALL, ALPHA, Cell, Comparison, cells, compared, errors, false_accepts, is_nested
from benchmarks.tasks.trials import Trial

_MOST_LISTED, _MOST_TEXT = 12, 160


@attrs.frozen
class Made:
    """How the rows were made, in pairs of words for the head of the report; `notes` are sentences that limit what they say."""

    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


def report(
    rows: Iterable[Trial],
    tasks: Sequence[str],
    arms: Sequence[Arm],
    samples: int,
    made: Made,
    plots: Sequence[str] = (),
) -> str:
    """Write the report."""
    rows = list(rows)
    counted, comparisons = cells(rows, tasks, arms), compared(rows, tasks, arms)
    parts = [
        "# How often tasks are solved",
        _table(("", ""), made.facts),
        "\n".join(f"- {note}" for note in made.notes),
    ]
    parts += [
        _missing(counted, samples),
        "## What was shown",
        "\n".join(f"- {each}" for each in sentences(comparisons, arms)),
    ]
    parts += [f"![{plot.partition('.')[0]}]({plot})" for plot in plots]
    parts += ["## Counts", _counts(counted), _LEGEND, "## Arms compared", _comparisons(comparisons), _COMPARED]
    parts += ["## False accepts", _listed(false_accepts(rows), "the oracle said", _no_false_accepts(counted))]
    parts += ["## Errors", _listed(errors(rows), "what broke down", "No trial ended in an error.")]
    return "\n\n".join(part for part in parts if part) + "\n"


_LEGEND = """*accepted*: the guard passed an attempt. *right*: what it passed is right by an oracle that asks more. Rates have Wilson 95 % intervals.
Generations are counted one by one, those that an arm shares with another too; seconds are those of the model and the guards of a trial.
The raw data are in `results.csv`, the calls of the model in `calls.jsonl`."""
_COMPARED = f"""Counts are samples that one arm solved (right) and the other did not; *p* is McNemar's exact test, two-sided, *adjusted* after Holm for all
rows of this table; the difference has a 95 % interval after Agresti and Min. Below {ALPHA} a difference counts as shown."""


# -- sentences ------------------------------------------------------------------------------------------------------


def sentences(comparisons: Sequence[Comparison], arms: Sequence[Arm]) -> list[str]:
    """Say for each two arms what was shown, over all tasks where there are several, and in which tasks it differs."""
    named = {arm.name: arm for arm in arms}
    said = []
    for pair in dict.fromkeys((each.first, each.second) for each in comparisons):
        ours = [each for each in comparisons if (each.first, each.second) == pair]
        whole = next((each for each in ours if each.task == ALL), ours[0])
        said.append(sentence(whole, nested=is_nested(*(named[name] for name in pair))))
        shown = [each for each in ours if each is not whole and not each.is_null]
        if len(ours) > 1:
            said[-1] += f" Taken one by one, a difference was shown at {_named(shown)}."
    return said or ["There is one arm, so nothing is compared."]


def _named(shown: Sequence[Comparison]) -> str:
    return ", ".join(f"{each.task} ({_points(each.difference)})" for each in shown) or "none of the tasks"


def sentence(each: Comparison, *, nested: bool) -> str:
    """Return what one comparison shows; a null result is called one."""
    low, high = each.interval
    where = "" if each.task == ALL else f" at {each.task}"
    counts = f"{each.only_first} of {each.pairs} samples were solved by {each.first} only, {each.only_second} by {each.second} only"
    facts = f"{counts}, adjusted p = {_p(each.adjusted)}, difference {_points(each.difference)}, 95 % interval {_points(low)} to {_points(high)}"
    if each.pairs == 0:
        return f"**{each.first} and {each.second}**{where}: no sample has both, so nothing is said."
    if each.is_null:
        return f"**Null result**: no difference between {each.first} and {each.second} was shown{where} ({facts})."
    winner, loser = (each.first, each.second) if each.difference > 0 else (each.second, each.first)
    more = (
        f" {each.first} begins with the attempts of {each.second}, so it cannot solve less."
        if nested and each.only_second == 0
        else ""
    )
    return f"**{winner} solved more than {loser}**{where} ({facts}).{more}"


def _points(rate: float) -> str:
    return f"{100 * rate:+.1f} points"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def _missing(counted: Sequence[Cell], samples: int) -> str:
    """Return what is not there yet."""
    wanted = sum(samples for cell in counted if cell.task != ALL)
    there = sum(cell.trials + cell.errors for cell in counted if cell.task != ALL)
    if there >= wanted:
        return ""
    return f"**Not finished**: {there} of {wanted} trials are there; the same command goes on."


def _no_false_accepts(counted: Sequence[Cell]) -> str:
    texts = sum(cell.accepted for cell in counted if cell.task != ALL)
    return f"None: the oracle found nothing wrong with what guards passed in {texts} trials."


# -- tables ---------------------------------------------------------------------------------------------------------


def _counts(counted: Sequence[Cell]) -> str:
    head = (
        "task",
        "arm",
        "trials",
        "accepted",
        "rate",
        "right",
        "rate",
        "false accepts",
        "errors",
        "generations",
        "median",
        "median s",
    )
    return _table(head, [_count_row(cell) for cell in counted])


def _count_row(cell: Cell) -> tuple[str, ...]:
    return (
        cell.task,
        cell.arm,
        str(cell.trials),
        str(cell.accepted),
        rate(cell.accepted, cell.trials),
        str(cell.right),
        rate(cell.right, cell.trials),
        str(cell.false_accepts),
        str(cell.errors),
        str(cell.generations),
        f"{cell.median_generations:g}",
        f"{cell.median_s:.2f}",
    )


def rate(hits: int, trials: int) -> str:
    """Write a rate with its interval: `50 % (40 to 60)`."""
    if trials == 0:
        return "-"
    low, high = wilson(hits, trials)
    return f"{100 * hits / trials:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    head = (
        "task",
        "first",
        "second",
        "pairs",
        "only first",
        "only second",
        "difference",
        "interval",
        "p",
        "adjusted",
        "",
    )
    rows = []
    for each in comparisons:
        low, high = each.interval
        counts = (str(each.pairs), str(each.only_first), str(each.only_second))
        numbers = (_points(each.difference), f"{100 * low:+.1f} to {100 * high:+.1f}", _p(each.p), _p(each.adjusted))
        rows.append((each.task, each.first, each.second, *counts, *numbers, "null" if each.is_null else "shown"))
    return _table(head, rows) if rows else "There is one arm."


def _listed(found: Sequence[tuple[str, str, int]], told: str, none: str) -> str:
    if not found:
        return none
    rows = [(task, str(count), _clipped(fault)) for task, fault, count in found[:_MOST_LISTED]]
    more = f"\n\nAnd {len(found) - _MOST_LISTED} more, in the raw data." if len(found) > _MOST_LISTED else ""
    return _table(("task", "texts" if "oracle" in told else "trials", told), rows) + more


def _clipped(text: str) -> str:
    plain = text.replace("`", "'")
    return f"`{plain if len(plain) <= _MOST_TEXT else plain[:_MOST_TEXT] + '...'}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
