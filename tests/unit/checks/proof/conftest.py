"""A fresh proof session for each test, about a machine with a retry loop."""

import pytest

from dsa.checks.proof.proof_session import ProofSession
from dsa.edge.document_files import load


@pytest.fixture
def session() -> ProofSession:
    return ProofSession(load("specs/dual_state"), lambda: False)
