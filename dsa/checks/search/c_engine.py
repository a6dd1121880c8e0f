"""Search with a program in C that is written for the machine, compiled, and called in this process. The compiler is passed in.

`source` takes a `Ground` and watches, gives C99 text: a function for each location, and around them what is the same for every machine. No
name of the document is in it: locations, fields, rules and watches are numbered. Arithmetic that could leave 64 bits is refused, so the
program computes what Python would. A search goes layer by layer. The configurations of a layer are stored by location, each as its data
alone. What is offered to a location where configurations must be remembered waits in a ring until its memory has been fetched.

Memory stays below a bound. It holds what is known: a bit for each number of the locations where configurations must be remembered, or a
hash table of 8-byte slots when those are too many (three eighths to three quarters of the slots are used, and while it grows the old table
is there too). It holds two layers of the search. A fifth of the bound is for all layers, for as long as they fit; after that none is kept.
In layers a configuration takes 4 bytes, or 8 when its data have more than 32 bits. A search for which the rest is too small is stopped and
is not complete.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from ctypes import CDLL, c_int, c_uint64, c_void_p

from dsa.checks.search.engine import Layer, RuleStep, SearchLimits, SearchPlan, SearchResult, plan
from dsa.errors import UndecidedError
from dsa.expr import TRUE, And, Arithmetic, Boolean, Compare, Count, Expr, Integer, Name, Negate, Not, Or, names
from dsa.ground_system import Field, Ground, GroundWatch

#: Data of no more combinations of values than this take 32 bits.
NARROW = 2**32
_HIGHEST = 2**63 - 1
_Look = tuple[int, Expr]


def source(ground: Ground, watches: Sequence[GroundWatch], *, bitmap: bool) -> str:
    """Write the program; with `bitmap`, what is known is a bit for each number, else it is in a hash table. Raises UndecidedError."""
    search_plan = plan(ground)
    numbers = numbers_to_remember(ground, search_plan)
    if numbers > _HIGHEST:
        raise UndecidedError(f"{numbers} configurations cannot be numbered with 64 bits")
    head = {
        "BITMAP": int(bitmap),
        "DATA": "uint32_t" if ground.volume <= NARROW else "uint64_t",
        "NUMBERS": f"UINT64_C({numbers})",
        "LOCATIONS": len(ground.system.locations),
        "RULES": max(1, len(ground.rules)),
        "WATCHES": max(1, len(watches)),
    }
    defines = "".join(f"#define {name} {value}\n" for name, value in head.items())
    return defines + SEARCH.replace("@VISITS@", "\n".join(_visits(ground, search_plan, watches)))


def numbers_to_remember(ground: Ground, search_plan: SearchPlan) -> int:
    """Return how many numbers there are at the locations where configurations must be remembered."""
    return ground.volume * len(search_plan.remembered_places)


def _visits(ground: Ground, search_plan: SearchPlan, watches: Sequence[GroundWatch]) -> Iterator[str]:
    """Write for each location a function that looks at some of its configurations, and the table of them."""
    looks: dict[int, list[_Look]] = {}
    for index, watch in enumerate(watches):
        looks.setdefault(watch.location, []).append((index, watch.condition))
    base = {place: slot * ground.volume for slot, place in enumerate(sorted(search_plan.remembered_places))}
    busy = [place for place, steps in enumerate(search_plan.steps) if steps or place in looks]
    for place in busy:
        yield f"static void visit_{place}(struct search *s, const DATA *data, uint64_t count)"
        yield "{"
        yield from _visit(ground, place, search_plan.steps[place], looks.get(place, []), base)
        yield "}"
    first = _offer(0, _natural(ground.start), base)
    yield f"static void begin(struct search *s) {{ {first} }}"
    visitors = dict.fromkeys(range(len(search_plan.steps)), "0") | {place: f"visit_{place}" for place in busy}
    yield f"static const visitor VISITORS[LOCATIONS] = {{{', '.join(visitors.values())}}};"
    bases = (f"UINT64_C({base.get(place, 0)})" for place in visitors)
    yield f"static const uint64_t BASES[LOCATIONS] = {{{', '.join(bases)}}};"


def _visit(
    ground: Ground, place: int, steps: Sequence[RuleStep], looks: Sequence[_Look], base: dict[int, int]
) -> Iterator[str]:
    writer = _CWriter(ground)
    yield f"    uint64_t i{''.join(f', t{number} = 0' for number in range(len(steps)))};"
    yield "    for (i = 0; i < count; i++) {"
    yield "        const DATA d = data[i];"
    for index in _read(ground, steps, looks):
        yield f"        const DATA g{index} = {_digit(ground, ground.fields[index])};"
    for index, condition in looks:
        yield f"        if (!s->is_hit[{index}] && {writer.text(condition)}) hit(s, {index}, {place}, d);"
    for number, step in enumerate(steps):
        offer = "" if step.stays else f" {_offer(step.rule.target, writer.after(step), base)}"
        when = "" if step.rule.condition == TRUE else f"if ({writer.text(step.rule.condition)}) "
        yield f"        {when}{{ t{number}++;{offer} }}"
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


def _read(ground: Ground, steps: Sequence[RuleStep], looks: Sequence[_Look]) -> list[int]:
    """Return the fields that are read at a location."""
    exprs = [step.rule.condition for step in steps] + [condition for _, condition in looks]
    exprs += [value for step in steps for _, value in step.move.computed_fields]
    read = {name for expr in exprs for name in names(expr)}
    read |= {field.name for step in steps for field in step.move.dropped_fields}
    return [index for index, field in enumerate(ground.fields) if field.name in read]


def _digit(ground: Ground, field: Field) -> str:
    text = "d" if field.stride == 1 else f"d / {_natural(field.stride)}"
    return text if field.stride * field.size == ground.volume else f"{text} % {_natural(field.size)}"


class _CWriter:
    """Writes expressions, and sees to it that none of their parts can leave 64 bits."""

    def __init__(self, ground: Ground) -> None:
        self._fields = ground.fields
        self._place = {field.name: index for index, field in enumerate(ground.fields)}

    def after(self, step: RuleStep) -> str:
        """Write the data after a step. They are natural numbers modulo 2**32 or 2**64, so nothing in between matters."""
        move = step.move
        parts = [f"d + (DATA)UINT64_C({move.shift % 2**64})" if move.shift else "d"]
        parts += [f" - g{self._place[field.name]} * {_natural(field.stride)}" for field in move.dropped_fields]
        for field, value in move.computed_fields:
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
            case Count(operands):
                return f"({' + '.join(['INT64_C(0)', *map(self.text, operands)])})"
        raise AssertionError(f"{expr} is not ground")

    def _range(self, expr: Expr) -> tuple[int, int]:
        """Return bounds of a number; raises UndecidedError when they are too wide."""
        low, high = self._bounds(expr)
        if low < -_HIGHEST or high > _HIGHEST:
            raise UndecidedError(f"a value between {low} and {high} may not fit into 64 bits")
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
                return _combine_ranges(sign, self._range(left), self._range(right))
            case Count(operands):
                return 0, len(operands)
        return 0, 1


def _combine_ranges(sign: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
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


# -- the part that is the same for every machine ----------------------------------------------------------------------


SEARCH = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 32
enum { SLICE_DONE, LAYER_DONE, SEARCH_DONE, NO_MEMORY };

struct part {
    DATA *now, *next;
    uint64_t width, next_width, now_room, next_room;
    DATA ahead[AHEAD];
    uint64_t offered;
};

struct search {
    uint64_t *known, slots;      /* the bitmap; or the hash table (number + 1; 0 is free) */
    uint64_t at_part, at;        /* how far this layer has been looked at */
    uint64_t found, remembered, bytes, budget;
    int no_memory;
    uint64_t count[LOCATIONS], taken[RULES], hit_place[WATCHES], hit_data[WATCHES];
    unsigned char is_hit[WATCHES];
    struct part parts[LOCATIONS];
};

typedef void (*visitor)(struct search *, const DATA *, uint64_t);

static int more_room(struct search *s, struct part *p)
{
    uint64_t room = p->next_room ? p->next_room + p->next_room / 2 : 64;
    DATA *fresh;
    /* while it grows, both may be there */
    if (s->bytes + room * sizeof(DATA) > s->budget) { s->no_memory = 1; return 0; }
    fresh = realloc(p->next, room * sizeof(DATA));
    if (!fresh) { s->no_memory = 1; return 0; }
    s->bytes += (room - p->next_room) * sizeof(DATA);
    p->next = fresh;
    p->next_room = room;
    return 1;
}

static void add(struct search *s, struct part *p, DATA data)
{
    if (p->next_width == p->next_room && !more_room(s, p)) return;
    p->next[p->next_width++] = data;
    s->found++;
}

#if BITMAP
static uint64_t *slot_of(struct search *s, uint64_t number) { return s->known + (number >> 6); }

static int is_new(struct search *s, uint64_t number)
{
    uint64_t *word = slot_of(s, number), bit = UINT64_C(1) << (number & 63);
    if (*word & bit) return 0;
    *word |= bit;
    return 1;
}

static int room_in_known(struct search *s) { (void)s; return 1; }
#else
static uint64_t mixed(uint64_t x)
{
    x ^= x >> 32; x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32; x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static uint64_t *slot_of(struct search *s, uint64_t number) { return s->known + (mixed(number) & (s->slots - 1)); }

static int is_new(struct search *s, uint64_t number)
{
    uint64_t place = mixed(number) & (s->slots - 1);
    while (s->known[place]) {
        if (s->known[place] == number + 1) return 0;
        place = (place + 1) & (s->slots - 1);
    }
    s->known[place] = number + 1;
    s->remembered++;
    return 1;
}

static int room_in_known(struct search *s)
{
    uint64_t slots = s->slots * 2, before = s->slots, i, *old = s->known;
    if (s->remembered + 1 < s->slots / 4 * 3) return 1;
    if (s->bytes + slots * 8 > s->budget || !(s->known = calloc(slots, 8))) {
        s->known = old;
        s->no_memory = 1;
        return 0;
    }
    s->slots = slots;
    s->remembered = 0;
    for (i = 0; i < before; i++) if (old[i]) is_new(s, old[i] - 1);
    free(old);
    s->bytes += (slots - before) * 8;
    return 1;
}
#endif

static void settle(struct search *s, struct part *p, uint64_t base, DATA data)
{
    if (s->no_memory || !room_in_known(s)) return;
    if (is_new(s, base + data)) add(s, p, data);
}

static void offer(struct search *s, uint64_t place, uint64_t base, DATA data)
{
    struct part *p = s->parts + place;
    DATA *waiting = p->ahead + (p->offered++ % AHEAD), first = *waiting;
    *waiting = data;
#if defined(__GNUC__)
    __builtin_prefetch(slot_of(s, base + data), 1);
#endif
    if (p->offered > AHEAD) settle(s, p, base, first);
}

static void hit(struct search *s, uint64_t watch, uint64_t place, DATA data)
{
    s->hit_place[watch] = place;
    s->hit_data[watch] = data;
    s->is_hit[watch] = 1;
}

@VISITS@

static void settle_all(struct search *s)
{
    uint64_t place, i;
    for (place = 0; place < LOCATIONS; place++) {
        struct part *p = s->parts + place;
        for (i = p->offered > AHEAD ? p->offered - AHEAD : 0; i < p->offered; i++)
            settle(s, p, BASES[place], p->ahead[i % AHEAD]);
        p->offered = 0;
    }
}

void dsa_close(struct search *s)
{
    uint64_t place;
    if (!s) return;
    for (place = 0; place < LOCATIONS; place++) { free(s->parts[place].now); free(s->parts[place].next); }
    free(s->known);
    free(s);
}

struct search *dsa_open(uint64_t budget)
{
    struct search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->budget = budget;
    s->slots = BITMAP ? NUMBERS / 64 + 1 : 1 << 16;
    s->bytes = sizeof *s + s->slots * 8;
    if (s->bytes <= budget) s->known = calloc(s->slots, 8);
    if (!s->known) { dsa_close(s); return NULL; }
    begin(s);
    settle_all(s);
    if (s->no_memory) { dsa_close(s); return NULL; }
    return s;
}

static int next_layer(struct search *s)
{
    uint64_t place, width = 0;
    for (place = 0; place < LOCATIONS; place++) {
        struct part *p = s->parts + place;
        DATA *data = p->now;
        uint64_t room = p->now_room;
        p->now = p->next; p->now_room = p->next_room; p->width = p->next_width;
        p->next = data; p->next_room = room; p->next_width = 0;
        width += p->width;
    }
    s->at_part = s->at = 0;
    return width != 0;
}

/* Look at up to `most` configurations of this layer. After LAYER_DONE the next layer is complete; the search begins so. */
int dsa_slice(struct search *s, uint64_t most)
{
    while (s->at_part < LOCATIONS && most && !s->no_memory) {
        struct part *p = s->parts + s->at_part;
        uint64_t count = p->width - s->at < most ? p->width - s->at : most;
        if (count && VISITORS[s->at_part]) VISITORS[s->at_part](s, p->now + s->at, count);
        s->count[s->at_part] += count;
        s->at += count;
        most -= count;
        if (s->at == p->width) { s->at_part++; s->at = 0; }
    }
    if (s->at_part < LOCATIONS && !s->no_memory) return SLICE_DONE;
    settle_all(s);
    return s->no_memory ? NO_MEMORY : LAYER_DONE;
}

int dsa_next_layer(struct search *s) { return next_layer(s); }

/* How many configurations were found; how many of them are in the next layer, and at how many locations. */
void dsa_state(const struct search *s, uint64_t *into)
{
    uint64_t place;
    into[0] = s->found;
    into[1] = into[2] = 0;
    for (place = 0; place < LOCATIONS; place++) {
        into[1] += s->parts[place].next_width;
        into[2] += s->parts[place].next_width != 0;
    }
}

/* The next layer: pairs of a location and how many configurations are there, and their data one after the other. */
void dsa_layer(const struct search *s, uint64_t *pairs, DATA *data)
{
    uint64_t place;
    for (place = 0; place < LOCATIONS; place++) {
        const struct part *p = s->parts + place;
        if (!p->next_width) continue;
        *pairs++ = place;
        *pairs++ = p->next_width;
        memcpy(data, p->next, p->next_width * sizeof(DATA));
        data += p->next_width;
    }
}

void dsa_result(const struct search *s, uint64_t *count, uint64_t *taken, uint64_t *place, uint64_t *data, unsigned char *is_hit)
{
    memcpy(count, s->count, sizeof s->count);
    memcpy(taken, s->taken, sizeof s->taken);
    memcpy(place, s->hit_place, sizeof s->hit_place);
    memcpy(data, s->hit_data, sizeof s->hit_data);
    memcpy(is_hit, s->is_hit, sizeof s->is_hit);
}
"""


