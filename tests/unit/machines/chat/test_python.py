import hashlib
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import NOT_TESTED, require_package
from each_row import each_row

from dsa.edge.sandbox import Confinement, probe
from dsa.errors import ToolError
from machines.chat.interpreter import CODES, REQUIRED_FEATURES, FrameSource, Interpreter

require_package("pandas", f"{NOT_TESTED}: pandas is not installed")

SALES = FrameSource(
    ("region", "n", "day", "price", "paid", "rate", "at"),
    ("VARCHAR", "BIGINT", "DATE", "DOUBLE", "BOOLEAN", "DECIMAL(18,3)", "TIMESTAMP WITH TIME ZONE"),
    b"region,n,day,price,paid,rate,at\n"
    b'001,1,2024-01-01,1.5,true,3.250,2024-01-01 10:00:00+00\n"",,2024-02-01,,,,\n,9007199254740993,,2e300,false,1.000,2024-01-01 10:00:00.5+02\n',
)


@pytest.fixture(scope="module")
def interpreter():
    return Interpreter()


def failed(interpreter, code, table=None, **options):
    with pytest.raises(ToolError) as raised:
        interpreter.run(code, table, **options)
    assert raised.value.code in CODES
    return raised.value


# -- the table ------------------------------------------------------------------------------------------------------------


def test_table_is_available_with_its_types_under_both_names(interpreter):
    code = "print(df is LATEST_SQL_RESULT, df.equals(LATEST_SQL_RESULT), len(df))\n[str(kind) for kind in df.dtypes]"
    result = interpreter.run(code, SALES)
    assert result.output == "False True 3\n"
    assert result.value.replace("'object'", "'str'") == (
        "['str', 'Int64', 'datetime64[us]', 'float64', 'boolean', 'float64', 'datetime64[us, UTC]']"
    )


def test_text_stays_text_and_null_differs_from_empty_text(interpreter):
    code = "[None if pd.isna(x) else x for x in df.region], [None if pd.isna(x) else int(x) for x in df.n]"
    assert interpreter.run(code, SALES).value == "(['001', '', None], [1, None, 9007199254740993])"


@each_row(
    ("kind", "cells", "shown"),
    [
        ("BIGINT", ["1", "2"], "('int64', [1, 2])"),
        ("DECIMAL(18,2)", ["0.10", "1.25"], "('float64', [0.1, 1.25])"),
        (
            "DECIMAL(20,2)",
            ["0.10", "12345678901234567.89"],
            "('object', [Decimal('0.10'), Decimal('12345678901234567.89')])",
        ),
        ("UBIGINT", ["1", "18446744073709551615"], "('uint64', [1, 18446744073709551615])"),
        ("HUGEINT", ["1", str(10**30)], f"('object', [1, {10**30}])"),
        ("BOOLEAN", ["true", "false"], "('bool', [True, False])"),
        ("DOUBLE", ["inf", "-inf"], "('float64', [inf, -inf])"),
        ("BIGINT[]", ['"[1, 2]"', "[3]"], "('str', ['[1, 2]', '[3]'])"),
        ("VARCHAR", ['"a,""b""\nc"', "NA"], """('str', ['a,"b"\\nc', 'NA'])"""),
        ("VARCHAR", ['"x\n"",""\ny"', '""'], """('str', ['x\\n","\\ny', ''])"""),
        ("VARCHAR", ["", ""], "('object', [None, None])"),
        ("DATE", ["2024-01-01 (BC)", "x"], "('str', ['2024-01-01 (BC)', 'x'])"),
        ("TIME", ["10:00:00", "11:00:00"], "('str', ['10:00:00', '11:00:00'])"),
    ],
)
def test_columns_have_the_types_of_the_database(interpreter, kind, cells, shown):
    table = FrameSource(("c",), (kind,), ("c\n" + "".join(f"{cell}\n" for cell in cells)).encode())
    value = interpreter.run("str(df.c.dtype), df.c.tolist()", table).value
    assert value.replace("('object', ['", "('str', ['") == shown


def test_equal_column_names_and_no_rows_still_make_a_table(interpreter):
    table = FrameSource(("a", "a"), ("BIGINT", "VARCHAR"), b"a,a\n")
    assert interpreter.run("df.shape, list(df.columns)", table).value == "((0, 2), ['a', 'a'])"


