"""Decode with a two-layer NumPy model whose prefix cache has a byte budget.

When does keeping K/V of a prefix save work, if room is short and every first
fill counts?

    python3 decoder.py --out evidence/my-run
    python3 decoder.py --policies all,shared --budgets 8192 --out DIR

The run answers fixed traces of requests from a cold cache, compares every
cached result with a full recompute, and writes results.json (one request a
line), arrays.npz (both results of each) and manifest.json into the new
folder DIR.  Two runs on one machine write the same bytes.

The model is untrained: it shows that cached and recomputed results are equal
and how much was projected and copied.  It does not show how long that takes,
and the budget bounds what is stored, not what the process needs.
"""

import argparse
import hashlib
import io
import itertools
import operator
import sys
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import numpy.random         # NumPy imports it late, and swallows a Ctrl-C then

import records
from attention import attention_step

__all__ = ["Decoder", "Layer", "PrefixCache", "Protocol", "checkpoint_bytes",
           "paste", "rows_of", "whole", "run", "main"]

# T tokens of a request, n tokens of a prefix, D hidden size, L layers


# -- The model ----------------------------------------------------------------

class Layer(NamedTuple):
    """What one layer keeps of n tokens; a checkpoint is a tuple of these."""
    k: np.ndarray               # [n, D] float64
    v: np.ndarray               # [n, D] float64
    positions: np.ndarray       # [n] int64, counted from the first token


def checkpoint_bytes(checkpoint) -> int:
    """Return the sum of the arrays' `nbytes`: 528 a token by default."""
    return sum(array.nbytes for layer in checkpoint for array in layer)


def token_bytes(checkpoint):
    return checkpoint_bytes(checkpoint) // len(checkpoint[0].positions)


def rows_of(checkpoint, start: int, stop: int) -> tuple:
    """Return an owned copy of the rows `start` to `stop` of a checkpoint."""
    return tuple(Layer(*(array[start:stop].copy() for array in layer))
                 for layer in checkpoint)


def paste(checkpoint, layers) -> None:
    """Copy the rows of `checkpoint` into the first rows of `layers`."""
    for layer, old in zip(layers, checkpoint):
        for array, rows in zip(layer, old):
            array[:len(rows)] = rows


