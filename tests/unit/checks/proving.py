"""Small machines for proofs, written row by row."""

from dsa.checks.proof.prover import Proof, prove
from dsa.lang import loads
from dsa.machine import Machine

HEAD = """# m

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| n         | 0..    | 5       |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x        | 0..n   | 0       |
| y        | 0..n   | 0       |

"""


def machine(head: str, rows: str, *claims: str) -> Machine:
    """Return a machine of rows `source | event | if | update | effects | target`, with properties."""
    table = "".join(f"| {row.strip()} |\n" for row in rows.strip().split("\n"))
    columns = "| source | event | if | update | effects | target |\n| - | - | - | - | - | - |\n"
    listed = "".join(f"- {claim}\n" for claim in claims)
    return loads(f"{head}## Transitions\n{columns}{table}\n## Properties\n{listed}")


def one(head: str, rows: str, claim: str) -> Proof:
    """Prove one property of a machine."""
    (proof,) = prove(machine(head, rows, claim)).properties
    return proof
