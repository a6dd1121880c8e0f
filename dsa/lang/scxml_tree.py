"""SCXML text to a tree of elements with their lines, read safely.

Takes text or bytes of any kind, gives elements or raises `ScxmlError`. Document types (and so entities) are refused, sizes and depths
are bounded, nothing is ever fetched.
"""

from xml.parsers import expat

import attrs

from dsa.errors import DsaError

NAMESPACE = "http://www.w3.org/2005/07/scxml"
MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS = 20_000_000, 60, 200_000


class ScxmlError(DsaError, ValueError):
    """Raised when a text is no SCXML document; `line` is the place, from 1."""

    def __init__(self, message: str, line: int) -> None:
        self.line = line
        super().__init__(message)


@attrs.define(eq=False)
class Element:
    """An element: `tag` and attributes without SCXML's namespace; of another one, `URI name`."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = attrs.field(factory=list)
    text: str = ""

    def get(self, name: str) -> str | None:
        """Give an attribute without the space around it."""
        value = self.attributes.get(name)
        return None if value is None else value.strip()


def same(one: Element, other: Element) -> bool:
    """Tell whether two elements say the same: comments, lines and the space around texts aside."""
    alike = (one.tag, one.attributes, one.text.split()) == (other.tag, other.attributes, other.text.split())
    return alike and len(one.children) == len(other.children) and all(map(same, one.children, other.children))


def read_tree(text: str | bytes) -> Element:
    """Read a document whose outermost element is `scxml`. Raises ScxmlError."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(content) > MAX_BYTES:
        raise ScxmlError(f"more than {MAX_BYTES} bytes are not read", 1)
    root = _Reader("utf-8" if isinstance(text, str) else None).read(content)
    if root.tag != "scxml":
        raise ScxmlError(f"the outermost element is '{root.tag}', not 'scxml'", root.line)
    return root


class _Reader:
    def __init__(self, encoding: str | None) -> None:
        self._open: list[Element] = []
        self._count = 0
        self._root: Element | None = None
        self._parser = expat.ParserCreate(encoding, " ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._doctype

    def read(self, content: bytes) -> Element:
        try:
            self._parser.Parse(content, True)  # noqa: FBT003  (expat's signature)
        except expat.ExpatError as fault:
            raise ScxmlError(f"this is no XML: {expat.ErrorString(fault.code)}", max(1, fault.lineno)) from None
        except (LookupError, ValueError) as fault:
            raise ScxmlError(f"this is no XML: {fault}", 1) from None
        assert self._root is not None, "expat requires an element"
        return self._root

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        self._count += 1
        if len(self._open) >= MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise ScxmlError(f"more than {MAX_ELEMENTS} elements, or nested deeper than {MAX_DEPTH}", line)
        element = Element(tag.removeprefix(f"{NAMESPACE} "), attributes, line)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        self._open[-1].text += text

    def _doctype(self, *_declared: object) -> None:
        raise ScxmlError("a document type is not read: remove the <!DOCTYPE>", self._parser.CurrentLineNumber)
