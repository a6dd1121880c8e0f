"""A machine with a retry loop, in sessions of its own."""

import pytest

from dsa.checks.proof.proof_session import ProofSession
from dsa.edge.document_files import load


@pytest.fixture
def session() -> ProofSession:
    return ProofSession(load("specs/dual_state"), lambda: False)
