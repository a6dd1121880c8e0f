"""Verify a certificate, alone: `python kernel.py CERTIFICATE` prints the claims it accepts (exit 0) or why it refuses (exit 1).

Written from specs/semantics.md (S1-S12 are its rules); imports nothing of this package, believes nothing but the machine's tables.
At given parameter values it explores everything itself. For all values it runs the same code on numbers that are not known: each
question about one is answered both ways, and a path that fails must be shown impossible by the certificate's multipliers.
A configuration is (leaf, outstanding effects, values); among its values are `:flag` and `:count`, what a property remembers.
(PYTEST_DONT_REWRITE: the asserts are what it has to say.)
"""

import hashlib, itertools, json, math, re, sys

NAME, FAULT, VERDICTS = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", "a fault is not excluded", ("passed", "failed", "fatal")
WORD, CODE = rf"\b(and|or|not|in)\b|(pending )?:?{NAME}", {}
counted = lambda still, on, n, k, e: (on, m := n * still + bool(on and e), m <= k or not on)
#: What a form remembers and demands: from its flag, its count and its parts at a moment to flag, count and what must be true.
FORMS = {
    "no fault": lambda f, n: (f, n, True),
    "always {}": lambda f, n, p: (f, n, p),
    "never {}": lambda f, n, p: (f, n, not p),
    "on {}: {} unchanged": lambda f, n, e, x, was: (f, n, not e or x == was),
    "{} only after {}": lambda f, n, q, p: (f or p, n, f or p or not q),
    "at most {} {}": lambda _, n, k, e: counted(True, True, n, k, e),
    "at most {} {} between {} and {}": lambda f, n, k, e, p, q: counted(h := bool(f and not q), h or p, n, k, e),
    "{} leads to {}": lambda f, n, p, q: ((f or p) and not q, n, True),
    "{} leads to {} assuming fair {}": lambda f, n, p, q, _: ((f or p) and not q, n, True),
} | dict.fromkeys(("possible {}", "from everywhere possible {}"), lambda _, n, p: (p, n, True))
digest = lambda text: hashlib.sha256(text.encode()).hexdigest()
__debug__ or sys.exit("refused: -O would drop every check")


class Unknown:
    """A number not known: a polynomial {names: coefficient}; a truth value is 0 or 1. Facts are numbers that are at least 0."""

    def __init__(self, terms):
        self.terms = terms

    def __add__(self, other):
        more = other.terms if isinstance(other, Unknown) else {(): other}
        terms = {m: c for m in {**self.terms, **more} if (c := self.terms.get(m, 0) + more.get(m, 0))}
        return Unknown(terms) if terms.keys() - {()} else terms.get((), 0)

    def __mul__(self, other):
        more = other.terms if isinstance(other, Unknown) else {(): other}
        return sum(Unknown({tuple(sorted(m + n)): c * d}) for m, c in self.terms.items() for n, d in more.items())

    def __ge__(self, other):
        yes, no, (facts, ways, todo) = self + other * -1, self * -1 + other + -1, Unknown.path
        if isinstance(yes, int) or (known := [fact for fact in facts if fact.terms in (yes.terms, no.terms)]):
            return yes >= 0 if isinstance(yes, int) else known[0].terms == yes.terms
        if len(facts) == len(ways):  # a new question: this path says yes, another one no
            ways += todo.append([*ways, False]) or [True]
        facts.append(yes if ways[len(facts)] else no)
        return facts[-1] is yes

    __radd__, __rmul__, __hash__ = __add__, __mul__, None
    __bool__, __eq__ = lambda a: a >= 1, lambda a, b: a <= b and a >= b
    __le__, __lt__, __gt__ = lambda a, b: a * -1 >= b * -1, lambda a, b: not a >= b, lambda a, b: not a <= b


def value(text, names):
    """Evaluate an expression: numbers, names, signs; when the names are looked up, what is left is Python."""
    if text not in CODE:
        assert re.fullmatch(r"[\d ()<>=!+*,{}-]*", re.sub(WORD, "", text)), f"this is no expression: {text}"
        code = re.sub(WORD, lambda m: m[1] or (f"({m[0]!r} in names)" if m[2] else f"names[{m[0]!r}]"), text)
        CODE[text] = compile(code.replace("{", "(").replace("}", ",)").replace("-", "+ -1 *"), "expression", "eval")
    return eval(CODE[text], {"__builtins__": {}, "names": names})


