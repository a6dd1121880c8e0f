"""Commands begin faster here: one process imports the program, and forks for each call (`forked`)."""

import forked
import pytest
import web_gallery


@pytest.fixture(scope="session", autouse=True)
def forking() -> None:
    """Have calls forked."""
    forked.start()


@pytest.fixture(scope="session")
def shown(tmp_path_factory):
    """The gallery of the web page, opened once."""
    with web_gallery.gallery(tmp_path_factory.mktemp("gallery")) as opened:
        yield opened
