"""What may be the name of a model: `local`, a script, an address, or what LiteLLM may know.

Takes a name, says what is wrong with it. It asks nobody: whether LiteLLM or a server has the model shows when it is called.
"""

import re

from dsa.edge.http.endpoint import SCHEMES, read_endpoint
from dsa.words import nearest

LOCAL = "local"
#: What a model's name begins with when a script follows.
SCRIPTED = "scripted:"
FORMS = "local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name such as provider/model"
_NEAR = 0.75
#: An address without its scheme: a host that no model is called like, or any host with a port and a path.
_HOST = re.compile(r"(localhost|\d{1,3}(\.\d{1,3}){3}|\[[\da-fA-F:]+\])([:/#]|$)|[\w.-]+:\d+/")


def require_model_name(name: str) -> None:
    """Raise ValueError, with what can be written, for what can be no model."""
    before = re.split(r"[:/]", name, maxsplit=1)[0]
    if not name.strip():
        raise ValueError(f"the model has no name: it is {FORMS}")
    if name == LOCAL:
        return
    if name.startswith(SCRIPTED):
        if not name.removeprefix(SCRIPTED).strip():
            raise ValueError(f"'{name}' names no script: write {SCRIPTED}FILE")
    elif name.startswith(SCHEMES):
        read_endpoint(name)
    elif re.match(r"[^/:]*://", name):
        raise ValueError(f"'{name}' is no address of a model: it begins with {' or '.join(SCHEMES)}")
    elif _HOST.match(name) or "#" in name:
        raise ValueError(f"'{name}' is no model: an address begins with {SCHEMES[0]}, as http://HOST/v1#MODEL")
    elif ":" in name and _is_near(before, SCRIPTED.rstrip(":")):
        raise ValueError(f"'{name}' is no model; did you mean '{SCRIPTED}{name.partition(':')[2]}'?")
    elif name == before and (_is_near(name, LOCAL) or _is_near(name, SCRIPTED.rstrip(":"))):
        meant = LOCAL if _is_near(name, LOCAL) else f"{SCRIPTED}FILE"
        raise ValueError(f"'{name}' is no model; did you mean '{meant}'?")
    elif any(character.isspace() or not character.isprintable() for character in name):
        raise ValueError(f"'{name}' is no model: it is {FORMS}")


def _is_near(name: str, known: str) -> bool:
    return nearest(name, [known], _NEAR) is not None
