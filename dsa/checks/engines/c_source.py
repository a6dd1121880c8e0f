"""A ground system as a C99 program that searches it.

Takes a `Ground` and watches, gives text: a function for each location, and around them what is the same for every machine
(`c_search.py`). No name of the document is in it: locations, fields, rules and watches are numbered. Arithmetic that could leave 64 bits is
refused, so what the program computes is what Python would.
"""

from collections.abc import Iterator, Sequence

from dsa.checks.engines.c_search import SEARCH
from dsa.checks.engines.plan import Plan, Step, plan
from dsa.expr import TRUE, And, Arithmetic, Boolean, Compare, Expr, Integer, Name, Negate, Not, Or, names
from dsa.ground import Field, Ground, Watch

#: Data of no more combinations of values than this take 32 bits.
NARROW = 2**32
_HIGHEST = 2**63 - 1
_Look = tuple[int, Expr]


class TooWideError(Exception):
    """Raised when some number could lie outside 64 bits: this machine is not for the compiled engine."""


def source(ground: Ground, watches: Sequence[Watch], *, bitmap: bool) -> str:
    """Write the program; with `bitmap`, what is known is a bit for each number, else it is in a hash table. Raises TooWideError."""
    found = plan(ground)
    numbers = numbers_to_remember(ground, found)
    if numbers > _HIGHEST:
        raise TooWideError(f"{numbers} configurations do not have numbers of 64 bits")
    head = {
        "BITMAP": int(bitmap),
        "DATA": "uint32_t" if ground.volume <= NARROW else "uint64_t",
        "NUMBERS": f"UINT64_C({numbers})",
        "LOCATIONS": len(ground.system.locations),
        "RULES": max(1, len(ground.rules)),
        "WATCHES": max(1, len(watches)),
    }
    defines = "".join(f"#define {name} {value}\n" for name, value in head.items())
    return defines + SEARCH.replace("@VISITS@", "\n".join(_visits(ground, found, watches)))


def numbers_to_remember(ground: Ground, found: Plan) -> int:
    """Give how many numbers there are at the locations where configurations must be remembered."""
    return ground.volume * len(found.remembered)


def _visits(ground: Ground, found: Plan, watches: Sequence[Watch]) -> Iterator[str]:
    """Write for each location a function that looks at some of its configurations, and the table of them."""
    looks: dict[int, list[_Look]] = {}
    for index, watch in enumerate(watches):
        looks.setdefault(watch.location, []).append((index, watch.condition))
    base = {place: slot * ground.volume for slot, place in enumerate(sorted(found.remembered))}
    busy = [place for place, steps in enumerate(found.steps) if steps or place in looks]
    for place in busy:
        yield f"static void visit_{place}(struct search *s, const DATA *data, uint64_t count)"
        yield "{"
        yield from _visit(ground, place, found.steps[place], looks.get(place, []), base)
        yield "}"
    first = _offer(0, _natural(ground.start), base)
    yield f"static void begin(struct search *s) {{ {first} }}"
    visitors = dict.fromkeys(range(len(found.steps)), "0") | {place: f"visit_{place}" for place in busy}
    yield f"static const visitor VISITORS[LOCATIONS] = {{{', '.join(visitors.values())}}};"
    bases = (f"UINT64_C({base.get(place, 0)})" for place in visitors)
    yield f"static const uint64_t BASES[LOCATIONS] = {{{', '.join(bases)}}};"


def _visit(
    ground: Ground, place: int, steps: Sequence[Step], looks: Sequence[_Look], base: dict[int, int]
) -> Iterator[str]:
    writer = _Writer(ground)
    yield f"    uint64_t i{''.join(f', t{number} = 0' for number in range(len(steps)))};"
    yield "    for (i = 0; i < count; i++) {"
    yield "        const DATA d = data[i];"
    for index in _read(ground, steps, looks):
        yield f"        const DATA g{index} = {_digit(ground, ground.fields[index])};"
    for index, condition in looks:
        yield f"        if (!s->is_hit[{index}] && {writer.text(condition)}) hit(s, {index}, {place}, d);"
    for number, step in enumerate(steps):
        offered = "" if step.stays else f" {_offer(step.rule.target, writer.after(step), base)}"
        when = "" if step.rule.condition == TRUE else f"if ({writer.text(step.rule.condition)}) "
        yield f"        {when}{{ t{number}++;{offered} }}"
    yield "        (void)d;"
    yield "    }"
    for number, step in enumerate(steps):
        yield from (f"    s->taken[{rule}] += t{number};" for rule in step.places)
    yield "    (void)s;"


