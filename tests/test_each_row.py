"""The decorator `each_row`: it must find everything that a case for each row would find."""

import pytest
from each_row import each_row


@each_row("number", [1, 2, 3, 4])
def odd(number):
    """Fail for two rows."""
    assert number % 2, f"{number} is even"


@each_row(("left", "right"), [pytest.param(1, 1, id="same"), pytest.param(1, 2, id="other")])
@each_row("more", [0, 1])
def equal(left, right, more):
    """Fail for three of four pairs of rows."""
    assert left + more == right


def test_every_failing_row_is_named_with_its_error():
    with pytest.RaisesGroup(AssertionError, AssertionError) as caught:
        odd()
    assert "2 of 4 rows failed:\n- 2\n- 4" in str(caught.value)
    assert [str(error).splitlines()[0] for error in caught.value.exceptions] == ["2 is even", "4 is even"]
    assert [error.__notes__ for error in caught.value.exceptions] == [["in the row 2"], ["in the row 4"]]


def test_two_tables_are_multiplied():
    with pytest.RaisesGroup(pytest.RaisesGroup(AssertionError), pytest.RaisesGroup(AssertionError)) as caught:
        equal()
    assert "- same\n- other" in str(caught.value)
    assert ["1 of 2 rows failed:\n- 1" in str(inner) for inner in caught.value.exceptions] == [True, False]


@each_row("ending", [pytest.skip, pytest.fail])
def ends(ending):
    """End by an outcome of pytest."""
    ending("now")


def test_row_that_skips_fails():
    with pytest.RaisesGroup(pytest.skip.Exception, pytest.fail.Exception):
        ends()


def test_table_without_rows_is_refused():
    with pytest.raises(AssertionError, match="a table has rows"):
        each_row("number", [])


def test_row_with_a_mark_or_without_a_value_is_refused():
    with pytest.raises(AssertionError, match="a case of its own"):
        each_row("number", [pytest.param(1, marks=pytest.mark.full)])
    with pytest.raises(AssertionError, match="a value for each name"):
        each_row("left, right", [(1, 2), (1,)])


@each_row("number", [1, 2])
def test_every_row_has_its_own_fixtures(number, tmp_path, monkeypatch, capsys):
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert not hasattr(pytest, "of_one_row")
    monkeypatch.setattr(pytest, "of_one_row", number, raising=False)
    assert capsys.readouterr().out == ""
    print("of one row")


def test_patch_of_the_last_row_ends_with_it(tmp_path, capsys):
    with pytest.MonkeyPatch.context() as patches:
        test_every_row_has_its_own_fixtures(tmp_path=tmp_path, monkeypatch=patches, capsys=capsys)
        assert not hasattr(pytest, "of_one_row")
