"""Writing the certificate of a check or a proof: what `--certificate OUT` does."""

import json
from collections.abc import Callable
from pathlib import Path

from dsa.checks.certify import Certifier, behaviour, certify_verdicts
from dsa.checks.report import Report
from dsa.cli.terminal import say
from dsa.lang import dumps, expanded
from dsa.machine import Machine


def canonical(machine: Machine) -> tuple[Machine, str]:
    """Give what a certificate is about: the machine as `step` reads it, Steps expanded, and its canonical document."""
    about = behaviour(expanded(machine))
    return about, dumps(about)


def write_certificate(out: str, machine: Machine, fill: Callable[[Certifier], None]) -> None:
    """Write a certificate of what `fill` claims, and say on standard error what it holds and what it leaves out."""
    certifier = Certifier(*canonical(machine))
    fill(certifier)
    made = certifier.certified()
    Path(out).write_text(json.dumps(made.certificate, indent=1) + "\n", encoding="utf-8")
    say(
        f"{out}: {made.claims} claims; `dsa verify {out}` reads them" if made.claims else f"{out}: nothing is claimed",
        err=True,
    )
    for said, why in made.left_out:
        say(f"{out}: not certified: {said}: {why}", err=True)


def write_verdicts(out: str, machine: Machine, report: Report) -> None:
    """Write a certificate of the verdicts of a check."""
    write_certificate(out, machine, lambda certifier: certify_verdicts(certifier, report))
