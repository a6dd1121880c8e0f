import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
from each_row import each_row

from dsa.errors import ToolError
from machines.chat.sql import SqlDatabase, compiles, for_spreadsheets, normal_sql, sql_database
from machines.chat.sql.query import duckdb_extension

CARS = """name,origin,cylinders,mpg,made
ford torino,USA,8,17.0,1970-01-01
"vw, beetle",Europe,4,26.5,1971-01-01
datsun,Japan,4,,1972-01-01
=HYPERLINK(1),USA,6,18.0,1972-01-01
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "cars.csv").write_text(CARS, "utf-8")
    with SqlDatabase([folder / "cars.csv"], folder / "kept") as opened:
        yield opened


def refused(database, sql, **options):
    with pytest.raises(ToolError) as error:
        database.query(sql, **options)
    return error.value.code, str(error.value)


def cell(database, expression):
    return database.query(f"SELECT {expression} AS x").preview[0][0]


def csv_of(database, expression):
    return database.query(f"SELECT {expression} AS x").csv.decode()


def test_query_gives_columns_types_rows_and_row_count(database):
    result = database.query(
        "SELECT origin, count(*) AS n, avg(mpg) AS mpg FROM cars GROUP BY ALL ORDER BY n DESC, origin", limit=2
    )
    assert result.columns == ("origin", "n", "mpg")
    assert result.types == ("VARCHAR", "BIGINT", "DOUBLE")
    assert result.preview == (("USA", 2, 17.5), ("Europe", 1, 26.5))
    assert (result.row_count, result.csv_rows) == (3, 3)
    assert result.csv == b"origin,n,mpg\nUSA,2,17.5\nEurope,1,26.5\nJapan,1,\n"


@each_row(
    ("sql", "rows"),
    [
        ("VALUES (1), (2)", 2),
        ("FROM cars", 4),
        ("TABLE cars", 4),
        ("WITH usa AS (FROM cars WHERE origin = 'USA') SELECT * FROM usa", 2),
        ("SUMMARIZE cars", 5),
        ("DESCRIBE cars", 5),
        ("SHOW TABLES", 1),
        ("EXPLAIN SELECT 1", 1),
        ("EXPLAIN (FORMAT json) SELECT 1", 1),
        ("PIVOT cars ON origin IN ('USA', 'Japan') USING count(*) GROUP BY cylinders", 3),
        ("SELECT table_name FROM information_schema.tables", 1),
        ("SELECT table_name FROM duckdb_tables()", 1),
        ("SELECT 1 -- the end", 1),
        (" ;; SELECT ';' /* ; */ ; -- ;\n ;", 1),
        ("SELECT unnest(range(7))", 7),
    ],
)
def test_all_kinds_of_queries_run(database, sql, rows):
    assert database.query(sql).row_count == rows


def test_query_result_is_not_listed_as_a_table(database):
    for sql in (
        "SHOW TABLES",
        "SELECT table_name FROM information_schema.tables",
        "SELECT table_name FROM duckdb_tables()",
    ):
        assert database.query(sql).preview == (("cars",),)
    assert refused(database, "FROM result_of_the_query")[0] == "sql_error"


@each_row(
    ("expression", "shown"),
    [
        ("12.50::DECIMAL(9, 2)", 12.5),
        ("1234567890123456789.123456::DECIMAL(30, 6)", "1234567890123456789.123456"),
        ("9007199254740992", 9007199254740992),
        ("9007199254740993", "9007199254740993"),
        ("0.1::FLOAT", 0.1),
        ("'nan'::DOUBLE", "nan"),
        ("'-inf'::DOUBLE", "-inf"),
        ("DATE '2024-02-29'", "2024-02-29"),
        ("'infinity'::DATE", "infinity"),
        ("TIMESTAMP '2024-02-29 10:00:00.5'", "2024-02-29T10:00:00.5"),
        ("TIMESTAMPTZ '2024-02-29 10:00:00+02'", "2024-02-29T08:00:00+00"),
        ("TIME '10:00'", "10:00:00"),
        ("INTERVAL '14 months'", "1 year 2 months"),
        ("'\\xAA\\x00'::BLOB", "0xAA00"),
        ("[1.5, NULL]", [1.5, None]),
        ("['nan'::DOUBLE]", ["nan"]),
        ("{'a': DATE '2024-01-01', 'b': [1]}", {"a": "2024-01-01", "b": [1]}),
        ("MAP {'k': 9007199254740993}", {"k": "9007199254740993"}),
        ("'{\"a\": [1.5]}'::JSON", {"a": [1.5]}),
        ("true", True),
        ("NULL", None),
        ("''", ""),
        ("'\N{SNOWMAN}'", "\N{SNOWMAN}"),
    ],
)
def test_cells_become_json_without_loss(database, expression, shown):
    found = cell(database, expression)
    assert (found, type(found)) == (shown, type(shown))


@each_row(
    ("expression", "line"),
    [
        ("12.50::DECIMAL(9, 2)", "12.50"),
        ("0.1::DOUBLE + 0.2::DOUBLE", "0.30000000000000004"),
        ("1e300::DOUBLE", "1e+300"),
        ("9007199254740993", "9007199254740993"),
        ("NULL", ""),
        ("''", '""'),
        ("'a,b'", '"a,b"'),
        ("'say \"x\"'", '"say ""x"""'),
        ("'two' || chr(10) || 'lines'", '"two\nlines"'),
        ("' x'", '" x"'),
        ("true", "true"),
        ("'=1+1'", "=1+1"),
        ("'@handle'", "@handle"),
        ("'-5'", "-5"),
        ("'+3,5%'", '"+3,5%"'),
        ("-5", "-5"),
    ],
)
def test_cells_become_csv(database, expression, line):
    assert csv_of(database, expression) == f"x\n{line}\n"


