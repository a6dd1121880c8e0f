"""`dsa verify CERTIFICATE [FILE]`: let the independent kernel accept or refuse a certificate."""

import hashlib
import json
import sys
from typing import NoReturn

import click

from dsa.cli.certificates import canonical
from dsa.edge.files import load, read_text
from dsa.kernel import verify


@click.command("verify")
@click.argument("certificate")
@click.argument("file", required=False)
def command(certificate: str, file: str | None) -> None:
    """Check a certificate with the independent kernel: print the claims it accepts, or why it refuses.

    The kernel (dsa/kernel.py, which can be copied out and run alone) believes nothing but the machine's tables in the certificate;
    with FILE, these must be that document's too. Exit 0 accepted, 1 refused, 2 unreadable.
    """
    text = read_text(certificate)
    expected = "" if file is None else canonical(load(file))[1]
    try:
        accepted = list(verify(text))
    except Exception as why:  # noqa: BLE001  (whatever a certificate brings about is a refusal)
        _refuse(certificate, str(why) or repr(why))
    if file is not None and json.loads(text)["machine"] != expected:
        digest = hashlib.sha256(expected.encode()).hexdigest()
        _refuse(certificate, f"it is about another machine than {file}, whose behaviour has the digest {digest}")
    for claim in accepted:
        click.echo(claim)


def _refuse(certificate: str, why: str) -> NoReturn:
    click.echo(f"{certificate}: refused: {why.partition(chr(10))[0]}", err=True)
    sys.exit(1)
