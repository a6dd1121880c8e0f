import gzip
import sqlite3
import subprocess
import sys

import duckdb
import pytest

from dsa.errors import DocumentError
from machines.chat.sql import SqlDatabase, TableInfo, data_files
from machines.chat.sql.data_files import identifier, unique


def rows(database, sql):
    return database.query(sql).preview


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def opened(tmp_path):
    """Open databases that are closed at the end; one folder keeps the copies."""
    kept = []

    def opens(*sources):
        kept.append(SqlDatabase(sources, tmp_path / "kept"))
        return kept[-1]

    yield opens
    for database in kept:
        database.close()


def written(path, text):
    path.write_text(text, "utf-8")
    return path


def in_duckdb(path, *statements):
    with duckdb.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def in_sqlite(path, script):
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


TEXTS = {
    "commas.csv": "a,b\n1,2024-01-01\n2,2024-01-02\n",
    "semicolons.csv": "a;b\n1;2024-01-01\n2;2024-01-02\n",
    "tabs.tsv": "a\tb\n1\t2024-01-01\n2\t2024-01-02\n",
    "list.json": '[{"a": 1, "b": "2024-01-01"}, {"a": 2, "b": "2024-01-02"}]',
    "lines.json": '{"a": 1, "b": "2024-01-01"}\n{"a": 2, "b": "2024-01-02"}\n',
    "more_lines.ndjson": '{"a": 1, "b": "2024-01-01"}\n{"a": 2, "b": "2024-01-02"}\n',
    "CAPITALS.JSONL": '{"a": 1, "b": "2024-01-01"}\n{"a": 2, "b": "2024-01-02"}\n',
}


def test_text_files_become_typed_tables(folder, opened):
    for name, text in TEXTS.items():
        written(folder / name, text)
        (folder / f"packed_{name}.gz").write_bytes(gzip.compress(text.encode()))
    names = [*TEXTS, *(f"packed_{name}.gz" for name in TEXTS)]
    database = opened(*(folder / name for name in names))
    columns = (("a", "BIGINT"), ("b", "DATE"))
    assert list(database.tables) == [TableInfo(name.partition(".")[0].lower(), columns, 2, name) for name in names]
    found = {table.source: rows(database, f"FROM {table.name}") for table in database.tables}
    assert found == dict.fromkeys(names, ((1, "2024-01-01"), (2, "2024-01-02")))


def test_column_type_fits_all_values_not_only_the_first(folder, opened):
    path = written(folder / "late.csv", "a\n" + "1\n" * 60_000 + "x\n")
    assert opened(path).tables[0].columns == (("a", "VARCHAR"),)


def test_parquet_becomes_a_table(folder, opened):
    path = folder / "x.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS a, [1, 2] AS b) TO '{path}'")
    assert opened(path).tables == (TableInfo("x", (("a", "INTEGER"), ("b", "INTEGER[]")), 1, "x.parquet"),)


def test_all_tables_and_views_of_a_duckdb_file_are_loaded(folder, opened):
    path = in_duckdb(
        folder / "shop.duckdb",
        "CREATE TABLE sold AS SELECT 1 AS a",
        "CREATE SCHEMA old",
        "CREATE TABLE old.sold AS SELECT 2 AS a",
        "CREATE VIEW twice AS SELECT a * 2 AS a FROM sold",
    )
    database = opened(path)
    assert [table.name for table in database.tables] == ["sold", "old_sold", "twice"]
    assert rows(database, "SELECT * FROM sold, old_sold, twice") == ((1, 2, 2),)


def test_view_that_reads_another_file_is_not_loaded(folder, opened):
    secret = written(folder / "secret.txt", "hidden")
    path = in_duckdb(folder / "x.duckdb", f"CREATE VIEW v AS SELECT * FROM read_text('{secret}')")
    with pytest.raises(DocumentError, match=r"x\.duckdb: .*file system operations are disabled"):
        opened(path)


SQLITE = """
CREATE TABLE People (id INTEGER PRIMARY KEY, "full name" TEXT, born DATETIME, died DATE, said DATE, weight REAL, photo BLOB, isAdmin BOOLEAN, mixed);
INSERT INTO People VALUES (1, 'x, "y"' || char(10) || 'z', '2009-01-01 00:00:00', '2010-02-03', 'soon', 1.5, x'00FF', 1, 1), (2, NULL, NULL, NULL, NULL, 0.1, NULL, 0, 'one');
CREATE TABLE empty (a INT, b TEXT);
CREATE VIEW heavy AS SELECT count(*) AS n FROM People WHERE weight > 1;
"""


