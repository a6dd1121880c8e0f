"""The kernel's expressions are the language's: random texts are refused by both, or mean the same to both."""

import random

import pytest

from dsa.expr import evaluate
from dsa.kernel import CONDITION, Claim, Polynomial
from dsa.lang import dumps, read_machine

TEXT = """# m

## Parameters
| parameter | domain  | default |
| --------- | ------- | ------- |
| k         | 0..     | 2       |
| up        | bool    | true    |

## Variables
| variable | domain            | initial |
| -------- | ----------------- | ------- |
| n        | 0..9              | 5       |
| x.y      | 0..9              | 7       |
| on       | bool              | true    |
| off      | bool              | false   |
| hue      | {red, green, blue, a, go} | green |
| room     | {a, b, work, blue} | a       |
| tint     | {blue, green}     | green   |
| size     | {big, small}      | small   |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| done  | work    |

## States
| state | kind    |
| ----- | ------- |
| a     | initial |
| b     |         |

## Transitions
| source | event       | effects | target |
| ------ | ----------- | ------- | ------ |
| a      | go          | work    | b      |
| b      | done        |         | a      |
| b      | work.failed |         | a      |
"""
MACHINE = read_machine(TEXT, "m.md").machine
ABOUT = dumps(MACHINE)
NAMES = (
    "k",
    "up",
    "n",
    "x.y",
    "on",
    "off",
    "hue",
    "tint",
    "room",
    "size",
    "red",
    "green",
    "blue",
    "big",
    "small",
    "go",
    "done",
    "work",
    "work.failed",
    "a",
    "b",
)
TOKENS = (*NAMES, "and", "or", "not", "in", "not in", "true", "false", "pending work", "pending", "else", "between", "revoke", "0", "1", "7", "007", "12",
          "+", "-", "*", "**", "/", "//", "%", "<", "<=", ">", ">=", "==", "!=", "=", "<>", "(", ")", "{", "}", "[", "]", ",", ".", ":", ":flag", ":count", "_",
          "'a'", "count(", "count", "count (", "x", "y", "z", "red.green", "k.n", "lambda", "if", "is", "None", "True", "1.5", "1e3", "&", "|", "~", "@", "\\", "\t", "\xa0", "１")  # fmt: skip
NUMBERS, CONDITIONS, HUES = (
    ("n", "x.y", "k", "0", "1", "7"),
    ("on", "off", "up", "true", "false", "a", "b", "go"),
    ("hue", "tint", "room", "red", "green", "a", "go", "work"),
)


def written(source, kind, depth):
    """Write an expression of a type, by chance without the parentheses that it needs."""
    if depth == 0:
        return source.choice({"number": NUMBERS, "hue": HUES}.get(kind, (*CONDITIONS, "pending work")))
    inner = lambda of: written(source, of, depth - 1)  # noqa: E731
    bare = [
        *([f"{inner('number')} {source.choice('+-*')} {inner('number')}", f"-{inner('number')}",
           f"count({inner('bool')})", f"count({inner('bool')}, {inner('bool')})", f"count({inner('bool')}, {inner('bool')}, {inner('bool')})"] if kind == "number" else []),
        *([inner("hue")] if kind == "hue" else []),
        *([f"{inner('bool')} and {inner('bool')}", f"{inner('bool')} or {inner('bool')}", f"not {inner('bool')}",
           f"{inner('number')} {source.choice(['<', '<=', '==', '!=', '>', '>='])} {inner('number')}", f"{inner('bool')} == {inner('bool')}",
           f"{inner('number')} < {inner('number')} <= {inner('number')}", f"{inner('hue')} in {{{inner('hue')}, {inner('hue')}}}",
           f"{inner('number')} not in {{{inner('number')}}}", f"{inner('hue')} != {inner('hue')}", f"{inner('hue')} == {inner('hue')} == {inner('hue')}"] if kind == "bool" else []),
    ]  # fmt: skip
    text = source.choice(bare)
    return f"({text})" if source.random() < 0.5 else text


def any_text(source):
    """Write a text over the kernel's alphabet, a third of them well-formed or nearly so."""
    if source.random() < 0.4:
        text = written(source, "bool", source.randrange(4))
        if source.random() < 0.2:
            place = source.randrange(len(text) + 1)
            text = text[:place] + source.choice(TOKENS) + text[place:]
        return text
    return source.choice(["", " "]).join(source.choice(TOKENS) for _ in range(source.randrange(1, 7)))


def by_the_language(text):
    """Return the expression that a property has; None where the document reader refuses it."""
    read = read_machine(f"{TEXT}\n## Properties\n- always {text}\n", "m.md").machine
    return None if read is None or len(read.properties) != 1 else getattr(read.properties[0].form, "condition", None)


def by_the_kernel(text):
    """Return the claim; None where the kernel refuses it."""
    try:
        return Claim(ABOUT, {"form": "always {}", "parts": [text], "proofs": [], "at": {"k": "2", "up": "true"}})
    except AssertionError:
        return None


def agree(source):
    text = any_text(source)
    form, claim = by_the_language(text), by_the_kernel(text)
    if claim is None:
        is_white = "\t" in text or "\xa0" in text  # documents may have such white space, canonical ones have none
        return "refused" if form is None or is_white else f"only the kernel refuses {text!r}"
    assert form is not None, f"only the kernel takes {text!r}"
    true = {name for name in ("a", "b", "go", "work", "pending work") if source.random() < 0.5}
    values = {
        "k": 2,
        "up": True,
        "n": 5,
        "x.y": 7,
        "on": True,
        "off": False,
        "hue": "green",
        "tint": "green",
        "room": "a",
        "size": "small",
    }
    names = (
        claim.names
        | {n: claim.names[f"={v}"] if isinstance(v, str) else v for n, v in values.items()}
        | dict.fromkeys(true | ({"pending"} if "pending work" in true else set()), True)
    )
    said = claim.value(text, names, "claims", CONDITION)
    pending = {name.removeprefix("pending ") for name in true if " " in name}
    known = {**values, **{name: name in true for name in ("a", "b", "go", "work")}, "done": False, "work.failed": False}
    assert bool(said) == bool(meant(form, known, pending)), text
    return "means the same"


def meant(expr, known, pending):
    return evaluate(expr, known | {"pending work": "work" in pending, "pending": "work" in pending})


def agreed(seed, count):
    source = random.Random(seed)
    Polynomial.path = [], [], []
    found = {}
    for _ in range(count):
        said = agree(source)
        found[said] = found.get(said, 0) + 1
    return found


def test_random_text_is_refused_or_means_what_the_language_says():
    found = agreed(1, 600)
    assert set(found) == {"refused", "means the same"}, found
    assert found["means the same"] > 120


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_any_of_many_random_texts_is_refused_or_means_what_the_language_says(seed):
    assert set(agreed(seed, 10_000)) == {"refused", "means the same"}
