"""What an accepted artifact is scored by a second time: many more calls than its guard makes, drawn and by hand.

Takes a task's name, gives guards that no model ever hears of. What is expected comes from the references; the seeds are fixed, so an oracle
asks the same of everybody. Only what the prompt says is asked: where it leaves something open, any answer is right.
"""

import random
from collections.abc import Callable, Iterable
from functools import cache

import attrs
from benchmarks.tasks.references import katas, lru, password, tdd_calculator, tdd_password, tdd_queue, tdd_stack
from benchmarks.tasks.references import tdd_template as simple
from benchmarks.tasks.references import template as engine

from dsa.guards.cases import CasesGuard
from dsa.runtime.content import Artifact

Call = tuple[str, object]

#: An O(1) cache does this in well under a second, one that searches a list in minutes: no load of the machine closes that gap.
_LARGE, _QUICK_S = 100_000, 8
_SPECIAL, _LETTERS, _DIGITS = "!@#$%^&*", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "0123456789"


@attrs.frozen
class Oracle:
    """Guards that an artifact has to pass, all of them. A text that was scored once is not scored again."""

    parts: tuple[CasesGuard, ...]
    _known: dict[str, str] = attrs.field(factory=dict, init=False, eq=False)

    def fault(self, artifact: Artifact) -> str:
        """Return what is wrong with an artifact; empty when it is right. Raises SandboxError where nothing can be run."""
        if artifact.content_digest not in self._known:
            self._known[artifact.content_digest] = self._fault(artifact)
        return self._known[artifact.content_digest]

    def _fault(self, artifact: Artifact) -> str:
        for part in self.parts:
            result = part.validate(artifact)
            if not result.passed:
                return result.feedback or "it did not pass"
        return ""


@cache
def oracle_of(task: str) -> Oracle:
    """Return a task's oracle. KeyError for an unknown task."""
    return Oracle(tuple(CasesGuard(calls, timeout_s=limit_s) for calls, limit_s in calls_of(task)))


def calls_of(task: str) -> list[tuple[list[Call], float]]:
    """Return what a task's oracle asks: calls with what they must give, and the seconds they may take. KeyError for an unknown task."""
    return _PARTS[task]()


# -- functions ------------------------------------------------------------------------------------------------------


def _asked(function: Callable[..., object], arguments: Iterable[tuple[object, ...]]) -> list[Call]:
    """Return a call with each of the arguments, and what the reference gives for it."""
    return [(f"{function.__name__}({', '.join(map(repr, each))})", _plain(function(*each))) for each in arguments]


def _plain(value: object) -> object:
    """Write a text as a literal: a guard reads texts as Python."""
    return repr(value) if isinstance(value, str) else value


def _template() -> list[tuple[list[Call], float]]:
    values = {
        "name": "World",
        "n": 5,
        "zero": 0,
        "none": "",
        "yes": True,
        "no": False,
        "odd": r"a\1\g<0>$&",
        "a_1": "x",
    }
    texts = [
        "{{ name }} and {{ n }}", "{{ name }}{{ name }} {{ name }}", "{{ zero }}|{{ none }}|{{ odd }}|{{ a_1 }}", "{{ missing }} {{ name }} {{ gone }}",
        "{% if yes %}a{% endif %}-{% if no %}b{% endif %}-{% if name %}c{% endif %}", "{% if yes %}one{% endif %}{% if yes %}two{% endif %}",
        "{% if no %}one{% endif %} kept {% if no %}two{% endif %}", "{% if yes %}Hello {{ name }}!{% endif %}", "{% if no %}Hello {{ name }}!{% endif %}.",
        "{% if zero %}x{% endif %}{% if none %}y{% endif %}{% if missing %}z{% endif %}", "<{% if yes %}line one\nline two\n{% endif %}>",
        "{% if no %}line one\nline two\n{% endif %}end", "{% if yes %}{{ missing }}{% endif %}", "", "{ name } {name} % }}", "{% if yes %}{% endif %}",
    ]  # fmt: skip
    return [(_asked(engine.render_template, [(text, values) for text in texts]), 10)]


