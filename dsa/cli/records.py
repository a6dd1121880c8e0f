"""Recorded traces, read from and written to files, as several commands need them."""

from pathlib import Path, PurePath

from dsa.checks.report import Report
from dsa.edge.files import read_text
from dsa.errors import DocumentError, TraceError
from dsa.records import from_text, to_itf, to_jsonl
from dsa.trace import Recorded, recorded


def read_record(name: str) -> Recorded:
    """Read a trace in either format. Raises DocumentError."""
    try:
        return from_text(read_text(name))
    except TraceError as fault:
        raise DocumentError(name, str(fault)) from None


def place_in(name: str, step: int) -> str:
    """Say where a step of a trace stands that was read before (0: its start): `FILE:LINE` in JSON Lines, else just the file."""
    lines = [number for number, line in enumerate(read_text(name).splitlines(), 1) if line.strip()]
    steps = len(read_record(name).steps)
    if len(lines) not in {steps, steps + 1}:
        return name  # one object over many lines
    first = len(lines) - steps
    return f"{name}:{lines[max(0, first + step - 1)]}"


def save_traces(folder: Path, report: Report, *, itf: bool) -> list[Path]:
    """Write the traces of all properties, `DOCUMENT-line12-1.jsonl` and so on; give the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for place, result in enumerate(report.properties, 1):
        found = [(result.trace, result.loop)] if result.trace else []
        found += result.more
        for number, (trace, loop) in enumerate(found, 1):
            record = recorded(trace, report.name, loop)
            span = result.claim.span if result.claim else None
            which = f"{PurePath(span.path).stem}-line{span.line}" if span else f"property{place}"
            name = f"{which}-{number}.{'itf.json' if itf else 'jsonl'}"
            (folder / name).write_text(to_itf(record) if itf else to_jsonl(record), encoding="utf-8")
            written.append(folder / name)
    return written
