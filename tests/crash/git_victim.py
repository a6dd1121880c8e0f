"""A process whose forks store artifacts in git, each with a fault of its own; started by test_git_kill.py and test_git_power.py.

An order has the repository, and how many attempts are stored.
"""

from artifact_runs import RUN, attempt, said_of
from fault_shim import mark
from nursery import answer_orders

from dsa.edge.git_artifacts import GitArtifacts
from dsa.errors import DsaError


def live(order, tell):
    """Store a run, from its beginning, as one that is resumed would; tell what is stored, once it is."""

    def acknowledge(what, artifact):
        mark(f"{what} {artifact.artifact_id}")
        tell({what: artifact.artifact_id})

    try:
        store = GitArtifacts(order["repository"], RUN, now_s=lambda: 1_790_000_000.0)  # the same calls each time
        made = None
        for number in range(1, order["attempts"] + 1):
            made = store.store(attempt(number, made), "llm")
            acknowledge("stored", made)
            store.record_verdict(said_of(made))
            acknowledge("judged", made)
    except (DsaError, OSError) as fault:
        tell({"fault": type(fault).__name__, "said": str(fault)})
    else:
        tell({"rest": "finished"})


if __name__ == "__main__":
    answer_orders(live)
