"""The kernel: a verifier of certificates that stands alone. `python kernel.py CERTIFICATE` prints the accepted claims (exit 0) or why it refuses (exit 1).

For a file that is not a certificate it prints its usage (exit 2). It imports only the standard library, shares no code with the writer of certificates,
and trusts only the machine's tables. Its sources are specs/semantics.md (rules S1 to S12) and specs/table.md (the language). It has four parts, in
this order:

1. `Polynomial`: unknown numbers. The kernel explores a claim about given parameter values directly. For a claim about all values it runs the same code
   on unknown numbers: it answers each question about one both ways, and shows that every path that fails is impossible.
2. `KernelParser`: the expressions of the language: whole numbers, conditions, values of enumerations, declared full names. Nothing else is accepted.
3. `Tables`: the machine.
4. `Claim`: a claim about the machine, and how the kernel verifies it.

A configuration (`node`) is (leaf, outstanding effects, values, order). The values include `:flag` and `:count`, the memory of a property, and for each
effect E of which several may be outstanding its number `:number.E`; E is not among the outstanding effects then. The order has a pair of timers for each
timer that may not fire before another (S11).
A move is (what is true then: the event and its verdicts; the effect or timer behind it; the candidate rows).
(PYTEST_DONT_REWRITE: the messages of its asserts are its output.)
"""

import contextlib, hashlib, itertools, json, math, re, sys

__debug__ or sys.exit("refused: Python's option -O would remove every check")


# -- 1. numbers that are not known -------------------------------------------------------------------------------------


def terms(number):
    """Return a number as a polynomial: {names: coefficient}, where () stands for the constant."""
    return number.terms if isinstance(number, Polynomial) else {(): number}


def add_up(products):
    """Return the sum of products, each of names and a coefficient."""
    sums = {}
    for names, coefficient in products:
        sums[names] = sums.get(names, 0) + coefficient
    sums = {names: coefficient for names, coefficient in sums.items() if coefficient}
    return Polynomial(sums) if sums.keys() - {()} else sums.get((), 0)


class Polynomial:  # noqa: PLW1641  (it is not to be hashed)
    """An unknown whole number: a polynomial over the machine's values with whole coefficients. A condition is 0 or 1.

    `path` is the state of the current path: its facts (numbers that are at least 0), the answers that it has to give, and other paths
    still to follow.
    """

    def __init__(self, terms):
        self.terms = terms

    def __add__(self, other):
        return add_up([*self.terms.items(), *terms(other).items()])

    def __mul__(self, by):
        return add_up(
            (tuple(sorted(m + n)) if m and n else m or n, c * d)
            for m, c in self.terms.items()
            for n, d in terms(by).items()
        )

    def at_least(self, other):
        """Return whether a number is at least another: the earlier answer of this path, else yes here and no on another path."""
        yes, (facts, ways, todo) = other * -1 + self, Polynomial.path
        if isinstance(yes, int):
            return yes >= 0
        no = yes * -1 + -1
        for fact in facts:
            if fact.terms in (yes.terms, no.terms):
                return fact.terms == yes.terms
        if len(facts) == len(ways):  # a new question
            todo.append([*ways, False])
            ways.append(True)
        facts.append(yes if ways[len(facts)] else no)
        return facts[-1] is yes

    __radd__, __rmul__, __ge__, __hash__ = __add__, __mul__, at_least, None
    __bool__ = lambda a: a >= 1
    __eq__ = lambda a, b: a <= b <= a
    __le__ = lambda a, b: Polynomial.at_least(b, a)
    __lt__ = lambda a, b: not a >= b
    __gt__ = lambda a, b: not a <= b


# -- 2. expressions ----------------------------------------------------------------------------------------------------

NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*(?:\[[A-Za-z0-9_]+\](?:\.[A-Za-z_][A-Za-z0-9_]*)*)?"
#: A number, a name (`:flag` and `:count` too), a sign, or the beginning of a count.
TOKEN = re.compile(rf" *(?:([0-9]{{1,18}})|(count\(|:?{NAME})|(<=|>=|==|!=|[-+*<>(){{}},]))")
KEYWORDS = {"and", "or", "not", "in", "else", "true", "false", "pending", "cancel", "revoke", "after", "between"}
BARE_PENDING = rf"\bpending(?! +(?!(?:{'|'.join(sorted(KEYWORDS))})\b)[A-Za-z_])"
RELATIONS, DEEPEST, MOST_NODES = ("==", "!=", "<=", ">=", "<", ">"), 60, 100_000
#: A value with the name of something else too has no type of its own: it is the value only beside a value of an enumeration.
CONDITION, NUMBER, EITHER = "a condition", "a number", "a value or something else"