def test_csv_is_identical_each_time_and_in_another_process(database):
    sql = "SELECT *, mpg / 3 AS third, {'a': [mpg]} AS nested FROM cars"
    first = database.query(sql).csv
    database.close()
    assert database.query(sql).csv == first


@each_row(
    ("expression", "line"),
    [
        ("'=1+1'", "'=1+1"),
        ("'@SUM(A1)'", "'@SUM(A1)"),
        ("'+cmd'", "'+cmd"),
        ("chr(9) || '=1'", '"\t\'=1"'),
        ("chr(9) || 'x'", '"\tx"'),
        ("chr(13) || '=1'", '"\'\r=1"'),
        ("chr(10) || '=1'", '"\'\n=1"'),
        ("'\uff1d1+1'", "'\uff1d1+1"),
        ("'x;=cmd()'", "x;'=cmd()"),
        ("'x;=cmd(),1'", '"x;\'=cmd(),1"'),
        ("'x;\"=cmd\"'", '"x;""=cmd"""'),
        ("'-1;-2'", "-1;-2"),
        ("'-1+cmd|x'", "'-1+cmd|x"),
        ("'-5 kg'", "'-5 kg"),
        ("'a-b;c=d'", "a-b;c=d"),
        ("DATE '2024-01-02'", "2024-01-02"),
        ("-0.5e-7", "-5e-08"),
        ("'-inf'::DOUBLE", "'-inf"),
        ("'=1,\"2\"'", '"\'=1,""2"""'),
        ("'-5'", "-5"),
        ("'+3,5%'", '"+3,5%"'),
        ("-5", "-5"),
        ("'a,=b' || chr(10) || '=c'", '"a,=b\n=c"'),
        ("''", '""'),
        ("NULL", ""),
    ],
)
def test_csv_for_spreadsheets_has_no_formula(database, expression, line):
    assert for_spreadsheets(csv_of(database, expression).encode()).decode() == f"x\n{line}\n"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a,b\r\n-5,\r\n=1,-2\r\n", "a,b\r\n-5,\r\n'=1,-2\r\n"),
        ("a;b\n=1;-2\nx;=1\n", "a;b\n'=1;-2\nx;'=1\n"),
        ("a\tb\tc\n\t\t=1\n-1\t@x\t\n", "a\tb\tc\n\t\t'=1\n-1\t'@x\t\n"),
        ('a\n"x, =y"\n"=y"\n', 'a\n"x, =y"\n"\'=y"\n'),
        ("a,b\n1,2\n", "a,b\n1,2\n"),
    ],
)
def test_csv_of_any_origin_has_no_formula(text, safe):
    assert for_spreadsheets(text.encode()).decode() == safe
    assert for_spreadsheets(safe.encode()).decode() == safe
    assert for_spreadsheets(b"\xff=1") == b"\xff=1"


