"""Random documents with families, each with another one that has all rows expanded.

Both texts come from one tree of phrases. The meaning of a phrase is worked out here again, from rules Fa1 to Fa6 of specs/semantics.md, by putting texts
together: nothing of the package is called for it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import attrs
from hypothesis import strategies as st

from dsa.lang import loads

Index = int | str
Environment = Mapping[str, Index]


@attrs.frozen
class Phrase:
    """A text with families, those that are free in it, and the text that it means at their indices."""

    written: str
    free: frozenset[str]
    spelled: Callable[[Environment], str]


def plain(text: str) -> Phrase:
    return Phrase(text, frozenset(), lambda _: text)


def put(pattern: str, *parts: Phrase) -> Phrase:
    """Put phrases in the places `{}` of a pattern."""
    return Phrase(
        pattern.format(*(part.written for part in parts)),
        frozenset().union(*(part.free for part in parts)),
        lambda here: pattern.format(*(part.spelled(here) for part in parts)),
    )


@attrs.frozen
class Family:
    """A family: its name, its indices in order, and how the section Families has them."""

    name: str
    indices: tuple[Index, ...]
    text: str


class Writer:
    """Draws the phrases of one document."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        low, count = draw(st.integers(0, 1)), draw(st.integers(1, 3))
        self.number = Family("f", tuple(range(low, low + count)), f"{low}..{low + count - 1}")
        words = ("u", "v", "w")[: draw(st.integers(1, 3))]
        self.word = Family("g", words, "{" + ", ".join(words) + "}")
        self.families = {"f": self.number, "g": self.word}

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def one_in(self, many: int) -> bool:
        return self.draw(st.integers(1, many)) == 1

    def index(self, name: str, scope: frozenset[str]) -> Phrase:
        """An index in use (Fa2): the family where it is in scope, a neighbour in its ring, or one of the values."""
        indices = self.families[name].indices
        by = self.pick(0, 0, 0, 1, -1) if name in scope else None
        if by is None or self.one_in(6):
            return plain(str(self.pick(*indices)))
        written = {0: name, 1: f"{name}+1", -1: f"{name}-1"}[by]
        return Phrase(
            written,
            frozenset({name}),
            lambda here: str(indices[(indices.index(here[name]) + by) % len(indices)]),
        )

    def value(self, name: str) -> Phrase:
        """A family as a value (Fa3)."""
        return Phrase(name, frozenset({name}), lambda here: str(here[name]))

    def quantified(self, word: str, name: str, body: Phrase) -> Phrase:
        """`all f: P` or `any f: P` (Fa5)."""
        joint = {"all": " and ", "any": " or "}[word]
        indices = self.families[name].indices
        return Phrase(
            f"({word} {name}: {body.written})",
            body.free - {name},
            lambda here: "(" + joint.join(f"({body.spelled({**here, name: index})})" for index in indices) + ")",
        )

    def counted(self, name: str, body: Phrase, most: str) -> Phrase:
        """A comparison with `count f: P` (Fa5)."""
        indices = self.families[name].indices
        return Phrase(
            f"(count {name}: {body.written}) {most}",
            body.free - {name},
            lambda here: f"count({', '.join(body.spelled({**here, name: index}) for index in indices)}) {most}",
        )

    def each(self, name: str, body: Phrase, joint: str) -> Phrase:
        """`all f: x[f] = e` and `all f: E[f]` (Fa5): one for each value, in order."""
        indices = self.families[name].indices
        return Phrase(
            f"all {name}: {body.written}",
            body.free - {name},
            lambda here: joint.join(body.spelled({**here, name: index}) for index in indices),
        )

    def number_of(self, scope: frozenset[str]) -> Phrase:
        choices = [
            lambda: put("x[{}]", self.index("f", scope)),
            lambda: plain("n"),
            lambda: plain(self.pick("0", "1", "2")),
        ]
        if "f" in scope:
            choices.append(lambda: self.value("f"))
        return self.pick(*choices)()

    def condition(self, scope: frozenset[str], depth: int = 2, *, with_pending: bool = True) -> Phrase:
        atoms = [
            lambda: put(
                "{} {} {}", self.number_of(scope), plain(self.pick("<", "==", "!=", ">=")), self.number_of(scope)
            ),
            lambda: put("y[{}]", self.index("g", scope)),
            lambda: put("not y[{}]", self.index("g", scope)),
        ]
        if with_pending:
            atoms += [
                lambda: put("pending ask[{}]", self.index("g", scope)),
                lambda: put("not pending ask[{}]", self.index("g", scope)),
                lambda: plain(self.pick("pending", "not pending", "pending call", "pending nap")),
            ]
        if "g" in scope:
            atoms.append(lambda: put("who == {}", self.value("g")))
        if depth and self.one_in(2):
            kind = self.pick("both", "not", "all", "any", "all", "any", "count")
            if kind == "both":
                parts = [self.condition(scope, depth - 1, with_pending=with_pending) for _ in range(2)]
                return put(self.pick("({} and {})", "({} or {})"), *parts)
            if kind == "not":
                return put("not ({})", self.condition(scope, depth - 1, with_pending=with_pending))
            name = self.pick("f", "g")
            body = self.condition(scope | {name}, depth - 1, with_pending=with_pending)
            if kind == "count":
                return put("({})", self.counted(name, body, self.pick("== 1", "> 0", "< 2", "!= n")))
            return self.quantified(kind, name, body)
        return self.pick(*atoms)()

    def update(self, variable: str, scope: frozenset[str]) -> Phrase:
        if variable == "n":
            return put("n = {}", self.number_of(scope)) if self.one_in(2) else plain("n += 1")
        if variable == "who":
            return put("who = {}", self.value("g") if "g" in scope else plain(str(self.pick(*self.word.indices))))
        family = {"x": "f", "y": "g"}[variable]
        is_for_all = self.one_in(3)
        inner = scope | {family} if is_for_all else scope
        index = self.value(family) if is_for_all else self.index(family, scope)
        if variable == "x":
            text = self.pick("x[{}] = {}", "x[{}] = {}", "x[{}] += 1")
            body = put(text, index, self.number_of(inner)) if text.count("{}") == 2 else put(text, index)
        else:
            body = put("y[{}] = {}", index, self.condition(inner, depth=1, with_pending=False))
        return self.each(family, body, "; ") if is_for_all else body

    def effect(self, scope: frozenset[str]) -> Phrase:
        return self.pick(
            lambda: put("ask[{}]", self.index("g", scope)),
            lambda: put("ask[{}]", self.index("g", scope)),
            lambda: self.each("g", put("ask[{}]", self.value("g")), ", "),
            lambda: self.each("g", put("cancel ask[{}]", self.value("g")), ", "),
            lambda: put("cancel ask[{}]", self.index("g", scope)),
            lambda: put("tell[{}]", self.index("f", scope)),
            lambda: plain(self.pick("call", "call, call", "nap", "cancel", "cancel call")),
        )()

    def row(self, event: Phrase, source: str) -> tuple[Phrase, ...]:
        scope = event.free | ({self.pick("f", "g")} if self.one_in(8) else frozenset())
        is_judged = event.written.startswith("said") and "," not in event.written
        kind = self.pick("", "if", "if", "else", "passed" if is_judged else "if")
        condition = {
            "": lambda: plain(""),
            "if": lambda: self.condition(scope),
            "else": lambda: plain("else"),
            "passed": lambda: put("good.passed and ({})", self.condition(scope, depth=1)),
        }[kind]()
        variables = [name for name in ("x", "y", "n", "who") if self.one_in(4)]
        updates = [self.update(name, scope) for name in variables]
        effects = [self.effect(scope) for _ in range(self.pick(0, 0, 1, 1, 2))]
        return (
            plain(source),
            event,
            condition,
            put("; ".join(["{}"] * len(updates)), *updates),
            put(", ".join(["{}"] * len(effects)), *effects),
            plain(self.pick("=", "a", "b", "b", "end")),
        )

    def rows(self) -> list[tuple[Phrase, ...]]:
        free = frozenset({"f", "g"})
        events = [
            plain("go"), put("tick[{}]", self.value("f")), put("said[{}]", self.value("g")), put("ask[{}].failed", self.value("g")),
            put("said[{}], heard[{}]", self.value("g"), self.value("g")), put("tick[{}]", self.index("f", free)),
            put("heard[{}]", self.index("g", free)), plain("back"), plain("call.failed"), plain("woke"), plain("after 1m"),
        ]  # fmt: skip
        return [
            self.row(event, source)
            for source in ("a", "b", "*")
            for event in events
            if self.pick(*([True, False] if source != "*" else [False] * 5 + [True]))
            and (source != "*" or event.written[:5] != "after")
        ]

    def claim(self) -> Phrase:
        scope = frozenset(name for name in ("f", "g") if self.one_in(3))
        form = self.pick("never {}", "always {}", "possible {}", "from everywhere possible {}")
        return put(form, self.condition(scope))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["-"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _instances(families: Mapping[str, Family], cells: Sequence[Phrase]) -> list[list[str]]:
    """Fa4: one for each combination of the families that are free in any cell, in the order of Families."""
    free = [family for name, family in families.items() if any(name in cell.free for cell in cells)]
    combinations = product(*(family.indices for family in free))
    here = [dict(zip((family.name for family in free), indices, strict=True)) for indices in combinations]
    return [[cell.spelled(each) for cell in cells] for each in here]


def family_machines() -> st.SearchStrategy:
    """Draw the machines of documents with families."""
    return family_documents().map(lambda texts: loads(texts[0]))


@st.composite
def family_documents(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a document with families, and the same one spelled out."""
    writer = Writer(draw)
    f, g = writer.value("f"), writer.value("g")
    low = writer.number.indices[0]
    most = writer.pick("", "2", "3")
    sections: list[tuple[str, tuple[str, ...], list[tuple[Phrase, ...]]]] = [
        ("Variables", ("variable", "domain", "initial"), [
            (put("x[{}]", f), put("0..{}", plain("3")), writer.pick(plain("0"), f, put("{} - {}", f, plain(str(low))))),
            (put("y[{}]", g), plain("bool"), plain("false")),
            (plain("n"), plain("0..3"), plain("0")),
            (plain("who"), plain("{u, v, w}"), plain("u")),
        ]),
        ("Events", ("event", "from"), [
            (plain("go"), plain("outside")), (put("tick[{}]", f), plain("outside")), (put("said[{}]", g), put("ask[{}]", g)),
            (put("heard[{}]", g), put("ask[{}]", g)), (plain("back"), plain("call")), (plain("woke"), plain("nap")),
        ]),
        ("Effects", ("effect", "at once", "is", "options"), [
            (put("ask[{}]", g), plain(most), plain(""), plain("")), (plain("call"), plain("2"), plain(""), plain("")),
            (plain("nap"), plain(""), plain("sleep"), plain("for = 1h")), (put("tell[{}]", f), plain(""), plain(""), plain("")),
        ]),
        ("States", ("state", "kind"), [(plain("a"), plain("initial")), (plain("b"), plain("")), (plain("end"), plain("final"))]),
        ("Transitions", ("source", "event", "if", "update", "effects", "target"), writer.rows()),
    ]  # fmt: skip
    judged = writer.each("g", put("said[{}]", g), ", ")
    claims = [writer.claim() for _ in range(draw(st.integers(0, 3)))]
    written = [
        "# m",
        f"## Families\n{_table(('family', 'index'), [(each.name, each.text) for each in writer.families.values()])}",
    ]
    spelled = ["# m"]
    for title, header, rows in sections:
        written.append(f"## {title}\n{_table(header, [[cell.written for cell in row] for row in rows])}")
        every = [cells for row in rows for cells in _instances(writer.families, row)]
        spelled.append(f"## {title}\n{_table(header, every)}")
    guards = ("guard", "judges")
    written.append(f"## Guards\n{_table(guards, [('good', 'said[g]')])}")
    spelled.append(f"## Guards\n{_table(guards, [('good', judged.spelled({}))])}")
    if claims:
        written.append("## Properties\n" + "\n".join(f"- {each.written}" for each in claims))
        every = [cells[0] for each in claims for cells in _instances(writer.families, (each,))]
        spelled.append("## Properties\n" + "\n".join(f"- {each}" for each in every))
    return "\n\n".join(written) + "\n", "\n\n".join(spelled) + "\n"