def test_sqlite_tables_are_loaded_with_the_types_of_their_values(folder, opened):
    database = opened(in_sqlite(folder / "shop.db", SQLITE))
    people = next(table for table in database.tables if table.name == "people")
    assert dict(people.columns) == {
        "id": "BIGINT", "full name": "VARCHAR", "born": "TIMESTAMP", "died": "DATE", "said": "VARCHAR", "weight": "DOUBLE",
        "photo": "BLOB", "isAdmin": "BOOLEAN", "mixed": "VARCHAR",
    }  # fmt: skip
    assert {table.name: table.row_count for table in database.tables} == {"people": 2, "empty": 0, "heavy": 1}
    assert rows(database, "FROM people ORDER BY id") == (
        (1, 'x, "y"\nz', "2009-01-01T00:00:00", "2010-02-03", "soon", 1.5, "0x00FF", True, "1"),
        (2, None, None, None, None, 0.1, None, False, "one"),
    )


def test_sqlite_file_has_one_of_three_endings(folder, opened):
    names = ["a.db", "b.sqlite", "c.sqlite3"]
    database = opened(*(in_sqlite(folder / name, "CREATE TABLE one AS SELECT 1 AS x") for name in names))
    assert [(table.source, table.row_count) for table in database.tables] == [(name, 1) for name in names]


def test_folder_gives_its_data_files_and_leaves_out_the_rest(folder, opened):
    written(folder / "b.csv", "a\n1\n")
    written(folder / "a.json", '{"a": 1}')
    written(folder / ".hidden.csv", "a\n1\n")
    written(folder / "notes.txt", "a\n1\n")
    assert [table.name for table in opened(folder).tables] == ["a", "b"]


TABLE_NAMES = {
    "2024 sales.csv": "t_2024_sales",
    "order.csv": "order_data",
    "Große Städte.csv": "große_städte",
    "a[1]*?'\";--.csv": "a_1",
    "s3:bucket{x}.csv": "s3_bucket_x",
    "%20.csv": "t_20",
    "---.csv": "data",
    "my.sales.2024.csv.gz.csv": "my_sales_2024_csv_gz",
}


def test_table_names_need_no_quotes(folder, opened):
    database = opened(*(written(folder / name, f"a\n{at}\n") for at, name in enumerate(TABLE_NAMES)))
    assert {table.source: table.name for table in database.tables} == TABLE_NAMES
    found = {name: rows(database, f"SELECT a FROM {name}") for name in TABLE_NAMES.values()}
    assert found == {name: ((at,),) for at, name in enumerate(TABLE_NAMES.values())}


def test_clashing_table_names_are_made_unique(folder, opened, tmp_path):
    (tmp_path / "other").mkdir()
    sources = [
        written(folder / "a.csv", "x\n1\n"),
        written(tmp_path / "other" / "A.csv", "x\n2\n"),
        written(folder / "a.json", '{"x": 3}'),
    ]
    sources.append(in_duckdb(folder / "shop.duckdb", "CREATE TABLE a AS SELECT 4 AS x"))
    database = opened(*sources)
    assert [table.name for table in database.tables] == ["a", "a_2", "a_3", "shop_a"]
    assert rows(database, "SELECT a.x, a_2.x, a_3.x, shop_a.x FROM a, a_2, a_3, shop_a") == ((1, 2, 3, 4),)


def test_each_duckdb_keyword_can_name_a_file():
    with duckdb.connect() as connection:
        for (word,) in connection.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall():
            name = identifier(word)
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT 1 AS a")
            assert connection.execute(f"SELECT {name}.a FROM {name}").fetchall() == [(1,)]
    assert unique("a", {"a", "a_2"}) == "a_3"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.parquet", b"PAR1 no", "x.parquet: "),
        ("x.json", b"{no json", "x.json: "),
        ("x.csv", b"\xff\xfe\x00a,b\xff\n\xff,1\n", "x.csv: "),
        ("x.sqlite", b"SQLite format 3\0 and then nothing", "x.sqlite: "),
        ("x.duckdb", b"nothing", "x.duckdb: "),
        ("x.xlsx", b"PK", "x.xlsx: is of an unknown kind; use one of .csv, "),
        ("x", b"a\n1\n", "x: is of an unknown kind"),
        ("x.csv", b"", "x.csv: "),
    ],
)
def test_unreadable_file_is_named_with_the_reason_and_leaves_nothing(folder, opened, tmp_path, name, content, reason):
    (folder / name).write_bytes(content)
    with pytest.raises(DocumentError) as error:
        opened(folder / name)
    assert str(error.value).startswith(reason)
    assert "source." not in str(error.value)
    assert not (tmp_path / "kept").exists()