def test_malformed_table_is_reported(interpreter):
    error = failed(interpreter, "1", FrameSource(("a", "b"), ("BIGINT", "BIGINT"), b"a,b\n1,2\n3\n"))
    assert (error.code, str(error)) == ("bad_table", "row 2 of the table has 1 cells, but there are 2 columns")
    with pytest.raises(ValueError, match="there are 2 columns, but 1 types"):
        FrameSource(("a", "b"), ("BIGINT",), b"")


def test_names_of_the_table_are_undefined_without_a_table(interpreter):
    assert "run a SQL query first" in str(failed(interpreter, "df.head()"))


def test_missing_column_lists_the_existing_columns(interpreter):
    error = failed(interpreter, "df['price'] + df['prize']", SALES)
    assert str(error).endswith("The columns of LATEST_SQL_RESULT are: region, n, day, price, paid, rate, at")


# -- what comes out -------------------------------------------------------------------------------------------------------


def test_value_of_the_last_expression_is_shown(interpreter):
    assert interpreter.run("x = 2\nx * 21").value == "42"
    assert interpreter.run("x = 2\nx * 21\ny = 1").value == ""
    assert interpreter.run("None").value == ""
    assert interpreter.run("object()").value == "<object object>"
    assert interpreter.run("plt.plot([1])").value == ""
    assert interpreter.run("plt.subplots(2)[1]").value == ""


def test_large_tables_are_abbreviated(interpreter):
    value = interpreter.run("pd.DataFrame({'n': range(1000)})").value
    assert len(value.splitlines()) < 25
    assert value.endswith("[1000 x 1]")


def test_long_output_is_cut_but_keeps_its_end(interpreter):
    output = interpreter.run("for n in range(100_000): print(n)").output
    assert output.startswith("0\n1\n2\n")
    assert output.endswith("99999\n")
    assert "[.. output cut ..]" in output
    assert len(output) < 9_000


def test_files_and_open_figures_are_returned_but_saved_figures_once(interpreter):
    code = (
        "df.to_csv('out.csv', index=False)\nimport os\nos.mkdir('charts')\nplt.plot([1, 2])\nplt.savefig('charts/é 1.png')\n"
        "plt.figure()\nplt.plot([2, 1])\nplt.show()\nplt.close()\nplt.figure()\nplt.plot([3])\nf = open('left open.txt', 'w')\nf.write('x')"
    )
    files = interpreter.run(code, SALES).files
    assert [(file.name, file.kind) for file in files] == [
        ("charts_e_1.png", "png"), ("figure_1.png", "png"), ("figure_2.png", "png"), ("left_open.txt", "txt"), ("out.csv", "csv"),
    ]  # fmt: skip
    assert len({file.content for file in files}) == 5
    assert files[3].content == b"x"


def test_no_state_survives_between_calls(interpreter):
    interpreter.run(
        "import math, os\nmath.left = pd.left = 1\nos.environ['LEFT'] = 'x'\nplt.rcParams['font.size'] = 99\nopen('left.txt', 'w')"
    )
    code = "import math, os\nhasattr(math, 'left'), hasattr(pd, 'left'), 'LEFT' in os.environ, plt.rcParams['font.size'], os.listdir()"
    assert interpreter.run(code).value == "(False, False, False, 10.0, [])"


def test_standard_library_and_written_modules_can_be_imported(interpreter):
    code = "import json, sqlite3, statistics, dataclasses\nopen('mine.py', 'w').write('x = 7')\nimport mine\nmine.x"
    result = interpreter.run(code)
    assert (result.value, [file.name for file in result.files]) == ("7", ["mine.py"])


# -- what goes wrong ------------------------------------------------------------------------------------------------------


def test_exception_is_reported_with_lines_of_the_code_only(interpreter):
    error = failed(interpreter, "def f(x):\n    return 1 / x\n\nprint('so far')\nf(0)")
    assert error.code == "python_error"
    assert str(error) == "ZeroDivisionError: division by zero\n  line 5: f(0)\n  line 2, in f: return 1 / x"
    assert error.about == {"output": "so far\n"}


def test_installation_paths_are_not_revealed(interpreter):
    error = failed(
        interpreter, "import warnings\nwarnings.warn('careful')\nprint(pd.__file__)\nfrom pandas import nothing"
    )
    assert "site-packages" not in f"{error} {error.about}"
    assert "pandas/__init__.py" in str(error)