def _password() -> list[tuple[list[Call], float]]:
    valid, by_hand = "A!bX2579qW@#", []
    by_hand += [
        valid,
        "A!bX2579qW@",
        "A!bX2579qW@#dGjMpSvYzKnQtU!Z",
        "A!bX2579qW@#dGjMpSvYzKnQtUwE!Z$^",
        "A!bX2579qW@#dGjMpSvYzKnQtUwE!Z$^%",
    ]
    by_hand += [
        "a!bx2579qw@#",
        "A!BX2579QW@#",
        "AzbX2579qWok",
        "A!bXpkmoqW@#",
        "A!bX1479qW@#",
        "A!bX2578qW@#",
        "A!bX0001qW@#",
        "A!bX1100qW@#",
    ]
    by_hand += [
        "A!bX2579qWW@",
        "A!bX2579WWW@",
        "A!bC2579qWd@",
        "A!bcD579qW2@",
        "A!xYz579qW2@",
        "A!bX1230qWp@",
        "A!bX4560qW&@",
        "A!bX9bb2qWk@",
    ]
    draw, drawn = random.Random(20260101), {True: [], False: []}
    while min(map(len, drawn.values())) < 100:
        text = _drawn_password(draw)
        found = drawn[password.validate_password(text)]
        if len(found) < 100 and not _leaves_open(text):
            found.append(text)
    return [(_asked(password.validate_password, [(text,) for text in (*by_hand, *drawn[True], *drawn[False])]), 10)]


def _drawn_password(draw: random.Random) -> str:
    """Draw a password that keeps most of the rules."""
    size = draw.choice((11, 12, 12, 13, 16, 20, 24, 32, 32, 33))
    characters = [*draw.sample(_SPECIAL, 2), *draw.sample(_LETTERS[:26], 3), *draw.sample(_LETTERS[26:], 3)]
    characters += draw.choices(_DIGITS, k=draw.choice((0, 1, 2, 2, 3)))
    characters += draw.choices(_LETTERS + _SPECIAL, k=size - len(characters))
    draw.shuffle(characters)
    return "".join(characters)


def _leaves_open(text: str) -> bool:
    """Return whether a password falls as an alphabet does in a mirror (`cba`): the prompt does not say what that is."""
    lower = text.lower()
    return any(lower[at : at + 3][::-1] in "abcdefghijklmnopqrstuvwxyz" for at in range(len(lower) - 2))


def _katas(function: Callable[..., object], *arguments: object) -> Callable[[], list[tuple[list[Call], float]]]:
    return lambda: [(_asked(function, [(each,) for each in arguments]), 10)]


# -- classes --------------------------------------------------------------------------------------------------------

#: A method, its arguments, and whether what it gives is asked for.
Move = tuple[str, tuple[object, ...], bool]


def sequence(made: str, reference: object, moves: Iterable[Move], show: str = "{}") -> Call:
    """Return one call that makes an object and moves it, and the results of the moves: None where the result is ignored, or where it has to raise.

    A move of which the reference raises an error has to raise one of that class. `show` is put around each result.
    """
    parts, expected = [], []
    for method, arguments, is_asked in moves:
        written = ", ".join(map(repr, arguments))
        try:
            given = getattr(reference, method)(*arguments)
        except Exception as error:  # noqa: BLE001  (whatever it raises is what is asked for)
            raises = f"__import__('unittest').TestCase().assertRaises({type(error).__name__}, it.{method}{', ' if written else ''}{written})"
            parts.append(raises)
            expected.append(None)
        else:
            call = f"it.{method}({written})"
            parts.append(show.format(call) if is_asked else f"({call}, None)[1]")
            shown = eval(show.format("given"), {"given": given}) if is_asked else None
            expected.append(shown)
    return f"(lambda it: [{', '.join(parts)}])({made})", expected


def _walks(made: str, new: Callable[[], object], silent: str, asked: tuple[str, ...]) -> list[Call]:
    """Draw walks of an object that takes items and gives them back; what taking gives is not asked."""
    draw, calls = random.Random(7), []
    for walk in range(30):
        moves: list[Move] = []
        for number in range(walk % 12 + 1):
            is_taken = draw.random() < 0.45
            moves.append((silent, (number * 10,), False) if is_taken else (draw.choice(asked), (), True))
        calls.append(sequence(made, new(), moves))
    return calls


def _stack() -> list[tuple[list[Call], float]]:
    return [(_walks("Stack()", tdd_stack.Stack, "push", ("pop", "peek", "is_empty", "size")), 20)]


def _queue() -> list[tuple[list[Call], float]]:
    return [(_walks("Queue()", tdd_queue.Queue, "enqueue", ("dequeue", "front", "is_empty", "size")), 20)]


def _caches() -> list[Call]:
    refreshed: list[Move] = [
        ("put", (1, 1), False),
        ("put", (2, 2), False),
        ("put", (1, 10), False),
        ("put", (3, 3), False),
    ]
    refreshed += [("get", (key,), True) for key in (1, 2, 3)]
    draw, calls = random.Random(11), [sequence("LRUCache(2)", lru.LRUCache(2), refreshed)]
    for walk in range(40):
        size = walk % 3 + 1
        moves: list[Move] = []
        for number in range(14):
            key = draw.randrange(size + 2)
            moves.append(("put", (key, number * 10 + 1), False) if draw.random() < 0.5 else ("get", (key,), True))
        calls.append(sequence(f"LRUCache({size})", lru.LRUCache(size), moves))
    return calls


