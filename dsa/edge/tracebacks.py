"""What users' code has raised, with its traceback, as text for who has to mend it."""

import sysconfig
import traceback
from types import TracebackType

from dsa.errors import GenerationError
from dsa.runtime.one_call import NoStepsError

_LONGEST = 20_000
_OURS = (*(f"{__file__.rpartition('dsa')[0]}{name}/" for name in ("dsa", "machines")), sysconfig.get_path("stdlib"))


def traceback_of(error: BaseException) -> str:
    """Return an error with the frames from the first of users' code on, or with all, when none is; empty for what says all there is to say.

    A model that did not answer, and a policy that gave nothing, are no faults in anybody's lines.
    """
    if isinstance(error, GenerationError | NoStepsError):
        return ""
    told = traceback.TracebackException(type(error), error, _from_users_code(error.__traceback__))
    text = "".join(told.format())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}\n...\n{text[-_LONGEST // 2 :]}"


def _from_users_code(trace: TracebackType | None) -> TracebackType | None:
    frame = trace
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith(_OURS):
            return frame
        frame = frame.tb_next
    return trace