@each_row(
    ("code", "word", "line"),
    [
        ("x = = 3", "python_syntax_error", 1),
        ("# nothing", "python_syntax_error", None),
        ("x = 'a\0b'", "python_syntax_error", None),
        ("return 1", "python_syntax_error", 1),
        ("np.zeros(10**12)", "python_memory", 1),
        ("import os\nos._exit(3)", "python_killed", None),
        ("import ctypes\nctypes.string_at(0)", "python_killed", None),
        ("for n in range(21): open(f'{n}.txt', 'w')", "too_many_files", None),
        ("open('a.bin', 'wb').write(bytes(9 << 20))", "files_too_large", None),
        ("open('a.png', 'wb').write(b'GIF89a')", "bad_file", None),
    ],
)
def test_each_fault_has_its_code(interpreter, code, word, line):
    error = failed(interpreter, code)
    assert error.code == word
    assert ("line 1: " in str(error)) == (line == 1)


def test_slow_code_is_stopped_and_its_output_is_returned(interpreter):
    error = failed(interpreter, "print('so far')\nwhile True: pass", timeout_s=0.5)
    assert (error.code, str(error), error.about) == (
        "python_timeout",
        "The code did not finish within 0.5 s.",
        {"output": "so far\n"},
    )


def test_invalid_time_limit_is_refused(interpreter):
    with pytest.raises(ValueError, match="not a valid time limit"):
        interpreter.run("1", timeout_s=0)


def test_host_is_out_of_reach_by_default(interpreter):
    assert interpreter.confinement.require == {"no files outside", "no network", "no environments", "own processes"}
    assert interpreter.confinement.require <= interpreter.run("1").features


def test_code_does_not_run_where_it_cannot_be_confined():
    error = failed(Interpreter(Confinement(REQUIRED_FEATURES, "limits")), "1")
    assert error.code == "no_sandbox"
    assert "no files outside, no network" in str(error)


@pytest.mark.parametrize(
    "rung", ["bubblewrap", pytest.param("namespaces", marks=pytest.mark.full), "landlock", "limits"]
)
def test_every_sandbox_rung_gives_the_same_result(interpreter, rung):
    if probe(rung).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{rung}': {probe(rung).fault}")
    code = "print('out')\ndf.plot(x='day', y='price')\ndf.to_csv('x.csv')\n6 * 7"
    result, expected = Interpreter(Confinement(rung=rung)).run(code, SALES), interpreter.run(code, SALES)
    assert (result.rung, result.output, result.value) == (rung, expected.output, expected.value)
    assert result.files == expected.files


def test_calls_from_threads_get_their_own_results(interpreter):
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: interpreter.run(f"print({n})\n{n} * 2"), range(12)))
    assert [(each.output, each.value) for each in found] == [(f"{n}\n", f"{n * 2}") for n in range(12)]


# -- equal calls ----------------------------------------------------------------------------------------------------------

MAKES_ALL = """
import random
frame = pd.DataFrame({"x": np.random.rand(5), "y": [random.random() for _ in range(5)], "name": list({"a", "b", "c", "d", "e"})})
frame.to_csv("a.csv"), frame.to_json("a.json"), frame.to_html("a.html"), np.save("a.npy", frame.x.to_numpy())
frame.plot.bar(x="name", y=["x", "y"], title="Title")
for kind in ("png", "pdf", "svg", "jpg", "webp"): plt.savefig(f"a.{kind}")
"""


def test_equal_calls_give_equal_bytes_in_different_processes(interpreter):
    files = interpreter.run(MAKES_ALL).files
    assert len(files) == 9
    print_digests = (
        "import hashlib; from machines.chat.interpreter import Interpreter\n"
        f"for file in Interpreter().run({MAKES_ALL!r}).files: print(file.name, hashlib.sha256(file.content).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", print_digests], env={"PYTHONHASHSEED": "1", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)  # fmt: skip
    assert other.stdout == "".join(f"{file.name} {hashlib.sha256(file.content).hexdigest()}\n" for file in files)


@pytest.mark.full
def test_warm_call_is_timed_against_a_cold_interpreter(interpreter, told):
    """The ratio is printed, not asserted."""
    interpreter.warm()
    warm, cold = [], []
    for _ in range(9):
        started = time.perf_counter()
        interpreter.run("df.plot(x='day', y='price')", SALES)
        warm.append(time.perf_counter() - started)
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import numpy, pandas, matplotlib.pyplot"], check=True)
        cold.append(time.perf_counter() - started)
    warm_s, cold_s = statistics.median(warm), statistics.median(cold)
    told(
        f"Python tool: a warm plot {warm_s:.3f} s, a cold interpreter with the imports {cold_s:.3f} s, ratio {warm_s / cold_s:.2f}"
    )
