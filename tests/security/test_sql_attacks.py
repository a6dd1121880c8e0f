"""SQL that attacks: each statement is refused with a reason, the next plain query works, and no file is written or changed.

The process that runs queries is real; the tests try what a model could write.
"""

import json
import os
from pathlib import Path

import pytest
from each_row import each_row

from dsa.errors import ToolError
from machines.chat.sql import SqlDatabase, compiles, normal_sql

SECRET = "s3cret-in-a-file-beside"
WRITES = [
    "INSERT INTO t VALUES (9)",
    "UPDATE t SET a = 0",
    "DELETE FROM t",
    "TRUNCATE t",
    "DROP TABLE t",
    "ALTER TABLE t ADD COLUMN b INT",
    "MERGE INTO t USING t AS s ON t.a = s.a WHEN MATCHED THEN DELETE",
    "CREATE TABLE x AS SELECT 1",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE OR REPLACE TEMP TABLE result_of_the_query AS SELECT 1",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE VIEW x AS SELECT 1",
    "CREATE TEMP MACRO x() AS 1",
    "CREATE SEQUENCE x",
    "CREATE SCHEMA x",
    "CREATE TYPE x AS ENUM ('a')",
    "CREATE SECRET x (TYPE s3)",
    "CREATE INDEX x ON t (a)",
    "COMMENT ON TABLE t IS 'x'",
    "WITH x AS (INSERT INTO t VALUES (9) RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
    "WITH x AS (UPDATE t SET a = 1 RETURNING *) SELECT * FROM x",
    "EXPLAIN INSERT INTO t VALUES (9)",
    "EXPLAIN ANALYZE INSERT INTO t VALUES (9)",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN ANALYSE SELECT 1",
    "EXPLAIN (ANALYZE) SELECT 1",
    "explain /* x */ (format json, analyze) select 1",
    "EXPLAIN ANALYZE SELECT count(*) FROM range(1000000000000)",
    "COPY t TO '{out}/stolen.csv'",
    "COPY (SELECT 1) TO '{out}/stolen.parquet'",
    "COPY t FROM '/etc/passwd'",
    "COPY FROM DATABASE data TO x",
    "EXPORT DATABASE '{out}/stolen'",
    "IMPORT DATABASE '{out}'",
    "ATTACH '{out}/other.duckdb'",
    "ATTACH ':memory:' AS x",
    "DETACH data",
    "USE temp",
    "INSTALL httpfs",
    "FORCE INSTALL httpfs FROM 'http://127.0.0.1:9/x'",
    "LOAD httpfs",
    "UPDATE EXTENSIONS",
    "SET memory_limit = '100GB'",
    "SET GLOBAL enable_external_access = true",
    "SET VARIABLE x = 1",
    "RESET memory_limit",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL duckdb_settings()",
    "CALL enable_logging()",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "PREPARE x AS SELECT 1",
    "EXECUTE x",
    "DEALLOCATE x",
    "PIVOT t ON a USING count(*)",
    "FROM (PIVOT t ON a USING count(*))",
]
SEVERAL = [
    "SELECT 1; DROP TABLE t",
    "SELECT 1;SELECT 2",
    "SELECT 1 -- ;\n; SELECT 2",
    "SELECT ';' /* ; */; DELETE FROM t --",
    "EXPLAIN SELECT 1; DROP TABLE t",
    "SELECT 1;\n\n;;SET threads = 4",
    "PREPARE x AS SELECT 1; EXECUTE x",
]
READS = [
    "FROM read_csv('/etc/passwd')",
    "SELECT content FROM read_text('/etc/passwd')",
    "SELECT * FROM READ_TEXT('{beside}')",
    "SELECT * FROM \"read_text\"('{beside}')",
    "SELECT * FROM main.read_text('{beside}')",
    "SELECT * FROM system.main.read_text('{beside}')",
    "SELECT (SELECT content FROM read_blob('{beside}'))",
    "SELECT 1 WHERE EXISTS (FROM glob('/*'))",
    "WITH x AS (FROM sniff_csv('/etc/passwd')) FROM x",
    "FROM read_json('{beside}')",
    "FROM read_ndjson_objects('{beside}')",
    "FROM read_parquet('{beside}')",
    "FROM parquet_metadata('{beside}')",
    "FROM read_duckdb('{copy}')",
    "SUMMARIZE SELECT * FROM read_csv('/etc/passwd')",
    "DESCRIBE FROM read_csv('/etc/passwd')",
    "EXPLAIN FROM read_csv('/etc/passwd')",
    "SELECT * FROM t, LATERAL (FROM read_text('{beside}'))",
    "PIVOT read_csv('/etc/passwd') ON a IN (1) USING count(*)",
    "FROM '/etc/passwd'",
    "FROM '{beside}'",
    "FROM '{beside}.csv'",
    'FROM "../../etc/passwd.csv"',
    "FROM 'x.csv'",
    "FROM '*.csv'",
    "SUMMARIZE '/etc/passwd'",
    "DESCRIBE '/etc/passwd.csv'",
    "FROM 'http://127.0.0.1:9/x.csv'",
    "FROM 'https://127.0.0.1:9/x.parquet'",
    "FROM 's3://bucket/x.parquet'",
    "FROM read_csv('http://127.0.0.1:9/x.csv')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('secret_directory')",
    "EXPLAIN SELECT current_setting('temp_directory')",
    "FROM duckdb_settings()",
    "FROM duckdb_secrets()",
    "FROM duckdb_databases()",
    "FROM duckdb_databases",
    "FROM system.main.duckdb_databases",
    "FROM pragma_database_list",
    "FROM pg_settings",
    "FROM pg_catalog.pg_settings",
    "FROM duckdb_extensions()",
    "FROM duckdb_temporary_files()",
    "FROM duckdb_logs()",
    "FROM duckdb_external_file_cache()",
    "FROM pragma_database_size()",
    "FROM query('SELECT 1; DROP TABLE t')",
    "FROM query('FROM duckdb_settings()')",
    "FROM query_table('duckdb_databases')",
    "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT write_log('x')",
    "FROM python_map_function()",
    "FROM arrow_scan(0::POINTER, 0::POINTER, 0::POINTER)",
    "FROM seq_scan()",
]
#: Each is ended by the system's limit of memory, by DuckDB's limits, or by the clock, whichever is first.
ENDLESS = [
    "SELECT count(*) FROM range(1000000000000)",
    "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n) SELECT * FROM n",
    "FROM range(1000000000000)",
    "SELECT sleep_ms(100000000)",
    "SELECT lpad('x', 2000000000, 'y')",
    "SELECT length(replace(repeat('x', 100000), 'x', repeat('y', 20000)))",
    "SELECT format('{:>2000000000}', 1)",
    "SELECT range(1000000000)",
    "SELECT string_agg(repeat('x', 1000000), '') FROM range(100000)",
    "SELECT list(a.range) FROM range(100000) a, range(100000) b",
    "SELECT 1 " + "UNION ALL SELECT 1 " * 5_000,
]
#: Others that are ended as one of these.
ALSO_ENDLESS = [
    "SELECT count(*) FROM range(100000) a, range(100000) b, range(100000) c",
    "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x FROM n) SELECT count(*) FROM n",
    "FROM generate_series(1, 1000000000000)",
    "FROM repeat('x', 1000000000000)",
    "SELECT repeat('x', 4000000000)",
    "SELECT repeat('x', 1000000000), repeat('y', 1000000000), repeat('z', 1000000000)",
    "SELECT list_resize([1], 1000000000)",
    "SELECT list_sum(range(1000000000))",
]
TOO_LARGE = [
    "SELECT " + "(" * 49_000 + "1" + ")" * 49_000,
    "SELECT " + "+".join(["1"] * 45_000),
    "SELECT " + "NOT " * 20_000 + "true",
    "SELECT " + "[" * 49_000 + "]" * 49_000,
    "SELECT " + "CASE WHEN true THEN " * 3_000 + "1" + " END" * 3_000,
    "SELECT * FROM " + "(SELECT * FROM " * 3_000 + "t" + ")" * 3_000,
    "SELECT " + "abs(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + ", ".join(["1"] * 501),
    "SELECT '" + "x" * 10_000_000 + "'",
    "/*" + "x" * 10_000_000 + "*/ SELECT 1",
]
DAMAGED = ["SELECT '\0'", "SELECT 1 \0; DROP TABLE t", "\0", "SELECT '\ud800'", "SELECT ?", "SELECT $x"]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return folders: of the copy, of a secret beside it, and one where nothing may come."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "out").mkdir()
    (folder / "t.csv").write_text("a\n1\n2\n", "utf-8")
    (folder / "kept").mkdir()
    (folder / "kept" / "secret.txt").write_text(SECRET, "utf-8")
    return folder


