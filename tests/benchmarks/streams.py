"""Streams of tool calls: how many chunks a second, whether that falls with their number, and who puts which shapes together.

Peers: LiteLLM's `stream_chunk_builder`, fed directly and through `litellm.completion` over HTTP; the state of OpenAI's package; the
textbook's dictionary by index. All are given the same chunks, peers as objects of their own, made beforehand.
"""

import contextlib
import gc
import json
import logging
import os
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable

from stream_server import answered, events, serving
from stream_shapes import SHAPES, TOOLS, Shape, call_chunk, chunk, entry, finished
from timing import verdict

from dsa.generators import reconcile_stream

SIZES, ROUNDS, LIMIT, PEERS_MOST = (1_000, 10_000, 100_000), 5, 100_000, 10_000
FEW, MANY, FLAT = 5_000, 20_000, 2.0


# -- speed --------------------------------------------------------------------------------------------------------------


def one_call(pieces: int) -> list[dict]:
    """A call whose arguments come in many pieces."""
    return [
        call_chunk(entry(0, '{"query": "', given_id="a", name="search")),
        *(call_chunk(entry(0, "a word ")) for _ in range(pieces)),
        call_chunk(entry(0, '"}')),
        finished(),
    ]


def text(pieces: int) -> list[dict]:
    """A text in many pieces."""
    return [*(chunk({"content": "a word "}) for _ in range(pieces)), finished("stop")]


COSTLY: dict[str, Callable[[int], list[dict]]] = {
    "id and name with each": lambda n: [call_chunk(entry(0, "x", given_id="a", name="f")) for _ in range(n)],
    "another id with each": lambda n: [call_chunk(entry(0, "x", given_id=f"id{i}", name="f")) for i in range(n)],
    "no index": lambda n: [call_chunk({"function": {"name": "f", "arguments": "x"}}) for _ in range(n)],
    "two calls, mixed": lambda n: [call_chunk(entry(i % 2, "x", name="f")) for i in range(n)],
    "its beginning again and again": lambda n: [
        call_chunk(entry(0, '{"a": "' + "x" * n * 10 + '"}', given_id="a", name="f")),
        *(call_chunk(entry(0, "{", name="f")) for _ in range(n)),
    ],
    "braces": lambda n: [call_chunk(entry(0, "{", given_id="a", name="f")) for _ in range(n)],
    "whole objects again": lambda n: [call_chunk(entry(0, "{}", given_id="a", name="f")) for _ in range(n)],
    "calls": lambda n: [call_chunk(entry(i, "{}", given_id=f"id{i}", name="f")) for i in range(n)],
    "entries of one chunk": lambda n: [call_chunk(*({"function": {"name": "f", "arguments": "{}"}} for _ in range(n)))],
    "marks in the text": lambda n: [chunk({"content": "<"}) for _ in range(n)],
    "calls in the text": lambda n: [chunk({"content": '<tool_call>{"name": "now"}'}) for _ in range(n)],
    "whole messages": lambda n: [{"choices": [{"message": {"content": f"{i} "}}]} for i in range(n)],
}


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call, without that of looking for garbage among what was there before: other benches leave a lot."""
    gc.collect()
    gc.freeze()
    begun = time.process_time()
    work()
    taken = time.process_time() - begun
    gc.unfreeze()
    return taken


def rate(chunks: list, work: Callable[[list], object], rounds: int = ROUNDS) -> float:
    """Return chunks a second, the median of the rounds."""
    return len(chunks) / statistics.median(seconds(lambda: work(chunks)) for _ in range(rounds))


def bench_streams() -> None:
    """Chunks a second against the limit and the peers, and whether the cost of a chunk grows with their number."""
    for name, made in (("a call in pieces", one_call), ("a text in pieces", text)):
        print(f"\nstreams: {name}, chunks per second of processor time, median of {ROUNDS} rounds")
        rates = {size: rate(made(size), lambda chunks: reconcile_stream(chunks, TOOLS)) for size in SIZES}
        row = "  ".join(f"{size:>7,}: {rates[size]:>9,.0f}" for size in SIZES)
        print(f"  {'reconcile_stream':<32}{row}   limit {LIMIT:,}   {verdict(good=min(rates.values()) >= LIMIT)}")
        growth = rates[SIZES[0]] / rates[SIZES[-1]]
        print(
            f"  a chunk of {SIZES[-1]:,} / of {SIZES[0]:,}: {growth:.2f}   limit {FLAT:g}   {verdict(good=growth <= FLAT)}"
        )
        for peer, prepare, build in speed_peers():
            row = ""
            for size in SIZES:
                if size <= PEERS_MOST:
                    row += f"{size:>7,}: {rate(prepare(made(size)), build, rounds=1):>9,.0f}  "
            print(f"  {peer:<32}{row}")


def bench_costly_streams() -> None:
    """Streams that are dear to a client that looks back: four times as many chunks may take four times as long."""
    print(f"\nstreams that invite looking back: cost of a chunk among {MANY:,} / among {FEW:,}, limit {FLAT:g}")
    for name, made in COSTLY.items():
        few, many = made(FEW), made(MANY)
        ratios = [
            seconds(lambda: reconcile_stream(many, TOOLS)) / seconds(lambda: reconcile_stream(few, TOOLS)) * FEW / MANY  # noqa: B023
            for _ in range(3)
        ]
        ratio = statistics.median(ratios)
        print(f"  {name:<32}{ratio:5.2f}   {verdict(good=ratio <= FLAT)}")


# -- peers --------------------------------------------------------------------------------------------------------------


def litellm_objects(chunks: Iterable[dict]) -> list:
    """Return chunks as LiteLLM has them; it copies what it is given."""
    from litellm.types.utils import ModelResponseStream

    return [ModelResponseStream(**json.loads(json.dumps(one))) for one in chunks]


def litellm_built(chunks: list) -> object:
    import litellm

    return litellm.stream_chunk_builder(chunks)


def openai_objects(chunks: Iterable[dict]) -> list:
    """Return chunks as OpenAI's package has them."""
    from openai.types.chat import ChatCompletionChunk

    return [ChatCompletionChunk.model_validate(one) for one in chunks]


