"""Confinement, step by step for each rung: a file tree of its own, and what is done once, for each call, and right before untrusted code runs.

The tree has only what a Python program needs, and cannot be written. Paths in it are the same as outside. `/own` is empty: each call mounts its
own folder there; `/tmp` leads to it, unless something visible lies in `/tmp`. There is no `/proc`.

`enter` returns a `ConfinedPlace`, whose features each of its calls will have. A step that fails afterwards raises OSError: no call runs with fewer
features.
"""

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from dsa.edge.sandbox.inside import seccomp, system_calls

#: Where the tree is built, seen by this process alone: on top of the first of these folders that has no visible path in it.
_PLACES = ("/tmp", "/mnt", "/media", "/srv", "/opt", "/var/tmp", "/home")  # noqa: S108
OWN = "/own"
_FIXED_ATTR = system_calls.READ_ONLY_ATTR | system_calls.NO_SUID_ATTR
FOLDERS = (OWN, "/dev")  # in every tree


def become_its_root(visible: Iterable[str], links: Mapping[str, str]) -> None:
    """Build the tree and make it this process's root. The process must have its own mounts already. Raises OSError."""
    paths = tuple(visible)
    at = next(place for place in _PLACES if _is_free(place, paths))
    system_calls.mount("none", "/", None, system_calls.RECURSIVE | system_calls.PRIVATE)
    system_calls.mount("tree", at, "tmpfs", system_calls.NO_SUID | system_calls.NO_DEVICES, "mode=0755,size=1m")
    for folder in FOLDERS:
        os.makedirs(f"{at}{folder}", exist_ok=True)  # noqa: PTH103  # pathlib is slow to import
    for path in paths:
        _show(path, f"{at}{path}")
    for path, target in links.items():
        os.makedirs(os.path.dirname(f"{at}{path}"), exist_ok=True)  # noqa: PTH103, PTH120
        os.symlink(target, f"{at}{path}")  # noqa: PTH211
    system_calls.make_root(at)
    system_calls.protect("/", _FIXED_ATTR | system_calls.NO_DEVICES_ATTR)


def _is_free(place: str, paths: Iterable[str]) -> bool:
    return os.path.isdir(place) and not any(f"{path}/".startswith(f"{place}/") for path in paths)  # noqa: PTH112


def _show(path: str, place: str) -> None:
    mode = os.stat(path).st_mode  # noqa: PTH116
    if stat.S_ISDIR(mode):
        os.makedirs(place, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o444))
    system_calls.mount(path, place, None, system_calls.BIND | system_calls.RECURSIVE)
    is_device = stat.S_ISCHR(mode)
    system_calls.protect(place, _FIXED_ATTR | (0 if is_device else system_calls.NO_DEVICES_ATTR), recursive=True)


def mount_own_folder(size_bytes: int, files: int) -> None:
    """Mount an empty folder of limited size, which disappears with its last process, and go there."""
    options = f"mode=0777,size={size_bytes},nr_inodes={files}"
    system_calls.mount("own", OWN, "tmpfs", system_calls.NO_SUID | system_calls.NO_DEVICES, options)
    os.chdir(OWN)


Setup = dict[str, Any]

#: User ids that nobody has: above all assigned ones; or, where a container maps few, those that systemd lends to services.
_FREE_USERS = (range(2_000_000_000, 2_016_000_000), range(61_184, 65_520))
_OWN = (
    system_calls.NEW_MOUNTS
    | system_calls.NEW_PIDS
    | system_calls.NEW_NETWORK
    | system_calls.NEW_IPC
    | system_calls.NEW_HOSTNAME
)
_LINUX = sys.platform == "linux"
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class ConfinedPlace:
    """Where calls run: the rung, the features of all its calls, and files that must be opened before the view narrows."""

    def __init__(self, setup: Setup) -> None:
        self.rung: str = setup["rung"]
        self.has_tree = self.rung in ("bubblewrap", "namespaces")
        self.proc: int = setup["proc_fd"]
        self.readable: list[int] = []
        self.devices: list[int] = []
        self.library: list[tuple[str, int]] = []
        self.drops_root = False
        self.nests = False
        self.is_warm = False
        self.filter: Any = None  # of system calls
        self.gap = ""  # why there is none
        self.features: list[str] = []