class Decoder:
    """An untrained decoder: embedding, sinusoidal positions, causal layers.

    `embedding` is [vocabulary, D] and `weights` holds (Wq, Wk, Wv), each
    [D, D], for every layer; all are float64.  None of them can be changed, so
    that `signature`, which differs when any bit of them does, is computed once.
    """

    def __init__(self, seed: int, hidden: int = 16, layers: int = 2,
                 vocabulary: int = 32):
        self._arguments = seed, hidden, layers, vocabulary
        whole("seed", seed, least=0)
        whole("hidden", hidden, least=2)
        whole("layers", layers, least=1)
        whole("vocabulary", vocabulary, least=1)
        if hidden % 2:
            raise ValueError(f"hidden must be even, got {hidden}")
        rng = np.random.default_rng(seed)
        # The order of the draws is part of the published experiment.
        self._embedding = frozen(rng.normal(0, 0.3, (vocabulary, hidden)))
        self._weights = tuple(
            tuple(frozen(rng.normal(0, 0.25, (hidden, hidden))) for _ in range(3))
            for _ in range(layers))
        self._signature = signature(self._embedding, self._weights)
        columns = np.arange(0, hidden, 2)
        self._divisors = 10000 ** (columns / hidden)        # [D / 2]

    embedding = property(lambda self: self._embedding)
    weights = property(lambda self: self._weights)
    signature = property(lambda self: self._signature)
    hidden = property(lambda self: self._embedding.shape[1])

    def __reduce__(self):
        # A copied or unpickled array could be written to.
        return Decoder, self._arguments

    def extend(self, tokens, checkpoint=None):
        """Compute `tokens` [T] after `checkpoint`, or from nothing.

        Return (states [T, D] float64, checkpoint of all tokens so far).
        Neither argument is changed.  Raise ValueError or TypeError for tokens
        that are no non-empty list of ids in the vocabulary, and for a checkpoint
        of other layers or another hidden size.
        """
        tokens = self.token_ids(tokens)
        start = 0 if checkpoint is None else self._tokens_of(checkpoint)
        layers = self.room_for(start + len(tokens))
        if checkpoint is not None:
            paste(checkpoint, layers)
        return self._compute(tokens, layers, start), layers

    def room_for(self, tokens: int):
        """Return a checkpoint with rows for `tokens` tokens, not yet filled."""
        return tuple(Layer(np.empty((tokens, self.hidden)),
                           np.empty((tokens, self.hidden)),
                           np.empty(tokens, np.int64)) for _ in self.weights)

    def extend_in_place(self, tokens, layers, start: int):
        """Compute `tokens` [T] after the first `start` rows of `layers`.

        Their rows are written into `layers`, a checkpoint with room for them,
        and nothing is copied; what stands in later rows is not looked at.
        Return the states [T, D].  Raise as `extend` does, and ValueError for
        too little room, before anything changes.
        """
        tokens, room = self.token_ids(tokens), self._tokens_of(layers)
        whole("start", start, least=0)
        if start + len(tokens) > room:
            raise ValueError(f"there is room for {room} tokens, got {start} and "
                             f"{len(tokens)} more")
        return self._compute(tokens, layers, start)

    def _compute(self, tokens, layers, start):
        stop = start + len(tokens)
        new = np.arange(start, stop)                                # [T]
        states = self.embedding[tokens] + self._positional(new)     # [T, D]
        for (wq, wk, wv), layer in zip(self.weights, layers):
            np.matmul(states, wk, out=layer.k[start:stop])
            np.matmul(states, wv, out=layer.v[start:stop])
            layer.positions[start:stop] = new
            later = layer.positions[:stop] > new[:, None]           # [T, n + T]
            attended, _ = attention_step(states @ wq, layer.k[:stop],
                                         layer.v[:stop], later)
            states = np.tanh(states + attended)
        return states

    def _tokens_of(self, checkpoint):
        """Return the number of tokens in a checkpoint that may be extended."""
        if (isinstance(checkpoint, tuple) and len(checkpoint) == len(self.weights)
                and all(isinstance(layer, Layer) for layer in checkpoint)):
            tokens = len(checkpoint[0].positions)
            rows = (tokens, self.hidden)
            if all((layer.k.shape, layer.v.shape, layer.positions.shape)
                   == (rows, rows, (tokens,)) for layer in checkpoint):
                return tokens
        raise ValueError(f"checkpoint must have {len(self.weights)} layers of "
                         f"width {self.hidden} and as many tokens each, "
                         f"got {shown(checkpoint)}")

    def _positional(self, positions):
        """[T] -> [T, D]: sine in even columns, cosine in odd ones."""
        angles = positions[:, None] / self._divisors                # [T, D / 2]
        encoding = np.empty((len(positions), 2 * len(self._divisors)))
        encoding[:, 0::2] = np.sin(angles)
        encoding[:, 1::2] = np.cos(angles)
        return encoding

    def token_ids(self, tokens) -> np.ndarray:
        """Return `tokens` as an int64 array [T]; raise as `extend` does."""
        ids = whole_numbers(tokens)
        if not len(ids) or min(ids) < 0 or max(ids) >= len(self.embedding):
            raise ValueError("tokens must be one or more ids from 0 to "
                             f"{len(self.embedding) - 1}, got {shown(tokens)}")
        return np.array(ids, dtype=np.int64)

    def projected_rows(self, tokens: int) -> int:
        """Return how many rows of Q, K and V `tokens` new tokens cost."""
        return 3 * len(self.weights) * tokens


def whole_numbers(tokens):
    """Return a flat list of whole numbers as Python ints, or raise TypeError."""
    if isinstance(tokens, np.ndarray) and tokens.dtype.kind in "iu":
        tokens = tokens.tolist()
    # operator.index takes True for 1, and nothing else that is no whole number.
    try:
        if not any(isinstance(token, (bool, np.bool_)) for token in tokens):
            return [operator.index(token) for token in tokens]
    except TypeError:
        pass
    raise TypeError("tokens must be a flat list of whole numbers, "
                    f"got {shown(tokens)}")


