"""The calls by which a store changes a disk, and what a test may do before, after or instead of each."""

import contextlib
import os

#: What changes files and folders. `open` counts when it makes a file.
CHANGES = ("open", "write", "fsync", "rename", "link", "unlink", "mkdir", "rmdir", "utime", "close")
REAL = {name: getattr(os, name) for name in CHANGES}


@contextlib.contextmanager
def handled(handle):
    """Have every call made by `handle(name, arguments, perform)`; `perform()` does the real one."""

    def replaced(name):
        def call(*arguments, **options):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return REAL[name](*arguments, **options)
            return handle(name, arguments, lambda: REAL[name](*arguments, **options))

        return call

    try:
        for name in CHANGES:
            setattr(os, name, replaced(name))
        yield
    finally:
        for name, real in REAL.items():
            setattr(os, name, real)


@contextlib.contextmanager
def before(name, ending, action):
    """Do something once, right before the first call of that name on a path that ends so."""
    waiting = [action]

    def handle(called, arguments, perform):
        if called == name and waiting and any(str(path).endswith(ending) for path in arguments):
            waiting.pop()()
        return perform()

    with handled(handle):
        yield
    assert not waiting, f"no {name} of a path that ends with {ending}"