@pytest.fixture(scope="module")
def database(places):
    with SqlDatabase([places / "t.csv"], places / "kept") as opened:
        opened.query("SELECT 1")  # its process has begun: a short time limit is for the attack alone
        yield opened


def files(folder):
    """Return every file with its size and time of change."""
    found = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@pytest.fixture
def attack(database, places):
    """Try a statement, and see that it is refused, leaks nothing, leaves nothing, and breaks nothing."""

    def tried(sql, timeout_s=20.0):
        names = {
            "out": places / "out",
            "beside": places / "kept" / "secret.txt",
            "copy": next((places / "kept").glob("*.duckdb")),
        }
        for name, path in names.items():
            sql = sql.replace(f"{{{name}}}", str(path))
        before = files(places)
        with pytest.raises(ToolError) as refused:
            database.query(sql, timeout_s=timeout_s)
        message = str(refused.value)
        assert len(message) < 1_500
        assert message.strip()
        assert SECRET not in message
        assert "root:" not in message
        assert files(places) == before
        plain = database.query("SELECT sum(a) AS x FROM t")
        assert (plain.preview, plain.intent.datasets) == (((3,),), ("t",))
        assert database.query("SHOW TABLES").preview == (("t",),)
        return refused.value.code

    return tried


@each_row("sql", WRITES)
def test_statements_that_do_more_than_read_are_refused(attack, sql):
    assert attack(sql) == "not_a_query"