def test_column_names_are_unique_and_not_formulas(database):
    result = database.query('SELECT 1 AS a, 2 AS A, 3 AS "=x", 4 AS a_1')
    assert result.columns == ("a", "A_1", "=x", "a_1_1")
    assert for_spreadsheets(result.csv).decode().splitlines()[0] == "a,A_1,'=x,a_1_1"


def test_long_result_is_counted_in_full_and_stored_in_part(database):
    result = database.query("FROM range(25_000)", limit=5, keep=1_000)
    assert (result.row_count, result.csv_rows, len(result.preview)) == (25_000, 1_000, 5)
    assert result.csv.count(b"\n") == 1_001
    assert database.query("FROM range(10)", limit=0, keep=3).csv_rows == 3


def test_preview_stays_small_and_marks_cut_cells(database):
    result = database.query("SELECT repeat('x', 5000) AS a, repeat('y', 50) AS b FROM range(100)")
    assert len(json.dumps(result.preview)) <= 20_100
    assert result.preview[0][0].endswith("\N{HORIZONTAL ELLIPSIS}")
    assert (result.row_count, result.csv_rows, len(result.preview)) == (100, 100, 100)
    wide = database.query("SELECT " + ", ".join(f"repeat('x', 900) AS c{n}" for n in range(300)) + " FROM range(100)")
    assert 1 <= len(wide.preview) < 100
    assert len(json.dumps(wide.preview)) <= 20_100


def test_csv_and_its_cells_stay_below_their_limits(database):
    result = database.query("SELECT repeat('x', 50000) AS a FROM range(1000)")
    assert len(result.csv) <= 8_000_000
    assert (result.row_count, result.csv_rows) == (1_000, 159)
    long = database.query("SELECT repeat('x', 1000000) AS a").csv.decode()
    assert long.endswith("\N{HORIZONTAL ELLIPSIS} (1000000 characters)\n")
    assert len(long) < 100_100


def test_invalid_query_is_reported_with_line_and_suggestion(database):
    code, message = refused(database, "SELECT\n  nme\nFROM cars")
    assert code == "sql_error"
    assert message.splitlines()[-2:] == ["LINE 2:   nme", "          ^^^"]
    assert '"name"' in message
    code, message = refused(database, "FROM car")
    assert code == "sql_error"
    assert 'Did you mean "cars"?' in message
    assert message.endswith("The tables are: cars")
    assert "pg_" not in refused(database, "FROM zzz")[1]
    assert len(refused(database, f"SELECT '{'x' * 5000}'::INT")[1]) < 800


@pytest.mark.parametrize("sql", ["", "  \n", "-- nothing", "/* nothing */ ;"])
def test_empty_query_is_refused(database, sql):
    assert refused(database, sql)[0] == "empty_sql"


def test_interrupt_ends_only_the_running_query(database):
    database.interrupt()
    assert cell(database, "1") == 1
    said = []
    thread = threading.Thread(
        target=lambda: said.append(refused(database, "SELECT count(*) FROM range(1000000000000)"))
    )
    thread.start()
    while thread.is_alive():
        database.interrupt()
        thread.join(0.01)
    assert said == [("sql_interrupted", "the query was interrupted")]
    assert cell(database, "2") == 2


def test_queries_run_side_by_side_and_one_can_be_interrupted(database):
    endless = "SELECT count(*) FROM range(1000000000000)"
    said = {}
    threads = [
        threading.Thread(target=lambda owner=owner: said.update({owner: refused(database, endless, owner=owner)}))
        for owner in ("one", "other")
    ]
    for thread in threads:
        thread.start()
    assert cell(database, "1") == 1
    while threads[0].is_alive():
        database.interrupt("one")
        threads[0].join(0.01)
    assert list(said) == ["one"]
    while threads[1].is_alive():
        database.close()
        threads[1].join(0.01)
    assert said["other"] == ("sql_interrupted", "the query was interrupted")


def test_process_that_ended_between_two_queries_is_restarted(database):
    assert cell(database, "1") == 1
    database._idle[0].end("sql_timeout", "too late: the answer was there already")  # noqa: SLF001  # a clock can do this
    assert cell(database, "2") == 2