def _lru() -> list[tuple[list[Call], float]]:
    filled = f"(lambda it: ([it.put(k, k) for k in range({_LARGE})], [it.get(k) for k in range({_LARGE} - 1, -1, -1)][0])[1])(LRUCache({_LARGE}))"
    updated = f"(lambda it: ([it.put(k, k) for k in range({_LARGE})], [it.put({_LARGE} - 1 - k % 9, k) for k in range({_LARGE})], it.get(0))[2])(LRUCache({_LARGE}))"
    return [(_caches(), 20), ([(filled, _LARGE - 1), (updated, 0)], _QUICK_S)]


def _calculator() -> list[tuple[list[Call], float]]:
    numbers = (0, 1, -1, 2, -7, 12, 0.5, -2.25, 1e6)
    pairs = [(a, b) for a in numbers for b in numbers]
    methods = ("add", "subtract", "multiply", "divide")
    reference = tdd_calculator.Calculator()
    return [
        ([sequence("Calculator()", reference, [(m, pair, True) for pair in pairs], "float({})") for m in methods], 20)
    ]


def _rendered(template: str, **values: object) -> Call:
    written = ", ".join(f"{name}={value!r}" for name, value in values.items())
    try:
        return f"SimpleTemplate({template!r}).render({written})", repr(simple.SimpleTemplate(template).render(**values))
    except KeyError:
        lazy = f"lambda: SimpleTemplate({template!r}).render({written})"
        return f"__import__('unittest').TestCase().assertRaises(KeyError, {lazy})", None


def _simple_template() -> list[tuple[list[Call], float]]:
    calls = [
        _rendered("Hello, {name}!", name="World"),
        _rendered(""),
        _rendered("plain"),
        _rendered("{a}{b}", a="1", b="2"),
    ]
    calls += [
        _rendered("{user_1} {item1}", user_1="x", item1="y"),
        _rendered("{a} {a}", a="z"),
        _rendered("{a}"),
        _rendered("{a}{b}", a="1"),
    ]
    calls += [
        _rendered("{{}}"),
        _rendered("{{name}}", name="x"),
        _rendered("{{{name}}}", name="x"),
        _rendered("{{ {a} }}", a="1"),
        _rendered("}} {{"),
    ]
    calls += [
        _rendered("{a}{b}", a="{b}", b="x"),
        _rendered("{a}", a="{{}}"),
        _rendered("{a}", a=""),
        _rendered("{a}", a="x", b="unused"),
    ]
    return [([*calls, _rendered("line {a}\nline {b}", a="1", b="2")], 10)]


def _validated(text: str) -> Call:
    valid, errors = tdd_password.PasswordValidator().validate(text)
    return f"(lambda r: [r[0], sorted(r[1])])(PasswordValidator().validate({text!r}))", [valid, sorted(errors)]


def _validator() -> list[tuple[list[Call], float]]:
    draw = random.Random(5)
    texts = [
        "Aa1!aaaa",
        "Aa1!aaa",
        "",
        "!@#$%^&*",
        "aaaaaaa1!",
        "AAAAAAA1!",
        "Aaaaaaaa!",
        "Aaaaaaaa1",
        "Aa1?aaaa",
        "Aa1-aaaa",
        "12345678",
        "a",
    ]
    texts += [f"Abcdef1{special}" for special in _SPECIAL]
    for _ in range(80):
        pool = "".join(draw.sample(("ABCXYZ", "abcxyz", _DIGITS, _SPECIAL), k=draw.randint(1, 4)))
        texts.append("".join(draw.choices(pool, k=draw.randint(1, 14))))
    return [([_validated(text) for text in texts], 10)]


_NUMBERS = (0, 1, 2, 3, 4, 5, 6, 9, 10, 12)
_TEXTS = ("", "a", "ab", "aa", "aba", "abba", "abca", "Anna", "a b a", "ab a", "12321", "no on", "x" * 9, "kayak!")
#: The parts of each task's oracle: calls with what they must give, and the seconds they may take.
_PARTS: dict[str, Callable[[], list[tuple[list[Call], float]]]] = {
    "template": _template,
    "password": _password,
    "lru": _lru,
    "tdd_stack": _stack,
    "tdd_calculator": _calculator,
    "tdd_queue": _queue,
    "tdd_lrucache": lambda: [(_caches(), 20)],
    "tdd_template": _simple_template,
    "tdd_password": _validator,
    "is_palindrome": _katas(katas.is_palindrome, *_TEXTS),
    "factorial": _katas(katas.factorial, *_NUMBERS, 20),
    "fibonacci": _katas(katas.fibonacci, *_NUMBERS, 20),
    "is_prime": _katas(katas.is_prime, *range(60), 91, 97, 121, 7919, 7917),
}
