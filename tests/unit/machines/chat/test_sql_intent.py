import json

import duckdb
import pytest
from each_row import each_row

from machines.chat.sql import QueryIntent, SqlDatabase
from machines.tool_use.records import as_data, read_record


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with duckdb.connect(folder / "shop.duckdb") as connection:
        connection.execute(
            "CREATE TABLE sales AS SELECT i AS id, 'c' || (i % 7) AS city, i % 5 AS rating, i % 3 AS region_id, i AS units, (i * 1.5)::DECIMAL(9, 2) AS price, "
            "DATE '2023-01-01' + (i % 730)::INT AS sold, i % 2 = 0 AS paid FROM range(1000) r(i)"
        )
        connection.execute("CREATE TABLE cities AS SELECT 'c' || i AS city, i * 1000 AS people FROM range(7) r(i)")
    with SqlDatabase([folder / "shop.duckdb"], folder / "kept") as opened:
        yield opened


def intent(database, sql):
    return database.query(sql).intent


def test_table_summary_has_columns_and_time_scope(database):
    found = intent(database, "FROM sales")
    assert found.datasets == ("sales",)
    assert found.dimensions == ("id", "city", "rating", "region_id", "paid")
    assert found.measures == ("units", "price")
    assert found.row_count == 1000
    assert [(t.column, t.first, t.last, t.grain) for t in found.time_scope] == [
        ("sold", "2023-01-01", "2024-12-30", "day")
    ]
    assert found.columns == ("id", "city", "rating", "region_id", "units", "price", "sold", "paid")


def test_row_count_is_of_the_query_rather_than_the_preview(database):
    result = database.query("FROM sales", limit=3, keep=10)
    assert (len(result.preview), result.csv_rows, result.intent.row_count) == (3, 10, 1000)


def test_aggregates_in_few_rows_are_measures_not_dimensions(database):
    found = intent(database, "SELECT city, count(*) AS n, sum(price) AS total FROM sales GROUP BY city")
    assert (found.dimensions, found.measures) == (("city",), ("n", "total"))


@each_row(
    ("sql", "tables"),
    [
        ("SELECT 1", ()),
        ("SELECT * FROM sales JOIN cities USING (city)", ("cities", "sales")),
        ("SELECT * FROM sales WHERE city IN (SELECT city FROM cities)", ("cities", "sales")),
        ("SELECT (SELECT max(people) FROM cities)", ("cities",)),
        ("WITH sales AS (FROM cities) FROM sales", ("cities",)),
        ("WITH a AS (FROM sales), b AS (FROM a) FROM b, a", ("sales",)),
        ("WITH sales AS (FROM sales) FROM sales", ("sales",)),
        ("WITH cities AS (SELECT 1 AS a) SELECT * FROM main.cities", ("cities",)),
        ("WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 3) FROM n", ()),
        ("SELECT * FROM (WITH cities AS (SELECT 1) FROM cities), cities", ("cities",)),
        ("FROM sales UNION ALL BY NAME FROM cities", ("cities", "sales")),
        ("SELECT 'from cities' AS \"from sales\" -- from sales", ()),
        ("SUMMARIZE sales", ("sales",)),
        ("DESCRIBE cities", ("cities",)),
        ("EXPLAIN FROM sales", ("sales",)),
        ("PIVOT sales ON paid IN (true, false) USING sum(units) GROUP BY city", ("sales",)),
        ("SELECT * FROM SALES s, LATERAL (SELECT s.id) LIMIT 1", ("SALES",)),
        ("SHOW TABLES", ()),
    ],
)
def test_datasets_are_the_tables_that_the_query_reads(database, sql, tables):
    assert intent(database, sql).datasets == tables


@each_row(
    ("values", "grain"),
    [
        ("DATE '2020-01-01' + to_years(i::INT)", "year"),
        ("DATE '2020-01-01' + to_months(i::INT)", "month"),
        ("DATE '2024-01-03' + (7 * i)::INT", "week"),
        ("DATE '2024-01-01' + i::INT", "day"),
        ("TIMESTAMP '2024-01-01' + to_days(i::INT)", "day"),
        ("TIMESTAMP '2024-01-01' + to_hours(i)", "hour"),
        ("TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_minutes(i)", "minute"),
        ("TIMESTAMP '2024-01-01' + to_seconds(i)", "second"),
        ("TIMESTAMP '2024-01-01' + to_milliseconds(i + 0.5)", ""),
        ("DATE '2024-01-01'", ""),
        ("CASE WHEN i > 2 THEN DATE '2024-01-01' + i::INT END", "day"),
    ],
)
def test_time_grain_is_guessed_from_the_values(database, values, grain):
    assert [scope.grain for scope in intent(database, f"SELECT {values} AS t FROM range(20) r(i)").time_scope] == [
        grain
    ]


def test_time_scope_has_iso_texts_and_skips_empty_columns(database):
    found = intent(database, "SELECT TIMESTAMP '2024-01-01 10:00:00' AS a, NULL::DATE AS b, 'infinity'::DATE AS c")
    assert [(t.column, t.first, t.last) for t in found.time_scope] == [
        ("a", "2024-01-01T10:00:00", "2024-01-01T10:00:00"),
        ("c", "infinity", "infinity"),
    ]


def test_summary_is_small_and_reads_back(database):
    wide = ", ".join(f"{n} AS a_column_with_a_long_name_{n}" for n in range(300))
    found = intent(database, f"SELECT {wide}")
    assert (len(found.columns), found.columns_left_out) == (24, 276)
    assert len(json.dumps(as_data(found))) < 3_000
    assert read_record(QueryIntent, json.loads(json.dumps(as_data(found)))) == found


def test_summary_has_its_names_in_the_order_of_events(database):
    assert json.dumps(as_data(intent(database, "SELECT count(*) AS n, max(sold) AS last FROM sales"))) == (
        '{"datasets": ["sales"], "columns": ["n", "last"], "columns_left_out": 0, "dimensions": [], "measures": ["n"], "row_count": 1, '
        '"time_scope": [{"column": "last", "first": "2024-12-30", "last": "2024-12-30", "grain": ""}]}'
    )


def test_summary_without_rows_still_has_datasets_and_columns(database):
    found = intent(database, "FROM sales WHERE false")
    assert (found.datasets, found.row_count, found.time_scope) == (("sales",), 0, ())
    assert (found.dimensions, found.measures) == (("id", "city", "region_id", "paid"), ("rating", "units", "price"))


def test_each_duckdb_type_can_be_read_at_its_extremes(tmp_path):
    with duckdb.connect(tmp_path / "all.duckdb") as connection:
        connection.execute("CREATE TABLE types AS FROM test_all_types()")
    with SqlDatabase([tmp_path / "all.duckdb"], tmp_path / "kept") as opened:
        for name, _ in opened.tables[0].columns:
            result = opened.query(f'SELECT "{name}" FROM types')
            assert (len(result.preview), result.csv_rows, result.preview[-1]) == (3, 3, (None,)), name
            assert json.dumps(result.preview, allow_nan=False)
