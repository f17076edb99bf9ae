"""Declare what bench.py samples: the groups of each experiment, as data.

    experiment = EXPERIMENTS["limit"]
    groups = experiment.groups(Settings(lengths=(16, 64)))

Which calls are compared with which, on which inputs, and what must they agree
with?  A group prepares a sample outside the timed intervals and hands out the
calls to time; the harness of bench.py knows nothing of what they do.  It is a
room of its own because a new experiment is new data here, and no new harness.

All inputs come from the seeds.  Each group says how far its results are from
an oracle that it does not share: no cache for the decode paths, the decoder's
full recompute for the prefix cache.
"""

import functools
import itertools
import math
from typing import Callable, NamedTuple

import numpy as np

import attention
from decoder import (SEEDS, STRIDE, TRACES, Decoder, PrefixCache,
                     requests)
from timings import FIRST_SEED, LONGEST_WITHOUT_CACHE, PARTS, POLICIES

__all__ = ["Settings", "Group", "Experiment", "CacheInParts", "EXPERIMENTS",
           "WIDTH"]

WIDTH = 64                              # D_model = D_k = D_v
BUDGETS = (8192, 12288, 16384)          # those of evidence/cache-admission


class Settings(NamedTuple):
    """The arguments of a measurement; an experiment may use a part of them."""
    warmup: int = 10
    repeats: int = 30
    lengths: tuple = (16, 32, 64, 128, 256)
    batch_sizes: tuple = (1, 2, 4, 8)
    length: int = 128
    hidden_sizes: tuple = (16, 64, 256)
    prefixes: tuple = (4, 8, 16, 32, 64, 128)
    dtype: str = "float64"
    seed: int = 42


class Group(NamedTuple):
    """What is sampled once a round.

    `calls()` prepares one sample, outside the timed intervals, and returns
    what to time: a list of (rest of the key, function without arguments), one
    row each.  `error()` is the largest absolute error against the oracle;
    `counted` is what was counted beforehand, by name, to set beside the time.
    """
    key: tuple
    calls: Callable
    error: Callable
    counted: dict = {}


class Experiment(NamedTuple):
    """One experiment: what it is called, what it reads, what it samples.

    `label` is its name in the CSV and in timings.SCANS, which has the columns
    of a group's key; `folder` is its place in the evidence, `reads` are the
    settings that it uses, `groups(settings)` makes the inputs and the groups,
    `sources` are the scripts on which its samples rest, `defaults` the
    settings in which it differs from Settings.
    """
    label: str
    folder: str
    reads: tuple
    groups: Callable
    sources: tuple
    defaults: dict = {}


# -- Decode paths -------------------------------------------------------------

def decode_groups(paths, sizes_of, settings):
    """Return a Group for each size (B, T) and each path, {name: function}."""
    sizes = sizes_of(settings)
    x, weights = make_inputs(sizes, settings)
    groups = []
    for batch, tokens in sizes:
        # A prefix of the same largest input, in memory of its own.
        prefix = x[:batch, :tokens].copy()          # [B, T, D_model]
        expected = np.stack([attention.decode_without_cache(sequence, *weights)
                             for sequence in prefix])
        for name, path in paths.items():
            call = functools.partial(path, prefix, *weights)
            groups.append(one_call((name, batch, tokens), call, expected))
    return groups


def one_call(key, call, expected):
    """Return the Group of one call a sample, which must give `expected`."""
    return Group(key, functools.partial(list, [((), call)]),
                 functools.partial(largest_error, call, expected))


def make_inputs(sizes, settings):
    """Return x [B, T, D_model] for the largest B and T, and the weights."""
    rng = np.random.default_rng(settings.seed)
    weights = [rng.normal(0, WIDTH ** -0.5, (WIDTH, WIDTH)) for _ in range(3)]
    x = rng.normal(size=(*map(max, zip(*sizes)), WIDTH))
    return (x.astype(settings.dtype),
            [weight.astype(settings.dtype) for weight in weights])


def largest_error(call, expected):
    """Return max |output - expected|; NaN or infinity when any is."""
    output = call()
    if isinstance(output, tuple):                   # the caches come with it
        output = output[0]
    return float(np.max(np.abs(output - expected)))


def lone(path):
    """Return `path`, which decodes x [T, D_model], for an x of one sequence."""
    def decode(x, *weights):
        return path(x[0], *weights)
    return decode


def lengths_of(batch, settings):
    return [(batch, tokens) for tokens in settings.lengths]


def batch_sizes_of(settings):
    return [(batch, settings.length) for batch in settings.batch_sizes]


CACHES = {"no_cache": lone(attention.decode_without_cache),
          "dynamic_cache": lone(attention.cached_attention),
          "preallocated_cache": lone(attention.cached_attention_preallocated)}
BATCHING = {"sequential": attention.sequential_cached_attention,
            "batched": attention.batched_cached_attention}


