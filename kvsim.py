"""Simulate key/value caches whose entries are sized in tokens.

Which documents does an LLM server still hold when they are read again?

    cache = LRUCache(capacity)                          one tier
    tiers = TwoTierCache(gpu_capacity, cpu_capacity)    GPU, backed by CPU
    tiers = ExclusiveTwoTierCache(gpu_capacity, cpu_capacity)     no copies

`access(key, size)` reads one entry and reports where it was found.
Capacities and sizes are numbers of tokens: 0 or more, whole or not.

The invariant: the stored sizes never add up to more than the capacity,
and an access changes either everything that it should or nothing at all.

Limits: an entry is kept or evicted whole, while servers keep blocks of
tokens, and there is no clock: hits are counted, time is not.
"""

from collections import OrderedDict
from numbers import Integral, Real
from typing import Hashable

__all__ = ["LRUCache", "TwoTierCache", "ExclusiveTwoTierCache"]


class LRUCache:
    """A cache of `capacity` tokens that evicts the least recently used.

    `key in cache` and `len(cache)` look without touching the order.
    """

    __slots__ = ("capacity", "_sizes", "_used")

    def __init__(self, capacity: float):
        self.capacity = tokens("capacity", capacity)
        self._sizes = OrderedDict()     # key -> size, oldest first
        self._used = 0

    def access(self, key: Hashable, size: float) -> bool:
        """Read `key`; return True on a hit and False on a miss.

        A hit makes the entry the most recent and keeps its stored size.
        A miss evicts the oldest entries until `size` tokens are free, then
        stores the entry.  An entry larger than the capacity is not stored
        and evicts nothing.  Raise ValueError for a size that is negative or
        NaN, TypeError for one that is no number.
        """
        if type(size) is not int or size < 0:   # the common case costs no call
            size = tokens("size", size)
        sizes = self._sizes
        if key in sizes:
            sizes.move_to_end(key)
            return True
        if size <= self.capacity:
            self._evict_down_to(self.capacity - size)
            sizes[key] = size
            self._used += size
        return False

    def _evict_down_to(self, most):
        sizes = self._sizes
        while self._used > most:
            _, size = sizes.popitem(last=False)
            # An empty cache is exactly 0, whatever fractions were summed.
            self._used = self._used - size if sizes else 0

    def remove(self, key: Hashable) -> float:
        """Remove `key` and return its size; raise KeyError if not stored."""
        size = self._sizes.pop(key)
        self._used = self._used - size if self._sizes else 0
        return size

    def oldest(self) -> Hashable:
        """Return the key that is evicted next; raise KeyError when empty."""
        for key in self._sizes:
            return key
        raise KeyError("the cache is empty")

    @property
    def used(self) -> float:
        """The sum of the stored sizes, in tokens."""
        return self._used

    def keys(self) -> list:
        """Return the stored keys as a new list, oldest first."""
        return list(self._sizes)

    def __contains__(self, key):
        return key in self._sizes

    def __len__(self):
        return len(self._sizes)

    def __repr__(self):
        return "<LRUCache: {} entries, {} of {} tokens>".format(
            len(self), self.used, self.capacity)


class TwoTierCache:
    """A GPU tier backed by a CPU tier, `gpu` and `cpu`, each an LRUCache.

    The tiers are inclusive: what is read is put into both, so that the CPU
    tier keeps a copy when the GPU evicts.  With a `cpu_capacity` of 0 it
    behaves as the GPU tier alone.
    """

    def __init__(self, gpu_capacity: float, cpu_capacity: float):
        self.gpu = LRUCache(gpu_capacity)
        self.cpu = LRUCache(cpu_capacity)

    def access(self, key: Hashable, size: float) -> str:
        """Read `key`; return the tier that held it: "gpu", "cpu" or "miss".

        A GPU hit does not touch the CPU tier.  A CPU hit makes the CPU copy
        the most recent and puts the entry into the GPU too.  A miss stores
        the entry in both.  Errors are those of LRUCache.access.
        """
        if self.gpu.access(key, size):
            return "gpu"
        return "cpu" if self.cpu.access(key, size) else "miss"

    def __repr__(self):
        return "<TwoTierCache: gpu {!r}, cpu {!r}>".format(self.gpu, self.cpu)


class ExclusiveTwoTierCache:
    """A GPU tier whose evicted entries go down to a CPU tier.

    `gpu` and `cpu` are LRUCaches, and an entry is in one of them at most.
    For entries of one size, tiers that are multiples of it hold what one LRU
    tier of both holds.
    """

    def __init__(self, gpu_capacity: float, cpu_capacity: float):
        self.gpu = LRUCache(gpu_capacity)
        self.cpu = LRUCache(cpu_capacity)

    def access(self, key: Hashable, size: float) -> str:
        """Read `key`; return the tier that held it: "gpu", "cpu" or "miss".

        A CPU hit moves the entry, with its stored size, into the GPU; a miss
        stores it there.  What the GPU evicts, oldest first, and an entry too
        large for the GPU become the CPU's most recent, or are dropped when
        too large for it.  Errors are those of LRUCache.access.
        """
        size = tokens("size", size)
        if key in self.gpu:
            self.gpu.access(key, size)
            return "gpu"
        in_cpu = key in self.cpu
        if in_cpu:
            # It leaves before anything goes down, so that its room is free.
            size = self.cpu.remove(key)
        self._store(key, size)
        return "cpu" if in_cpu else "miss"

    def _store(self, key, size):
        if size > self.gpu.capacity:
            self.cpu.access(key, size)
            return
        while self.gpu.used > self.gpu.capacity - size:
            oldest = self.gpu.oldest()
            self.cpu.access(oldest, self.gpu.remove(oldest))
        self.gpu.access(key, size)

    def __repr__(self):
        return "<ExclusiveTwoTierCache: gpu {!r}, cpu {!r}>".format(
            self.gpu, self.cpu)


def tokens(name, value):
    """Return `value` as a number of tokens, 0 or more, or raise."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError("{} must be a number of tokens, got {!r}".format(
            name, value))
    if not value >= 0:                  # NaN is not >= 0 either
        raise ValueError("{} must be 0 tokens or more, got {!r}".format(
            name, value))
    # Python's whole numbers do not overflow, as NumPy's small ones do.
    return int(value) if isinstance(value, Integral) else value