class KernelParser:
    """A parser for expressions over typed names, with one method for each line of the grammar in specs/table.md.

    A type is CONDITION, NUMBER or the set of an enumeration's values. Every method returns a type and Python code, which has only
    numbers, names, `not`, `and`, `or`, comparisons, `+`, `*` and parentheses. `values` are the names of the values of
    enumerations. Some of them name something else too; in Python the value's name begins with `=`. `numbers` maps `pending E` to the code of whether
    E is outstanding, for each effect that has a number.
    """

    def __init__(self, text, types, values, numbers=()):
        self.text, self.types, self.values, self.numbers = text, types, values, numbers
        self.tokens, self.depth, end = [], 0, 0
        while token := TOKEN.match(text, end):
            end = token.end()
            self.tokens.append(token[0].strip())
        self.require(not text[end:].strip(" "))
        self.tokens.reverse()

    def require(self, true):
        assert true, f"this is not an expression: {short(self.text)}"

    def take(self, *words):
        """Take the next token if it is one of these, and return it; else return the empty text."""
        return self.tokens.pop() if self.tokens and self.tokens[-1] in words else ""

    def whole(self, read):
        result = read()
        self.require(not self.tokens)
        return result

    def several(self, read, sign):
        """Read conditions joined by a word; a single operand may be of any type."""
        (kind, code), more = read(), []
        while self.take(sign):
            more.append(read())
        self.require(not more or {kind, *(other for other, _ in more)} == {CONDITION})
        return (CONDITION, f"(not not ({f' {sign} '.join([code, *(c for _, c in more)])}))") if more else (kind, code)

    def expression(self):
        return self.several(self.conjunction, "or")

    def conjunction(self):
        return self.several(self.negation, "and")

    def negation(self):
        if not self.take("not"):
            return self.comparison()
        kind, code = self.deeper(self.negation)
        self.require(kind == CONDITION)
        return CONDITION, f"(not {code})"

    def comparison(self):
        kind, code = self.sum()
        negative = len(self.tokens) > 1 and self.tokens[-1] == "not" and self.tokens[-2] == "in" and self.take("not")
        if self.take("in"):
            self.require(self.take("{"))
            choices = [self.sum()]
            while self.take(","):
                choices.append(self.sum())
            (kind, code), *choices = self.read_values([(kind, code), *choices])
            self.require(self.take("}") and all(alike(kind, other) for other, _ in choices))
            among = f"({code} in ({', '.join(choice for _, choice in choices)},))"
            return CONDITION, f"(not {among})" if negative else among
        groups, signs = [[(kind, code)]], []
        while sign := self.take(*RELATIONS):
            signs.append(sign)
            groups += [] if sign in ("==", "!=") else [[]]
            groups[-1].append(self.sum())
        if not signs:
            return kind, code
        (kind, chain), *rest = itertools.chain(*map(self.read_values, groups))
        for sign, (other, right) in zip(signs, rest):
            self.require(alike(kind, other) and (sign in ("==", "!=") or kind == NUMBER))
            kind, chain = other, f"{chain} {sign} {right}"
        return CONDITION, f"({chain})"

    def read_values(self, operands):
        """Read names as values of an enumeration if one of the operands is such a value."""
        if not any(isinstance(kind, frozenset) for kind, _ in operands):
            return operands
        symbols = {f"names[{word!r}]": (frozenset({word}), f"names[{'=' + word!r}]") for word in self.values}
        return [symbols.get(code, (kind, code)) for kind, code in operands]

    def sum(self):
        return self.arithmetic(self.product, ("+", "-"))

    def product(self):
        return self.arithmetic(self.unary, ("*",))

    def arithmetic(self, read, signs):
        kind, code = read()
        parts = [code]
        while sign := self.take(*signs):
            other, right = read()
            self.require(kind == other == NUMBER)
            parts.append({"+": f"+ {right}", "-": f"+ -1 * {right}", "*": f"* {right}"}[sign])
        return (kind, f"({' '.join(parts)})") if parts[1:] else (kind, code)

    def unary(self):
        if not self.take("-"):
            return self.atom()
        kind, code = self.deeper(self.unary)
        self.require(kind == NUMBER)
        return NUMBER, f"(-1 * {code})"

    def atom(self):
        self.require(self.tokens)
        word = self.tokens.pop()
        if word == "(":
            result = self.deeper(self.expression)
            self.require(self.take(")"))
            return result
        if word == "count(":
            conditions = [self.deeper(self.expression)]
            while self.take(","):
                conditions.append(self.deeper(self.expression))
            self.require(self.take(")") and {kind for kind, _ in conditions} == {CONDITION})
            return NUMBER, f"({' + '.join(['0', *(code for _, code in conditions)])})"
        if word.isdigit():
            return NUMBER, str(int(word))
        if word in ("true", "false"):
            return CONDITION, word.capitalize()
        if (
            word == "pending"
            and self.tokens
            and re.match("[A-Za-z_]", self.tokens[-1])
            and self.tokens[-1] not in KEYWORDS
        ):
            word = f"pending {self.tokens.pop()}"
        assert word in self.types, f"'{short(word)}' in '{short(self.text)}' is not a name that is allowed there"
        if word in self.numbers:
            return CONDITION, self.numbers[word]
        is_value = word in self.values and self.types[word] not in (CONDITION, EITHER)
        return self.types[word], f"names[{'=' * is_value + word!r}]"

    def deeper(self, read):
        self.depth += 1
        self.require(self.depth <= DEEPEST)
        result = read()
        self.depth -= 1
        return result


def short(text):
    """Return a text for a message, shortened if it is long."""
    return text if len(text) <= 80 else f"{text[:80]}.."


def alike(one, other):
    """Return whether values of two types may be equal: the types are the same, or enumerations with a common value."""
    return one == other != EITHER or (isinstance(one, frozenset) and isinstance(other, frozenset) and bool(one & other))


# -- 3. the machine ----------------------------------------------------------------------------------------------------

COLUMNS = {
    "Parameters": ("parameter", "domain", "default"),
    "Variables": ("variable", "scope", "domain", "initial"),
    "Events": ("event", "from"),
    "Guards": ("guard", "judges", "verdicts"),
    "Effects": ("effect", "at once"),
    "States": ("state", "kind"),
    "Transitions": ("source", "event", "if", "update", "effects", "target"),
}
VERDICTS = ("passed", "failed", "fatal")
FAULT = "a fault is possible"


def tables_in(text):
    """Return the rows of each table of a canonical document. Raises AssertionError for any other text."""
    title, *sections = re.split(r"\n+## ", text.strip("\n"))
    assert re.fullmatch(r"# [^\n]*", title), "the machine is not a document, because it does not begin with a heading"
    tables = {}
    for section in sections:
        name, *lines = section.split("\n")
        assert name in COLUMNS and name not in tables, f"the section {name} is not allowed"
        assert len(lines) > 1 and all(re.fullmatch(r"\|.*\|", line) for line in lines), f"{name} is not a table"
        header, dashes, *rows = ([cell.strip(" ") for cell in line[1:-1].split("|")] for line in lines)
        first, *others = COLUMNS[name]
        assert header[0] == first and set(header[1:]) <= set(others) and len({*header}) == len(header), name
        assert all(re.fullmatch("-+", cell) for cell in dashes) and len(dashes) == len(header), (
            f"the table {name} needs a line of dashes below its header"
        )
        tables[name] = [dict(zip(header, row, strict=True)) for row in rows]
        names = [row[first] for row in tables[name]]
        assert all(names), f"a row of {name} has no name"
        assert name == "Transitions" or len({*names}) == len(names), f"a name occurs twice in {name}"
    return tables