# -- How near the limit -------------------------------------------------------

def limit_groups(settings):
    """Return a Group for each length and path; none without a cache beyond
    LONGEST_WITHOUT_CACHE."""
    x, weights = make_inputs([(1, tokens) for tokens in settings.lengths], settings)
    groups = []
    for tokens in settings.lengths:
        prefix = x[0, :tokens].copy()               # [T, D_model]
        expected = decode_at_once(prefix, *weights)
        for name, path in LIMIT.items():
            if name == "no_cache" and tokens > LONGEST_WITHOUT_CACHE:
                continue
            call = functools.partial(path, prefix, *weights)
            groups.append(warm(one_call((name, tokens), call, expected)))
        products = BareProducts(prefix, *weights)
        groups.append(warm(one_call(("bare_products", tokens), products.run,
                                    products.expected())))
    return groups


def warm(group):
    """Return the group with an untimed call before each sample.

    A round goes from 4,096 tokens to 16; what the long path left in the
    processor's caches is not what a short one costs.
    """
    def calls():
        sample = group.calls()
        for _, call in sample:
            call()
        return sample
    return group._replace(calls=calls)


LIMIT = {"no_cache": attention.decode_without_cache,
         "preallocated_cache": attention.cached_attention_preallocated,
         "fused": attention.decode_fused}


def decode_at_once(x, wq, wk, wv, block=256):
    """Return what the decode paths return, a block of rows at a time.

    x [T, D_model] -> [T, D_v].  Each row sees what stands before it.
    """
    q, k, v = x @ wq, x @ wk, x @ wv
    return np.concatenate([
        attention.attend(q[start:start + block], k[:start + block],
                         v[:start + block], past(start, len(q[start:start + block])))[0]
        for start in range(0, len(x), block)])


def past(start, rows):
    """Return who sees whom, [rows, start + rows], from the row `start` on."""
    return np.tri(rows, start + rows, start, dtype=bool)


class BareProducts:
    """The three products of each decode step, and nothing else.

    Projection of one token, its scores, the weighted sum: by the dot products
    of `decode_fused`, on the same K and V.  There is no softmax, no copying
    and no check, and every view is made beforehand, so this is what is left
    when all glue is gone.  The scores stand for the weights of the sum.
    """

    def __init__(self, x, wq, wk, wv):
        tokens, d_k, d_v = len(x), wk.shape[1], wv.shape[1]
        # [D_model, D_k + D_k + D_v]
        self.w_qkv = np.concatenate((wq / math.sqrt(d_k), wk, wv), axis=1)
        self.k_cache, self.v_cache = x @ wk, x @ wv             # [T, D_k], [T, D_v]
        self.projected = np.empty(2 * d_k + d_v, x.dtype)
        query, scores = self.projected[:d_k], np.empty(tokens, x.dtype)
        self.query, self.output = query, np.empty((tokens, d_v), x.dtype)
        self.steps = [(x[t], self.k_cache[:t + 1], scores[:t + 1],
                       self.v_cache[:t + 1], self.output[t]) for t in range(tokens)]
        self.queries = x @ self.w_qkv[:, :d_k]                  # [T, D_k]

    def run(self):
        """Return [T, D_v], the scores times V, in a buffer that is kept."""
        dot, w_qkv, projected, query = np.dot, self.w_qkv, self.projected, self.query
        for token, keys, scores, values, row in self.steps:
            dot(token, w_qkv, out=projected)
            dot(keys, query, out=scores)
            dot(scores, values, out=row)
        return self.output

    def expected(self):
        """Return what `run` returns, by the sum of k v^T over the past."""
        total = np.zeros((self.k_cache.shape[1], self.v_cache.shape[1]))
        rows = []
        for query, key, value in zip(self.queries, self.k_cache, self.v_cache):
            total += np.outer(key, value)
            rows.append(query @ total)
        return np.stack(rows)


# -- What a prefix cache costs ------------------------------------------------

def admission_groups(settings):
    """Return a Group for each trace from a cold cache, whole and in parts."""
    check_dtype(settings)
    decoders = {seed: Decoder(seed) for seed in SEEDS}
    groups = []
    for seed, budget, trace, policy in itertools.product(
            SEEDS, BUDGETS, TRACES, POLICIES):
        replay = Replay(decoders[seed], budget, trace, policy)
        key = (seed, budget, trace, policy)
        error = replay.largest_error
        groups.append(Group((*key, "query"), replay.queries, error,
                            {"projected_rows": replay.projected_rows()}))
        if seed == FIRST_SEED:
            groups.append(Group(key, replay.parts, error))
    return groups


def check_dtype(settings):
    if settings.dtype != "float64":
        raise ValueError("the decoder computes in float64, "
                         f"got --dtype {settings.dtype}")


