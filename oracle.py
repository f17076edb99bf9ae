"""Slow, obvious models of what the workbook computes, to check it against.

Every model is written from the exercise's rules, in plain Python and in the
first way that comes to mind: lists that are searched, sums that are added up
anew.  The tests and the audit compare against them, so nothing here calls,
imports or copies what it checks.

They are for small inputs: most take time that grows with the square of it.
"""

from fractions import Fraction

__all__ = ["ListLRU", "ListTiers", "median", "mean", "percentile"]


# -- Caches sized in tokens ---------------------------------------------------

class ListLRU:
    """An LRU cache as a list of [key, size], the oldest first."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.entries = []

    def holds(self, key):
        return any(stored == key for stored, _ in self.entries)

    def total(self):
        return sum(size for _, size in self.entries)

    def access(self, key, size):
        for entry in self.entries:
            if entry[0] == key:
                self.entries.remove(entry)
                self.entries.append(entry)
                return True
        if size <= self.capacity:
            while self.total() + size > self.capacity:
                del self.entries[0]
            self.entries.append([key, size])
        return False


class ListTiers:
    """Two list LRUs under the rule of the exercise: the GPU in front."""

    def __init__(self, gpu_capacity, cpu_capacity):
        self.gpu, self.cpu = ListLRU(gpu_capacity), ListLRU(cpu_capacity)

    def access(self, key, size):
        in_gpu, in_cpu = self.gpu.holds(key), self.cpu.holds(key)
        if not in_gpu:
            self.cpu.access(key, size)
        self.gpu.access(key, size)
        return "gpu" if in_gpu else "cpu" if in_cpu else "miss"


# -- Statistics ---------------------------------------------------------------

def percentile(values, share):
    """Return the value at `share` (0 to 1) of the sorted values, interpolated
    linearly between the two nearest ranks."""
    ordered = sorted(values)
    place = Fraction(share).limit_denominator(1000) * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    part = place - below
    return float((1 - part) * Fraction(ordered[below])
                 + part * Fraction(ordered[above]))


def median(values):
    return percentile(values, 0.5)


def mean(values):
    return float(sum(Fraction(value) for value in values) / len(values))
