"""Text files of rows: read whole, or refused with the line that does not suit."""

import gzip

import pytest

from machines.chat.sql import Database, LoadError

DAYS = "".join(f"2025-0{number % 9 + 1}-01,north,{number}.5\n" for number in range(200))
HEAD = "month,region,revenue\n"
LOST = {
    "one cell more in the last line": (HEAD + DAYS + "2025-01-01,north,12.5,note\n", "line 202 has 4 cells, line 1 has 3 cells"),
    "a column more from the middle on": (HEAD + DAYS + DAYS.replace("\n", ",x\n"), "line 202 has 4 cells"),
    "short lines first": (HEAD + "2025-01-01,north\n" * 5 + DAYS, "line 2 has 2 cells"),
    "every line another one": ("x,y\n1,2\n3\n4,5,6\n", "line 3 has 1 cell, line 1 has 2 cells"),
    "a header that is too short": ("a,b\n1,2,3,4\n5,6,7,8\n", "line 2 has 4 cells, line 1 has 2 cells"),
    "a total of fewer cells": ("month,region,units,revenue\n" + "2025-01-01,north,3,4.5\n" * 5 + "Total,,50000\n", "line 7 has 3 cells"),
    "a delimiter in a number": ("a,b\n" + "1,2\n" * 5 + "3,1,234.50\n", "line 7 has 3 cells"),
}  # fmt: skip
WHOLE = {
    "plain": (HEAD + DAYS, 200, ["month", "region", "revenue"]),
    "with a title above": (
        "Sales report\n\nmonth,region\n2025-01-01,north\n2025-02-01,south\n",
        2,
        ["month", "region"],
    ),
    "semicolons": ("a;b\n1;2\n3;4\n", 2, ["a", "b"]),
    "quoted": ('a,b\n"1,5",2\n"x\ny",3\n', 2, ["a", "b"]),
    "one column": ("name\nann\nbob\n", 2, ["name"]),
    "without a header": ("1,2\n3,4\n", 2, ["column0", "column1"]),
    "with a mark": ("\ufeffa,b\n1,2\n", 1, ["a", "b"]),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", LOST)
def test_no_line_is_left_out_in_silence(tmp_path, name, packed):
    text, says = LOST[name]
    file = tmp_path / ("data.csv.gz" if packed else "data.csv")
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(LoadError, match=says):
        Database([file], tmp_path)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_whole_is_loaded(tmp_path, name):
    text, rows, columns = WHOLE[name]
    (tmp_path / "data.csv").write_text(text)
    with Database([tmp_path / "data.csv"], tmp_path) as database:
        (table,) = database.tables
    assert (table.row_count, [column for column, _ in table.columns]) == (rows, columns)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\nä,1\n".encode("latin1"), "is not UTF-8 in line 2: iconv -f latin1"),
        ("a,b\nx,1\n".encode("utf-16"), "is UTF-16"),
        (b"\x00\x01\x02" * 100, "is no text"),
    ],
)
def test_other_encodings_are_named_with_what_to_do(tmp_path, content, says):
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(LoadError, match=says):
        Database([tmp_path / "data.csv"], tmp_path)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (("2024-03-08", "2024-03-09", "03/10/2024"), "VARCHAR"),
        (("2024-03-18", "03/19/2024"), "VARCHAR"),
        (("2024-03-18", "2024-03-19", "19.03.2024"), "VARCHAR"),
        (("2024-03-08 10:00:00", "03/10/2024 11:00:00"), "VARCHAR"),
        (("2024-03-08", "2024-03-09"), "DATE"),
        (("03/18/2024", "03/19/2024"), "DATE"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_dates_that_are_written_in_two_ways_are_texts(tmp_path, values, kind, packed):
    text = "a,day of it\n" + "".join(f"{number},{value}\n" for number, value in enumerate(values))
    file = tmp_path / ("data.csv.gz" if packed else "data.csv")
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with Database([file], tmp_path) as database:
        (table,) = database.tables
    assert (table.row_count, dict(table.columns)) == (len(values), {"a": "BIGINT", "day of it": kind})