def openai_built(chunks: list) -> object:
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    for one in chunks:
        state.handle_chunk(one)
    return state.current_completion_snapshot


def speed_peers() -> list[tuple]:
    """Return the peers that are installed: name, how chunks are prepared, how they are put together."""
    quiet()
    return [
        ("litellm.stream_chunk_builder", litellm_objects, litellm_built),
        ("openai ChatCompletionStreamState", openai_objects, openai_built),
    ]


def quiet() -> None:
    """Import the peers without what they print, warn of and fetch."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    warnings.simplefilter("ignore")
    import litellm

    litellm.suppress_debug_info = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL + 1)


# -- who puts which shapes together ---------------------------------------------------------------------------------------


def by_index(chunks: list[dict]) -> list[tuple]:
    """The textbook: a dictionary by index, arguments added up."""
    calls: dict = {}
    for one in chunks:
        for choice in one.get("choices", []):
            for part in choice.get("delta", {}).get("tool_calls") or []:
                call = calls.setdefault(part["index"], ["", "", ""])
                function = part.get("function") or {}
                call[0] = part.get("id") or call[0]
                call[1] = function.get("name") or call[1]
                call[2] += function.get("arguments") or ""
    return [tuple(call) for call in calls.values()]


def calls_of(built: object) -> list[tuple]:
    """Return the calls of a completion of LiteLLM or OpenAI's package: id, name, text of the arguments."""
    message = built.choices[0].message
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]


def through_litellm(shape: Shape) -> list:
    """Return the chunks that LiteLLM hands on when a server plays a shape."""
    import litellm

    with serving(answered(events(shape.chunks))) as (address, _):
        stream = litellm.completion(
            model="openai/m", api_base=f"{address}/v1", api_key="none", messages=[{"role": "user", "content": "?"}],
            tools=TOOLS, stream=True, num_retries=0, max_retries=0, timeout=20, _skip_mcp_handler=True,
        )  # fmt: skip
        return list(stream)