class Replay(NamedTuple):
    """The requests of one trace, answered by a cold cache."""
    decoder: Decoder
    budget: int
    trace: str
    policy: str

    def queries(self):
        """Return one call a request: the whole query."""
        query = PrefixCache(self.budget, STRIDE, self.policy).query
        return [((index,), functools.partial(query, scope, self.decoder, tokens))
                for index, scope, tokens in requests(self.trace)]

    def parts(self):
        """Return one call for each part of each request."""
        cache = CacheInParts(self.budget, STRIDE, self.policy)
        return [((part, index), call)
                for index, scope, tokens in requests(self.trace)
                for part, call in cache.parts(scope, self.decoder, tokens).items()]

    def projected_rows(self):
        return sum(record["projected_rows"] for _, record in self._answers())

    def largest_error(self):
        """Return the largest error against a full recompute of each request."""
        return max(
            float(np.max(np.abs(states - self.decoder.extend(tokens)[0][
                record["hit_tokens"]:])))
            for (states, record), (_, _, tokens)
            in zip(self._answers(), requests(self.trace)))

    def _answers(self):
        return [call() for _, call in self.queries()]


class CacheInParts(PrefixCache):
    """A cache whose query can be had in its parts, each a call of its own."""

    def parts(self, scope, decoder, tokens) -> dict:
        """Return {part: function}, to be called once each and in order.

        `lookup` checks the request, makes its keys and looks for the longest
        stored prefix, `gather` copies it, `compute` adds the rest, `save`
        stores and evicts, `other` makes the record.  The last one returns
        what `query` returns.
        """
        made = {}

        def lookup():
            made["request"] = self._look_up(scope, decoder, tokens)

        def gather():
            made["layers"] = self._gather(made["request"])

        def compute():
            made["states"] = self._compute(made["request"], made["layers"])

        def save():
            made["events"] = self._save_all(made["request"], made["layers"])

        def other():
            return made["states"], self._record(
                made["request"], made["layers"], made["events"])

        return dict(zip(PARTS, (lookup, gather, compute, save, other)))


# -- Where reuse starts to pay ------------------------------------------------

NEW_TOKENS = (21, 22, 23, 24)           # as in the requests of a trace
AMPLE = 1 << 30                         # bytes; no prefix is evicted


def break_even_groups(settings):
    """Return a Group for each hidden size, prefix length and policy."""
    check_dtype(settings)
    groups = []
    for hidden in settings.hidden_sizes:
        decoder = Decoder(FIRST_SEED, hidden)
        for length in settings.prefixes:
            tokens = [1 + place % 20 for place in range(length)] + [*NEW_TOKENS]
            full, _ = decoder.extend(tokens)
            for policy in POLICIES:
                call = hot_query(decoder, tokens, policy)
                groups.append(one_call((policy, hidden, length), call,
                                       full if policy == "none" else full[length:]))
    return groups


def hot_query(decoder, tokens, policy):
    """Return the query of a request whose prefix is stored already.

    It stores nothing more, so that each call finds the cache as the last did.
    """
    cache = PrefixCache(AMPLE, STRIDE, policy)
    cache.query("owner", decoder, tokens)
    return functools.partial(cache.query, "owner", decoder, tokens)


# -- The experiments ----------------------------------------------------------

COMMON = ("warmup", "repeats", "dtype", "seed")
SOURCES = ("attention.py", "bench.py", "experiments.py", "records.py", "timings.py",
           "verdicts.py")
COST_SOURCES = ("attention.py", "bench.py", "costs.py", "decoder.py",
                "experiments.py", "records.py", "timings.py", "verdicts.py")

EXPERIMENTS = {
    "cache": Experiment(
        "cache_strategy", "cache-strategy", (*COMMON, "lengths"),
        functools.partial(decode_groups, CACHES,
                          functools.partial(lengths_of, 1)), SOURCES),
    "batch-length": Experiment(
        "batch_length_scan", "m0-length-scan", (*COMMON, "lengths"),
        functools.partial(decode_groups, BATCHING,
                          functools.partial(lengths_of, 2)), SOURCES),
    "batch-size": Experiment(
        "batch_size_scan", "m1-batch-size-scan",
        (*COMMON, "batch_sizes", "length"),
        functools.partial(decode_groups, BATCHING, batch_sizes_of), SOURCES),
    "admission": Experiment(
        "admission", "admission", COMMON, admission_groups, COST_SOURCES,
        {"warmup": 1, "repeats": 25}),
    "break-even": Experiment(
        "break_even", "break-even", (*COMMON, "hidden_sizes", "prefixes"),
        break_even_groups, COST_SOURCES, {"repeats": 100}),
    "limit": Experiment(
        "limit", "limit", (*COMMON, "lengths"), limit_groups, COST_SOURCES,
        {"warmup": 1, "repeats": 60, "lengths": (16, 64, 256, 1024, 4096)}),
}
