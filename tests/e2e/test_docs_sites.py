"""Real sites of MkDocs and Sphinx with machines in them, built where no host can be reached."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packages import Shelf

from dsa import check
from dsa.docs.blocks import CheckedDocument, Grid, parts_of
from dsa.edge.document_files import load, locate

ROOT = Path(__file__).parents[2]
MACHINE = locate("dual_state").read_text(encoding="utf-8")
#: Ends the build, which is a separate process, at any attempt to reach a host.
OFFLINE = """
import socket

def refused(*arguments, **more):
    raise AssertionError(f"the build asks another host: {arguments}")

socket.socket.connect = socket.getaddrinfo = socket.create_connection = refused
"""
ADDRESS = re.compile(r"(?:https?:)?//[\w.-]+")


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory):
    """Install the plugins that pyproject.toml names, and block the network."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "sitecustomize.py").write_text(OFFLINE)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    entries = {"mkdocs.plugins": [f"{name} = {value}" for name, value in groups["mkdocs.plugins"].items()]}
    with pytest.MonkeyPatch.context() as patch:
        Shelf(folder, patch).install("dsa-plugins", entries)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT)]))
        yield


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def build(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *command], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip


def words(html: str) -> str:
    """Return the text of a page, with one space between its words."""
    text = (
        re.sub(r"<[^>]*>", " ", html)
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
        .replace("&quot;", '"')
    )
    return " ".join(text.split())


def svg_texts(html: str) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", html)


def assert_shows_the_picture_once(html: str) -> None:
    assert html.count("<svg ") == 1
    shown = " ".join(svg_texts(html))
    assert all(state.name in shown for state in load("dual_state").states)
    assert "retries &lt; rmax]" in shown


def cells_of(kind: str, **options: str) -> list[str]:
    """Return the texts that a page with a block must contain: the rows of its grids."""
    parts = parts_of(kind, options, CheckedDocument(load("dual_state"), (), check))
    rows = [row for part in parts if isinstance(part, Grid) for row in (part.header, *part.rows)]
    return [" ".join(" ".join(row).split()) for row in rows]


# -- MkDocs -----------------------------------------------------------------------------------------------------------

MKDOCS = """
site_name: Machines
theme: {name: null, custom_dir: theme}
plugins: [dsa]
nav: [index.md, machine.md]
"""
PAGE = """---
title: A page
---
# A page

Before.

<!-- dsa:diagram machine.md -->
old
<!-- /dsa -->

<!-- dsa:table machine.md -->
<!-- /dsa -->

<!-- dsa:verdicts machine.md -->
<!-- /dsa -->

<!-- dsa:scenarios machine.md -->
<!-- /dsa -->

After, *with* `<!-- dsa:code -->`.
"""
THEME = "<html><title>{{ page.title }}</title><body>{{ page.content }}</body></html>"


def mkdocs(
    folder: Path, page: str = PAGE, machine: str = MACHINE, settings: str = MKDOCS
) -> subprocess.CompletedProcess[str]:
    write(
        folder,
        mkdocs_dot_yml=settings,
        theme__main_dot_html=THEME,
        docs__index_dot_md=page,
        docs__machine_dot_md=machine,
    )
    return build(folder, "mkdocs", "build", "--strict")


