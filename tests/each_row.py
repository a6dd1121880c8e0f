"""A decorator for tests of a table: one test that goes through all rows, and names each row that fails.

It takes what `pytest.mark.parametrize` takes, but for `indirect` and marks. Use it where the rows are cheap and of one behaviour: a case of its own for
each of a thousand rows costs more than the rows do. Each row has a `tmp_path`, a `monkeypatch` and a `capsys` of its own; other fixtures are shared.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_LENGTH = 60


def each_row(
    names: str | tuple[str, ...], rows: Iterable[Any], *, ids: Any = None
) -> Callable[..., Callable[..., None]]:
    """Run the test once for each row; then fail with all rows that failed, each by its name."""
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    sets = [_parameter_set(row, single=len(parameters) == 1) for row in rows]
    assert sets, "a table has rows"
    assert not any(each.marks for each in sets), "a row that has a mark is a case of its own"
    assert all(len(each.values) == len(parameters) for each in sets), "each row has a value for each name"
    texts = [each.id or _name(number, each.values, ids) for number, each in enumerate(sets)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in parameters]

        @functools.wraps(test)
        def all_rows(**fixtures: Any) -> None:
            failures = []
            for number, (text, each) in enumerate(zip(texts, sets, strict=True)):
                error = _failure(test, number, fixtures, dict(zip(parameters, each.values, strict=True)))
                if error is not None:
                    error.add_note(f"in the row {text}")
                    failures.append((text, error))
            if failures:
                listed = "".join(f"\n- {text}" for text, _ in failures)
                message = f"{len(failures)} of {len(sets)} rows failed:{listed}\n"
                raise BaseExceptionGroup(message, [error for _, error in failures])

        all_rows.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # what pytest reads
        return all_rows

    return decorate


def _parameter_set(row: Any, *, single: bool) -> Any:
    """Return the row as pytest's own class for it, which has `values`, `marks` and `id`."""
    if isinstance(row, type(pytest.param())):
        return row
    return pytest.param(row) if single else pytest.param(*row)


def _name(number: int, values: tuple[Any, ...], ids: Any) -> str:
    if callable(ids):
        return "-".join(str(ids(value)) for value in values)
    if ids is not None:
        return str(list(ids)[number])
    texts = [repr(value) for value in values]
    return ", ".join(text if len(text) <= _LENGTH else f"{text[:_LENGTH]}.." for text in texts)


def _failure(
    test: Callable[..., None], number: int, fixtures: dict[str, Any], values: dict[str, Any]
) -> BaseException | None:
    """Return why the row fails. A row that skips fails: the skip would be one of the whole table."""
    fixtures = dict(fixtures)
    if "tmp_path" in fixtures:
        fixtures["tmp_path"] = fixtures["tmp_path"] / f"row{number}"
        fixtures["tmp_path"].mkdir()
    if "capsys" in fixtures:
        fixtures["capsys"].readouterr()
    with pytest.MonkeyPatch.context() as patches:
        if "monkeypatch" in fixtures:
            fixtures["monkeypatch"] = patches
        try:
            test(**fixtures, **values)
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001  (raised with those of the other rows)
            return error
    return None
