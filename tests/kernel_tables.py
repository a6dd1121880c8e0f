"""Small machines as the kernel reads them, written row by row."""


def table(title: str, header: str, *rows: str) -> str:
    cells = [
        f"| {' | '.join(row.split('; '))} |" for row in (header, "; ".join("---" for _ in header.split("; ")), *rows)
    ]
    return "\n## " + "\n".join([title, *cells, ""])


#: Two parameters that nothing relates, and a state in which nothing happens.
IDLE = "# idle\n" + table("Parameters", "parameter; domain; default", "p; 0..; 0", "r; 0..; 0")
IDLE += table("States", "state; kind", "a; initial")
