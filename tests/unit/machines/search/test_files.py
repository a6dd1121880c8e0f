import os

import pytest

from dsa.errors import DsaError
from machines.search import bindings
from machines.search.bindings import SearchHit, search


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "animals.md").write_text(
        "# Animals\n\nThe cat sleeps.\nThe dog barks.\n\nA zebra has stripes.\n", "utf-8"
    )
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "barking.txt").write_text("Dogs are barking at the cat.\n", "utf-8")
    return tmp_path


def places(folder, query, limit=5):
    return [(place.file, place.line) for place in search(folder, query, limit).places]


def test_search_gives_file_line_and_excerpt(folder):
    found = search(folder, "zebra")
    assert found.places == (SearchHit("animals.md", 6, "A zebra has stripes."),)
    assert (found.file_count, found.left_out) == (2, 0)


def test_result_is_the_line_with_the_most_words(folder):
    assert places(folder, "dog") == [("animals.md", 4), ("deep/barking.txt", 1)]
    assert places(folder, "cat sleeps") == [("animals.md", 3), ("deep/barking.txt", 1)]


def test_words_match_in_all_forms_and_rare_ones_weigh_more(folder):
    assert ("animals.md", 6) in places(folder, "stripe")
    assert places(folder, "the zebra")[0] == ("animals.md", 6)


def test_file_name_counts_too(folder):
    (folder / "giraffe.txt").write_text("It is tall.\n", "utf-8")
    assert places(folder, "giraffe") == [("giraffe.txt", 1)]


def test_number_of_results_is_limited(folder):
    assert len(places(folder, "cat dog zebra", 2)) == 2


@pytest.mark.parametrize(
    "query", ['cat"', "cat OR", "NEAR(cat", "cat*", "file:cat", "-cat", "^cat", "{cat}", "cat + (", "'cat'"]
)
def test_query_is_words_and_never_syntax(folder, query):
    assert ("animals.md", 3) in places(folder, query)


def test_long_passages_are_split_and_lines_counted(tmp_path):
    (tmp_path / "long.txt").write_text("\n".join(f"line {n} word{n}" for n in range(1, 101)), "utf-8")
    assert places(tmp_path, "word57") == [("long.txt", 57)]
    assert len(search(tmp_path, "word57").places[0].excerpt) <= 400
    long = "\n".join(f"line {number} of {'many ' * 12}words" for number in range(30))
    (tmp_path / "long.md").write_text(f"needle\n{long}\n")
    assert search(tmp_path, "needle").places[0].excerpt.endswith(" [.. cut]")


def test_changed_files_are_read_again(folder):
    assert places(folder, "unicorn") == []
    (folder / "animals.md").write_text("A unicorn.\n", "utf-8")
    assert places(folder, "unicorn") == [("animals.md", 1)]
    assert places(folder, "zebra") == []


def test_unsuitable_files_are_left_out_and_counted(folder):
    (folder / "picture.bin").write_bytes(b"cat\0cat")
    (folder / "latin.txt").write_bytes("caf\u00e9 cat".encode("latin-1"))
    (folder / "large.txt").write_text("cat " * bindings.LARGEST_BYTES, "utf-8")
    (folder / "link.txt").symlink_to(folder / "animals.md")
    (folder / os.fsdecode(b"odd\xff.txt")).write_text("cat", "utf-8")
    (folder / ".hidden").write_text("cat", "utf-8")
    (folder / ".git").mkdir()
    (folder / ".git" / "x").write_text("cat", "utf-8")
    os.mkfifo(folder / "pipe")
    found = search(folder, "cat")
    assert {place.file for place in found.places} == {"animals.md", "deep/barking.txt"}
    assert (found.file_count, found.left_out) == (2, 6)


@pytest.mark.parametrize(("query", "code"), [("", "NO_WORDS"), ("?!", "NO_WORDS")])
def test_query_without_words_is_refused(folder, query, code):
    with pytest.raises(DsaError, match="there is no word in") as caught:
        search(folder, query)
    assert caught.value.code == code


def test_file_as_folder_or_too_large_folder_is_refused(folder, monkeypatch):
    with pytest.raises(DsaError, match="is not a folder") as caught:
        search(folder / "animals.md", "cat")
    assert caught.value.code == "NO_FOLDER"
    monkeypatch.setattr(bindings, "MOST_FILES", 1)
    with pytest.raises(DsaError, match="more than 1 files") as caught:
        search(folder, "cat")
    assert caught.value.code == "TOO_MANY_FILES"


def test_link_that_replaced_a_file_is_not_followed(folder, tmp_path_factory):
    """The link appears between listing the files and reading them."""
    outside = tmp_path_factory.mktemp("outside") / "secret.txt"
    outside.write_text("A unicorn.\n", "utf-8")
    listed = tuple(bindings.files_in(folder))
    (folder / "animals.md").unlink()
    (folder / "animals.md").symlink_to(outside)
    index = bindings.Index(folder, listed)
    assert (list(index.places(["unicorn"], 5)), index.file_count, index.left_out) == ([], 1, 1)


def test_linked_subfolder_is_not_entered(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("A unicorn.\n", "utf-8")
    (folder / "linked").symlink_to(outside)
    assert places(folder, "unicorn") == []