def test_file_name_with_line_breaks_is_reported_on_one_line(folder, opened):
    with pytest.raises(DocumentError) as raised:
        opened(written(folder / "a\nb.csv", ""))
    assert str(raised.value) == "a\\nb.csv: is empty"


def test_missing_source_and_folder_without_data_are_refused(folder, opened):
    with pytest.raises(DocumentError, match="does not exist"):
        opened(folder / "gone.csv")
    with pytest.raises(DocumentError, match="is a folder without data files"):
        opened(folder)


def test_copy_stays_for_the_conversation_and_lists_changed_sources(folder, opened):
    path = written(folder / "x.csv", "a\n1\n")
    first = opened(path)
    assert first.changed_sources == ()
    written(path, "a\n1\n")  # the same bytes at another time
    assert opened(path).changed_sources == ()
    written(path, "a\n2\n")
    again = opened(path)
    assert (again.fingerprint, again.tables, again.changed_sources) == (first.fingerprint, first.tables, (str(path),))
    assert rows(again, "FROM x") == ((1,),)
    path.unlink()
    assert rows(opened(path), "FROM x") == ((1,),)
    assert opened().changed_sources == (str(path),)


def test_other_sources_replace_the_copy(folder, opened):
    one, other = written(folder / "x.csv", "a\n1\n"), written(folder / "y.csv", "a\n2\n")
    assert opened(one).fingerprint != opened(one, other).fingerprint
    assert [table.name for table in opened().tables] == ["x", "y"]


def test_lost_copy_is_rebuilt_with_the_same_fingerprint(folder, opened, tmp_path):
    path = written(folder / "x.csv", "a\n1\n")
    first = opened(path)
    first.close()
    for copy in (tmp_path / "kept").glob("*.duckdb"):
        copy.unlink()
    again = opened(path)
    assert again.fingerprint == first.fingerprint
    assert rows(again, "FROM x") == ((1,),)


def test_folder_holds_only_the_copy_and_its_record(folder, opened, tmp_path):
    opened(written(folder / "x.csv", "a\n1\n"), in_sqlite(folder / "s.db", SQLITE))
    assert sorted(path.name[:5] for path in (tmp_path / "kept").iterdir()) == ["data-", "data."]


def test_missing_duckdb_is_reported_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("machines.chat.sql.data_files.find_spec", lambda _name: None)
    with pytest.raises(
        DocumentError,
        match=r"DuckDB: the package is needed to read the data, and is not installed; run: pip install '\.\[chat\]'",
    ):
        SqlDatabase([], tmp_path)


@pytest.mark.parametrize("module", ["query_process", "data_files"])
def test_process_that_reads_data_imports_few_modules(module):
    """The process starts with every conversation, while the user waits."""
    code = f"import sys, machines.chat.sql.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith(("dsa.", "machines.")) and "chat" not in name}
    assert ours == {"dsa.errors", "dsa.text"}


# -- limits -----------------------------------------------------------------------------------------------------------

OK = "CREATE TABLE ok AS SELECT 1 AS a"
ENDLESS = "CREATE VIEW boom AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT {} FROM c"
CROSSED = "CREATE VIEW boom AS SELECT uuid() AS x FROM range(100000) a, range(100000) b"
FINITE = "CREATE VIEW boom AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 200000) SELECT hex(randomblob(1000)) AS y FROM c"


@pytest.fixture
def holding(request, folder):
    """Write a data file that holds a table and a view."""

    def holds(view):
        if request.param == "sqlite":
            return in_sqlite(folder / "x.db", f"{OK}; {view};")
        return in_duckdb(folder / "x.duckdb", OK, view)

    return holds