def shown(value):
    """Return `value` on one line, cut to what fits into an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def frozen(array):
    """Return a copy whose memory cannot be made writeable again."""
    return np.frombuffer(array.tobytes()).reshape(array.shape)


def signature(embedding, weights) -> str:
    """Return the SHA-256 of the shapes and bytes of a model's arrays."""
    digest = hashlib.sha256()
    for array in (embedding, *(matrix for layer in weights for matrix in layer)):
        digest.update(repr(array.shape).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def whole(name: str, value, least: int) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value}")


# -- The cache ----------------------------------------------------------------

class Policy(NamedTuple):
    """Which prefixes of a request are saved, and how they are held.

    Entries end at multiples of the stride, each keyed by the whole prefix up
    to its end.  A prefix is held by a chain of entries: by one that holds all
    of it or, `linked`, by one for each stride, so that nested prefixes are
    stored once.
    """
    saved: slice                # of the multiples after the hit
    linked: bool = False
    in_pieces: bool = False     # compute from multiple to multiple


# `all` computes in pieces because the published run did: it fixes the last bits.
POLICIES = {"none": Policy(slice(0, 0)),
            "all": Policy(slice(None), in_pieces=True),
            "longest": Policy(slice(-1, None)),
            "shared": Policy(slice(None), linked=True)}


class PrefixCache:
    """Keep checkpoints of prefixes under a byte budget, in LRU order.

    Entries belong to a model signature and a scope and never serve another.
    The sum of the stored arrays' `nbytes`, `resident_bytes`, is never above
    `budget_bytes`.  Whatever is handed out or stored is a copy.

    A touch moves a whole chain to the recent end, its tail first and its head
    last, so a tail is always older than its head.  So an entry that is found
    has its whole chain, and eviction takes tails before heads.
    """

    def __init__(self, budget_bytes: int, stride: int = 4, policy: str = "all"):
        whole("budget_bytes", budget_bytes, least=0)
        whole("stride", stride, least=1)
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, "
                             f"got {policy!r}")
        self.budget_bytes, self.stride = budget_bytes, stride
        self.policy = POLICIES[policy]
        self.resident_bytes = 0
        self._entries = OrderedDict()       # key -> checkpoint, oldest first

    def query(self, scope: str, decoder: Decoder, tokens):
        """Compute `tokens` [T], reusing the longest stored prefix.

        Return (states [T - hit, D] of the tokens after the hit, record); the
        hit is shorter than T.  The record holds hit_tokens, projected_rows,
        resident_bytes, copied_bytes (out of and into the cache) and events:
        admit, evict and skip, in the order in which they happened.  Raise
        ValueError or TypeError, before anything changes, for a scope that is
        no non-empty string and for tokens that the decoder refuses.
        """
        request = self._look_up(scope, decoder, tokens)
        layers = self._gather(request)
        states = self._compute(request, layers)
        events = self._save_all(request, layers)
        return states, self._record(request, layers, events)

    def _look_up(self, scope, decoder, tokens):
        """Check a request and find the longest stored prefix of it."""
        check_scope(scope)
        ids = decoder.token_ids(tokens)
        prefixes = Prefixes(decoder.signature, scope, tuple(ids.tolist()))
        return Request(decoder, ids, prefixes,
                       self._longest_stored(prefixes, len(ids)))

    def _record(self, request, layers, events):
        admitted = sum(event["bytes"] for event in events
                       if event["type"] == "admit")
        rows = len(request.ids) - request.hit
        return {"hit_tokens": request.hit,
                "projected_rows": request.decoder.projected_rows(rows),
                "resident_bytes": self.resident_bytes,
                "copied_bytes": request.hit * token_bytes(layers) + admitted,
                "events": events}

    def _multiples(self, start, stop):
        """Return the multiples of the stride between `start` and `stop`."""
        return range(start + self.stride, stop, self.stride)

    def _chain(self, end):
        """Return the ends of the entries that hold the prefix up to `end`."""
        return range(self.stride, end + 1, self.stride) if self.policy.linked \
            else range(end, end + 1)

    def _longest_stored(self, prefixes, tokens):
        for end in reversed(self._multiples(0, tokens)):
            if prefixes.key(end) in self._entries:
                return end
        return 0

    def _gather(self, request):
        """Return room for the whole request, with the rows of the hit in it."""
        layers = request.decoder.room_for(len(request.ids))
        if not request.hit:
            return layers
        self._touch(request.prefixes, request.hit)
        chain = [self._entries[request.prefixes.key(end)]
                 for end in self._chain(request.hit)]
        for layer, parts in zip(layers, zip(*chain)):
            for array, rows in zip(layer, zip(*parts)):
                np.concatenate(rows, out=array[:request.hit])
        return layers

    def _touch(self, prefixes, end):
        """Make a chain the most recent, its head last."""
        for part in reversed(self._chain(end)):
            self._entries.move_to_end(prefixes.key(part))

    def _compute(self, request, layers):
        """Fill the rows after the hit; return their states."""
        decoder, ids, _, start = request
        ends = [*self._multiples(start, len(ids))] if self.policy.in_pieces else []
        pieces = []
        for end in ends + [len(ids)]:
            pieces.append(decoder.extend_in_place(ids[start:end], layers, start))
            start = end
        return np.concatenate(pieces)

    def _save_all(self, request, layers):
        """Store what the policy saves of a request; return the events."""
        ends = self._multiples(request.hit, len(request.ids))[self.policy.saved]
        return [event for end in ends
                for event in self._save(request.prefixes, end, layers)]

    def _save(self, prefixes, end, checkpoint):
        """Store the prefix up to `end`; return the events of it."""
        start = end - self.stride if self.policy.linked else 0
        size, key = (end - start) * token_bytes(checkpoint), prefixes.key(end)
        if end * token_bytes(checkpoint) > self.budget_bytes:
            return [event("skip", key, size)]
        events = []
        # Evict before storing, so that the budget holds at every moment.  The
        # ancestors were touched last and fit together with this entry, so the
        # loop ends before it reaches them.
        while self.resident_bytes + size > self.budget_bytes:
            events.append(self._evict_oldest())
        self._entries[key] = rows_of(checkpoint, start, end)
        self.resident_bytes += size
        self._touch(prefixes, end)
        return events + [event("admit", key, size)]

    def _evict_oldest(self):
        key, checkpoint = self._entries.popitem(last=False)
        size = checkpoint_bytes(checkpoint)
        self.resident_bytes -= size
        return event("evict", key, size)


