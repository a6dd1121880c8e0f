"""How Python is started for what runs inside: without an environment, with modules that come along, never from a path.

Takes names of modules of the folder `inside`, gives them compiled, and the command of an interpreter that makes them from its setup and runs
the last one's `main`.
"""

import functools
from pathlib import Path
from types import CodeType

from dsa.edge.sandbox.visible import interpreter

INSIDE = Path(__file__).with_name("inside")
_PACKAGES = ("dsa", "dsa.edge", "dsa.edge.sandbox", "dsa.edge.sandbox.inside")
#: With the environment that it is given this is `-I`, which would not let it have a seed for hashes.
_ISOLATED = ("-P", "-s", "-S")

#: Reads the setup, makes the modules that are in it, forgets the names under which they found each other, and serves.
_BOOT = f"""
import marshal, sys, types
setup = marshal.loads(open(0, "rb", closefd=False).read())
for name in {_PACKAGES!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, code in setup.pop("modules"):
    module = sys.modules["dsa.edge.sandbox.inside." + name] = types.ModuleType(name)
    setattr(sys.modules["dsa.edge.sandbox.inside"], name, module)
    exec(code, module.__dict__)
for name in [name for name in sys.modules if name.partition(".")[0] == "dsa"]:
    del sys.modules[name]
module.main(setup)
"""


def python() -> list[str]:
    """Give the command: it reads its setup, marshalled, from standard input; `modules` there are those of `compiled`."""
    return [interpreter(), *_ISOLATED, "-c", _BOOT]


@functools.cache
def compiled(names: tuple[str, ...]) -> list[tuple[str, CodeType]]:
    """Compile modules, once: the other side is the same Python. Each may import those before it."""
    return [(name, compile((INSIDE / f"{name}.py").read_bytes(), f"{name}.py", "exec")) for name in names]