@pytest.mark.parametrize(
    ("holding", "columns"),
    [
        pytest.param("sqlite", "x", id="sqlite-rows"),
        pytest.param("sqlite", "max(x) AS x", id="sqlite-one row", marks=pytest.mark.full),
        pytest.param("duckdb", "x", id="duckdb-rows", marks=pytest.mark.full),
        pytest.param("duckdb", "max(x) AS x", id="duckdb-one row"),
    ],
    indirect=["holding"],
)
def test_endless_view_is_stopped_at_the_time_limit(holding, opened, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("DSA_LOAD_S", "1.5")
    path = holding(ENDLESS.format(columns))
    told = f"{path.name} view boom: takes longer to load than the limit of 1.5 s. Nothing was loaded: leave the file out, or set DSA_LOAD_S to more seconds"
    with pytest.raises(DocumentError, match=f"^{told}$"):
        opened(path)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(("name", "view"), [("x.duckdb", CROSSED), ("x.db", FINITE)])
def test_huge_view_is_stopped_at_the_disk_limit(folder, opened, tmp_path, monkeypatch, name, view):
    monkeypatch.setenv("DSA_LOAD_GB", "0.05")
    monkeypatch.setenv("DSA_LOAD_S", "60")
    path = in_duckdb(folder / name, OK, view) if name == "x.duckdb" else in_sqlite(folder / name, f"{OK}; {view};")
    told = rf"{name} view boom: takes more disk space to load than the limit of 0\.05 GB\. .* or set DSA_LOAD_GB to more gigabytes"
    with pytest.raises(DocumentError, match=f"^{told}$"):
        opened(path)
    assert not (tmp_path / "kept").exists()


#: Starts the process that loads data with a lower memory limit: filling 2 GB takes seconds.
LESS_MEMORY = (
    "from machines.chat.sql import data_files; data_files._ADDRESSES_BYTES = 1_300_000_000; data_files.serve()"
)


@pytest.fixture
def less_memory(monkeypatch):
    """Load data with less memory than the real limit."""
    monkeypatch.setattr(data_files, "_BUILD", LESS_MEMORY)


def test_duckdb_view_that_needs_too_much_memory_is_reported(folder, opened, tmp_path):
    view = "CREATE VIEW boom AS SELECT list(x) AS y FROM range(3000000000) AS r(x)"
    assert_needs_memory(opened, in_duckdb(folder / "x.duckdb", OK, view), tmp_path)


@pytest.mark.usefixtures("less_memory")
def test_sqlite_view_that_needs_too_much_memory_is_reported(folder, opened, tmp_path):
    view = "CREATE VIEW boom AS SELECT zeroblob(250000000) AS z"
    assert_needs_memory(opened, in_sqlite(folder / "x.db", f"{OK}; {view};"), tmp_path)


@pytest.mark.usefixtures("less_memory")
def test_small_data_loads_with_less_memory(opened, folder):
    assert [table.row_count for table in opened(in_sqlite(folder / "x.db", f"{OK};")).tables] == [1]


@pytest.mark.full
def test_sqlite_view_that_fills_the_memory_is_reported(folder, opened, tmp_path):
    view = (
        "CREATE VIEW boom AS SELECT group_concat(y) AS z FROM (SELECT hex(zeroblob(400000000)) AS y UNION ALL SELECT 1)"
    )
    assert_needs_memory(opened, in_sqlite(folder / "x.db", f"{OK}; {view};"), tmp_path)


def assert_needs_memory(opened, path, tmp_path):
    with pytest.raises(
        DocumentError, match=f"^{path.name} view boom: needs more memory to load than the limit of 2 GB"
    ):
        opened(path)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("said", ["0", "-1", "nan", "inf", "soon"])
@pytest.mark.parametrize("name", ["DSA_LOAD_S", "DSA_LOAD_GB"])
def test_limit_must_be_a_number_above_0(folder, opened, monkeypatch, name, said):
    monkeypatch.setenv(name, said)
    with pytest.raises(DocumentError, match=f"{name}: '{said}' is not a number above 0; the default is "):
        opened(written(folder / "x.csv", "a\n1\n"))


def test_remains_of_a_killed_process_are_removed(folder, opened, tmp_path):
    work = tmp_path / "kept" / ".data-left"
    work.mkdir(parents=True)
    (work / "data.duckdb").write_bytes(b"half")
    opened(written(folder / "x.csv", "a\n1\n"))
    assert not work.exists()


def test_view_error_is_reported_in_the_words_of_sqlite(folder, opened):
    with pytest.raises(DocumentError, match=r"^x\.db: no such function: nowhere$"):
        opened(in_sqlite(folder / "x.db", f"{OK}; CREATE VIEW boom AS SELECT nowhere(1) AS x;"))