class Prefixes(NamedTuple):
    """The prefixes of one request, as keys of the cache."""
    signature: str
    scope: str
    tokens: tuple

    def key(self, end):
        return self.signature, self.scope, self.tokens[:end]


class Request(NamedTuple):
    """A checked request, and how many of its tokens are stored."""
    decoder: Decoder
    ids: np.ndarray             # [T] int64
    prefixes: Prefixes
    hit: int


def event(kind, key, size):
    _, scope, prefix = key
    return {"type": kind, "scope": scope, "prefix": list(prefix), "bytes": size}


def check_scope(scope):
    if not isinstance(scope, str):
        raise TypeError(f"scope must be a string, got {scope!r}")
    if not scope:
        raise ValueError("scope must not be empty, got ''")


# -- The run ------------------------------------------------------------------

SEEDS = (7, 11, 23)
BUDGETS = (4096, 8192, 32768)
REQUESTS, STRIDE, TOLERANCE = 12, 4, 1e-12
HOT, OTHER = tuple(range(1, 9)), tuple(range(13, 21))

# trace -> the scope and the prefix of request i
TRACES = {
    "hot-prefix": lambda i: ("owner", HOT),
    "alternating-branches": lambda i: ("owner", OTHER if i % 2 else HOT),
    "three-scopes": lambda i: (f"owner-{i % 3}", HOT),
    "hot-and-cold": lambda i: ("owner", (13 + i, *HOT[1:]) if i % 2 else HOT)}


PUBLISHED_TRACES = ("hot-prefix", "alternating-branches", "three-scopes")


def requests(trace):
    """Yield (index, scope, tokens) of the requests of a trace."""
    for index in range(REQUESTS):
        scope, prefix = TRACES[trace](index)
        yield index, scope, [*prefix, 21, 22, 23, 24 + index % 6]