class Tables:
    """A machine: its names with their types, its rows, and the rules S1 to S3, S7, S9, S11 and S12.

    `names` has the meaning of every name while nothing is true. `bounds` are the domains of parameters and variables, as conditions on numbers;
    only in those of conditions and of values of enumerations (`coded_bounds`) every name is a number, a condition 0 or 1.
    """

    def __init__(self, text):
        tables = dict.fromkeys(COLUMNS, ()) | tables_in(text)
        column = lambda table, head: {next(iter(row.values())): row.get(head, "") for row in tables[table]}
        self.kinds, self.events = column("States", "kind"), column("Events", "from")
        self.initial = column("Variables", "initial")
        self.parameters, self.scopes = column("Parameters", "domain"), column("Variables", "scope")
        self.ends = {state: kind.partition("end when ")[2] for state, kind in self.kinds.items() if "end when " in kind}
        self.kinds |= {state: self.kinds[state].partition("end when ")[0].removesuffix(", ") for state in self.ends}
        self.initials = [state for state, kind in self.kinds.items() if kind == "initial"]
        self.verdicts = {
            g: cell.split(", ") if cell else [*VERDICTS] for g, cell in column("Guards", "verdicts").items()
        }
        assert all({*outcomes} <= {*VERDICTS} for outcomes in self.verdicts.values()), (
            "a verdict must be passed, failed or fatal"
        )
        assert {*self.kinds.values()} <= {"", "initial", "final"}, "the kind of a state must be initial, final or empty"
        self.effects = {*self.events.values()} - {"outside"}
        #: How many of an effect may be outstanding, where that is not 1, and the name of its number (S7).
        self.limits = {effect: limit for effect, limit in column("Effects", "at once").items() if limit}
        self.numbers = {effect: f":number.{effect}" for effect in self.limits}
        assert {*self.limits} <= self.effects, "only an effect with answers may have a number in the column 'at once'"
        self.read_names(tables, self.parameters | column("Variables", "domain"))
        self.judged_events = {
            event for judges in column("Guards", "judges").values() for event in judges.split(", ") if event
        }
        assert self.judged_events <= {*self.origins}, "a guard judges something that is not an event"
        self.rows = {}
        for row in tables["Transitions"]:
            self.read_row(row)
        #: The events that can happen, with the effect or timer behind each; a failure that no row names stops a run instead (S7).
        self.move_origins = self.events | {
            event: event.removesuffix(".failed") for _, event in self.rows if event not in self.events
        }
        for (_, event), rows in self.rows.items():
            self.judged_events |= {event} if self.guards_in(rows) else set()  # S9

    # -- reading

    def read_names(self, tables, domains):
        """Record every name and its type. A name has one meaning, but a value may belong to several enumerations, and be a state, event or effect."""
        does = [word for row in tables["Transitions"] for word in row["effects"].split(", ") if word]
        emissions = {word for word in does if word.partition(" ")[0] != "cancel"}
        effects = self.effect_names = {*self.effects, *(row["effect"] for row in tables["Effects"]), *emissions}
        failures = {f"{effect}.failed": effect for effect in self.effects}
        self.origins = self.events | failures
        states = self.states = {*self.kinds, *(parent for state in self.kinds for parent in self.above(state)[1:-1])}
        symbol_lists = {name: domain[1:-1].split(", ") for name, domain in domains.items() if domain[:1] == "{"}
        symbols = [symbol for values in symbol_lists.values() for symbol in values]
        verdict_names = [f"{guard}.{verdict}" for guard, verdicts in self.verdicts.items() for verdict in VERDICTS]
        self.symbols, apart = {*symbols}, {*symbols} - {*self.origins, *states, *effects}
        several = [*domains, *self.origins, *states, *effects, *self.verdicts, *verdict_names, *apart]
        assert len(several) == len({*several}), "a name has two meanings"
        for name in several:
            assert re.fullmatch(NAME, name) and not KEYWORDS & {*name.split(".")}, f"'{name}' is not a valid name"
        numbers = {f"={symbol}": n for n, symbol in enumerate(symbols)}
        pending = ["pending", *(f"pending {effect}" for effect in effects)]
        self.names = dict.fromkeys((*several, *pending), False) | numbers | {"true": True, "false": False}
        self.domains = {name: self.read_domain(domain) for name, domain in domains.items()}
        types_of = lambda names: {name: self.domains[name][0] for name in names}
        symbol_types = {symbol: frozenset({symbol}) if symbol in apart else EITHER for symbol in symbols}
        parameter_types = types_of(self.parameters) | symbol_types
        value_types = parameter_types | types_of(self.scopes)
        when = dict.fromkeys((*self.origins, *states, *effects, *verdict_names, *pending), CONDITION)
        #: The names allowed in domains and initial values, in ends, in `unchanged`, in rows, in claims, in lemmas and ranks, in `coded_bounds`.
        self.types = {
            "parameters": parameter_types,
            "values": value_types,
            "lasting": value_types | dict.fromkeys((*states, *pending), CONDITION),
            "rows": value_types | dict.fromkeys((*verdict_names, *pending), CONDITION),
            "claims": value_types | when,
        }
        numbers = dict.fromkeys((":count", *self.numbers.values()), NUMBER)
        self.types |= {"lemmas": value_types | when | {":flag": CONDITION} | numbers}
        self.types |= {"bounds": dict.fromkeys(domains, NUMBER) | dict.fromkeys(symbols, NUMBER) | numbers}
        several = {f"pending {effect}": f"(names[{number!r}] >= 1)" for effect, number in self.numbers.items()}
        any_of_them = {"pending": f"(not not (names['pending'] or {' or '.join(several.values())}))"} if several else {}
        self.codes, self.bounds, self.coded_bounds, self.outstanding_codes = {}, {}, set(), several | any_of_them
        self.read_bounds(domains)

    def read_bounds(self, domains):
        """Record domains as conditions; their ends, and initial values, must be expressions over parameters."""
        for name, (kind, *ends) in self.domains.items():
            low, high = ends if kind == NUMBER else ("0", "1")
            among = f"{name} in {domains[name]}" if isinstance(kind, frozenset) else f"{low} <= {name}"
            self.bounds[name] = f"{among} <= {high}" if high and not isinstance(kind, frozenset) else among
            self.coded_bounds |= {self.bounds[name]} if kind != NUMBER else set()
            for end in filter(None, ends):
                self.code(end, "parameters", NUMBER)
        for name, text in self.initial.items():
            self.code(text, "parameters", self.domains[name][0])
        for effect, text in self.limits.items():
            self.code(text, "parameters", NUMBER, "sum")
            self.bounds[self.numbers[effect]] = f"0 <= {self.numbers[effect]} <= {text}"
        for state, text in self.ends.items():
            assert not any(other.startswith(f"{state}.") for other in self.kinds), f"{state} has children"
            self.code(text, "values", CONDITION)

    @staticmethod
    def read_domain(text):
        """Return the type of a domain, and the ends of a range; the second end may be empty."""
        if text[:1] == "{":
            assert text[-1] == "}", f"{text} is not a domain"
            return (frozenset(text[1:-1].split(", ")),)
        low, dots, high = text.partition("..")
        assert text == "bool" or (dots and low), f"{text} is not a domain"
        return (NUMBER, low, high) if dots else (CONDITION,)

    def read_row(self, row):
        """Record a row, with `else`, `changes` ((variable, new value, whether it is revoked)) and `does` ((effect or `cancel`, cancelled effect))."""
        source, target, event = row["source"], row["target"], row["event"]
        assert source == "*" or (source in self.states and self.kinds.get(source) != "final"), (
            f"a row cannot have the source {source}"
        )
        assert target == "=" or target in self.kinds or self.entry_leaf(target) != target, f"{target} is not a state"
        assert event in self.origins or re.fullmatch(r"after [0-9]{1,12}(ms|s|m|h|d)", event), (
            f"{event} is not an event"
        )
        other, condition = re.fullmatch("(else(?: and |$))?(.*)", row["if"]).groups()
        row |= {"else": bool(other), "if": condition or "true", "changes": [], "does": []}
        self.code(row["if"], "rows", CONDITION)
        for change in filter(None, row["update"].split("; ")):
            word, name, sign, new = re.fullmatch(rf"(revoke )?({NAME})(?: ([-+]?)= (.+))?", change).groups()
            assert name in self.scopes and bool(word) != bool(new), f"{change} does not change a variable"
            new = self.initial[name] if word else f"{name} {sign} ({new})" if sign else new
            assert name not in [variable for variable, *_ in row["changes"]], f"{name} is set twice"
            self.code(new, "parameters" if word else "rows", self.domains[name][0])
            row["changes"].append((name, new, bool(word)))
        for deed in filter(None, row["effects"].split(", ")):
            word, name = re.fullmatch(rf"({NAME})(?: ({NAME}))?", deed).groups()
            assert (word == "cancel") or not name, f"{deed} is not an effect"
            row["does"].append((word, name))
        if event not in self.origins:
            event = f"{source} {event}"  # S11: a timer belongs to its source
        self.rows.setdefault((source, event), []).append(row)

    # -- meaning

    def code(self, text, scope, kind=None, level="expression"):
        """Return the code of an expression, which must be of a type; `level` is the method that must read all of it."""
        if (text, scope, kind, level) not in self.codes:
            parser = KernelParser(text, self.types[scope], self.symbols, self.outstanding_codes)
            actual, code = parser.whole(getattr(parser, level))
            # A new value is one of the variable's.
            (actual, code), *_ = parser.read_values([(actual, code), (kind, "")])
            assert kind is None or alike(actual, kind), (
                f"'{text}' is not {kind if kind in (CONDITION, NUMBER) else 'of the expected type'}"
            )
            try:
                self.codes[text, scope, kind, level] = compile(code, "expression", "eval")
            except (MemoryError, RecursionError, SyntaxError):  # Python's errors for too many parentheses
                raise AssertionError(f"'{short(text)}' is nested too deeply to be evaluated") from None
        return self.codes[text, scope, kind, level]

    def value(self, text, names, scope="lemmas", kind=CONDITION):
        """Evaluate an expression; in the bounds of conditions and of values all is a number."""
        scope = "bounds" if scope == "lemmas" and text in self.coded_bounds else scope
        return eval(self.code(text, scope, kind), {"__builtins__": {}, "names": names})

    # -- rules

    def above(self, state):
        """Return a state, the states around it from the inside out, and `*`."""
        return [state[: end.start()] for end in re.finditer(r"\.|$", state)][::-1] + ["*"]

    def sources(self, state):
        """Return the sources of rows for a leaf."""
        return self.above(state) if self.kinds[state] != "final" else []

    def rows_for(self, state, event):
        """Return the rows for an event: those of the innermost source that has some (S3)."""
        return next((self.rows[x, event] for x in self.sources(state) if (x, event) in self.rows), [])

    def timers(self, sources):
        """Return the timers of sources (S11)."""
        return {event for source, event in self.rows if " " in event and source in sources}

    def order_after(self, before, old, endings, new):
        """Return the order of timers after a step: `old` ones were armed, `endings` of them ended, and `new` ones are armed now (S11)."""
        still, fresh = old - endings, new - (old - endings)
        return {pair for pair in before if {*pair} <= still & new} | {
            (shorter, timer) for timer in fresh for shorter in new if duration(shorter) < duration(timer)
        }

    def waits_for(self, node):
        """Return what must end some time: outstanding effects, and timers (S12)."""
        return self.outstanding(node) | self.timers(self.sources(node[0]))

    def outstanding(self, node):
        """Return the outstanding effects, those that have a number among them."""
        return {*node[1], *(effect for effect, number in self.numbers.items() if node[2][number] >= 1)}

    def entry_leaf(self, state):
        """Return the leaf that a state is entered at."""
        return next((self.entry_leaf(s) for s in self.initials if s.rpartition(".")[0] == state), state)

    def guards_in(self, rows):
        """Return the guards that rows read (S2)."""
        words = {word for row in rows for word in re.findall(NAME, row["if"])}
        return [guard for guard in self.verdicts if {f"{guard}.{verdict}" for verdict in VERDICTS} & words]

    def with_verdicts(self, event, rows):
        """Return an event with every combination of the verdicts that its rows read."""
        return itertools.product([event], *([f"{g}.{v}" for v in self.verdicts[g]] for g in self.guards_in(rows)))

    def passed(self, rows, true):
        """Return whether a row that reads guards may set workflow state (S9)."""
        return all([f"{guard}.passed" in true for guard in self.guards_in(rows)] or [False])

    def moves(self, node):
        """Return what can happen: answers of effects that are or may be outstanding, armed timers, and events from outside."""
        may_end = {*node[1], *self.numbers, *self.timers(self.sources(node[0]))} - {timer for _, timer in node[3]}
        for event, origin in self.move_origins.items():
            rows = self.rows_for(node[0], event)
            if origin in may_end or (origin == "outside" and rows):
                yield from ((true, origin, rows) for true in self.with_verdicts(event, rows))


