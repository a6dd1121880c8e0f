"""The secret of the cookie: it is reused only from a file that no other user may read or write."""

import pytest

pytest.importorskip("starlette")

from dsa.web.server import kept_secret


def test_secret_is_reused_until_it_ends(tmp_path):
    folder = tmp_path / "state" / "dsa"
    secret = kept_secret(8000, folder)
    assert secret.path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert secret.text not in repr(secret)
    assert kept_secret(8000, folder).text == secret.text
    assert kept_secret(8001, folder).text != secret.text
    secret.end()
    assert kept_secret(8000, folder).text != secret.text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_file_that_others_can_access_is_replaced(tmp_path, mode):
    secret = kept_secret(8000, tmp_path)
    secret.path.chmod(mode)
    again = kept_secret(8000, tmp_path)
    assert again.text != secret.text
    assert again.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "short", "x" * 44, "\n" * 43, "\u00e9" * 43])
def test_file_without_a_whole_secret_is_replaced(tmp_path, text):
    path = kept_secret(8000, tmp_path).path
    path.write_text(text)
    assert kept_secret(8000, tmp_path).text != text


def test_link_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("x" * 43)
    elsewhere.chmod(0o600)
    (tmp_path / "web-8000.secret").symlink_to(elsewhere)
    secret = kept_secret(8000, tmp_path)
    assert secret.text != "x" * 43
    assert elsewhere.read_text() == "x" * 43
    assert not secret.path.is_symlink()


def test_secret_lives_in_the_process_if_its_folder_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    secret = kept_secret(8000, tmp_path / "file" / "dsa")
    assert secret.path is None
    assert len(secret.text) == 43