class Claim:
    """A claim about a machine: at the parameter values `at`, or for all; `sound` are the lemmas that showed it free of faults."""

    def __init__(self, text, claim, sound=None):
        tables = dict.fromkeys(("Parameters", "Variables", "Events", "Guards", "Effects", "States", "Transitions"), [])
        for section in re.split(r"\s*\n## ", text.strip())[1:]:
            (name,), header, _, *rows = ([x.strip() for x in y.strip("|").split("|")] for y in section.split("\n"))
            assert tables.get(name) == [], f"a second or unknown section: {name}"
            tables[name] = [dict(zip(header, row, strict=True)) for row in rows]
        parameters, variables, events, guards, _, states, rows = tables.values()
        pairs = (states, "state", "kind"), (events, "event", "from"), (variables, "variable", "initial")
        self.kinds, self.origins, self.initial = ({row[a]: row[b] for row in table} for table, a, b in pairs)
        self.initials = [state for state, kind in self.kinds.items() if kind == "initial"]
        self.verdicts = {row["guard"]: (row.get("verdicts") or ", ".join(VERDICTS)).split(", ") for row in guards}
        self.bounds, self.rows, self.keys, self.nodes, self.steps = {}, {}, set(), [], set()
        for row in parameters + variables:
            low, _, high = ("0..1" if row["domain"] == "bool" else row["domain"]).partition("..")
            name = row.get("parameter") or row["variable"]
            self.bounds[name] = f"{name} in {low}" if low[0] == "{" else f"{low} <= {name}" + f" <= {high}" * bool(high)
        for row in rows:
            row["else"], row["if"] = re.fullmatch("(else(?: and |$))?(.*)", row["if"]).groups()
            self.rows.setdefault((row["source"], row["event"]), []).append(row)
        failed = {f"{effect}.failed": effect for effect in self.origins.values() if effect != "outside"}
        symbols = re.findall(NAME, " ".join(bound.partition(" in ")[2] for bound in self.bounds.values()))
        words = [*re.findall(NAME, text), *failed, *(f"{g}.{v}" for g in self.verdicts for v in VERDICTS), "false"]
        self.names = dict.fromkeys(words, False) | {symbol: n for n, symbol in enumerate(symbols)} | {"true": True}
        self.origins |= {event: failed[event] for _, event in self.rows if event in failed}  # S7
        assert all(event in self.origins or event[:6] == "after " for _, event in self.rows), "an event is not declared"
        self.form, self.parts, self.at, self.sound = claim["form"], claim["parts"], claim.get("at"), sound
        self.lemmas, self.ranks, self.proofs = claim.get("lemmas", {}), claim.get("ranks", {}), iter(claim["proofs"])
        self.unknown = {name: Unknown({(name,): 1}) for name in (*self.bounds, ":flag", ":count")}
        self.parameters = {row["parameter"]: row["domain"] for row in parameters}
        for name, domain in self.parameters.items():
            values = {"bool": "true|false"}.get(domain, r"-?\d+" if ".." in domain else domain[1:-1].replace(", ", "|"))
            assert self.at is None or re.fullmatch(values, self.at[name]), f"{name} has no such value"
            self.names[name] = self.unknown[name] if self.at is None else value(self.at[name], self.names)

    def prove(self, given, names, action, *arguments):
        """Run an action on every path that the facts used allow; where it fails, a sum of products of facts must be negative."""
        use, closings = next(self.proofs) if self.at is None else ((), ())
        closing, todo = iter(closings), [[]]
        while todo:
            Unknown.path = facts, _, _ = [], todo.pop(), todo
            try:
                all(value(given[place], names) for place in use) and action(*arguments)
            except AssertionError as why:
                if self.sound is None or not str(why).startswith(FAULT):
                    sound = [line for line in next(closing, []) if all(type(n) is int and n >= 0 for n in line)]
                    total = sum(math.prod([facts[n] for n in at], start=factor) for factor, *at in sound)
                    assert type(total) is int and total < 0, why
        assert next(closing, None) is None, "there are multipliers for more than fails"

    #: A state's ancestry (S3).
    above = lambda self, s: [s[: m.start()] for m in re.finditer(r"\.|$", s)][::-1] + ["*"] * (self.kinds[s] != "final")
    #: What ends some time (S12); the leaf that is entered with a state; what holds where a certificate says so.
    timers = lambda self, states: {f"{s} {event}" for s, event in self.rows if event[:6] == "after " and s in states}
    awaited = lambda self, node: {*node[1], *self.timers(self.above(node[0]) if self.kinds[node[0]] != "final" else ())}
    entered = lambda self, state: next((self.entered(s) for s in self.initials if s.rpartition(".")[0] == state), state)
    planned = lambda self, node: self.form != "possible {}" or self.key(node) in self.ranks
    kept = lambda self, n: self.planned(n) and all(value(x, self.means(n)) for x in self.lemmas.get(self.key(n), ()))
    nearer = lambda self, at, to, *how: self.kept(to) and (to[2][":flag"] or self.lower(at, to, *how))

    def means(self, node, true=()):
        """Give what the names mean at a configuration; `true` is what happens there."""
        true = [*self.above(node[0]), *map("pending {}".format, node[1]), *true]
        return self.names | node[2] | dict.fromkeys(true, True)

    def key(self, node, hidden=()):
        shown = {} if self.at is None else {name: int(x) for name, x in node[2].items() if name not in hidden}
        return " ".join([node[0], *sorted(node[1]), *(f"{name}={x}" for name, x in shown.items())])

    def moves(self, node):
        """Give what can happen: what is true then, the effect or timer behind it, the candidate rows."""
        above = self.above(node[0]) if self.kinds[node[0]] != "final" else []
        come = [(timer, timer, self.rows[tuple(timer.split(" ", 1))]) for timer in sorted(self.timers(above))]  # S11
        for event, origin in self.origins.items():
            rows = next((self.rows[source, event] for source in above if (source, event) in self.rows), [])  # S3
            come += [(event, origin, rows)] if origin in node[1] or (origin == "outside" and rows) else []
        for event, origin, rows in come:
            read = {name for row in rows for name in re.findall(NAME, row["if"])}
            asked = [guard for guard in self.verdicts if read & {f"{guard}.{v}" for v in VERDICTS}]  # S2
            for said in itertools.product(*(self.verdicts[guard] for guard in asked)):
                yield {event, *map(".".join, zip(asked, said))}, origin, rows

    def take(self, node, move):
        """Take the one row that is enabled: give the node after it, what ended and what happened; or nothing."""
        (leaf, out, values), (true, origin, rows) = node, move
        names, where = self.means(node, true), f"{FAULT}: {leaf}, {', '.join(sorted(true))}"
        enabled = [row for row in rows if not row["else"] and value(row["if"] or "true", names)]
        enabled = enabled or [row for row in rows if row["else"] and value(row["if"] or "true", names)]
        assert len(enabled) < 2 and (enabled or origin == "outside"), where
        for row in enabled:
            after, target = dict(values), leaf if row["target"] == "=" else self.entered(row["target"])
            left = {leaf} if target == leaf else {*self.above(leaf)} - {*self.above(target)}
            now, ended = out - {origin}, {origin} | self.timers(left if row["target"] != "=" else ())
            for word, name in re.findall(rf"({NAME})(?: ({NAME}))?", row["effects"]):  # S7
                gone = now & {name} if name else now if word == "cancel" else set()
                assert word not in now, where
                now, ended, true = now - gone | {word} & {*self.origins.values()}, ended | gone, true | {word}
            for word, name, sign, new in re.findall(rf"(revoke )?({NAME})(?: ([-+]?)= ([^;]+))?", row["update"]):  # S5
                after[name] = value(self.initial[name] if word else f"{name} {sign} ({new})" if sign else new, names)
                assert value(self.bounds[name], self.names | {name: after[name]}), where
            now = frozenset() if self.kinds[target] == "final" else now
            return self.seen((target, now, after), true, names), ended, true

    def seen(self, node, true, before):
        """Let the property see a moment; give the node with what it remembers."""
        now = [value(part, self.means(node, true)) for part in self.parts]
        now += [value(self.parts[1], before)] if self.form.startswith("on ") else []
        flag, count, good = FORMS[self.form](node[2][":flag"], node[2][":count"], *now)
        assert good, f"{node[0]}, {', '.join(sorted(true))}: not {self.form.format(*self.parts)}"
        return *node[:2], node[2] | {":flag": flag, ":count": count}

    def lower(self, node, after, ended, true):
        """Tell whether the rank falls, or stays while it waits for what S12 or fairness promises."""
        why, names = "", (self.means(node), self.means(after))
        for (old, why), (new, other) in zip(*(self.ranks[self.key(at)] for at in (node, after))):
            if value(new, names[1]) != value(old, names[0]) or why != other or why[5:] in true:
                return value(new, names[1]) < value(old, names[0])
            if why and not why.startswith("fair "):
                return why not in ended
        return bool(why)

    def arrive(self, node, may):
        assert may or self.kept(node), f"{self.key(node)}: a lemma is not kept"
        if self.key(node) not in self.keys:
            self.keys.add(self.key(node))
            self.nodes.append(node if self.at is not None else (*node[:2], self.unknown))

    def begin(self):
        values = {name: value(text, self.names) for name, text in self.initial.items()} | {":flag": False, ":count": 0}
        assert all(value(bound, self.names | values) for bound in self.bounds.values()), f"{FAULT}: start"
        node = self.entered(min(self.initials, key=lambda state: state.count("."))), frozenset(), values
        self.arrive(self.seen(node, (), self.means(node)), may=False)

    def happen(self, node, move):
        for after, ended, true in filter(None, [self.take(node, move)]):
            self.arrive(after, may=self.form == "possible {}")
            self.steps.add(" > ".join([self.key(node), *sorted(true - {"cancel"}), self.key(after)]))
            owed = "leads to" in self.form and node[2][":flag"] and after[2][":flag"]
            assert not owed or self.lower(node, after, ended, true), f"{self.key(node)}: the rank does not fall"

    def go_on(self, node):
        """See that what is owed comes (`leads to`), or that it can come (`possible`)."""
        owed, where = "leads to" in self.form, f"{self.key(node)}: it may never come"
        if bool(node[2][":flag"]) == owed and self.planned(node):
            rank, taken = self.ranks[self.key(node)], filter(None, (self.take(node, move) for move in self.moves(node)))
            fair = {f"fair {name}" for part in self.parts[2:] for name in part.split(", ")} if owed else set()
            whys, last = {"", *fair, *(self.awaited(node) if owed else ())}, rank[-1][1]
            assert all(why in whys and value(number, self.means(node)) >= 0 for number, why in rank), where
            able = (self.nearer(node, *found) if not owed else last[5:] in found[2] for found in taken)
            assert any(able) if last in fair or not owed else self.awaited(node), where

    def run(self):
        self.prove([self.bounds[name] for name in self.parameters], self.names, self.begin)
        for node in self.nodes:
            known = [lemmas.get(self.key(node), []) for lemmas in (self.sound or {}, self.lemmas)]
            given, names = [*self.bounds.values(), *itertools.chain(*known)], self.means(node)
            for move in self.moves(node):
                self.prove(given, names, self.happen, node, move)
            re.search("leads to|possible", self.form) and self.prove(given, names, self.go_on, node)
        assert next(self.proofs, None) is None, "there are proofs for more than is claimed"
        configurations = {self.key(node, (":flag", ":count")) for node in self.nodes}
        return [len(configurations), *(digest("\n".join(sorted(lines))) for lines in (configurations, self.steps))]


def verify(certificate):
    """Give a certificate's machine and its claims, as sentences; raises what makes them no claims. Takes JSON."""
    content, sound = json.loads(certificate), None
    assert digest(content["machine"]) == content["digest"], "the machine is another one"
    yield content["machine"].partition("\n")[0] + " " + content["digest"]
    for said in content["claims"]:
        claim = Claim(content["machine"], said, None if "at" in said else sound)
        reached, where = claim.run(), [f"{x} = {claim.at[x]}" for x in claim.parameters if claim.at is not None]
        assert claim.at is None or reached == said["reached"], "what is reachable, or the steps to it, are others"
        where = ["for all values"] if claim.at is None else [*where, f"{reached[0]} configurations"]
        sound = claim.lemmas if (claim.form, claim.at) == ("no fault", None) else sound
        yield f"{claim.form.format(*claim.parts)}: {', '.join(where)}"


if __name__ == "__main__":
    try:
        print(*[*verify(open(sys.argv[1], encoding="utf-8").read())], sep="\n")
    except Exception as why:
        sys.exit(print(f"refused: {why!r}") or 1)
