"""Verify a certificate, alone: `python kernel.py CERTIFICATE` prints the claims it accepts (exit 0) or why it refuses (exit 1).

Without a file that it can read as a certificate, it says how it is used (exit 2).

Written from specs/semantics.md (S1-S12 are its rules); imports nothing of this package, believes nothing but the machine's tables.
At given parameter values it explores everything itself. For all values it runs the same code on numbers that are not known: each
question about one is answered both ways, and a path that fails must be shown impossible by the certificate's multipliers.
A configuration is (leaf, outstanding effects, values); among its values are `:flag` and `:count`, what a property remembers.
A move is (what is true then: the event and its verdicts; the effect or timer behind it; the candidate rows).
(PYTEST_DONT_REWRITE: the asserts are what it has to say.)
"""

import contextlib, hashlib, itertools, json, math, re, sys

NAME, VERDICTS, STUCK = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", ("passed", "failed", "fatal"), "no deadlock"
WORD, CODE, TABLE = rf"\b(and|or|not|in)\b|(pending )?:?{NAME}", {}, "the generated step is the table"
GHOSTS, REST = {":flag": False, ":count": 0}, "every run comes to rest when nothing comes from outside"
GUARDED, FAULT = "workflow state is set by guards that passed (Definition 4)", "a fault is not excluded"
counted = lambda still, on, n, k, e: (on, m := n * still + bool(on and e), m <= k or not on)
#: What a form remembers and demands: from its flag, its count and its parts at a moment to flag, count and what must be true.
FORMS = {
    "always {}": lambda f, n, p: (f, n, p),
    "never {}": lambda f, n, p: (f, n, not p),
    "on {}: {} unchanged": lambda f, n, e, x, was: (f, n, not e or x == was),
    "{} only after {}": lambda f, n, q, p: (f or p, n, f or p or not q),
    "at most {} {}": lambda _, n, k, e: counted(True, True, n, k, e),
    "at most {} {} between {} and {}": lambda f, n, k, e, p, q: counted(h := bool(f and not q), h or p, n, k, e),
    "{} leads to {}": lambda f, n, p, q: ((f or p) and not q, n, True),
    "{} leads to {} assuming fair {}": lambda f, n, p, q, _: ((f or p) and not q, n, True),
} | dict.fromkeys(("possible {}", "from everywhere possible {}"), lambda _, n, p: (not p, n, True))
FORMS |= dict.fromkeys(("no fault", STUCK, REST, GUARDED, TABLE), lambda _, n: (True, n, True))
terms = lambda number: number.terms if isinstance(number, Unknown) else {(): number}
__debug__ or sys.exit("refused: -O would drop every check")


class Unknown:
    """A number not known: a polynomial {names: coefficient}; a truth value is 0 or 1. Facts are numbers that are at least 0."""

    def __init__(self, terms):
        self.terms = terms

    def __add__(self, other):
        total = {m: c for m in {**self.terms, **terms(other)} if (c := self.terms.get(m, 0) + terms(other).get(m, 0))}
        return Unknown(total) if total.keys() - {()} else total.get((), 0)

    def __mul__(self, by):
        return sum(Unknown({tuple(sorted(m + n)): c * d}) for m, c in self.terms.items() for n, d in terms(by).items())

    def __ge__(self, other):
        yes, no, (facts, ways, todo) = self + other * -1, self * -1 + other + -1, Unknown.path
        if isinstance(yes, int) or (known := [fact for fact in facts if fact.terms in (yes.terms, no.terms)]):
            return yes >= 0 if isinstance(yes, int) else known[0].terms == yes.terms
        if len(facts) == len(ways):  # a new question: this path says yes, another one no
            ways += todo.append([*ways, False]) or [True]
        facts.append(yes if ways[len(facts)] else no)
        return facts[-1] is yes

    __radd__, __rmul__, __hash__, __bool__, __eq__ = __add__, __mul__, None, lambda a: a >= 1, lambda a, b: a <= b <= a
    __le__, __lt__, __gt__ = lambda a, b: a * -1 >= b * -1, lambda a, b: not a >= b, lambda a, b: not a <= b


def value(text, names):
    """Evaluate an expression: numbers, names, signs; when the names are looked up, what is left is Python."""
    if text not in CODE:
        assert re.fullmatch(r"[\d ()<>=!+*,{}-]*", re.sub(WORD, "", text)), f"this is no expression: {text}"
        code = re.sub(WORD, lambda m: m[1] or (f"({m[0]!r} in names)" if m[2] else f"names[{m[0]!r}]"), text)
        CODE[text] = compile(code.replace("{", "(").replace("}", ",)").replace("-", "+ -1 *"), "expression", "eval")
    return eval(CODE[text], {"__builtins__": {}, "names": names})


