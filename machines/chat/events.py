"""What the events of the chat machine bring, as records of their data: a message, a call as it is meant, what came of it, an answer that is presented."""

import attrs

from machines.chat.inventory import Made
from machines.chat.sql.intent import Intent
from machines.tool_use.records import JsonObject


@attrs.frozen
class Said:
    """What the user says; with `rerun` he wants work to be done again that was done before."""

    text: str
    rerun: bool = False


@attrs.frozen
class Earlier:
    """An equal call that was made before: which, in which turn, and whether it gave a result."""

    call_id: str
    turn: int
    ok: bool


@attrs.frozen
class CallRead:
    """A call as it is meant. `text` is its SQL or code, `fault` what is wrong with it; `tool` is empty where it is of none.

    `digest` is what it is known by, `earlier` the equal call that there was; `turn` and `rerun` are those of the turn in which it is made.
    """

    call_id: str
    tool: str
    text: str = ""
    rescues: tuple[str, ...] = ()
    fault: str = ""
    digest: str = ""
    earlier: Earlier | None = None
    turn: int = 0
    rerun: bool = False
    arguments: JsonObject = attrs.field(factory=dict)


@attrs.frozen
class Table:
    """A result of SQL, whose rows are a file: the SHA-256 of its content, names of columns, and their types in DuckDB's words."""

    digest: str
    columns: tuple[str, ...]
    types: tuple[str, ...]


@attrs.frozen
class Came:
    """What came of a call: what the model is told, and what it has made. `table` and `intent` are of SQL; `rung` and `features` say how Python was confined."""

    call_id: str
    result: JsonObject
    intent: Intent | None = None
    table: Table | None = None
    artifacts: tuple[Made, ...] = ()
    rung: str = ""
    features: tuple[str, ...] = ()


@attrs.frozen
class Presented:
    """An answer as the user gets it: what was made of it, and what it lacks."""

    artifacts: tuple[Made, ...] = ()
    missing: tuple[str, ...] = ()
