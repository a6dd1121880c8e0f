"""Find the code in a model's reply, and judge whether it is Python at all.

Takes the text of an artifact, gives the code or a verdict. It parses; it never runs anything.
"""

import ast
import io
import re
import tokenize
import warnings
from itertools import islice

from dsa.guards.feedback import clip_middle
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

# A model may write anything: possessive quantifiers keep the time linear in its text.
_FENCE = re.compile(r"^ {0,3}(?P<ticks>`{3,}+|~{3,}+)[ \t]*+(?P<language>[^\s`]*+)[^`\n]*+$", re.MULTILINE)
_INDENTED = re.compile(r"^ ++(?:`{3}|~{3})", re.MULTILINE)
_ITEM = re.compile(r" {0,20}(?:[-*+]|\d{1,9}[.)]) {1,4}(?=\S)")
_TICKS = re.compile(r"`{3,}+|~{3,}+")
_LOOSE = 3  # blanks that a fence may have before it, beside those of a list
_WORD = r"[\w\[\],.|]++"
_ASSIGNMENT = rf"[A-Za-z_]\w*+(?: *+: *+{_WORD}(?: ++{_WORD})*+)? ++= "
_CODE_LINE = re.compile(rf"^(?:(?:async )?def |import |from |class |@|{_ASSIGNMENT})", re.MULTILINE)
_MOST_CODE = 500_000  # a syntax tree takes some hundred times the memory of its text
_PYTHON = frozenset({"python", "py", "python3"})
#: How many lines of fences are looked at; how many that open or close one, from either end; how much is tried to be compiled.
_MOST_LINES, _MOST_ENDS, _MOST_TRIED = 10_000, 20, 1_000_000


def extract_code(reply: str) -> str:
    """Give the code of a reply.

    That is what stands in a fence marked as Python; else in a fence without a language; else all from the first line
    that begins like code (`def`, `import`, `from`, `class`, `@`, `name =`); else the whole reply. A fence that is not closed
    reaches to the end. Of several fences, and of several lines that may close one (a text in the code may hold fences), it is the longest that compiles,
    else the first; of each, the first and the last 20 are tried, up to 1,000,000 characters in all. Line ends come out as line feeds, and what stands in a
    fence of a list without the blanks of the list.
    """
    text = _plain(reply)
    lines = list(islice(_FENCE.finditer(text), _MOST_LINES))
    for languages in (_PYTHON, frozenset({""})):
        first = next((body for language, body in _fences(text) if language in languages), None)
        if first is not None:
            return _longest(text, lines, languages) or first
    start = _CODE_LINE.search(text)
    return text[start.start() :] if start else text


def _longest(text: str, lines: list[re.Match[str]], languages: frozenset[str]) -> str:
    """Return the longest code that compiles between a fence of these languages and a line that may close it; empty when there is no choice, or none does."""
    closing = [line for line in lines if not line["language"] and not line[0].strip(" \t`~")]
    opening = [line for line in lines if line["language"].lower() in languages and line not in closing[-1:]]
    found: list[tuple[int, int]] = []
    for begin in _ends(opening):
        behind = [end for end in closing if end.start() > begin.end() and end["ticks"].startswith(begin["ticks"])]
        found += [(begin.end() + 1, end.start()) for end in _ends(behind)]
    left = _MOST_TRIED
    for start, end in sorted(found, key=lambda span: span[0] - span[1]) if len(found) > 1 else ():
        left -= end - start
        if left >= 0 and (body := text[start:end]).strip() and not syntax_fault(body):
            return body
    return ""


def _ends(lines: list[re.Match[str]]) -> list[re.Match[str]]:
    return lines if len(lines) <= 2 * _MOST_ENDS else lines[:_MOST_ENDS] + lines[-_MOST_ENDS:]


def extract_fenced(reply: str, language: str) -> str:
    """Give the first fence in a language, else the first without one, else the whole reply. Line ends come out as line feeds."""
    text = _plain(reply)
    fences = _fences(text)
    bodies = (body for wanted in (language, "") for written, body in fences if written == wanted)
    return next(bodies, text)


def _plain(reply: str) -> str:
    """Return a reply with line feeds, in which no fence is indented: one in a list is by as much as the text of its item, and what stands in it too (CommonMark)."""
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    if not _INDENTED.search(text):
        return text
    item, indent, ticks = 0, 0, ""  # where the text of the list's item begins; of the fence that is open
    lines = text.split("\n")
    for number, line in enumerate(lines):
        bare = line.lstrip(" ")
        blanks = len(line) - len(bare)
        if ticks:
            lines[number] = line[min(blanks, indent) :]
            ticks = "" if bare.startswith(ticks) and not bare.strip(f" \t{ticks[0]}") else ticks
        elif _CODE_LINE.match(line):  # from here on it is code without a fence
            break
        elif found := _ITEM.match(line):
            item = found.end()
        elif bare:
            opening = _TICKS.match(bare) if blanks <= item + _LOOSE else None
            if opening:
                indent, ticks, lines[number] = blanks, opening[0], bare
            item = item if blanks >= min(item, 2) else 0
    return "\n".join(lines)


def _fences(text: str) -> list[tuple[str, str]]:
    """Give language and body of every fence, in order; a fence is closed by one at least as long (CommonMark)."""
    found = []
    at = 0
    while opening := _FENCE.search(text, at):
        ticks = opening["ticks"]
        closing = re.compile(rf"^ {{0,3}}{ticks[0]}{{{len(ticks)},}}[ \t]*$", re.MULTILINE).search(text, opening.end())
        end = closing.start() if closing else len(text)
        found.append((opening["language"].lower(), text[opening.end() + 1 : end]))
        at = closing.end() if closing else len(text)
    return found


class SyntaxGuard(GuardInterface):
    """Pass what `ast.parse` accepts; the feedback names line and message. No code at all fails."""

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code in the artifact."""
        fault = syntax_fault(extract_code(artifact.content))
        return GuardResult(passed=not fault, feedback=fault)


def syntax_fault(code: str, what: str = "The code") -> str:
    """Tell what keeps the code from being Python; empty when nothing does. `what` begins the sentence."""
    if not code.strip():
        return "There is no code in the answer."
    if len(code) > _MOST_CODE:
        return f"{what} is too long: {len(code)} characters, and at most {_MOST_CODE} are read."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is no syntax error
            ast.parse(code)
    except SyntaxError as error:
        place = f" in line {error.lineno}" if error.lineno else ""
        return f"{what} has a syntax error{place}: {clip_middle(error.msg)}."
    except ValueError:  # a NUL in newer Pythons, a lone surrogate
        return f"{what} holds characters that no source file may hold."
    except (RecursionError, MemoryError):
        return f"{what} is nested too deeply to be read."
    return ""


def comments(code: str) -> list[tuple[int, str]]:
    """Give the comments of a program, each with its line; of what cannot be cut into words, all that may be one."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError):
        return [(n, line[line.index("#") :]) for n, line in enumerate(code.split("\n"), start=1) if "#" in line]