#: Makes a library of C text.
Compile = Callable[[str], CDLL]
#: All that a search may take, in bytes.
MEMORY_BYTES = 3_840 * 2**20
#: More rules, watches or locations than this take the compiler too long.
MAX_PARTS = 4_000
#: The limits are checked once for this many configurations: some hundredths of a second.
_SLICE = 2**18
_SLICE_DONE, _NO_MEMORY = 0, 3


def fits(ground: Ground, watches: Sequence[GroundWatch] = ()) -> bool:
    """Return whether this engine can search a system: its numbers have 64 bits, and it is not too long a program."""
    if len(ground.rules) + len(watches) + len(ground.system.locations) > MAX_PARTS:
        return False
    try:
        source(ground, watches, bitmap=True)
    except UndecidedError:
        return False
    return True


def search(
    ground: Ground,
    watches: Sequence[GroundWatch],
    limits: SearchLimits,
    compile_c: Compile,
    memory_bytes: int = MEMORY_BYTES,
) -> SearchResult:
    """Search everything that can happen. Raises UndecidedError, MemoryError, and what `compile_c` raises."""
    layers_bytes = memory_bytes // 5
    bitmap = numbers_to_remember(ground, plan(ground)) // 8 <= memory_bytes // 10 * 7
    library = _declare(compile_c(source(ground, watches, bitmap=bitmap)))
    handle = library.dsa_open(memory_bytes - layers_bytes)
    if not handle:
        raise MemoryError(
            f"a search may use {memory_bytes} bytes of memory, but these cannot be allocated, or are too few to begin"
        )
    try:
        return _CSearch(ground, watches, limits, library, handle, layers_bytes).run()
    finally:
        library.dsa_close(handle)


