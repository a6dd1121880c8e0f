import re

import pytest
from each_row import each_row

from dsa.errors import ToolError
from machines.chat.interpreter import files_from, kind_of, safe_name

PNG, PDF, ZIP = b"\x89PNG\r\n\x1a\n...", b"%PDF-1.4\n", b"PK\x03\x04..."


@each_row(
    ("path", "name"),
    [
        ("a.csv", "a.csv"),
        ("charts/a.png", "charts_a.png"),
        ("sales by région (2024).csv", "sales_by_region_2024_.csv"),
        ("../../etc/passwd", "etc_passwd"),
        ("/etc/passwd", "etc_passwd"),
        (".hidden", "hidden"),
        ("图", "file"),
        ("a\n\x1b[2J\udcff.txt", "a_2J_.txt"),
        ("a" * 300 + ".csv", "a" * 76 + ".csv"),
        ("a." + "b" * 300, "a." + "b" * 78),
    ],
)
def test_file_names_are_made_safe(path, name):
    assert safe_name(path) == name
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name)


@each_row(
    ("name", "content", "kind"),
    [
        ("a.png", PNG, "png"),
        ("a", PNG, "png"),
        ("a.PNG", PNG, "png"),
        ("a.jpeg", b"\xff\xd8\xff\xe0", "jpg"),
        ("a.xlsx", ZIP, "xlsx"),
        ("a.parquet", b"PAR1..PAR1", "parquet"),
        ("a.webp", b"RIFF....WEBP", "webp"),
        ("a.csv", b"a,b\n", "csv"),
        ("a.csv", b"", "csv"),
        ("a.json", b"[1]", "json"),
        ("a.svg", b"<?xml version='1.0'?>\n<!-- x -->\n<svg xmlns='x'>", "svg"),
        ("a.unknown", b"text", "txt"),
        ("a.htm", b"<p>", "html"),
    ],
)
def test_kind_of_a_file_follows_its_content(name, content, kind):
    assert kind_of(name, content) == kind


@each_row(
    ("name", "content", "said"),
    [
        ("a.png", PDF, "is not png: its content is pdf"),
        ("a.png", b"text", "is not png: its content is text"),
        ("a.png", b"", "is not png: its content is empty"),
        ("a.csv", PNG, "is not csv: its content is png"),
        ("a.xlsx", b"a,b", "is not xlsx: its content is text"),
        ("a.json", b"{'a': 1}", "is not JSON"),
        ("a.json", b"[" * 100_000, "is not JSON"),
        ("a.svg", b"<html><svg>", "is not SVG"),
        ("a.csv", b"\xff\xfe", "contains bytes of an unknown kind"),
        ("a.txt", b"a\0b", "contains bytes of an unknown kind"),
        ("a.pkl", b"\x80\x04\x95", "contains bytes of an unknown kind"),
    ],
)
def test_file_with_a_false_ending_is_refused(name, content, said):
    with pytest.raises(ToolError, match=re.escape(f"'{name}' {said}")) as refused:
        kind_of(name, content)
    assert refused.value.code == "bad_file"


def test_files_are_sorted_and_equal_names_are_refused():
    assert [file.name for file in files_from([("b.txt", b"1"), ("a.txt", b"2")])] == ["a.txt", "b.txt"]
    with pytest.raises(ToolError, match="two files would have the name 'a_b'"):
        files_from([("a b", b""), ("a/b", b"")])
