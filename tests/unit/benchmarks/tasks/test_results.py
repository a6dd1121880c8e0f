import attrs
import pytest
from benchmarks.tasks.lines import append_line, read_lines
from benchmarks.tasks.results import Results, ResultsError, key_of
from benchmarks.tasks.trials import Trial

TRIAL = Trial(
    "lru", "guarded_4", 3, 9, "accepted", "wrong", 5, "lru:5", 4, 1.25, 0.5, "", "abcd", 'it said "no", twice'
)


def test_rows_are_read_as_they_were_written(tmp_path):
    results = Results(tmp_path / "results.csv")
    results.add(TRIAL)
    results.add(attrs.evolve(TRIAL, sample=4, fault=""))
    assert Results(tmp_path / "results.csv").rows == results.rows
    assert results.rows[key_of(TRIAL)] == TRIAL


def test_row_that_was_cut_off_is_written_again(tmp_path):
    path = tmp_path / "results.csv"
    results = Results(path)
    results.add(TRIAL)
    results.add(attrs.evolve(TRIAL, sample=4))
    whole = path.read_bytes()
    for cut in range(1, len(whole) - whole.rfind(b"\n", 0, -1)):
        path.write_bytes(whole[:-cut])
        opened = Results(path)
        assert list(opened.rows) == [key_of(TRIAL)]
        opened.add(attrs.evolve(TRIAL, sample=4))
        assert path.read_bytes() == whole


def test_trial_with_an_error_is_repeated_and_its_last_row_counts(tmp_path):
    results = Results(tmp_path / "results.csv")
    results.add(attrs.evolve(TRIAL, outcome="error"))
    assert not results.is_done(key_of(TRIAL))
    results.add(TRIAL)
    opened = Results(tmp_path / "results.csv")
    assert opened.is_done(key_of(TRIAL))
    assert list(opened.rows.values()) == [TRIAL]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "csv:1: these are not the columns of this benchmark"),
        ("{head}\nlru,guarded_4\n", "csv:2: this is not a row of this benchmark"),
        (
            "{head}\nlru,guarded_4,three,9,accepted,wrong,5,lru:5,4,1.25,0.5,,abcd,\n",
            "csv:2: this is not a row of this benchmark",
        ),
    ],
)
def test_file_with_other_content_is_refused_with_its_line(tmp_path, text, message):
    Results(tmp_path / "results.csv")
    head = (tmp_path / "results.csv").read_text().strip()
    (tmp_path / "results.csv").write_text(text.format(head=head))
    with pytest.raises(ResultsError, match=message):
        Results(tmp_path / "results.csv")


def test_line_without_an_end_is_removed(tmp_path):
    path = tmp_path / "lines"
    assert read_lines(path) == []
    append_line(path, "one")
    path.write_bytes(path.read_bytes() + b"tw")
    assert read_lines(path) == ["one"]
    append_line(path, "two")
    assert read_lines(path) == ["one", "two"]
