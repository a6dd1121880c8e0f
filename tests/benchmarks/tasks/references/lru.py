"""A right answer to the tasks `lru` and `tdd_lrucache`."""

from collections import OrderedDict


class LRUCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.kept = OrderedDict()

    def get(self, key):
        if key not in self.kept:
            return -1
        self.kept.move_to_end(key)
        return self.kept[key]

    def put(self, key, value):
        self.kept[key] = value
        self.kept.move_to_end(key)
        if len(self.kept) > self.capacity:
            self.kept.popitem(last=False)
