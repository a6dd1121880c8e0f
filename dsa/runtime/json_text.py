"""JSON as short text: what ledgers and payloads are written in.

Takes what JSON can say, gives text, and the other way round. `json.dumps` makes an encoder for every call, which takes longer than a
small object takes to encode; here each is made once.
"""

import json
import json.encoder
from collections.abc import Callable
from typing import Any

Encoder = Callable[[object], str]

#: Write a text as JSON, in ASCII.
quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
#: What `JSONEncoder.encode` makes for each call, in CPython; None elsewhere.
_make_encoder: Callable[..., Any] | None = getattr(json.encoder, "c_make_encoder", None)
_read = json.JSONDecoder().raw_decode


def _encoder(*, sort_keys: bool) -> Encoder:
    plain = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
    if _make_encoder is None:
        return plain.encode
    layout = {"indent": None, "key_separator": ":", "item_separator": ",", "sort_keys": sort_keys}
    refusing = {"markers": None, "skipkeys": False, "allow_nan": False}
    chunks = _make_encoder(default=plain.default, encoder=quoted, **layout, **refusing)

    def encode(value: object) -> str:
        return "".join(chunks(value, 0))

    return encode


#: Write a value as JSON on one line, in ASCII; TypeError or ValueError when it is none. What contains itself is a RecursionError.
text_of: Encoder = _encoder(sort_keys=False)
#: The same with sorted keys: equal objects give equal texts.
sorted_text_of: Encoder = _encoder(sort_keys=True)


def value_of(text: str) -> Any:  # noqa: ANN401  (JSON)
    """Read what one of the above has written; other text is for `json.loads`."""
    return _read(text)[0]