def enter(setup: Setup) -> ConfinedPlace:
    """Do the one-time steps: enter the tree, open what is needed later, and find out the features of calls."""
    place = ConfinedPlace(setup)
    if place.rung == "landlock" and not system_calls.abi():
        raise OSError("the kernel has no Landlock, or it is switched off")
    if place.rung == "namespaces":
        if os.geteuid() == 0 and _may_unshare():
            system_calls.unshare(system_calls.NEW_MOUNTS)
        else:
            _unshare_as_this_user(place.proc, system_calls.NEW_MOUNTS)
        become_its_root(setup["visible"] + setup["devices"], setup["links"])
    if _LINUX and place.rung != "limits":
        opening = os.O_PATH | os.O_CLOEXEC
        place.readable = [os.open(path, opening) for path in setup["visible"]]
        place.devices = [os.open(path, opening) for path in setup["devices"]]
    place.drops_root = os.geteuid() == 0 and _can_drop_root()
    if place.drops_root and not place.has_tree:
        place.library = list(_opened_library())
    if place.has_tree:
        _choose_namespaces(place)
    place.gap = seccomp.fault() if _LINUX else "system calls are not filtered: only Linux can filter them"
    if not place.gap:  # the lowest rung does not close the network
        place.filter = seccomp.build_filter(seccomp.FAMILIES if place.rung == "limits" else ())
    place.features = _features(place)
    if not place.has_tree:  # the next calls would trust what a call changed here
        place.is_warm = bool({"own user", "own processes"} & set(place.features))
    return place


def _choose_namespaces(place: ConfinedPlace) -> None:
    """Find out how calls get namespaces of their own: as an ordinary user, by root, or not at all.

    Where only bwrap may make user namespaces, they get none, and bwrap is started for each call.
    """
    small = {"disk_bytes": 1 << 20, "disk_files": 64}

    def nest() -> None:
        if place.drops_root:
            _drop_root("")
        _begin_own(lambda flags: _unshare_as_this_user(place.proc, flags), small)

    place.nests = _in_a_fork(nest)
    place.is_warm = place.nests or (place.drops_root and _in_a_fork(lambda: _begin_own(system_calls.unshare, small)))
    if not place.is_warm and place.rung != "bubblewrap":
        raise PermissionError("unshare: a call is not allowed to have its own user namespace")


def _features(place: ConfinedPlace) -> list[str]:
    """Return the features of every call."""
    features = ["bounded processor time", "bounded files", "bounded open files"]
    if place.filter:  # without it, System V memory belongs to no process and has no bound
        features += ["bounded memory", "filtered system calls"]
        if place.rung != "limits":
            features.append("no network")
    if place.drops_root:
        features += ["own user", "no environments"]
    if os.geteuid() != 0 or place.drops_root:
        features.append("bounded processes")
    if _LINUX:
        features.append("no privileges")
    if place.has_tree:
        features += ["own file tree", "no files outside", "own processes", "no network", "no environments"]
        if place.is_warm:  # the folder that bubblewrap mounts may have any number of files
            features.append("bounded disk")
    elif place.rung == "landlock":
        features += ["no files outside", "no environments"]
        if system_calls.abi() >= system_calls.SIGNALS_ABI:
            features.append("own processes")
    return sorted(set(features))


# -- each call, before the worker is forked ---------------------------------------------------------------------------


def begin_call(place: ConfinedPlace, folder: str, bounds: dict[str, Any]) -> None:
    """Confine the watching process, and so the worker that it will fork: user, namespaces, folder, no new privileges."""
    if folder:
        os.chdir(folder)
    if place.has_tree and place.is_warm and not place.nests:  # only root may do this, before it becomes another user
        _begin_own(system_calls.unshare, bounds)
    if place.drops_root:
        _drop_root(folder)
    if place.nests:
        _begin_own(lambda flags: _unshare_as_this_user(place.proc, flags), bounds)
    elif place.has_tree and not place.is_warm:
        os.chdir(OWN)  # bubblewrap has mounted it, for this call
    if _LINUX:
        system_calls.control(system_calls.NO_NEW_PRIVILEGES, 1)
        system_calls.control(system_calls.SUBREAPER, 1)
    if _LINUX and not place.has_tree and not place.drops_root:
        bounds["processes"] += _tasks_of(os.geteuid())
    _move_library(place)