# -- 4. claims ---------------------------------------------------------------------------------------------------------

NO_DEADLOCK, REST = "no deadlock", "every run comes to rest when nothing comes from outside"
DEFINITION_4, TABLE = "workflow state is set by guards that passed (Definition 4)", "the generated step is the table"
GHOSTS = {":flag": False, ":count": 0}


def count_moments(still, on, n, k, e):
    """Count the moments of E in a scope; it may have K of them."""
    n = n * still + bool(on and e)
    return on, n, n <= k or not on


#: The memory and the demand of a form: from its flag, its count and its parts at a moment to flag, count and what must be true.
FORMS = {
    "always {}": lambda f, n, p: (f, n, p),
    "never {}": lambda f, n, p: (f, n, not p),
    "on {}: {} unchanged": lambda f, n, e, x, was: (f, n, not e or all(a == b for a, b in zip(x, was, strict=True))),
    "{} only after {}": lambda f, n, q, p: (f or p, n, f or p or not q),
    "at most {} {}": lambda _, n, k, e: count_moments(True, True, n, k, e),
    "at most {} {} between {} and {}": lambda f, n, k, e, p, q: count_moments(h := bool(f and not q), h or p, n, k, e),
    "possible {}": lambda _, n, p: (not p, n, True),
    "from everywhere possible {}": lambda _, n, p: (not p, n, True),
} | dict.fromkeys(("no fault", NO_DEADLOCK, REST, DEFINITION_4, TABLE), lambda _, n: (True, n, True))
#: The forms of `leads to`, with its fairness assumptions and its doubts.
LEADS_TO = {
    f"{{}} leads to {{}}{fair}{even}": ("fair",) * bool(fair) + ("doubts",) * bool(even)
    for fair in ("", " assuming fair {}", " assuming weakly fair {}")
    for even in ("", " even if {}")
}
FORMS |= dict.fromkeys(LEADS_TO, lambda f, n, p, q, *_: ((f or p) and not q, n, True))
#: The parts of a form that are not conditions: (allowed names, type, method that must read all of it).
WHEN, SCOPE = ("claims", CONDITION, "expression"), ("claims", CONDITION, "negation")
LIMIT, ALONE = ("parameters", NUMBER, "sum"), ("claims", CONDITION, "atom")
PARTS = {
    "at most {} {}": (LIMIT, ALONE),
    "at most {} {} between {} and {}": (LIMIT, ALONE, SCOPE, SCOPE),
    "on {}: {} unchanged": (WHEN, "lasting"),
} | {form: (WHEN, WHEN, *more) for form, more in LEADS_TO.items()}


