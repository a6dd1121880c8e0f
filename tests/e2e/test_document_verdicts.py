"""The results for shipped documents stay the same: counts, verdicts, proofs, mutants, and what certificates establish."""

import json

import pytest
from document_verdicts import DOCUMENTS, GOLDEN, said_of

QUICK = ("specs/dual_state.md", "machines/examples/jugs.md", "machines/examples/polling.md")
KEPT = json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_no_document_is_left_out() -> None:
    assert set(KEPT) == set(DOCUMENTS)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in DOCUMENTS if name not in QUICK)]
)
def test_verdicts_are_unchanged(name: str) -> None:
    assert said_of(name) == KEPT[name]
