"""Slow, obvious models of what the workbook computes, to check it against.

Every model is written from the exercise's rules, in plain Python and in the
first way that comes to mind: lists that are searched, sums that are added up
anew.  The tests and the audit compare against them, so nothing here calls,
imports or copies what it checks.

They are for small inputs: most take time that grows with the square of it.
"""

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import combinations

__all__ = ["ListLRU", "ListTiers", "ListMirror", "ListExclusive",
           "read_requests", "stack_needs", "belady_hits", "most_hits",
           "ListPrefixCache", "attention", "decode", "grouped_heads", "project",
           "decoder_states", "median", "mean", "percentile"]


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

    def find(self, key):
        if self.gpu.holds(key):
            return "gpu"
        return "cpu" if self.cpu.holds(key) else "miss"

    def access(self, key, size):
        tier = self.find(key)
        if tier != "gpu":
            self.cpu.access(key, size)
        self.gpu.access(key, size)
        return tier


class ListMirror(ListTiers):
    """Two list LRUs that are both touched on every access."""

    def access(self, key, size):
        tier = self.find(key)
        self.gpu.access(key, size)
        self.cpu.access(key, size)
        return tier


class ListExclusive(ListTiers):
    """Two list LRUs that hold an entry once; what leaves the GPU goes down."""

    def access(self, key, size):
        tier = self.find(key)
        if tier == "gpu":
            self.gpu.access(key, size)
            return tier
        if tier == "cpu":
            entry = next(entry for entry in self.cpu.entries if entry[0] == key)
            self.cpu.entries.remove(entry)
            size = entry[1]
        if size > self.gpu.capacity:
            self.cpu.access(key, size)
            return tier
        while self.gpu.total() + size > self.gpu.capacity:
            self.cpu.access(*self.gpu.entries.pop(0))
        self.gpu.access(key, size)
        return tier


# -- Requests of blocks -------------------------------------------------------

def touched(blocks, touch):
    return blocks[::-1] if touch == "tail" else blocks


def read_requests(requests, tiers, touch) -> list:
    """Return for each request where its blocks were found, as a list of "gpu",
    "cpu" and "miss".

    `requests` is a list of lists of blocks; `tiers` counts in blocks.
    """
    answer = []
    for blocks in requests:
        found = [tiers.find(block) for block in blocks]
        if "miss" in found:                 # the walk ends there
            first = found.index("miss")
            found[first:] = ["miss"] * (len(blocks) - first)
        for block in touched(blocks, touch):
            tiers.access(block, 1)
        answer.append(found)
    return answer


def stack_needs(requests, touch) -> list:
    """Return for each request the smallest LRU, in blocks, in which each of
    its blocks hits; None for one that hits in no cache.

    All LRU caches are the top of one stack, the most recent first (Mattson
    1970): a block hits where the deepest block up to it is in the cache.
    """
    stack, answer = [], []
    for blocks in requests:
        needs, deepest = [], 0
        for block in blocks:
            if deepest is not None:
                deepest = (max(deepest, stack.index(block) + 1)
                           if block in stack else None)
            needs.append(deepest)
        for block in touched(blocks, touch):
            if block in stack:
                stack.remove(block)
            stack.insert(0, block)
        answer.append(needs)
    return answer


def belady_hits(requests, capacity) -> int:
    """Return the hits of single blocks when, after each request, the blocks
    are kept that will be read soonest."""
    reads = {}
    for now, blocks in enumerate(requests):
        for block in blocks:
            reads.setdefault(block, []).append(now)
    kept, hits = set(), 0
    for now, blocks in enumerate(requests):
        hits += len(kept.intersection(blocks))
        later = [(reads[block][bisect_right(reads[block], now)], block)
                 for block in kept.union(blocks) if reads[block][-1] > now]
        kept = {block for _, block in sorted(later)[:capacity]}
    return hits


def most_hits(requests, capacity, kept=frozenset()) -> int:
    """Return the most hits of single blocks, by trying every choice of what to
    keep after each request."""
    if not requests:
        return 0
    blocks, later = requests[0], requests[1:]
    choices = kept.union(blocks)
    room = min(capacity, len(choices))
    return len(kept.intersection(blocks)) + max(
        most_hits(later, capacity, frozenset(choice))
        for choice in combinations(sorted(choices), room))


# -- Prefixes under a byte budget ---------------------------------------------