class Claim(Tables):
    """A claim about a machine: at the parameter values `at`, or for all.

    A certificate brings evidence for it, which the kernel checks: `lemmas`, true wherever a configuration of this name is reached; `ranks`, numbers
    that fall on the way to the goal, each with what ends a stay where they do not; `proofs`, one for each obligation in the order in which they arise:
    which of the facts it uses, and for each failing path multipliers of the facts on it.
    """

    def __init__(self, text, claim):
        super().__init__(text)
        assert claim.keys() <= {"form", "parts", "at", "lemmas", "ranks", "proofs"}, "the claim has an unknown field"
        self.form, self.parts, self.at = claim["form"], claim["parts"], claim.get("at")
        bare = claim.keys() == {"form", "parts", "proofs"} and claim["proofs"] == []
        assert self.form != DEFINITION_4 or bare, "this claim is about every row at all values, so it takes no evidence"
        assert self.form in FORMS, f"'{self.form}' is not a form of claim"
        self.lemmas, self.ranks, self.proofs = claim.get("lemmas", {}), claim.get("ranks", {}), iter(claim["proofs"])
        kinds = PARTS.get(self.form, (WHEN,) * self.form.count("{}"))
        assert len(self.parts) == len(kinds), f"the number of parts does not match '{self.form}'"
        self.fair, self.silent, self.failures = set(), set(), set()
        self.reads = [self.read(part, kind) for part, kind in zip(self.parts, kinds)]
        self.unknown = {name: Polynomial({(name,): 1}) for name in (*self.bounds, *GHOSTS) if self.at is None}
        self.ghosts = dict.fromkeys(self.numbers.values(), 0) | GHOSTS
        self.names |= self.unknown or {name: self.parameter_value(name) for name in self.parameters}
        assert self.at is None or self.at.keys() == self.parameters.keys(), (
            "the claim must give one value for each parameter, and no other values"
        )
        self.keys, self.nodes = set(), []

    def read(self, part, kind):
        """Return the code of a part; a list of them if it has several values."""
        assert type(part) is str and part == part.strip(" ") and "  " not in part, (
            f"'{part}' is not written in canonical form"
        )
        if kind in ("fair", "doubts"):
            return self.assume(kind, part.split(", "))
        if kind != "lasting":
            scope, of, level = kind
            return self.code(part, scope, of, level)
        return [self.code(text, "lasting") for text in split_list(part)]

    def assume(self, kind, words):
        """Record what is fair, or what is doubted: that an effect answers, or that it does not fail."""
        if kind == "fair":
            verdicts = {f"{guard}.{verdict}" for guard in self.verdicts for verdict in VERDICTS}
            possible = {*self.origins, *self.effect_names, *verdicts}
            assert {*words} <= possible, f"'{', '.join(words)}' names something that cannot happen"
            self.fair = {f"fair {name}" for name in words}
            return
        for doubt in words:
            effect, what = re.fullmatch(rf"({NAME}) (never answers|fails)", doubt).groups()
            assert effect in (self.effect_names if what == "fails" else self.effects), (
                f"{effect} is not an effect that can fail or never answer"
            )
            if what != "fails":
                self.silent.add(effect)
            elif not any(event == f"{effect}.failed" for _, event in self.rows):
                self.failures.add(effect)

    def parameter_value(self, name):
        """Read the value of a parameter: a value of its domain, as a document writes it."""
        kind, text = self.domains[name][0], self.at[name]
        assert type(text) is str, f"{short(repr(text))} is not a value of {name}"
        if kind == NUMBER:
            assert re.fullmatch("0|-?[1-9][0-9]{0,17}", text), f"{short(repr(text))} is not a value of {name}"
            value = int(text)
        else:
            assert text in (("true", "false") if kind == CONDITION else kind), (
                f"{short(repr(text))} is not a value of {name}"
            )
            value = self.names[f"={text}" if isinstance(kind, frozenset) else text]
        assert self.value(self.bounds[name], self.names | {name: value}), f"{name} = {text} is outside its domain"
        return value

    # -- obligations

    def prove(self, conditions, names, action, *arguments):
        """Run an action on every path that the used facts allow. If it fails, a sum of products of facts must be negative."""
        (use, *closings), todo = next(self.proofs, [()]) if self.unknown else [()], [[]]
        while todo:
            Polynomial.path = facts, _, _ = [], todo.pop(), todo
            try:
                all(self.value(conditions[place], names) for place in use) and action(*arguments)
            except AssertionError as why:
                sound = [line for line in (closings or [[]]).pop(0) if all(type(n) is int and n >= 0 for n in line)]
                total = sum(math.prod([facts[n] for n in at], start=factor) for factor, *at in sound)
                assert type(total) is int and total < 0, why

    def explore(self):
        """Explore everything that can happen, from the start."""
        self.prove([self.bounds[name] for name in self.parameters], self.names, self.begin)
        for number, node in enumerate(self.nodes):
            assert number < MOST_NODES, f"the exploration goes through more than {MOST_NODES:,} configurations"
            conditions, names = [*self.assumptions(), *self.lemmas.get(self.key(node), [])], self.means(node)
            for move in self.moves(node):
                self.prove(conditions, names, self.happen, node, move)
            if re.search("leads to|possible|dead", self.form):
                self.prove(conditions, names, self.go_on, node)

    def assumptions(self):
        """Return the conditions on every configuration: its domains. A claim of Definition 4 has none, as it is not about overflow."""
        return [] if self.form == DEFINITION_4 else [*self.bounds.values()]

    def begin(self):
        """Begin: initial values in their domains, and the first moment."""
        values = {
            name: self.value(text, self.names, "parameters", self.domains[name][0])
            for name, text in self.initial.items()
        } | self.ghosts
        assert self.form == DEFINITION_4 or all(self.value(x, self.names | values) for x in self.bounds.values()), FAULT
        leaf = self.entry_leaf(min(self.initials, key=lambda state: state.count(".")))
        node = leaf, set(), values, self.order_after(set(), set(), set(), self.timers(self.sources(leaf)))
        self.arrive(self.observe(node, (), self.means(node)), may=False)

    def happen(self, node, move):
        """Take a step: a row is taken if one must be, the rank falls, and the next configuration keeps its lemmas."""
        for after, endings, true in self.take(node, move):
            self.arrive(after, may=self.form == "possible {}")
            falls = move[1] != "outside" if self.form == REST else "leads to" in self.form
            is_owed = falls and node[2][":flag"] and after[2][":flag"]
            assert not is_owed or self.lower(node, after, endings, true), f"{self.key(node)}: the rank does not fall"
            # The run may have ended at this moment.
            failed = self.failures and self.failures & {*self.outstanding(after), *true}
            assert not failed or not after[2][":flag"], (
                f"{self.key(node)}: the goal may never come where {failed} fails"
            )

    def go_on(self, node):
        """Require that the goal comes (`leads to`) or can come (`possible`), and that nothing is stuck."""
        if node[2][":flag"] and self.has_way(node):
            taken = (outcome for move in self.moves(node) for outcome in self.take(node, move))
            *levels, (_, last) = self.ranks.get(self.key(node), [["", ""]])
            on = self.promises(node)
            is_weak = "weakly" in self.form and any(why in self.fair for _, why in levels)
            assert not is_weak, f"{self.key(node)}: only the last level of the ranks may rely on weak fairness"
            if last in self.fair:
                on = any(last[5:] in true for _, _, true in taken)
            if "possible" in self.form:
                on = any(self.nearer(node, after) for after, _, _ in taken)
            end = self.ends.get(node[0])
            free = self.form == NO_DEADLOCK and (not self.sources(node[0]) or any(taken))
            on = on or free or (self.form == NO_DEADLOCK and bool(end) and self.value(end, self.means(node), "values"))
            assert on, f"{self.key(node)}: the run may not be able to go on"

    def arrive(self, node, may):
        assert may or self.keeps_lemmas(node), f"{self.key(node)}: a lemma does not hold"
        self.nodes += [] if self.key(node) in self.keys else [(*node[:2], self.unknown or node[2], node[3])]
        self.keys.add(self.key(node))

    # -- configurations

    def key(self, node):
        """Return the name of a configuration in certificates."""
        leaf, out, values, order = node
        waits = [f"{timer}>{shorter}" for shorter, timer in order]
        return " ".join(
            [leaf, *sorted(out), *sorted(waits), *(f"{x}={int(values[x])}" for x in values if not self.unknown)]
        )

    def means(self, node, true=()):
        """Return the values of all names at a configuration; `true` are the things that happen there."""
        pending = ["pending", *map("pending ".__add__, node[1])] if node[1] else []
        return self.names | node[2] | dict.fromkeys((*self.above(node[0]), *pending, *true), True)

    def take(self, node, move):
        """Take the one enabled row, if any: yield the node after it, what ended and what happened."""
        (leaf, out, values, order), (true, origin, rows) = node, move
        if origin in self.numbers and not values[self.numbers[origin]] >= 1:
            return
        names, where = self.means(node, true), f"{FAULT}: {leaf}, {', '.join(true)}"
        less = {self.numbers[origin]: values[self.numbers[origin]] + -1} if origin in self.numbers else {}
        readable = self.means((leaf, out - {origin}, values | less, order), true)  # S3
        matches = [row for row in rows if not row["else"] and self.value(row["if"], readable, "rows")]
        matches = matches or [row for row in rows if row["else"] and self.value(row["if"], readable, "rows")]
        assert self.form == DEFINITION_4 or (len(matches) < 2 and (matches or origin == "outside")), where
        for row in matches:
            after, target = values | less, leaf if row["target"] == "=" else self.entry_leaf(row["target"])
            for name, new, is_revoked in row["changes"]:  # S5
                after[name] = self.value(new, names, "parameters" if is_revoked else "rows", self.domains[name][0])
                assert self.form == DEFINITION_4 or self.value(self.bounds[name], self.names | {name: after[name]}), (
                    where
                )
                free = is_revoked or self.scopes[name] != "workflow" or true[0] not in self.judged_events
                free = free or self.form != DEFINITION_4 or self.passed(rows if row["else"] else [row], true)
                assert free, f"{where}: {name} is set"
            left = {leaf} if target == leaf else {*self.sources(leaf)} - {*self.sources(target)}
            now, endings = out - {origin}, {origin} | self.timers(left if row["target"] != "=" else ())
            later = self.order_after(order, self.timers(self.sources(leaf)), endings, self.timers(self.sources(target)))
            for word, name in row["does"]:  # S7
                cancellations = {name} if name else {*now, *self.numbers} if word == "cancel" else set()
                after |= {self.numbers[effect]: 0 for effect in self.numbers if effect in cancellations}
                if word in self.numbers:
                    self.emit(word, after, where)
                assert self.form == DEFINITION_4 or word not in now, where
                now = now - cancellations | {word} & self.effects - {*self.numbers}
                endings, true = endings | cancellations, [*true, word]
            if not self.sources(target):
                now, after = set(), after | dict.fromkeys(self.numbers.values(), 0)
            yield self.observe((target, now, after, later), true, names), endings, true

    def emit(self, effect, after, where):
        """Add one to the number of an effect, which must allow it (S7)."""
        number, most = self.numbers[effect], self.value(self.limits[effect], self.names, "parameters", NUMBER)
        assert self.form == DEFINITION_4 or after[number] < most, where
        after[number] += 1

    def observe(self, node, true, before):
        """Evaluate the property at a moment; return the node with its memory."""
        evaluate = lambda read, names: (
            [evaluate(each, names) for each in read]
            if isinstance(read, list)
            else read and eval(read, {"__builtins__": {}, "names": names})
        )
        now = [evaluate(read, self.means(node, true)) for read in self.reads]
        now += [evaluate(read, before) for read in self.reads[1:] if self.form.startswith("on ")]
        flag, count, good = FORMS[self.form](node[2][":flag"], node[2][":count"], *now)
        assert good, f"{node[0]}, {', '.join(true)}: not {self.form.format(*self.parts)}"
        return *node[:2], node[2] | {":flag": flag, ":count": count}, node[3]

    # -- evidence

    def has_way(self, node):
        """Return whether the certificate has a way to P from there; only `possible` needs one."""
        return self.form != "possible {}" or self.key(node) in self.ranks

    def keeps_lemmas(self, node):
        return self.has_way(node) and all(self.value(x, self.means(node)) for x in self.lemmas.get(self.key(node), ()))

    def promises(self, node):
        """Return what must end, without what is doubted."""
        return self.waits_for(node) - self.silent

    def nearer(self, node, after):
        """Return whether a step leads nearer to P."""
        return self.keeps_lemmas(after) and (not after[2][":flag"] or self.lower(node, after, self.waits_for(node), ()))

    def lower(self, node, after, endings, true):
        """Return whether the rank falls, or stays while S12 or fairness promises an end."""
        for (old, why), (new, other) in zip(*([["0", ""], *self.ranks[self.key(at)]] for at in (node, after))):
            was, now = (self.value(x, self.means(at), "lemmas", None) for x, at in ((old, node), (new, after)))
            if now != was or why != other or why[5:] in true:
                return now < was and was >= 0
            if why in self.promises(node):
                return why not in endings
        return why in self.fair

    # -- the generated step is the table

    def choices(self, x):
        """Return the values of a variable; of an effect, the numbers that may be outstanding."""
        if x in self.limits:
            return range(self.value(self.limits[x], self.names, "parameters", NUMBER) + 1)
        kind, *ends = self.domains.get(x, (CONDITION,))
        if kind == NUMBER:
            low, high = (self.value(end, self.names, "parameters", NUMBER) for end in ends)
            return range(low, high + 1)
        return [0, 1] if kind == CONDITION else sorted(self.names[f"={symbol}"] for symbol in kind)

    def cases(self):
        """Yield every leaf with every event that may happen or come too late: the event, its origin, the rows, and the names in them.

        Rows neither read nor change anything else: other variables are left out, and `:other` stands for all other effects.
        """
        leaves = [state for state in self.kinds if not any(x.startswith(f"{state}.") for x in self.kinds)]
        for leaf, (event, origin) in itertools.product(leaves, (self.origins | self.move_origins).items()):
            rows = self.rows_for(leaf, event)
            words = re.findall(NAME, " ".join([origin, *(row[x] for row in rows for x in ("if", "update", "effects"))]))
            words += self.effects if any(re.search(BARE_PENDING, row["if"]) for row in rows) else ()
            yield leaf, event, origin, rows, [x for x in (*self.initial, *self.effects) if x in words] + [":other"]

    def orders(self, leaf):
        """Return every order of the timers of a leaf, reachable or not."""
        pairs = [
            (a, b) for a, b in itertools.permutations(self.timers(self.sources(leaf)), 2) if duration(a) < duration(b)
        ]
        return itertools.chain.from_iterable(itertools.combinations(pairs, size) for size in range(len(pairs) + 1))

    def table(self):
        """Yield every configuration, reachable or not, with every event and its verdicts, and the result, or None."""
        for leaf, event, origin, rows, names in self.cases():
            values = itertools.product(*map(self.choices, names))
            for valuation, order, true in itertools.product(values, self.orders(leaf), self.with_verdicts(event, rows)):
                case, taken = dict(zip(names, valuation)), None
                out = {x for x in names if x not in self.initial and x not in self.numbers and case.pop(x)}
                state = {self.numbers.get(x, x): value for x, value in (self.ghosts | case).items()}
                at = leaf, out, state, {*order}
                is_late, is_early = origin in self.effects - out, origin in {timer for _, timer in order}
                is_late = is_late and not (origin in self.numbers and case[origin] >= 1)
                with contextlib.suppress(AssertionError):
                    taken = next(self.take(at, (true, origin, [] if is_late or is_early else rows)), None)  # S7, S11
                yield at, true, taken