def _begin_own(unshare: Any, bounds: dict[str, Any]) -> None:  # noqa: ANN401  # a function
    unshare(_OWN)
    system_calls.name_host("sandbox")
    mount_own_folder(bounds["disk_bytes"], bounds["disk_files"])


def _tasks_of(user: int) -> int:
    """Count what the kernel counts towards this user's limit on processes: all threads of all its processes."""
    tasks = 0
    for process in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # pathlib is slow to import
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{process}").st_uid == user:  # noqa: PTH116
                tasks += len(os.listdir(f"/proc/{process}/task"))  # noqa: PTH208
    return tasks


def _unshare_as_this_user(proc: int, flags: int) -> None:
    """Make namespaces with a user namespace in which this user, and no other, is mapped to itself (user_namespaces(7))."""
    user, group = os.geteuid(), os.getegid()
    system_calls.unshare(system_calls.NEW_USER | flags)
    for name, number in (("uid_map", user), ("setgroups", None), ("gid_map", group)):
        file = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        try:
            os.write(file, b"deny" if number is None else f"{number} {number} 1".encode())
        finally:
            os.close(file)


def _drop_root(folder: str) -> None:
    """Become a user of its own, who owns only the working directory, so that limits apply and signals reach no other process."""
    for users in _FREE_USERS:
        user = users[int.from_bytes(os.urandom(4), "big") % len(users)]
        with contextlib.suppress(OSError):
            if folder:
                os.chown(".", user, user)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            system_calls.control(system_calls.DUMPABLE, 1)  # otherwise /proc/self would belong to root
            return
    raise PermissionError("setresuid: root cannot become another user here")


# -- each call, in the worker -----------------------------------------------------------------------------------------


def begin_work(place: ConfinedPlace, bounds: dict[str, Any]) -> None:
    """Confine the worker for good, just before it runs anything: Landlock, limits, capabilities, filter."""
    if _LINUX:
        # This only helps: when memory is short, the kernel then ends this process before any other.
        with contextlib.suppress(OSError):
            _write(place.proc, "self/oom_score_adj", b"1000")
    if place.readable and system_calls.abi():
        own = os.open(".", os.O_PATH | os.O_CLOEXEC)
        system_calls.restrict(place.readable, [own, *place.devices])
        os.close(own)
    system_calls.set_all(bounds)
    if _LINUX:
        system_calls.drop_capabilities()
    if place.filter:
        seccomp.install(place.filter)


def _write(folder: int, name: str, what: bytes) -> None:
    file = os.open(name, os.O_WRONLY, dir_fd=folder)
    try:
        os.write(file, what)
    finally:
        os.close(file)


# -- what root can do here, and its library ---------------------------------------------------------------------------


def _in_a_fork(trial: Any) -> bool:  # noqa: ANN401  # a function; `Callable` costs an import
    """Return whether a trial works, in a process that ends with it."""
    child = os.fork()
    if child == 0:
        try:
            trial()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _may_unshare() -> bool:
    return _in_a_fork(lambda: system_calls.unshare(system_calls.NEW_MOUNTS))


def _can_drop_root() -> bool:
    return _in_a_fork(lambda: _drop_root(""))


def _opened_library() -> Any:  # noqa: ANN401  # an iterator
    """Open the library's folders. They may lie in a home that only root can enter (pyenv); modules are then read through these files."""
    for path in sys.path:
        with contextlib.suppress(OSError):  # the zipped library is on the path even if it does not exist
            yield path, os.open(path, _READ_FOLDER | os.O_CLOEXEC)


def _move_library(place: ConfinedPlace) -> None:
    """Find modules through open folders where their paths cannot be entered, including those of packages already imported."""
    new_paths = {path: f"/proc/self/fd/{fd}" for path, fd in place.library if not os.access(path, os.R_OK | os.X_OK)}
    if not new_paths:
        return
    sys.path[:] = [new_paths.get(path, path) for path in sys.path]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        for old, new in new_paths.items() if hasattr(module, "__path__") else ():
            module.__path__ = [
                new + path.removeprefix(old) if path.startswith(f"{old}/") else path for path in module.__path__
            ]
