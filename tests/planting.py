"""A program: plants what git would take for repositories into a workspace by a command, and prints what was left of it.

Takes the folder of a workspace to be made. Used by tests that run it as root and as another user.
"""

import json
import subprocess
import sys
from pathlib import Path

from machines.coding.tools.command_runner import run
from machines.coding.tools.program_rules import Rules

PLANTS = r"""
import os
def write(path, text="x"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
config = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch ../../RAN\n\tworktree = .\n"
def repository(path):
    write(f"{path}/HEAD", "ref: refs/heads/main\n")
    write(f"{path}/config", config)
    for name in ("objects", "refs"):
        os.makedirs(f"{path}/{name}", exist_ok=True)
repository("sub/.git")
repository("node_modules/lib/.git")
repository(".venv/.GIT")
repository("src/deep/er/.git")
repository("closed/in/.git")
repository("bare")
repository("looks/like")
write("file/.git", "gitdir: ../bare\n")
os.makedirs("link"); os.symlink("../bare", "link/.git")
write("led/HEAD", "ref: refs/heads/main\n"); write("led/commondir", "../bare\n")
os.makedirs("half/refs")
write("notes/HEAD", "no repository"); write("notes/refs", "x")
write("src/.agent_context/state.json")
write("kept.txt")
write("closed/in/.dsa~left"); write("closed/in/__pycache__/x.pyc")
os.chmod("closed/in", 0o500); os.chmod("closed", 0)
for path in ("vendor/.git/config", "store/config", "store/hooks/post-commit", "store/commondir"):
    try:
        write(path, config)
        print("WROTE", path)
    except OSError as error:
        print(error.strerror)
for name in ("vendor", "store"):
    try:
        os.rename(name, f"{name}2")
        print("MOVED", name)
    except OSError as error:
        print(error.strerror)
"""


def main(folder):
    """Plant, and tell what was removed, what git was made to run, and what was said."""
    root = Path(folder)
    root.mkdir()
    subprocess.run(["git", "init", "-q", root / "vendor"], check=True)
    subprocess.run(["git", "init", "-q", "--bare", root / "store"], check=True)
    (root / "half" / "objects").mkdir(parents=True)
    (root / "half" / "HEAD").write_text("ref: refs/heads/main\n")
    ran = run(("python", "-c", PLANTS), root=root, rules=Rules(code=True))
    again = run(("python", "-c", "pass"), root=root, rules=Rules(code=True))
    mode = f"{(root / 'closed').stat().st_mode & 0o777:o}"
    (root / "closed").chmod(0o700)
    for path in [each for each in root.rglob("*") if each.is_dir()]:
        subprocess.run(["git", "status"], cwd=path, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"})
    told = {
        "removed": ran.removed_paths,
        "again": again.removed_paths,
        "said": ran.output.splitlines(),
        "started": sorted(str(path.relative_to(root)) for path in root.rglob("RAN")),
        "mode": mode,
        "kept": [
            (root / name).exists()
            for name in ("kept.txt", "vendor/.git/config", "store/HEAD", "half/HEAD", "notes/HEAD")
        ],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