class ListPrefixCache:
    """The prefix cache as a list of [model, scope, prefix, bytes], oldest first.

    `policy` is "none", "all", "longest" or "shared"; with the last, an entry
    is a block of `stride` tokens under its whole prefix.
    """

    def __init__(self, budget, stride, policy, token_bytes):
        self.budget, self.stride, self.policy = budget, stride, policy
        self.token_bytes = token_bytes
        self.entries = []

    def find(self, model, scope, prefix):
        for entry in self.entries:
            if entry[:3] == [model, scope, list(prefix)]:
                return entry
        return None

    def total(self):
        return sum(size for _, _, _, size in self.entries)

    def query(self, model, scope, tokens):
        """Return (hit_tokens, copied_bytes, resident_bytes, events)."""
        hit = self.hit(model, scope, tokens)
        events, copied = [], hit * self.token_bytes
        for end in self.ends_to_save(hit, len(tokens)):
            self.save(model, scope, tokens[:end], events)
        copied += sum(event["bytes"] for event in events if event["type"] == "admit")
        return hit, copied, self.total(), events

    def hit(self, model, scope, tokens):
        """Return the length of the prefix to reuse, and refresh its entries."""
        if self.policy == "shared":
            hit = 0
            while (hit + self.stride < len(tokens)
                   and self.find(model, scope, tokens[:hit + self.stride])):
                hit += self.stride
        else:
            hit = max((len(prefix) for its_model, its_scope, prefix, _ in self.entries
                       if its_model == model and its_scope == scope
                       and len(prefix) < len(tokens)
                       and list(tokens[:len(prefix)]) == prefix), default=0)
        self.refresh(model, scope, tokens[:hit])
        return hit

    def refresh(self, model, scope, prefix):
        """Make the entries that hold `prefix` the newest, the shortest last."""
        if self.policy == "shared":
            lengths = range(self.stride, len(prefix) + 1, self.stride)
        else:
            lengths = [len(prefix)] if prefix else []
        for length in sorted(lengths, reverse=True):
            entry = self.find(model, scope, prefix[:length])
            self.entries.remove(entry)
            self.entries.append(entry)

    def ends_to_save(self, hit, tokens):
        ends = [end for end in range(1, tokens)
                if end % self.stride == 0 and end > hit]
        return {"none": [], "all": ends, "longest": ends[-1:],
                "shared": ends}[self.policy]

    def save(self, model, scope, prefix, events):
        def told(kind, entry):
            events.append({"type": kind, "scope": entry[1], "prefix": entry[2],
                           "bytes": entry[3]})

        length = self.stride if self.policy == "shared" else len(prefix)
        new = [model, scope, list(prefix), length * self.token_bytes]
        if len(prefix) * self.token_bytes > self.budget:
            told("skip", new)
            return
        while self.total() + new[3] > self.budget:
            victim = next(entry for entry in self.entries
                          if not self.is_ancestor(entry, new))
            self.entries.remove(victim)
            told("evict", victim)
        self.entries.append(new)
        self.refresh(model, scope, list(prefix))
        told("admit", new)

    def is_ancestor(self, entry, new):
        return (self.policy == "shared" and entry[:2] == new[:2]
                and new[2][:len(entry[2])] == entry[2])


# -- Attention in scalar loops ------------------------------------------------

def attention(q, k, v, visible=None) -> tuple:
    """q [Tq][D], k [Tk][D], v [Tk][D_v] -> (output [Tq][D_v], weights [Tq][Tk]).

    `visible` [Tq][Tk] says which keys a query may see; a query that may see
    none gets zeros.
    """
    output, weights = [], []
    for i, query in enumerate(q):
        seen = [j for j in range(len(k)) if visible is None or visible[i][j]]
        scores = {j: dot(query, k[j]) / math.sqrt(len(query)) for j in seen}
        powers = {j: math.exp(scores[j] - max(scores.values())) for j in seen}
        row = [powers[j] / math.fsum(powers.values()) if j in powers else 0.0
               for j in range(len(k))]
        weights.append(row)
        output.append([math.fsum(row[j] * v[j][column] for j in seen)
                       for column in range(len(v[0]))])
    return output, weights


def decode(x, wq, wk, wv) -> list:
    """x [T][D_model] -> output [T][D_v]: each token asks about itself and all
    before it."""
    q, k, v = project(x, wq), project(x, wk), project(x, wv)
    output = []
    for t in range(len(x)):
        rows, _ = attention([q[t]], k[:t + 1], v[:t + 1])
        output.append(rows[0])
    return output


def grouped_heads(q, k, v, lengths=None) -> tuple:
    """Return (output [B][Hq][T][D], weights [B][Hq][T][T]) of causal attention.

    q is [B][Hq][T][D], k and v are [B][Hkv][T][D].  Each KV head serves the
    same number of query heads, in order.  Tokens from lengths[b] on are
    padding.
    """
    output, weights = [], []
    for b, heads in enumerate(q):
        tokens = len(heads[0])
        length = tokens if lengths is None else lengths[b]
        visible = [[j <= i < length for j in range(tokens)] for i in range(tokens)]
        serving = [g for g in range(len(k[b])) for _ in range(len(heads) // len(k[b]))]
        pairs = [attention(head, k[b][g], v[b][g], visible)
                 for head, g in zip(heads, serving)]
        output.append([pair[0] for pair in pairs])
        weights.append([pair[1] for pair in pairs])
    return output, weights


def project(rows, weight) -> list:
    """rows [T][D], weight [D][D_out] -> [T][D_out]."""
    return [[dot(row, column) for column in zip(*weight)] for row in rows]


def dot(left, right):
    return math.fsum(a * b for a, b in zip(left, right))


def decoder_states(embedding, weights, tokens) -> list:
    """Return the states [T][D] of the two-layer decoder, computed in full.

    embedding [vocabulary][D]; weights holds (Wq, Wk, Wv), each [D][D], by layer.
    """
    states = []
    for position, token in enumerate(tokens):
        angles = [position / 10000 ** (column // 2 * 2 / len(embedding[0]))
                  for column in range(len(embedding[0]))]
        states.append([value + (math.cos if column % 2 else math.sin)(angle)
                       for column, (value, angle)
                       in enumerate(zip(embedding[token], angles))])
    for wq, wk, wv in weights:
        attended = decode(states, wq, wk, wv)
        states = [[math.tanh(value + more) for value, more in zip(row, added)]
                  for row, added in zip(states, attended)]
    return states


# -- Statistics ---------------------------------------------------------------

def percentile(values, share: float) -> float:
    """Return the value at `share` (0 to 1) of the sorted values, interpolated
    linearly between the two nearest ranks."""
    ordered = sorted(values)
    place = Fraction(share).limit_denominator(1000) * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    part = place - below
    return float((1 - part) * Fraction(ordered[below])
                 + part * Fraction(ordered[above]))


def median(values) -> float:
    """Return the middle value, or the mean of the two in the middle."""
    return percentile(values, 0.5)


def mean(values) -> float:
    """Return the exact sum over the number of values, rounded once."""
    return float(sum(Fraction(value) for value in values) / len(values))