def _declare(library: CDLL) -> CDLL:
    library.dsa_open.restype, library.dsa_open.argtypes = c_void_p, [c_uint64]
    library.dsa_slice.restype, library.dsa_slice.argtypes = c_int, [c_void_p, c_uint64]
    library.dsa_next_layer.restype, library.dsa_next_layer.argtypes = c_int, [c_void_p]
    for name, pointers in (("dsa_close", 1), ("dsa_state", 2), ("dsa_layer", 3), ("dsa_result", 6)):
        function = getattr(library, name)
        function.restype, function.argtypes = None, [c_void_p] * pointers
    return library


class _CSearch:
    def __init__(
        self,
        ground: Ground,
        watches: Sequence[GroundWatch],
        limits: SearchLimits,
        library: CDLL,
        handle: int,
        layers_bytes: int,
    ) -> None:
        self._ground, self._watches, self._limits = ground, watches, limits
        self._library, self._handle, self._layers_bytes = library, handle, layers_bytes
        self._state = array("Q", bytes(3 * 8))
        self._data = "I" if ground.volume <= NARROW else "Q"
        self._layers: list[Layer] | None = []

    def run(self) -> SearchResult:
        depth, complete = 0, True
        self._keep()
        while complete and self._library.dsa_next_layer(self._handle):
            outcome = _SLICE_DONE
            while complete and outcome == _SLICE_DONE:
                outcome = self._library.dsa_slice(self._handle, _SLICE)
                complete = outcome != _NO_MEMORY and self._goes_on(depth)
            depth += 1
            if complete:
                self._keep()
        return self._result(complete=complete)

    def _goes_on(self, depth: int) -> bool:
        self._library.dsa_state(self._handle, _address(self._state))
        configurations = self._state[0]
        self._limits.progress(configurations, depth)
        return configurations <= self._limits.max_states and not self._limits.is_expired()

    def _keep(self) -> None:
        """Keep the next layer, unless that would be too much: then no layer is kept any more."""
        self._library.dsa_state(self._handle, _address(self._state))
        _, width, parts = self._state
        if self._layers is None or width == 0:
            return
        data, pairs = array(self._data, [0]) * width, array("Q", [0]) * (2 * parts)
        self._layers_bytes -= data.itemsize * width
        if self._layers_bytes < 0:
            self._layers = None
            return
        self._library.dsa_layer(self._handle, _address(pairs), _address(data))
        layer_parts, begin = [], 0
        for place, count in zip(pairs[::2], pairs[1::2], strict=True):
            layer_parts.append((place, memoryview(data)[begin : begin + count]))
            begin += count
        self._layers.append(Layer(self._ground.volume, tuple(layer_parts)))

    def _result(self, *, complete: bool) -> SearchResult:
        watches = range(len(self._watches))
        sizes = (len(self._ground.system.locations), len(self._ground.rules), len(watches), len(watches))
        count, taken, place, data = (array("Q", [0]) * max(1, size) for size in sizes)
        is_hit = array("B", [0]) * max(1, len(watches))
        self._library.dsa_result(self._handle, *map(_address, (count, taken, place, data, is_hit)))
        volume = self._ground.volume
        self._library.dsa_state(self._handle, _address(self._state))
        return SearchResult(
            "compiled",
            self._state[0],
            sum(taken),
            tuple(count),
            frozenset(rule for rule, times in enumerate(taken) if times),
            tuple(place[watch] * volume + data[watch] if is_hit[watch] else None for watch in watches),
            complete,
            None if self._layers is None else tuple(self._layers),
        )


def _address(values: "array[int]") -> int:
    return values.buffer_info()[0]