def ours(chunks: Iterable, tools: list) -> list[tuple]:
    """Return our calls in the peers' form; those that must not be executed are left out, as unreadable ones of peers are."""
    result = reconcile_stream(chunks, tools)
    return [(call.id, call.name, json.dumps(call.arguments)) for call in result.tool_calls if call.error is None]


def right(calls: list[tuple], shape: Shape) -> bool:
    """Return whether calls are those of a shape: ids, names, arguments; one that cannot be read is not executed by anybody."""
    got = []
    for given_id, name, arguments in calls:
        with contextlib.suppress(ValueError, TypeError):
            value = json.loads(arguments) if arguments else {}
            if isinstance(value, dict) and name:
                got.append((given_id, name, value))
    wanted = [call for call in shape.expected["calls"] if len(call) == 3]
    if len(got) != len(wanted) or len({call[0] for call in got}) < len(got) or not all(call[0] for call in got):
        return False
    return all(
        (mine[0] == its[0] or its[0] is None) and mine[1:] == (its[1], its[2])
        for mine, its in zip(got, wanted, strict=True)
    )


CONTENDERS: dict[str, Callable[[Shape], list[tuple]]] = {
    "reconcile_stream": lambda shape: ours(shape.chunks, shape.tools),
    "litellm.stream_chunk_builder": lambda shape: calls_of(litellm_built(litellm_objects(shape.chunks))),
    "the same, over HTTP": lambda shape: calls_of(litellm_built(through_litellm(shape))),
    "reconcile_stream behind LiteLLM": lambda shape: ours(through_litellm(shape), shape.tools),
    "openai ChatCompletionStreamState": lambda shape: calls_of(openai_built(openai_objects(shape.chunks))),
    "a dictionary by index": lambda shape: by_index(shape.chunks),
}


def judged(contender: Callable[[Shape], list[tuple]], shape: Shape) -> bool:
    """Return whether a contender has the right calls; one that raises is right where nothing may be executed."""
    try:
        return right(contender(shape), shape)
    except Exception:  # noqa: BLE001  (whatever a peer raises at a shape it does not know)
        return "error" in shape.expected and all(len(call) > 3 for call in shape.expected["calls"])


def ends_unseen(shape: Shape) -> bool:
    """Return whether a stream that did not end well looks as if it had, behind LiteLLM."""
    if "error" not in shape.expected:
        return False
    try:
        return reconcile_stream(through_litellm(shape), shape.tools).error is None
    except Exception:  # noqa: BLE001  (it is seen)
        return False


def bench_stream_shapes() -> None:
    """How many of the shapes in `tests/streams/` each gets right, and what LiteLLM's own stream loses for good."""
    quiet()
    played = [shape for shape in SHAPES if shape.file != "ollama"]
    files = Counter(shape.file for shape in played)
    print(f"\nstream shapes put together right, of {len(played)}")
    print(f"  {'':<34}" + "".join(f"{name + '/' + str(count):>14}" for name, count in files.items()) + f"{'all':>8}")
    lost = []
    for name, contender in CONTENDERS.items():
        good = [shape for shape in played if judged(contender, shape)]
        counts = Counter(shape.file for shape in good)
        print(f"  {name:<34}" + "".join(f"{counts[file]:>14}" for file in files) + f"{len(good):>8}")
        if name == "reconcile_stream behind LiteLLM":
            lost = [shape for shape in played if shape not in good]
    unseen = [shape for shape in played if ends_unseen(shape)]
    for told, shapes in (
        ("calls lost in LiteLLM's stream, whatever puts it together", lost),
        ("broken ends hidden by it", unseen),
    ):
        print(f"  {told}:")
        for shape in shapes:
            print(f"    {shape.file}: {shape.name} ({shape.source})")


BENCHES = (bench_streams, bench_costly_streams, bench_stream_shapes)