def test_queries_from_several_threads_get_their_own_results(database):
    found = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: cell(database, str(n))})) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(20)}


def test_database_without_sources_has_no_tables(tmp_path):
    with SqlDatabase([], tmp_path) as empty:
        assert empty.tables == ()
        assert cell(empty, "1 + 1") == 2
        assert refused(empty, "FROM cars")[1].endswith("no data is loaded")


def test_closed_database_leaves_no_process_and_can_be_queried_again(database):
    assert cell(database, "1") == 1
    process = database._idle[0]._process  # noqa: SLF001  # what is tested is that it is gone
    database.close()
    assert process.returncode is not None
    assert cell(database, "3") == 3


def test_idle_process_ends_and_the_next_query_starts_another(tmp_path, monkeypatch):
    """An idle conversation does not hold a process forever; an active one keeps its process."""
    monkeypatch.setattr(sql_database, "IDLE_S", 0.4)
    with SqlDatabase([], tmp_path) as empty:
        for _ in range(4):
            time.sleep(0.15)
            assert cell(empty, "1 + 1") == 2
        process = empty._idle[0]._process  # noqa: SLF001  # what is tested is that it ends
        assert process.poll() is None
        process.wait(5)
        assert empty._idle == []  # noqa: SLF001
        assert cell(empty, "2 + 2") == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t", "select  A\nfrom T ;"),
        ("select a from t", "select a -- what\nfrom /* a /* nested */ comment */ t;;"),
        ("select a,b", "SELECT a , b"),
        ("select count(*)", "SELECT COUNT (*)"),
    ],
)
def test_equal_sql_has_one_normal_form(one, other):
    assert normal_sql(one) == normal_sql(other)


@each_row(
    ("one", "other"),
    [
        ("select 'A'", "select 'a'"),
        ("select 'a  b'", "select 'a b'"),
        ("select '-- x'", "select '-- y'"),
        ('select "A"', 'select "a"'),
        ("select \u00c9 from t", "select \u00e9 from t"),
        ("select 1", "select 11"),
        ("select 1 1", "select 11"),
        ("select $$A$$", "select $$a$$"),
        ("select a b", "select ab"),
        ("select 'it''s'", "select 'its'"),
    ],
)
def test_different_sql_has_different_normal_forms(one, other):
    assert normal_sql(one) != normal_sql(other)


@each_row(
    "sql", ["", "select 'open", 'select "open', "select /* open", "\0", "\ud800", "x" * 200_000, "\N{SNOWMAN} select"]
)
def test_normal_form_of_any_text_is_stable(sql):
    assert normal_sql(normal_sql(sql)) == normal_sql(sql)


def test_compiles_returns_the_parser_error_in_one_line(database):
    assert compiles("SELECT nothing FROM nowhere", database) is None
    assert compiles("SELECT FROM WHERE", database).startswith("Parser Error: syntax error at or near")
    assert "\n" not in compiles("SELEC\n1", database)
    assert compiles("", database).startswith("there is no SQL")
    assert "characters" in compiles("SELECT '" + "x" * 200_000 + "'", database)


def test_query_process_imports_no_module_from_the_data_folder(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('taken')", "utf-8")
    with SqlDatabase([], tmp_path) as opened:
        assert cell(opened, "1") == 1


def test_fault_of_the_query_process_is_reported_in_full(tmp_path):
    with SqlDatabase([], tmp_path) as opened:
        opened.close()
        next(Path(tmp_path).glob("data-*.duckdb")).write_bytes(b"no database")
        with pytest.raises(RuntimeError, match=r"not a valid DuckDB database"):
            opened.query("SELECT 1")


def test_query_process_imports_the_duckdb_extension_and_no_file_readers(tmp_path):
    duckdb.connect(tmp_path / "data.duckdb").close()
    asked = (
        "import sys; from machines.chat.sql import query_process as p; p.connect('data.duckdb'); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert {"_duckdb", "machines.chat.sql.query_process"} <= modules
    assert {"duckdb", "machines.chat.sql.file_formats", "machines.chat.sql.sql_database"} & modules == set()


def test_duckdb_package_is_used_where_its_extension_is_missing(monkeypatch):
    assert duckdb_extension().connect is duckdb.connect
    monkeypatch.setitem(sys.modules, "_duckdb", None)
    assert duckdb_extension() is duckdb
