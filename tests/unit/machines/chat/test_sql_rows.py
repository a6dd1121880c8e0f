"""Text files of rows: read whole, or refused with the line that does not fit."""

import gzip
import sqlite3
from contextlib import closing, contextmanager

import pytest
from each_row import each_row

from dsa.errors import DocumentError
from machines.chat.sql import SqlDatabase

DAYS = "".join(f"2025-0{number % 9 + 1}-01,north,{number}.5\n" for number in range(200))
HEAD = "month,region,revenue\n"
LOST = {
    "extra cell in the last line": (HEAD + DAYS + "2025-01-01,north,12.5,note\n", "line 202 has 4 cells, line 1 has 3 cells"),
    "extra column from the middle on": (HEAD + DAYS + DAYS.replace("\n", ",x\n"), "line 202 has 4 cells"),
    "short lines first": (HEAD + "2025-01-01,north\n" * 5 + DAYS, "line 2 has 2 cells"),
    "each line of another length": ("x,y\n1,2\n3\n4,5,6\n", "line 3 has 1 cell, line 1 has 2 cells"),
    "a header that is too short": ("a,b\n1,2,3,4\n5,6,7,8\n", "line 2 has 4 cells, line 1 has 2 cells"),
    "total line with fewer cells": ("month,region,units,revenue\n" + "2025-01-01,north,3,4.5\n" * 5 + "Total,,50000\n", "line 7 has 3 cells"),
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
    "with a byte order mark": ("\ufeffa,b\n1,2\n", 1, ["a", "b"]),
}


@each_row(("name", "packed"), [*((name, False) for name in LOST), ("short lines first", True)])
def test_file_with_lines_of_unequal_length_is_refused(tmp_path, name, packed):
    text, says = LOST[name]
    file = tmp_path / ("data.csv.gz" if packed else "data.csv")
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(DocumentError, match=says):
        SqlDatabase([file], tmp_path)


@contextmanager
def loaded(folder, texts):
    """Load a text file for each text, all at once, and one packed for each text given as bytes. Yield the database, and the tables in the order of the texts."""
    files = []
    for number, text in enumerate(texts):
        packed = isinstance(text, bytes)
        files.append(folder / (f"t{number}.csv.gz" if packed else f"t{number}.csv"))
        files[-1].write_bytes(gzip.compress(text) if packed else text.encode())
    with SqlDatabase(files, folder) as database:
        assert [table.name for table in database.tables] == [f"t{number}" for number in range(len(files))]
        yield database, database.tables


def test_file_with_lines_of_equal_length_is_loaded(tmp_path):
    with loaded(tmp_path, [text for text, _, _ in WHOLE.values()]) as (_, tables):
        found = [(table.row_count, [column for column, _ in table.columns]) for table in tables]
    assert dict(zip(WHOLE, found, strict=True)) == {name: (rows, columns) for name, (_, rows, columns) in WHOLE.items()}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\nä,1\n".encode("latin1"), "is not UTF-8 in line 2; if it is Latin-1, run iconv -f latin1"),
        ("a,b\nx,1\n".encode("utf-16"), "is UTF-16"),
        (b"\x00\x01\x02" * 100, "is not a text file"),
    ],
)
def test_other_encodings_are_named_with_what_to_do(tmp_path, content, says):
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(DocumentError, match=says):
        SqlDatabase([tmp_path / "data.csv"], tmp_path)


DATES_IN_TWO_WAYS = {
    ("2024-03-08", "2024-03-09", "03/10/2024"): "VARCHAR",
    ("2024-03-18", "03/19/2024"): "VARCHAR",
    ("2024-03-18", "2024-03-19", "19.03.2024"): "VARCHAR",
    ("2024-03-08 10:00:00", "03/10/2024 11:00:00"): "VARCHAR",
    ("2024-03-08", "2024-03-09"): "DATE",
    ("03/18/2024", "03/19/2024"): "DATE",
}


def numbered(column, rows):
    return f"a,{column}\n" + "".join(f"{number},{value}\n" for number, value in enumerate(rows))


@pytest.mark.parametrize("packed", [False, True])
def test_dates_in_two_formats_stay_text(tmp_path, packed):
    texts = [numbered("day of it", rows) for rows in DATES_IN_TWO_WAYS]
    with loaded(tmp_path, [text.encode() for text in texts] if packed else texts) as (_, tables):
        found = [(table.row_count, dict(table.columns)) for table in tables]
    wanted = [(len(rows), {"a": "BIGINT", "day of it": kind}) for rows, kind in DATES_IN_TWO_WAYS.items()]
    assert dict(zip(DATES_IN_TWO_WAYS, found, strict=True)) == dict(zip(DATES_IN_TWO_WAYS, wanted, strict=True))


