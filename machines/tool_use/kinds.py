"""What arguments are, and how models write them: texts, files, numbers, yes and no, lists of words.

Each kind reads a value as it came, gives the one that is meant, and adds what it has mended to a list. Pure.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from machines.tool_use.json_values import list_in, object_in
from machines.tool_use.tool import Kind, Parameter

_STRING = {"type": "string"}


def _text(value: object, parameter: Parameter, mended: list[str]) -> str:
    if isinstance(value, str):
        return value
    mended.append("text")
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(line.rstrip("\n") for line in value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, indent=2)
    raise ValueError(f"the argument '{parameter.name}' is to be a text, not {_shown(value)}")


_FENCE = re.compile(r"\s*```[\w+.-]*[ \t]*\n(?P<body>.*?)\n?```\s*", re.DOTALL)


def _content(value: object, parameter: Parameter, mended: list[str]) -> str:
    """Return what is to stand in a file; one fence around all of it is not meant to."""
    text = _text(value, parameter, mended)
    whole = _FENCE.fullmatch(text)
    if whole is None or "```" in whole["body"]:
        return text
    mended.append("fence")
    return f"{whole['body']}\n"


#: A number as a text, with what may stand behind it: nothing, or a unit.
_NUMERAL = re.compile(
    r"\s*(?P<sign>-?)(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,300})(?P<part>\.\d{1,9})?(?P<unit>[\s%€$£A-Za-z]*)"
)


def _said(value: Any) -> float | None:  # noqa: ANN401  (JSON)
    """Return the number that a value is, or that a text begins with; None for what is none. An integer may be larger than any float."""
    if isinstance(value, str):
        found = _NUMERAL.match(value)
        return None if found is None else _read(found)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and not (isinstance(value, float) and not math.isfinite(value)) else None


def _read(found: re.Match[str]) -> float:
    whole = int(f"{found['sign']}{found['whole'].replace(',', '')}")
    return float(f"{whole}{found['part']}") if found["part"] else whole


def _number(value: object, parameter: Parameter, mended: list[str]) -> int:
    """Return a whole number within the bounds. Of anything else nobody knows what is meant, and nothing is made of it."""
    is_text = isinstance(value, str)
    found = _NUMERAL.fullmatch(value) if isinstance(value, str) else None
    said = (None if found is None else _read(found)) if is_text else _said(value)
    if said is None or said != int(said):
        raise ValueError(f"the argument '{parameter.name}' is to be a whole number, not {_shown(value)}")
    if not parameter.has_within(said):
        least, most = parameter.least, parameter.most
        bounds = " and ".join(
            [*([f"at least {least}"] if least is not None else []), *([f"at most {most}"] if most is not None else [])]
        )
        raise ValueError(f"the argument '{parameter.name}' is to be {bounds}, not {_shown(value)}")
    if is_text:
        mended.append("number")
    return int(said)


def _nearest(value: object, parameter: Parameter, mended: list[str]) -> int:
    """Return how much of something is wanted at most: where that is out of bounds, as much as there can be."""
    said = _said(value)
    if said is None:
        raise ValueError(f"the argument '{parameter.name}' is to be a whole number, not {_shown(value)}")
    least = said if parameter.least is None else max(said, parameter.least)
    number = math.ceil(least if parameter.most is None else min(least, parameter.most))
    if number != value:
        mended.append("number")
    return number


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:80]


_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _truth(value: object, parameter: Parameter, mended: list[str]) -> bool:
    if isinstance(value, bool):
        return value
    said = _TRUTHS.get(str(value).strip().lower())
    if said is None:
        raise ValueError(f"the argument '{parameter.name}' is to be true or false, not {_shown(value)}")
    mended.append("truth")
    return said


def _words(value: object, parameter: Parameter, mended: list[str]) -> str | list[str]:
    """Return a command, as a text or as its words: the rules of commands say more."""
    if isinstance(value, str):
        listed = list_in(value)
        if listed is not None and all(isinstance(part, str) for part in listed):
            mended.append("list")
            return listed
        return value
    if isinstance(value, list) and value and all(isinstance(part, str | int | float) for part in value):
        return [str(part) for part in value]
    raise ValueError(f'the argument \'{parameter.name}\' is to be a list of texts, such as ["python", "main.py"]')


#: Names by which models call a path.
PATH_NAMES = ("path", "file", "filename", "file_path", "filepath", "name")


def _files(value: object, parameter: Parameter, mended: list[str]) -> list[dict[str, str]]:
    if isinstance(value, str):
        value = list_in(value) or object_in(value) or value
        mended.append("list")
    if isinstance(value, dict):
        pairs = [value] if "content" in value else [{"path": path, "content": text} for path, text in value.items()]
        mended.append("list")
        value = pairs
    form = f'the argument \'{parameter.name}\' is to be a list of {{"path": .., "content": ..}}'
    if not isinstance(value, list) or not value:
        raise ValueError(form)
    found = []
    for each in value:
        path = next((each[name] for name in PATH_NAMES if each.get(name)), None) if isinstance(each, Mapping) else None
        if not isinstance(path, str) or each.get("content") is None:
            raise ValueError(form)
        found.append({"path": path, "content": _content(each["content"], parameter, mended)})
    return found


_FILE = {"type": "object", "properties": {"path": _STRING, "content": _STRING}, "required": ["path", "content"]}

TEXT = Kind(_STRING, _text)
#: The whole of a file.
CONTENT = Kind(_STRING, _content)
#: A whole number; what is out of bounds is refused.
NUMBER = Kind({"type": "integer"}, _number, has_bounds=True)
#: How much is wanted at most; what is out of bounds is the nearest that is not.
LIMIT = Kind({"type": "integer"}, _nearest, has_bounds=True)
TRUTH = Kind({"type": "boolean"}, _truth)
#: A program and its arguments.
COMMAND = Kind({"type": "array", "items": _STRING}, _words)
#: Files with their whole contents.
FILES = Kind({"type": "array", "items": _FILE}, _files)