class Claim:
    """A claim about a machine: at the parameter values `at`, or for all."""

    def __init__(self, text, claim):
        tables = dict.fromkeys(("Parameters", "Variables", "Events", "Guards", "Effects", "States", "Transitions"), [])
        for section in re.split(r"\s*\n## ", text.strip())[1:]:
            (name,), header, _, *rows = ([x.strip() for x in y.strip("|").split("|")] for y in section.split("\n"))
            tables[name] = tables[name] + [dict(zip(header, row, strict=True)) for row in rows]
        of = lambda table, head: {next(iter(row.values())): row[head] for row in tables[table]}
        self.kinds, self.events, self.initial = of("States", "kind"), of("Events", "from"), of("Variables", "initial")
        self.parameters, self.scopes = of("Parameters", "domain"), of("Variables", "scope")
        self.initials = [state for state, kind in self.kinds.items() if kind == "initial"]
        self.verdicts = {x["guard"]: (x.get("verdicts") or ", ".join(VERDICTS)).split(", ") for x in tables["Guards"]}
        self.bounds, self.rows, self.judged = {}, {}, re.findall(NAME, str(of("Guards", "judges")))
        for name, domain in (self.parameters | of("Variables", "domain")).items():
            low, _, high = ("0..1" if domain == "bool" else domain).partition("..")
            self.bounds[name] = f"{name} in {low}" if low[0] == "{" else f"{low} <= {name}" + f" <= {high}" * bool(high)
        for row in tables["Transitions"]:
            row["else"], row["if"] = re.fullmatch("(else(?: and |$))?(.*)", row["if"]).groups()
            event = re.sub("^after ", f"{row['source']} after ", row["event"])  # S11: a timer belongs to its source
            self.rows.setdefault((row["source"], event), []).append(row)
            self.judged += [event] * bool(self.asked([row]))  # S9
        self.effects, self.keys, self.nodes = {*self.events.values()} - {"outside"}, set(), []
        self.origins = self.events | {e: e.removesuffix(".failed") for _, e in self.rows if e not in self.events}
        self.form, self.parts, self.at = claim["form"], claim["parts"], claim.get("at")
        self.lemmas, self.ranks, self.proofs = claim.get("lemmas", {}), claim.get("ranks", {}), iter(claim["proofs"])
        self.fair = {f"fair {name}" for names in self.parts[2:] for name in names.split(", ")}
        symbols = re.findall(NAME, " ".join(bound.partition(" in ")[2] for bound in self.bounds.values()))
        fixed = {symbol: n for n, symbol in enumerate(symbols)} | {"true": True, "false": False}
        self.unknown = {name: Unknown({(name,): 1}) for name in (*self.bounds, *GHOSTS) if self.at is None}
        given = self.unknown or {p: fixed[x] if (x := self.at[p]) in fixed else int(x, 10) for p in self.parameters}
        words = [*re.findall(NAME, text), *(f"{x}.{v}" for x in (*self.verdicts, *self.effects) for v in VERDICTS)]
        self.names = dict.fromkeys(words, False) | fixed | given

    def prove(self, given, names, action, *arguments):
        """Run an action on every path that the facts used allow; where it fails, a sum of products of facts must be negative."""
        (use, *closings), todo = next(self.proofs, [()]) if self.unknown else [()], [[]]
        while todo:
            Unknown.path = facts, _, _ = [], todo.pop(), todo
            try:
                all(value(given[place], names) for place in use) and action(*arguments)
            except AssertionError as why:
                sound = [line for line in (closings or [[]]).pop(0) if all(type(n) is int and n >= 0 for n in line)]
                total = sum(math.prod([facts[n] for n in at], start=factor) for factor, *at in sound)
                assert type(total) is int and total < 0, why

    #: A state and those around it; where rows for it may stand; the rows for an event there (S3); the timers of sources (S11).
    above = staticmethod(lambda s: [s[: m.start()] for m in re.finditer(r"\.|$", s)][::-1] + ["*"])
    sources = lambda self, s: self.above(s) if self.kinds[s] != "final" else []
    found = lambda self, s, event: next((self.rows[x, event] for x in self.sources(s) if (x, event) in self.rows), [])
    timers = lambda self, sources: {event for source, event in self.rows if " " in event and source in sources}
    #: What ends some time (S12); the leaf that is entered with a state.
    awaited = lambda self, node: {*node[1], *self.timers(self.sources(node[0]))}
    entered = lambda self, state: next((self.entered(s) for s in self.initials if s.rpartition(".")[0] == state), state)
    #: The guards that rows read (S2); what these can say together; whether a row that reads them may set workflow state (S9).
    read = staticmethod(lambda rows: {word for row in rows for word in re.findall(NAME, row["if"])})
    asked = lambda self, rows: [g for g in self.verdicts if {f"{g}.{v}" for v in VERDICTS} & self.read(rows)]
    said = lambda self, e, r: itertools.product([e], *([f"{g}.{v}" for v in self.verdicts[g]] for g in self.asked(r)))
    passed = lambda self, rows, true: all([f"{g}.passed" in true for g in self.asked(rows)] or [False])
    #: What a certificate calls a configuration; whether it knows a way to P from there (`possible`), and its lemmas hold;
    #: whether a step leads on along that way.
    key = lambda self, n: " ".join([n[0], *sorted(n[1]), *(f"{x}={int(n[2][x])}" for x in n[2] if not self.unknown)])
    planned = lambda self, node: self.form != "possible {}" or self.key(node) in self.ranks
    kept = lambda self, n: self.planned(n) and all(value(x, self.means(n)) for x in self.lemmas.get(self.key(n), ()))
    nearer = lambda self, n, to: self.kept(to) and (not to[2][":flag"] or self.lower(n, to, self.awaited(n), ()))

    def means(self, n, true=()):
        """Give what the names mean at a configuration; `true` is what happens there."""
        return self.names | n[2] | dict.fromkeys((*self.above(n[0]), *map("pending ".__add__, n[1]), *true), True)

    def moves(self, node):
        """Give what can happen."""
        for event, origin in self.origins.items():
            rows = self.found(node[0], event)
            if origin in self.awaited(node) or (origin == "outside" and rows):
                yield from ((true, origin, rows) for true in self.said(event, rows))

    def take(self, node, move):
        """Take the one row that is enabled, if any: give the node after it, what ended and what happened."""
        (leaf, out, values), (true, origin, rows) = node, move
        names, where = self.means(node, true), f"{FAULT}: {leaf}, {', '.join(true)}"
        enabled = [row for row in rows if not row["else"] and value(row["if"] or "true", names)]
        enabled = enabled or [row for row in rows if row["else"] and value(row["if"] or "true", names)]
        assert self.form == GUARDED or (len(enabled) < 2 and (enabled or origin == "outside")), where
        for row in enabled:
            after, target = dict(values), leaf if row["target"] == "=" else self.entered(row["target"])
            for word, name, sign, new in re.findall(rf"(revoke )?({NAME})(?: ([-+]?)= ([^;]+))?", row["update"]):  # S5
                after[name] = value(self.initial[name] if word else f"{name} {sign} ({new})" if sign else new, names)
                assert self.form == GUARDED or value(self.bounds[name], self.names | {name: after[name]}), where
                free = self.form != GUARDED or word or self.scopes[name] != "workflow" or true[0] not in self.judged
                assert free or self.passed(rows if row["else"] else [row], true), f"{where}: {name} is set"
            left = {leaf} if target == leaf else {*self.sources(leaf)} - {*self.sources(target)}
            now, ended = out - {origin}, {origin} | self.timers(left if row["target"] != "=" else ())
            for word, name in re.findall(rf"({NAME})(?: ({NAME}))?", row["effects"]):  # S7
                gone = now & {name} if name else now if word == "cancel" else set()
                assert self.form == GUARDED or word not in now, where
                now, ended, true = now - gone | {word} & self.effects, ended | gone, [*true, word]
            yield self.seen((target, now if self.sources(target) else set(), after), true, names), ended, true

    def seen(self, node, true, before):
        """Let the property see a moment; give the node with what it remembers."""
        now = [value(part, self.means(node, true)) for part in self.parts]
        now += [value(part, before) for part in self.parts[1:] if self.form.startswith("on ")]
        flag, count, good = FORMS[self.form](node[2][":flag"], node[2][":count"], *now)
        assert good, f"{node[0]}, {', '.join(true)}: not {self.form.format(*self.parts)}"
        return *node[:2], node[2] | {":flag": flag, ":count": count}

    def lower(self, node, after, ended, true):
        """Tell whether the rank falls, or stays while it waits for what S12 or fairness promises."""
        for (old, why), (new, other) in zip(*([["0", ""], *self.ranks[self.key(at)]] for at in (node, after))):
            was, now = value(old, self.means(node)), value(new, self.means(after))
            if now != was or why != other or why[5:] in true:
                return now < was and was >= 0
            if why in self.awaited(node):
                return why not in ended
        return why in self.fair

    def arrive(self, node, may):
        assert may or self.kept(node), f"{self.key(node)}: a lemma is not kept"
        self.nodes += [] if self.key(node) in self.keys else [(*node[:2], self.unknown or node[2])]
        self.keys.add(self.key(node))

    def begin(self):
        values = {name: value(text, self.names) for name, text in self.initial.items()} | GHOSTS
        assert self.form == GUARDED or all(value(x, self.names | values) for x in self.bounds.values()), FAULT
        node = self.entered(min(self.initials, key=lambda state: state.count("."))), set(), values
        self.arrive(self.seen(node, (), self.means(node)), may=False)

    def happen(self, node, move):
        for after, ended, true in self.take(node, move):
            self.arrive(after, may=self.form == "possible {}")
            falls = move[1] != "outside" if self.form == REST else "leads to" in self.form
            owed = falls and node[2][":flag"] and after[2][":flag"]
            assert not owed or self.lower(node, after, ended, true), f"{self.key(node)}: the rank does not fall"

    def go_on(self, node):
        """See that what is owed comes (`leads to`) or can come (`possible`), and that nothing is stuck."""
        if node[2][":flag"] and self.planned(node):
            taken = (found for move in self.moves(node) for found in self.take(node, move))
            last, on = self.ranks.get(self.key(node), [["", ""]])[-1][1], self.awaited(node)
            on = any(last[5:] in true for _, _, true in taken) if last in self.fair else on
            on = any(self.nearer(node, after) for after, _, _ in taken) if "possible" in self.form else on
            on = on or (self.form == STUCK and (not self.sources(node[0]) or any(taken)))
            assert on, f"{self.key(node)}: there may be no way on"

    def explore(self):
        """Follow what can happen from the start."""
        self.prove([self.bounds[name] for name in self.parameters], self.names, self.begin)
        for node in self.nodes:
            given, names = [*self.bounds.values(), *self.lemmas.get(self.key(node), [])], self.means(node)
            for move in self.moves(node):
                self.prove(given, names, self.happen, node, move)
            re.search("leads to|possible|dead", self.form) and self.prove(given, names, self.go_on, node)

    def choices(self, x):
        """Give the values of a variable; an effect is outstanding or not."""
        ends = [value(end, self.names) for end in re.split(r" <= | in {|, |}", self.bounds.get(x, "0 <= 1")) if end]
        return [n for n in range(min(ends), max(ends) + 1) if value(self.bounds.get(x, "true"), self.names | {x: n})]

    def cases(self):
        """Give every leaf with everything that may happen or come too late: its name, what is behind it, the rows, what these name.

        What they do not name they neither read nor change: such variables are left out, and `:other` stands for all such effects.
        """
        origins = {f"{effect}.failed": effect for effect in self.effects} | self.origins
        leaves = [state for state in self.kinds if not any(x.startswith(f"{state}.") for x in self.kinds)]
        for leaf, (event, origin) in itertools.product(leaves, origins.items()):
            rows = self.found(leaf, event)
            words = re.findall(NAME, " ".join([origin, *(row[x] for row in rows for x in ("if", "update", "effects"))]))
            yield leaf, event, origin, rows, [x for x in (*self.initial, *self.effects) if x in words] + [":other"]

    def table(self):
        """Give every configuration, reachable or not, with every event and its verdicts, and what is taken then, or None."""
        for leaf, event, origin, rows, names in self.cases():
            for values, true in itertools.product(itertools.product(*map(self.choices, names)), self.said(event, rows)):
                known, taken = dict(zip(names, values)) | GHOSTS, None
                at = leaf, {x for x in names if x not in self.initial and known.pop(x)}, known
                with contextlib.suppress(AssertionError):
                    taken = next(self.take(at, (true, origin, rows * (origin not in self.effects - at[1]))), None)  # S7
                yield at, true, taken


def verify(certificate, compare=lambda _: "not established, this needs FILE (`dsa verify CERTIFICATE FILE`): "):
    """Give a certificate's machine and its claims, as sentences; raises what makes them no claims. Takes JSON.

    That the generated step is a table is established by `compare` alone, which has the code: it raises, or returns nothing.
    """
    machine, said, claims = map(json.loads(certificate).__getitem__, ("machine", "digest", "claims"))
    assert hashlib.sha256(machine.encode()).hexdigest() == said, "the machine is another one"
    yield machine.partition("\n")[0] + " " + said
    for claim in (Claim(machine, claim) for claim in claims):
        where = ", ".join(f"{name} = {claim.at[name]}" for name in claim.parameters if claim.at) or "for all values"
        yield f"{(compare if claim.form == TABLE else Claim.explore)(claim) or ''}{claim.form.format(*claim.parts)}: {where}"


if __name__ == "__main__":
    try:
        print(*[*verify(open(sys.argv[1], encoding="utf-8").read())], sep="\n")
    except Exception as why:
        known = isinstance(why, AssertionError)
        sys.exit(print(f"refused: {why}" if known else f"usage: python kernel.py CERTIFICATE ({why!r})") or 2 - known)
