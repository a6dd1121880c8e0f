"""Opens a store as usual where it may not be written, and prints what it shows; run as an ordinary user by the tests of read-only folders."""

import sys
from pathlib import Path

from dsa.edge.stores.sqlite_store import SqliteStore
from dsa.errors import DsaError

with SqliteStore(Path(sys.argv[1])) as store:
    for each in store.summaries():
        assert len(store.read(each.run).entries) == each.entries
        print(f"{each.run} {each.entries} entries, {each.status}, {len(store.waiting_messages(each.run))} message")
    try:
        store.hold("r1")
    except DsaError as fault:
        print(str(fault).partition(": ")[2])