@pytest.fixture(scope="module")
def mkdocs_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mkdocs")
    done = mkdocs(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_mkdocs_shows_fresh_blocks_and_contacts_no_other_host(mkdocs_site):
    html = (mkdocs_site / "site" / "index.html").read_text(encoding="utf-8")
    assert_shows_the_picture_once(html)
    text = words(html)
    for kind in ("table", "verdicts", "scenarios"):
        for row in cells_of(kind):
            assert row in text, row
    assert text.startswith("A page A page Before. ")
    assert text.endswith("After, with <!-- dsa:code --> .")
    assert "old" not in text.split()
    assert "<em>with</em>" in html
    assert ADDRESS.findall(html) == []
    assert (mkdocs_site / "docs" / "index.md").read_text(encoding="utf-8") == PAGE


def test_mkdocs_shows_the_picture_of_a_machine_document(mkdocs_site):
    html = (mkdocs_site / "site" / "machine" / "index.html").read_text(encoding="utf-8")
    assert_shows_the_picture_once(html)
    assert html.index("</h1>") < html.index("<svg ") < html.index("<h2")
    assert "<td>generating</td>" in html
    assert ADDRESS.findall(html) == []


def test_mkdocs_leaves_the_picture_out_if_configured(tmp_path):
    settings = MKDOCS.replace("[dsa]", "[{dsa: {pictures: false}}]")
    assert mkdocs(tmp_path, settings=settings).returncode == 0
    assert "<svg" not in (tmp_path / "site" / "machine" / "index.html").read_text(encoding="utf-8")


def test_mkdocs_reports_each_wrong_marker_with_its_line(tmp_path):
    page = PAGE.replace("dsa:table", "dsa:tabel").replace("dsa:verdicts machine.md", "dsa:verdicts machin.md")
    done = mkdocs(tmp_path, page)
    assert done.returncode == 1
    assert "index.md:12:1: there is no block 'tabel'\n        hint: did you mean 'table'?" in done.stderr
    assert "index.md:15:1: machin.md: there is no such file in" in done.stderr
    assert "Traceback" not in done.stderr


def test_mkdocs_warns_of_an_invalid_machine_document(tmp_path):
    broken = MACHINE.replace("| validating | verdict ", "| validatin | verdict ")
    done = mkdocs(tmp_path, "# A page\n", broken)
    assert done.returncode == 1  # --strict
    assert "machine.md is not a machine: " in done.stderr
    done = mkdocs(tmp_path, "# A page\n\n## Steps\n\n1. One\n2. Two\n")
    assert done.returncode == 0, done.stderr


def test_mkdocs_builds_the_same_site_twice(mkdocs_site):
    pages = {path: path.read_bytes() for path in (mkdocs_site / "site").rglob("*.html")}
    mkdocs(mkdocs_site)
    assert {path: path.read_bytes() for path in (mkdocs_site / "site").rglob("*.html")} == pages


# -- Sphinx -----------------------------------------------------------------------------------------------------------

CONF = """
extensions = ["dsa.docs.sphinx", "myst_parser"]
html_theme = "basic"
html_show_sphinx = False
html_copy_source = False
"""
RST = """
A page
======

.. toctree::

   sub/other

.. dsa-machine:: machine.md
   :show: diagram, table, verdicts, scenarios

After.
"""
MYST = """# Another

```{dsa-machine} ../machine.md
:grouped:
```

```{dsa-machine} /machine.md
:show: scenarios
```
"""


def sphinx(folder: Path, builder: str = "html", **texts: str) -> subprocess.CompletedProcess[str]:
    given = {
        "conf_dot_py": CONF,
        "index_dot_rst": RST,
        "sub__other_dot_md": MYST,
        "machine_dot_md": f"---\norphan: true\n---\n{MACHINE}",
    }
    write(folder, **given | texts)
    return build(folder, "sphinx", "-q", "-W", "--keep-going", "-b", builder, ".", f"out/{builder}")


@pytest.fixture(scope="module")
def sphinx_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sphinx")
    done = sphinx(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_sphinx_shows_a_machine_and_contacts_no_other_host(sphinx_site):
    html = (sphinx_site / "out" / "html" / "index.html").read_text(encoding="utf-8")
    assert_shows_the_picture_once(html)
    text = words(html)
    for kind in ("table", "verdicts", "scenarios"):
        for row in cells_of(kind):
            assert row in text, row
    assert "Checked: 0 errors, 0 warnings, 3 of 3 scenarios pass" in text
    assert ADDRESS.findall(html) == []


def test_myst_has_the_directive_too(sphinx_site):
    html = (sphinx_site / "out" / "html" / "sub" / "other.html").read_text(encoding="utf-8")
    assert_shows_the_picture_once(html)
    text = words(html)
    assert all(row in text for row in cells_of("table", grouped="") + cells_of("scenarios"))
    assert "<strong>generating</strong>" in html
    assert ADDRESS.findall(html) == []


def test_sphinx_rebuilds_a_page_when_the_machine_of_its_spec_changes(tmp_path):
    spec = locate("specs/dual_state").read_text(encoding="utf-8").replace("Machine: dual_state", "Machine: m.txt")
    page = "A page\n======\n\n.. dsa-machine:: spec.txt\n"
    write(tmp_path, conf_dot_py=CONF, index_dot_rst=page, spec_dot_txt=spec, m_dot_txt=MACHINE)
    for effect in ("escalate_to_user", "call_somebody"):
        write(tmp_path, m_dot_txt=MACHINE.replace("escalate_to_user", effect))
        write(tmp_path, spec_dot_txt=spec.replace("escalate_to_user", effect))
        os.utime(tmp_path / "spec.txt", (1, 1))  # only the machine is newer than the built page
        assert build(tmp_path, "sphinx", "-q", ".", "out").returncode == 0
        assert effect in " ".join(svg_texts((tmp_path / "out" / "index.html").read_text(encoding="utf-8")))


def test_sphinx_leaves_the_picture_out_of_plain_text(tmp_path):
    done = sphinx(tmp_path, "text")
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "out" / "text" / "index.txt").read_text(encoding="utf-8")
    assert "retries < rmax" in text
    assert "<svg" not in text


WRONG = """A page
======

.. dsa-machine:: machin.md

.. dsa-machine:: machine.md
   :show: diagram, tabel

.. dsa-machine:: conf.py
"""


def test_sphinx_reports_the_line_of_each_wrong_directive(tmp_path):
    write(tmp_path, conf_dot_py=CONF, index_dot_rst=WRONG, machine_dot_md=f"---\norphan: true\n---\n{MACHINE}")
    done = build(tmp_path, "sphinx", "-q", ".", "out")
    found = re.findall(r"index\.rst:(\d+): ERROR: (.*)", done.stderr)
    assert [int(line) for line, _ in found] == [4, 6, 9]
    assert "machin.md: there is no such file in" in found[0][1]
    assert "there is no block 'tabel'; did you mean 'table'?" in found[1][1]
    assert "conf.py is not a machine: " in found[2][1]
    assert "Traceback" not in done.stderr
