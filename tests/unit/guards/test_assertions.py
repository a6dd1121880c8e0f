import pytest
from each_row import each_row

from dsa.guards.pytest_guard import forgotten_imports, kind_of_tests, missing_names


@each_row(
    ("text", "kind"),
    [
        ("def test_x(): pass", "tests"),
        ("async def test_x(): pass", "tests"),
        ("if True:\n    def test_x(): pass", "tests"),
        ("class TestX:\n    def test_x(self): pass", "tests"),
        ("class Base:\n    def test_x(self): pass\nclass TestX(Base): pass", "tests"),
        ("from unittest import TestCase\nclass Some(TestCase): pass\nclass X(Some):\n    def test_x(self): pass", "tests"),
        ("assert x\ndef test_x(): pass", "tests"),
        ("assert add(1, 2) == 3", "asserts"),
        ("try:\n    add()\nexcept ValueError:\n    pass\nelse:\n    raise AssertionError('no')", "asserts"),
        ("def check():\n    assert add(1, 2) == 3\ncheck()", "asserts"),
        ("import pytest\nwith pytest.raises(ValueError):\n    add()", "asserts"),
        ("def check():\n    assert add(1, 2) == 3", "none"),
        ("class X:\n    def test_x(self): pass", "none"),
        ("class TestX:\n    pass", "none"),
        ("def outer():\n    def test_x(): pass", "none"),
        ("if __name__ == '__main__':\n    assert x", "none"),
        ("x = 1", "none"),
    ],
)  # fmt: skip
def test_kind_of_tests_is_recognized(text, kind):
    assert kind_of_tests(text) == kind


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def test_x():\n    assert add(one, 2) == len([])", {"add", "one"}),
        ("from m import add\nimport a.b\nx = 1\ndef test_y(z):\n    assert add(x, z, a) == test_y", set()),
        ("def test_x():\n    global made\n    made = 1\ndef test_y():\n    assert made", set()),
        ("def test_x():\n    here = 1\ndef test_y():\n    assert here", {"here"}),
        (
            "class TestX:\n    limit = LIMIT\n    def test_x(self):\n        assert [n for n in limit]",
            {"LIMIT", "limit"},
        ),
        ("__name__\n__file__", set()),
        ("return 1", set()),
    ],
)
def test_unbound_names_belong_to_the_code(text, names):
    assert missing_names(text) == names


def test_only_names_used_as_modules_count_as_forgotten_imports():
    assert forgotten_imports("pytest.raises(x)\nmath.pi\nqueue.put(1)\nre(3)") == ("math", "pytest")
    assert forgotten_imports("import pytest\npytest.raises(x)") == ()
