"""Whatever the bytes, importing gives a machine or says with lines why not."""

import random

import pytest
from repository import all_machines

from dsa.lang import dumps, loads
from dsa.lang.from_scxml import from_scxml
from dsa.targets.scxml import scxml

SEEDS = [scxml(machine) for machine in all_machines().values()] + [
    """<scxml initial="a" datamodel="ecmascript"><datamodel><data id="n" expr="0"/><data id="c" expr="'red'"/></datamodel>
<state id="a"><onentry><log/></onentry><transition event="go stay.*" cond="n &lt; 3 &amp;&amp; !(c != 'red')" target="b">
<assign location="n" expr="n + 1"/><if cond="n > 1"><assign location="c" expr="'green'"/><elseif cond="n == 9"/><else/>
<raise event="back"/></if></transition></state><state id="b"><state id="c1"><transition event="back"/></state>
<history id="h"/><parallel id="p"/><transition event="*" target="a"/></state><final id="f"/></scxml>""",
]
PIECES = [
    "<", ">", "&amp;", '"', "<state id='x'>", "</state>", "target=''", "event='a b *'", "cond=\"a['b'] === 'c'\"", "=1",
    "<!DOCTYPE x [<!ENTITY a 'b'>]>", "&a;", "\x00", "\u202e", "(" * 80, "not " * 80, "9" * 30, "dsa:domain='5..1'",
    "<parallel/>", "<script/>", "<transition/>", "<data/>", "\r\n", "xmlns='u'", "<x:y/>", "é", "'v'", "- -1",
]  # fmt: skip


def changed(text: str, chance: random.Random) -> bytes:
    """Change a text in some places: pieces put in, stretches dropped, repeated and moved; sometimes as other bytes."""
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randrange(len(text) + 1), chance.randrange(40)
        kind = chance.randrange(5)
        if kind == 0:
            text = text[:at] + chance.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + size :]
        elif kind == 2:
            text = text[:at] + text[at : at + size] * 2 + text[at + size :]
        elif kind == 3:
            words = text.split('"')
            place = chance.randrange(len(words))
            words[place] = chance.choice([*PIECES, *words])
            text = '"'.join(words)
        else:
            lines = text.split("\n")
            place = chance.randrange(len(lines))
            lines.insert(chance.randrange(len(lines)), lines.pop(place))
            text = "\n".join(lines)
    encoding = chance.choice(["utf-8"] * 8 + ["utf-16", "latin-1"])
    return text.encode(encoding, "replace")


def require_sound(content: bytes) -> bool:
    found = from_scxml(content)
    errors = [finding for finding in found.findings if finding.is_error]
    assert (found.machine is None) == bool(errors)
    assert all(finding.line >= 1 and finding.message for finding in found.findings)
    if found.machine is not None:
        assert loads(dumps(found.machine)) == found.machine
    return found.machine is not None


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 30))])
def test_any_bytes_are_imported_or_refused_in_words(seed):
    chance = random.Random(seed)
    read = sum(require_sound(changed(chance.choice(SEEDS), chance)) for _ in range(400))
    assert 0 < read < 400


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"\x00" * 99, b"<scxml/>", b"<a><scxml/></a>", b"<" * 10_000])
def test_nothing_of_the_kind_is_refused(content):
    assert not require_sound(content)


def test_deep_and_expanding_files_are_refused():
    deep = from_scxml("<scxml>" + "<state id='a'>" * 5_000)
    assert "nested deeper" in deep.findings[0].message
    bomb = '<!DOCTYPE scxml [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><scxml>&b;</scxml>'
    assert "document type" in from_scxml(bomb).findings[0].message