def duration(timer):
    """Return the duration of a timer in milliseconds."""
    number, unit = re.fullmatch(r".* after ([0-9]+)([a-z]+)", timer).groups()
    return int(number) * {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]


def split_list(text):
    """Split a list of expressions at the commas outside parentheses and braces."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in "({") - (letter in ")}")
        parts = [*parts, ""] if letter == "," and depth == 0 else [*parts[:-1], parts[-1] + letter]
    return parts


# -- certificates ------------------------------------------------------------------------------------------------------


def needs_file(_):
    return "not established, because the check needs FILE (`dsa verify CERTIFICATE FILE`): "


def read(certificate):
    """Return the machine and the claims of a certificate, which is JSON. Raises if it is not one."""

    def once(pairs):
        assert len({name for name, _ in pairs}) == len(pairs), "a name occurs twice in an object"
        return dict(pairs)

    content = json.loads(certificate, object_pairs_hook=once)
    machine, digest, claims = content["machine"], content["digest"], content["claims"]
    assert all(line.isprintable() for line in machine.split("\n")), "the machine has characters that cannot be printed"
    assert hashlib.sha256(machine.encode()).hexdigest() == digest, "the digest does not match the machine"
    assert claims, "the certificate has no claims"
    return machine, claims


def verify_claim(machine, claim, compare=needs_file):
    """Verify a claim and return it as a sentence. Raises if it is not proved.

    Only `compare`, which has the code, can establish that the generated step is the table: it raises, or returns nothing.
    """
    claim = Claim(machine, claim)
    where = ", ".join(f"{name} = {claim.at[name]}" for name in claim.parameters if claim.at) or "for all values"
    assert claim.form != TABLE or claim.at is not None, (
        "a claim about the generated step needs values of the parameters"
    )
    prefix = (compare if claim.form == TABLE else Claim.explore)(claim) or ""
    if claim.form == DEFINITION_4 and "workflow" not in claim.scopes.values():
        where += ", trivially: no variable is workflow state"
    return f"{prefix}{claim.form.format(*claim.parts)}: {where}"


def verify(certificate, compare=needs_file):
    """Yield the machine of a certificate and its claims as sentences. The certificate is JSON. Raises if one is not proved."""
    machine, claims = read(certificate)
    yield f"{machine.partition(chr(10))[0]} {hashlib.sha256(machine.encode()).hexdigest()}"
    for claim in claims:
        yield verify_claim(machine, claim, compare)


if __name__ == "__main__":
    try:
        print(*[*verify(open(sys.argv[1], encoding="utf-8").read())], sep="\n")
    except Exception as why:
        is_refusal = isinstance(why, AssertionError)
        sys.exit(
            print(f"refused: {why}" if is_refusal else f"usage: python kernel.py CERTIFICATE ({why!r})")
            or 2 - is_refusal
        )
