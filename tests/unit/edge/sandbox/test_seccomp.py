"""The filter of system calls, read as the kernel reads it, for both architectures."""

import errno
import re
import struct
from pathlib import Path

import pytest
from conftest import NOT_TESTED

from dsa.edge.sandbox.inside import seccomp
from dsa.edge.sandbox.trials import FAMILIES

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ASK, KILL = 0x7FFF0000, 0x7FC00000, 0x80000000
EPERM, ENOSYS = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
#: Names of the generic table that depend on the width of a word.
WIDE = {"newfstatat": "fstatat"}


def answer(code, number, *arguments, architecture):
    """Return the answer of a classic BPF program (linux/bpf_common.h) to a call."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, *(each % (1 << 64) for each in (*arguments, *(0,) * 6)[:6]))
    steps = list(struct.iter_unpack("=HBBI", code))
    at = loaded = 0
    while True:
        operation, if_true, if_false, value = steps[at]
        at += 1
        match operation:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, value)
            case 0x54:
                loaded &= value
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x35:
                at += if_true if loaded >= value else if_false
            case 0x45:
                at += if_true if loaded & value else if_false
            case 0x06:
                return value


class Filter:
    def __init__(self, machine, families=(), forking=ALLOW):
        self.code = seccomp.program(machine, families, forking)
        self.machine = machine

    def __call__(self, number, *arguments, architecture=None):
        return answer(self.code, number, *arguments, architecture=architecture or MACHINES[self.machine])


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


def lists():
    return {**seccomp.ALLOWED_CALLS, "with sockets": seccomp.WITH_SOCKETS, "decided": seccomp.DECIDED_CALLS}


def test_listed_calls_are_allowed(machine):
    judged = Filter(machine)
    for text in seccomp.ALLOWED_CALLS.values():
        assert {
            name: judged(number) for name, number in seccomp.numbers(machine, text).items() if judged(number) != ALLOW
        } == {}


@pytest.mark.parametrize("families", [(), seccomp.FAMILIES], ids=["no sockets", "sockets"])
@pytest.mark.parametrize("family", FAMILIES)
def test_calls_tried_from_inside_are_rejected(family, families, machine):
    judged = Filter(machine, families)
    for name, *numbers, given in FAMILIES[family][1]:
        number = numbers[list(MACHINES).index(machine)]
        if number >= 0:
            arguments = [{"judge": 4321, "nice": 0}.get(each, each) for each in given]
            assert judged(number, *arguments) == (ENOSYS if number >= 424 else EPERM), name


def test_unlisted_numbers_are_rejected(machine):
    """They belong to calls that no list mentions, and to future ones."""
    judged = Filter(machine, seccomp.FAMILIES)
    known = {number for text in lists().values() for number in seccomp.numbers(machine, text).values()}
    for number in {*range(1000), 0x3FFFFFFF, 0x40000027, -1} - known:
        assert judged(number) in (EPERM, ENOSYS), number
    assert judged(1000) == judged(-1) == ENOSYS


def test_calls_of_another_architecture_end_the_process(machine):
    others = {0x40000003, 0x40000028, *MACHINES.values()} - {MACHINES[machine]}  # i386, 32-bit ARM
    assert {Filter(machine)(1, architecture=other) for other in others} == {KILL}


def test_arguments_decide_some_calls(machine):
    plain, social = Filter(machine), Filter(machine, seccomp.FAMILIES)
    call = seccomp.numbers(machine, seccomp.DECIDED_CALLS)
    assert plain(call["clone"], 0x003D0F00) == ALLOW
    assert {plain(call["clone"], 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)} == {EPERM}
    assert (plain(call["mmap"], 0, 4096, 3, 0x22), plain(call["mmap"], 0, 4096, 3, 0x40022)) == (ALLOW, EPERM)
    assert (plain(call["prlimit64"], 0, 7), plain(call["prlimit64"], 1, 7), plain(call["prlimit64"], -1, 7)) == (
        ALLOW,
        EPERM,
        EPERM,
    )
    assert (plain(call["prctl"], 38, 1), plain(call["prctl"], 22, 2), plain(call["prctl"], 62, 1)) == (
        ALLOW,
        EPERM,
        EPERM,
    )
    assert (plain(call["ioctl"], 0, 0x5401), *{plain(call["ioctl"], 0, each) for each in (0x5412, 0x541C, 0x5423)}) == (
        ALLOW,
        EPERM,
    )
    assert {plain(call["socket"], family, 1) for family in range(50)} == {EPERM}
    assert [family for family in range(50) if social(call["socket"], family, 1) == ALLOW] == [1, 2, 10]
    kinds = {kind: plain(call["socketpair"], 1, kind | 0x80800) for kind in (1, 2, 3, 5)}
    assert kinds == {1: ALLOW, 2: EPERM, 3: EPERM, 5: EPERM}
    assert (plain(call["socketpair"], 30, 1), social(call["socketpair"], 1, 2)) == (EPERM, ALLOW)


def test_forks_are_reported_to_the_supervisor_on_request(machine):
    judged, call = Filter(machine, forking=ASK), seccomp.numbers(machine, seccomp.DECIDED_CALLS)
    forks = [judged(call[name], 17) for name in ("clone", "fork", "vfork") if name in call]
    assert set(forks) == {ASK}
    assert judged(call["clone"], 0x10000011) == EPERM


def test_numbers_are_those_of_the_kernels_headers(machine):
    if not HEADERS[machine].exists():
        pytest.skip(f"{NOT_TESTED}: the numbers of system calls on {machine}: {HEADERS[machine]} is not there")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", HEADERS[machine].read_text())
    numbers = {name: int(number) for name, number in defined}
    told = {name: number for text in lists().values() for name, number in seccomp.numbers(machine, text).items()}
    for _, calls in FAMILIES.values():
        for name, *both, _ in calls:
            told |= {name.split()[0]: both[list(MACHINES).index(machine)]} if both[0] < 1000 else {}
    wrong = {name: number for name, number in told.items() if numbers.get(WIDE.get(name, name), number) != number}
    missing = {
        name: number
        for name, number in told.items()
        if name not in numbers and WIDE.get(name) not in numbers and number >= 0
    }
    assert wrong == {}
    # The calls that are written over two lines.
    assert {name for name, number in missing.items() if number <= 450} <= {"name_to_handle_at", "open_by_handle_at"}


def test_calls_are_listed_once_and_never_both_allowed_and_tried():
    names = [name for text in lists().values() for name in text.split()[::3]]
    assert len(names) == len(set(names))
    tried = {name for _, calls in FAMILIES.values() for name, *_ in calls}
    assert set(names) & tried == {"prlimit64", "getpid"}  # of others; by its second number