@each_row("sql", SEVERAL)
def test_several_statements_are_refused(attack, sql):
    assert attack(sql) == "several_statements"


@each_row("sql", ["SELECT '; DROP TABLE t' AS x", "SELECT 1 /* ; DROP TABLE t */", "SELECT $$;$$ -- ; DROP TABLE t"])
def test_semicolons_in_strings_and_comments_are_accepted(database, sql):
    assert database.query(sql).row_count == 1


@each_row("sql", READS)
def test_only_loaded_tables_are_read(attack, sql):
    assert attack(sql) == "not_allowed"


@pytest.mark.parametrize(
    "sql", [*ENDLESS, *(pytest.param(sql, marks=pytest.mark.full) for sql in ALSO_ENDLESS)], ids=lambda sql: sql[:60]
)
def test_endless_queries_and_huge_results_are_stopped(attack, sql):
    assert attack(sql, timeout_s=0.2) in ("sql_timeout", "sql_too_large")


def test_memory_that_duckdb_does_not_count_is_limited_too(attack):
    assert attack("SELECT length(repeat('x', 2400000000))", timeout_s=60.0) == "sql_too_large"


@each_row("sql", TOO_LARGE, ids=lambda sql: sql[:30])
def test_deeply_nested_and_long_statements_are_refused(attack, sql):
    assert attack(sql) == "sql_too_large"


@each_row("sql", DAMAGED, ids=ascii)
def test_damaged_statements_are_refused(attack, sql):
    assert attack(sql) == "sql_error"


@each_row("sql", [*TOO_LARGE, *DAMAGED], ids=lambda sql: ascii(sql[:30]))
def test_hostile_statements_can_be_compiled_and_normalized_safely(database, sql):
    assert isinstance(compiles(sql, database), str | None)
    assert isinstance(normal_sql(sql), str)
    assert database.query("SELECT 1 AS x").preview == ((1,),)


def test_each_duckdb_table_function_is_refused_or_shows_no_path(database, places):
    names = database.query(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type LIKE 'table%'", limit=1_000
    )
    assert names.row_count > 100
    shown = []
    for (name,) in names.preview:
        try:
            result = database.query(f'FROM "{name}"()', keep=10_000)
        except ToolError as error:
            shown.append((name, error.code))
            continue
        assert str(places).encode() not in result.csv
        assert b"/root" not in result.csv
        shown.append((name, "read"))
    assert dict(shown)["duckdb_tables"] == "read"
    assert {code for name, code in shown if name.startswith(("read_", "parquet_", "glob", "sniff"))} == {"not_allowed"}


def test_each_duckdb_view_is_refused_or_shows_no_path(database, places):
    views = database.query("SELECT schema_name, view_name FROM duckdb_views()", limit=1_000)
    assert views.row_count > 30
    refused = set()
    for schema, name in views.preview:
        try:
            result = database.query(f'SELECT * FROM "{schema}"."{name}" LIMIT 1000', keep=10_000)
        except ToolError as error:
            refused.add(error.code)
            continue
        assert str(places).encode() not in result.csv
        assert str(places) not in json.dumps(result.preview)
    assert refused <= {"not_allowed", "sql_error"}


def test_query_process_does_not_inherit_secrets_in_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("API_KEY", SECRET)
    with SqlDatabase([], tmp_path) as opened:
        assert opened.query("SELECT 1").row_count == 1
        environment = Path(f"/proc/{opened._idle[0]._process.pid}/environ").read_bytes()  # noqa: SLF001
    assert SECRET.encode() not in environment


def test_query_process_ends_when_its_owner_is_gone(tmp_path):
    opened = SqlDatabase([], tmp_path)
    opened.query("SELECT 1")
    process = opened._idle[0]._process  # noqa: SLF001
    process.stdin.close()
    assert process.wait(10) == 0
    opened.close()