def _offer(place: int, data: str, base: dict[int, int]) -> str:
    """Write that a configuration may be new, or, where nothing is remembered, that it is."""
    if place in base:
        return f"offer(s, {place}, UINT64_C({base[place]}), {data});"
    return f"add(s, s->parts + {place}, {data});"


def _read(ground: Ground, steps: Sequence[Step], looks: Sequence[_Look]) -> list[int]:
    """Give the fields that are read at a location."""
    exprs = [step.rule.condition for step in steps] + [condition for _, condition in looks]
    exprs += [value for step in steps for _, value in step.move.computed]
    read = {name for expr in exprs for name in names(expr)}
    read |= {field.name for step in steps for field in step.move.dropped}
    return [index for index, field in enumerate(ground.fields) if field.name in read]


def _digit(ground: Ground, field: Field) -> str:
    text = "d" if field.stride == 1 else f"d / {_natural(field.stride)}"
    return text if field.stride * field.size == ground.volume else f"{text} % {_natural(field.size)}"


class _Writer:
    """Writes expressions, and sees to it that none of their parts can leave 64 bits."""

    def __init__(self, ground: Ground) -> None:
        self._fields = ground.fields
        self._place = {field.name: index for index, field in enumerate(ground.fields)}

    def after(self, step: Step) -> str:
        """Write the data after a step. They are natural numbers modulo 2**32 or 2**64, so nothing in between matters."""
        move = step.move
        parts = [f"d + (DATA)UINT64_C({move.shift % 2**64})" if move.shift else "d"]
        parts += [f" - g{self._place[field.name]} * {_natural(field.stride)}" for field in move.dropped]
        for field, value in move.computed:
            parts.append(f" + (DATA)(uint64_t){self.text(value)} * {_natural(field.stride)}")
        return f"(DATA)({''.join(parts)})"

    def text(self, expr: Expr) -> str:
        """Write an expression in parentheses, as an int64_t; a condition is 1 or 0."""
        match expr:
            case Boolean(truth):
                return f"INT64_C({int(truth)})"
            case Integer():
                return _number(self._range(expr)[0])
            case Name(name):
                index = self._place[name]
                low = self._fields[index].low
                return f"((int64_t)g{index} + {_number(low)})" if low else f"(int64_t)g{index}"
            case Negate(operand):
                self._range(expr)
                return f"(-{self.text(operand)})"
            case Arithmetic(operator, left, right):
                self._range(expr)
                return f"({self.text(left)} {operator} {self.text(right)})"
            case Not(operand):
                return f"(!{self.text(operand)})"
            case And(operands):
                return f"({' && '.join(map(self.text, operands))})"
            case Or(operands):
                return f"({' || '.join(map(self.text, operands))})"
            case Compare(left, ((sign, right),)):
                return f"({self.text(left)} {sign} {self.text(right)})"
        raise AssertionError(f"{expr} is not ground")

    def _range(self, expr: Expr) -> tuple[int, int]:
        """Give bounds of a number; raises TooWideError when they are too wide."""
        low, high = self._bounds(expr)
        if low < -_HIGHEST or high > _HIGHEST:
            raise TooWideError(f"a value between {low} and {high} may leave 64 bits")
        return low, high

    def _bounds(self, expr: Expr) -> tuple[int, int]:
        match expr:
            case Integer(value):
                return value, value
            case Name(name):
                field = self._fields[self._place[name]]
                return field.low, field.low + field.size - 1
            case Negate(operand):
                low, high = self._range(operand)
                return -high, -low
            case Arithmetic(sign, left, right):
                return _combined(sign, self._range(left), self._range(right))
        return 0, 1


def _combined(sign: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    if sign == "+":
        return left[0] + right[0], left[1] + right[1]
    if sign == "-":
        return left[0] - right[1], left[1] - right[0]
    products = [a * b for a in left for b in right]
    return min(products), max(products)


def _natural(value: int) -> str:
    return f"(DATA)UINT64_C({value})"


def _number(value: int) -> str:
    return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
