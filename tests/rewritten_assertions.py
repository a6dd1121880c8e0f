"""Rewritten assertions: a program that compiles modules as pytest does, once, where each worker would do it for itself.

That is a third of the time that a worker takes before its first test. pytest marks all of `dsa` to be rewritten, because
the package has a plugin; the programs that tests start with pytest read these files, too. Files that are up to date stay.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc, get_cache_dir

ROOT = Path(__file__).parents[1]
STATE = SimpleNamespace(trace=lambda _text: None)


def modules(root: Path) -> Iterator[Path]:
    """Yield what pytest rewrites: test modules, what they share by folder, and the package with the plugin."""
    for pattern in ("tests/**/test_*.py", "tests/**/conftest.py", "dsa/**/*.py"):
        yield from root.glob(pattern)


def keep(path: Path) -> None:
    """Write a module's rewritten code where pytest looks for it, unless it is there."""
    folder = get_cache_dir(path)
    kept = folder / f"{path.stem}{PYC_TAIL}"
    if _read_pyc(path, kept) is None:
        source_hash, code = _rewrite_test(path, None)
        folder.mkdir(exist_ok=True)
        _write_pyc(STATE, code, source_hash, kept)


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        sys.exit(any(pool.map(keep, modules(ROOT), chunksize=10)))