DAYS_OR_MONTHS = {
    ("03/04/2024", "05/06/2024"): "VARCHAR",
    ("4.3.2024", "5.6.2024", "7.7.2024"): "VARCHAR",
    ("03-04-24", "05-06-24"): "VARCHAR",
    ("24-03-04", "24-05-06"): "VARCHAR",
    ("03/04/2024", "13/04/2024"): "DATE",
    ("03/03/2024", "05/05/2024"): "DATE",
    ("2024/03/04", "2024/05/06"): "DATE",
    ("2024-03-04 10:00:00", "2024-05-06 10:00:00"): "TIMESTAMP",
}


def test_dates_with_an_ambiguous_month_stay_text(tmp_path):
    with loaded(tmp_path, [numbered("on", rows) + "9,\n" for rows in DAYS_OR_MONTHS]) as (database, tables):
        kinds = [dict(table.columns)["on"] for table in tables]
        found = [database.query(f'SELECT "on" FROM {table.name} ORDER BY a').preview for table in tables]
    assert dict(zip(DAYS_OR_MONTHS, kinds, strict=True)) == DAYS_OR_MONTHS
    texts = [
        (rows, preview)
        for rows, preview in zip(DAYS_OR_MONTHS, found, strict=True)
        if DAYS_OR_MONTHS[rows] == "VARCHAR"
    ]
    assert dict(texts) == {rows: (*((value,) for value in rows), (None,)) for rows, _ in texts}


NUMBERS = [
    (("0.1", "1234567890123456.78"), "DECIMAL(18,2)", (0.1, "1234567890123456.78")),
    (("-.5", "12345678901234567890.12"), "DECIMAL(22,2)", (-0.5, "12345678901234567890.12")),
    (("1" + "2" * 45, "0.5"), "VARCHAR", ("1" + "2" * 45, "0.5")),
    (("0.12345678901234567890", "1e5"), "VARCHAR", ("0.12345678901234567890", "1e5")),
    (("1.10", "1e300"), "DOUBLE", (1.1, 1e300)),
    (("0.30000000000000004", "0.6666666666666666"), "DOUBLE", (0.1 + 0.2, 2 / 3)),
    ((f"{0.1:.18e}", f"{1 / 3:.20f}"), "DOUBLE", (0.1, 1 / 3)),
    (("12345678901234567890", "1"), "HUGEINT", ("12345678901234567890", 1)),
]


def test_numbers_keep_the_digits_of_the_file(tmp_path):
    texts = [
        "a,on,day\n" + "".join(f"{number},{value},2024-01-01\n" for number, value in enumerate(values))
        for values, _, _ in NUMBERS
    ]
    with loaded(tmp_path, texts) as (database, tables):
        found = [
            (dict(table.columns), database.query(f'SELECT "on" FROM {table.name} ORDER BY a').preview)
            for table in tables
        ]
    assert found == [
        ({"a": "BIGINT", "on": kind, "day": "DATE"}, tuple((value,) for value in read)) for _, kind, read in NUMBERS
    ]


WHOLE_NUMBERS = [
    (("12345678901234567890123", "1"), "DECIMAL(23,0)", ("12345678901234567890123", 1)),
    (("1" + "2" * 45, "1"), "VARCHAR", ("1" + "2" * 45, "1")),
    (("0.5", "1e300"), "DOUBLE", (0.5, 1e300)),
]


@pytest.mark.parametrize("ending", ["json", "ndjson"])
def test_whole_numbers_in_json_keep_their_digits(tmp_path, ending):
    for number, (ids, _, _) in enumerate(WHOLE_NUMBERS):
        lines = [f'{{"id": {each}, "to": {{"x": [1, null]}}, "day": "2024-01-0{n}"}}' for n, each in enumerate(ids, 1)]
        (tmp_path / f"t{number}.{ending}").write_text("\n".join(lines))
    files = [tmp_path / f"t{number}.{ending}" for number in range(len(WHOLE_NUMBERS))]
    with SqlDatabase(files, tmp_path) as database:
        found = [
            (dict(table.columns), database.query(f"SELECT id FROM {table.name} ORDER BY day").preview)
            for table in database.tables
        ]
    assert found == [
        ({"id": kind, "to": "STRUCT(x BIGINT[])", "day": "DATE"}, tuple((value,) for value in read))
        for _, kind, read in WHOLE_NUMBERS
    ]


def test_whole_numbers_in_sqlite_keep_their_digits_beside_fractions(tmp_path):
    with closing(sqlite3.connect(tmp_path / "data.sqlite")) as database, database:
        database.execute("CREATE TABLE data (a, b)")
        database.executemany("INSERT INTO data VALUES (?, ?)", [(9007199254740993, 1), (0.5, 1.5), (None, 2)])
    with SqlDatabase([tmp_path / "data.sqlite"], tmp_path) as database:
        (table,) = database.tables
        found = database.query("SELECT a FROM data ORDER BY b").preview
    assert dict(table.columns) == {"a": "DECIMAL(17,1)", "b": "DOUBLE"}
    assert found == (("9007199254740993.0",), (0.5,), (None,))
