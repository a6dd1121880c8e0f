"""Preparation inside the sandbox: import numpy, pandas and matplotlib, and fix everything that would make equal calls differ.

`dsa.edge.sandbox` runs the text of this module in the process that forks each call, so no call pays for it. It must not import anything of
this package.
"""

import importlib.util
import io
import os
import warnings

#: One thread for linear algebra (sums in one order, no memory for each processor), no window, one date for all files.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "agg", "SOURCE_DATE_EPOCH": "0",
}  # fmt: skip
_NOWHERE = "/dev/null/none"  # for matplotlib's caches: there is no home folder


def prepare() -> None:
    """Import the libraries of all code."""
    os.environ.update(_ENVIRONMENT)
    spec = importlib.util.find_spec("matplotlib")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ImportError("matplotlib is not installed")
    os.environ["MATPLOTLIBRC"] = f"{folders[0]}/mpl-data/matplotlibrc"  # otherwise it looks in the home folder
    import matplotlib as mpl

    mpl.get_configdir = mpl.get_cachedir = lambda: _NOWHERE
    import matplotlib.pyplot as plt
    import pandas as pd

    for settings in (mpl.rcParams, mpl.rcParamsDefault):
        settings["svg.hashsalt"] = "one"  # otherwise names in an SVG are random
    plt.show = lambda *_, **__: None
    for name, value in {"max_rows": 20, "max_columns": 30, "width": 160, "max_colwidth": 80}.items():
        pd.set_option(f"display.{name}", value)


def rehearse() -> None:
    """Draw and compute a little of everything once, so that lazy imports and caches are ready."""
    import matplotlib.pyplot as plt
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        days = pd.date_range("2024-01-01", periods=8)
        frame = pd.DataFrame({"day": days, "name": list("aabbccdd"), "x": range(8), "y": [n / 3 for n in range(8)]})
        frame.groupby("name")["y"].agg(["sum", "mean"]).merge(frame.pivot_table(index="name", values="x"), on="name")
        repr(frame.describe()), frame.to_csv(io.StringIO())
        pd.read_csv(io.StringIO("a,b\n1,2\n"))
        _, axes = plt.subplots(1, 2)
        frame.plot(x="day", y="y", ax=axes[0], title="Title")
        frame.plot.bar(x="name", y="x", ax=axes[1])
        axes[0].legend()
        for kind in ("png", "pdf", "svg"):
            plt.savefig(io.BytesIO(), format=kind)
        plt.close("all")
