"""Search with a program in C that is written for the machine, compiled, and called in this process. The compiler is handed in.

Memory, which stays below a bound: what is known, a bit for each number of the locations where configurations must be remembered, or
a hash table of 8-byte slots when those are too many (three eighths to three quarters of the slots are used, and while it grows the old
table is there too); two layers of the search; and, in a fifth of the bound that is set aside, all layers, for as long as they fit: after that
none is kept. In layers a configuration takes 4 bytes, or 8 when its data have more than 32 bits. A search for which the rest is too small is
stopped and is not complete.
"""

from array import array
from collections.abc import Callable, Sequence
from ctypes import CDLL, c_int, c_uint64, c_void_p

from dsa.checks.engines.c_source import NARROW, TooWideError, numbers_to_remember, source
from dsa.checks.engines.found import Found, Limits
from dsa.checks.engines.layers import Layer
from dsa.checks.engines.plan import plan
from dsa.ground import Ground, Watch

#: Makes a library of C text.
Compile = Callable[[str], CDLL]
#: All that a search may take, in bytes.
MEMORY_BYTES = 3_840 * 2**20
#: More rules, watches or locations than this take the compiler too long.
MAX_PARTS = 4_000
#: How many configurations are looked at between two looks at the limits: some hundredths of a second.
_SLICE = 2**18
_SLICE_DONE, _NO_MEMORY = 0, 3


def fits(ground: Ground, watches: Sequence[Watch] = ()) -> bool:
    """Tell whether this engine can search a system: its numbers have 64 bits, and it is not too long a program."""
    if len(ground.rules) + len(watches) + len(ground.system.locations) > MAX_PARTS:
        return False
    try:
        source(ground, watches, bitmap=True)
    except TooWideError:
        return False
    return True


def search(
    ground: Ground, watches: Sequence[Watch], limits: Limits, compile_c: Compile, memory_bytes: int = MEMORY_BYTES
) -> Found:
    """Search everything that can happen. Raises TooWideError, MemoryError, and what `compile_c` raises."""
    layers_bytes = memory_bytes // 5
    bitmap = numbers_to_remember(ground, plan(ground)) // 8 <= memory_bytes // 10 * 7
    library = _declared(compile_c(source(ground, watches, bitmap=bitmap)))
    handle = library.dsa_open(memory_bytes - layers_bytes)
    if not handle:
        raise MemoryError(f"a search may take {memory_bytes} bytes, and so many are not to be had, or too few to begin")
    try:
        return _Search(ground, watches, limits, library, handle, layers_bytes).run()
    finally:
        library.dsa_close(handle)


def _declared(library: CDLL) -> CDLL:
    library.dsa_open.restype, library.dsa_open.argtypes = c_void_p, [c_uint64]
    library.dsa_slice.restype, library.dsa_slice.argtypes = c_int, [c_void_p, c_uint64]
    library.dsa_next_layer.restype, library.dsa_next_layer.argtypes = c_int, [c_void_p]
    for name, pointers in (("dsa_close", 1), ("dsa_state", 2), ("dsa_layer", 3), ("dsa_result", 6)):
        function = getattr(library, name)
        function.restype, function.argtypes = None, [c_void_p] * pointers
    return library


class _Search:
    def __init__(
        self, ground: Ground, watches: Sequence[Watch], limits: Limits, library: CDLL, handle: int, layers_bytes: int
    ) -> None:
        self._ground, self._watches, self._limits = ground, watches, limits
        self._library, self._handle, self._layers_bytes = library, handle, layers_bytes
        self._state = array("Q", bytes(3 * 8))
        self._data = "I" if ground.volume <= NARROW else "Q"
        self._layers: list[Layer] | None = []

    def run(self) -> Found:
        depth, complete = 0, True
        self._keep()
        while complete and self._library.dsa_next_layer(self._handle):
            outcome = _SLICE_DONE
            while complete and outcome == _SLICE_DONE:
                outcome = self._library.dsa_slice(self._handle, _SLICE)
                complete = outcome != _NO_MEMORY and self._goes_on(depth)
            depth += 1
            if complete:
                self._keep()
        return self._found(complete=complete)

    def _goes_on(self, depth: int) -> bool:
        self._library.dsa_state(self._handle, _address(self._state))
        configurations = self._state[0]
        self._limits.progress(configurations, depth)
        return configurations <= self._limits.max_states and not self._limits.expired()

    def _keep(self) -> None:
        """Keep the next layer, unless that would be too much: then no layer is kept any more."""
        self._library.dsa_state(self._handle, _address(self._state))
        _, width, parts = self._state
        if self._layers is None or width == 0:
            return
        data, pairs = array(self._data, [0]) * width, array("Q", [0]) * (2 * parts)
        self._layers_bytes -= data.itemsize * width
        if self._layers_bytes < 0:
            self._layers = None
            return
        self._library.dsa_layer(self._handle, _address(pairs), _address(data))
        found, begin = [], 0
        for place, count in zip(pairs[::2], pairs[1::2], strict=True):
            found.append((place, memoryview(data)[begin : begin + count]))
            begin += count
        self._layers.append(Layer(self._ground.volume, tuple(found)))

    def _found(self, *, complete: bool) -> Found:
        watches = range(len(self._watches))
        sizes = (len(self._ground.system.locations), len(self._ground.rules), len(watches), len(watches))
        count, taken, place, data = (array("Q", [0]) * max(1, size) for size in sizes)
        is_hit = array("B", [0]) * max(1, len(watches))
        self._library.dsa_result(self._handle, *map(_address, (count, taken, place, data, is_hit)))
        volume = self._ground.volume
        self._library.dsa_state(self._handle, _address(self._state))
        return Found(
            "compiled",
            self._state[0],
            sum(taken),
            tuple(count),
            frozenset(rule for rule, times in enumerate(taken) if times),
            tuple(place[watch] * volume + data[watch] if is_hit[watch] else None for watch in watches),
            complete,
            None if self._layers is None else tuple(self._layers),
        )


def _address(values: "array[int]") -> int:
    return values.buffer_info()[0]