class Protocol(NamedTuple):
    """What a run does: every combination, each from a cold cache.

    Without policies it is the published experiment, whose records name none.
    """
    budgets: tuple = BUDGETS
    policies: tuple = ()

    def traces(self):
        return list(TRACES if self.policies else PUBLISHED_TRACES)

    def caches(self):
        """Yield (labels, cold cache) of every trace of the run."""
        for seed, budget, trace, policy in itertools.product(
                SEEDS, self.budgets, self.traces(), self.policies or (None,)):
            labels = {"seed": seed, "budget": budget, "trace": trace}
            if policy:
                labels["policy"] = policy
            yield labels, PrefixCache(budget, STRIDE, policy or "all")

    def description(self):
        return {"seeds": list(SEEDS), "budgets": list(self.budgets),
                "traces": self.traces(), "policies": list(self.policies),
                "requests": REQUESTS, "stride": STRIDE}


def run(protocol: Protocol = Protocol(), progress=None) -> tuple:
    """Answer all requests; return (records, arrays).

    `progress.step()` is called after each request.  `arrays` maps
    `{key}_full` and `{key}_cached` to the states after the hit, recomputed in
    one piece and by way of the cache.
    """
    decoders = {seed: Decoder(seed) for seed in SEEDS}
    results, arrays = [], {}
    for labels, cache in protocol.caches():
        for index, scope, tokens in requests(labels["trace"]):
            decoder = decoders[labels["seed"]]
            states, record = cache.query(scope, decoder, tokens)
            full = decoder.extend(tokens)[0][record["hit_tokens"]:]
            key = "_".join(map(str, (*labels.values(), index)))
            results.append(result(key, labels, index, scope, tokens, record,
                                  decoder, float(np.abs(states - full).max())))
            arrays[f"{key}_full"], arrays[f"{key}_cached"] = full, states
            if progress:
                progress.step()
    return results, arrays


def result(key, labels, index, scope, tokens, record, decoder, max_abs_error):
    return {"key": key, **labels, "index": index, "scope": scope, "tokens": tokens,
            "hit_tokens": record["hit_tokens"],
            "full_projected_rows": decoder.projected_rows(len(tokens)),
            "projected_rows": record["projected_rows"],
            "resident_bytes": record["resident_bytes"],
            "copied_bytes": record["copied_bytes"],
            "max_abs_error": max_abs_error, "events": record["events"]}


def write_run(path, protocol):
    """Run `protocol` into the new folder `path`; return the largest error."""
    with records.run_folder(path) as folder:
        count = REQUESTS * sum(1 for _ in protocol.caches())
        with records.Progress("requests", count) as progress:
            results, arrays = run(protocol, progress)
        archive = io.BytesIO()
        np.savez(archive, **arrays)
        records.fill_run(
            folder, {"results.json": records.json_rows(results),
                     "arrays.npz": archive.getvalue()},
            protocol.description(),
            {"numpy": np.__version__, "variables": records.kernel_variables()},
            ["attention.py", "decoder.py", "records.py"])
    return max(row["max_abs_error"] for row in results)


# -- The command --------------------------------------------------------------

def policy(text):
    if text not in POLICIES:
        raise argparse.ArgumentTypeError(
            f"must be of {', '.join(POLICIES)}, got {text[:25]!r}")
    return text


def budgets(text):
    values = records.list_of(records.whole_number(most=10 ** 12))(text)
    if len(values) > 256:
        raise argparse.ArgumentTypeError(
            f"must be at most 256 budgets, got {len(values)}")
    return values


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(
        description="Run the cache-budget experiment into a new folder.",
        allow_abbrev=False)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="the folder to make; it must not exist")
    parser.add_argument("--budgets", type=budgets, default=BUDGETS,
                        metavar="LIST", help="in bytes (4096,8192,32768)")
    parser.add_argument("--policies", type=records.list_of(policy), default=(),
                        metavar="LIST",
                        help="of none, all, longest and shared; without it, the "
                             "published run, which saves all")
    args = parser.parse_args(argv)

    def work():
        largest = write_run(args.out, Protocol(args.budgets, args.policies))
        if largest > TOLERANCE:
            raise ValueError(f"{args.out}: a cached result differs from the full "
                             f"recompute by {largest}, above {TOLERANCE}")

    return records.run_main("decoder.py", work)


if __name__ == "__main__":
    sys.exit(main())
