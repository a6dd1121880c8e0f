"""Packages as installers leave them: modules in a folder, and beside them a `.dist-info` with metadata and entry points."""

import sys
import textwrap


class Shelf:
    """A folder of installed packages, on `sys.path`."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.syspath_prepend(str(folder))

    def install(self, name, entries, version="1.0", **modules):
        """Install a package: `entries` are lines by group of entry points, `modules` texts by name."""
        info = self.folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        groups = (f"[{group}]\n" + "\n".join(lines) for group, lines in entries.items())
        (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
        for module, text in modules.items():
            self._monkeypatch.delitem(sys.modules, module, raising=False)
            (self.folder / f"{module}.py").write_text(textwrap.dedent(text))
