"""Replay a trace of requests through KV caches; every capacity at once.

How large must a cache be for this traffic, and are two tiers worth their sum?

    python3 replay.py TRACE.jsonl --gpu-tokens 5120000
    python3 replay.py TRACE.jsonl --gpu-tokens 2560000 --cpu-tokens 2560000 \\
        --tiers exclusive
    python3 replay.py TRACE.jsonl --curve curve.csv

A row is a request: `{"input_length": 1100, "hash_ids": [0, 1, 2]}`, where an
id names a block and all before it, or `{"doc": "a", "doc_tokens": 5011}`, a
document as one block of its own size.  A request hits its leading blocks up
to the first that no tier holds, then touches them all.  One JSON object with
counts and rates goes to stdout, and `--curve` writes the counts at every
capacity of one tier as CSV: exact, from one pass over the trace.

Hits are counted, not seconds: arrival times are ignored, requests do not
overlap, and a request may hit whole, where an engine computes its last token.
"""

import argparse
import heapq
import json
import math
import os
import sys
from array import array
from collections import Counter
from typing import NamedTuple, Optional

import numpy as np

import kvsim
import records
from needs import (NEVER, last_touches, lru_needs, sizes_touched_since,
                   sort_with_positions)

__all__ = ["Trace", "read_trace", "block_needs", "found_blocks", "curve",
           "belady_hits", "lru_needs", "NEVER", "main"]

# R requests of N blocks in all; each request's blocks stand in walking order
MISS, GPU, CPU = 0, 1, 2        # where a block was found
SHARES = (50, 90, 99)           # per cent of the unbounded hit tokens


class Trace(NamedTuple):
    """The blocks of all requests, one after the other."""

    keys: np.ndarray                # [N] integers that name the blocks
    tokens: np.ndarray              # int64 [N], as the request has them
    starts: np.ndarray              # int64 [R], where each request begins
    block_tokens: Optional[int]     # room that a block takes; None: its tokens


# -- Reading ------------------------------------------------------------------

def read_trace(path: str, block_tokens: int = 512,
               rows: Optional[int] = None) -> Trace:
    """Return the trace in the JSON lines of `path`, at most `rows` of them.

    Blank lines, a byte order mark and carriage returns are skipped.  Raise
    ValueError with `file:line` for the first row that is not as it should be.
    """
    reader = None
    with open(path, "rb") as lines:
        size = os.fstat(lines.fileno()).st_size
        with records.Progress("reading", size) as progress:
            for number, line in enumerate(lines, 1):
                progress.step(len(line))
                try:
                    row = parse_row(line, number)
                    if row is None:
                        continue
                    if reader is None:
                        reader = (BlockRows(block_tokens) if "hash_ids" in row
                                  else DocumentRows())
                    reader.add(row)
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"{path}:{number}: {error}") from None
                if len(reader.lengths) == rows:
                    break
    if reader is None:
        raise ValueError(f"{path}: no rows, at least one is needed")
    return reader.trace()


def parse_row(line, number):
    """Return the JSON object of one line, None for a blank line."""
    if number == 1 and line.startswith(b"\xef\xbb\xbf"):
        line = line[3:]
    line = line.strip(b" \t\r\n")
    if not line:
        return None
    row = DECODER.decode(line.decode())
    if type(row) is not dict:
        raise ValueError(f"a row must be a JSON object, got {shown(row)}")
    return row


def refuse_constant(text):
    raise ValueError(f"{text} is not a JSON number")


DECODER = json.JSONDecoder(parse_constant=refuse_constant)


class BlockRows:
    """Collects requests for blocks of `block_tokens` tokens."""

    def __init__(self, block_tokens):
        self.block_tokens = block_tokens
        self.keys, self.lengths, self.total = array("Q"), array("q"), 0

    def add(self, row):
        if "hash_ids" not in row:
            raise ValueError('a row after one with "hash_ids" must have them too')
        ids = row["hash_ids"]
        length = token_count(row, "input_length", 1)
        self.total = checked_total(self.total, length)
        if type(ids) is not list or not set(map(type, ids)) <= {int}:
            raise ValueError('"hash_ids" must be a list of whole numbers, '
                             f"got {shown(ids)}")
        blocks = -(-length // self.block_tokens)
        if len(ids) != blocks:
            raise ValueError(f'"hash_ids" must be {blocks} for {length} tokens '
                             f"in blocks of {self.block_tokens}, got {len(ids)}")
        if len(set(ids)) < blocks:
            twice, _ = Counter(ids).most_common(1)[0]
            raise ValueError('"hash_ids" must not repeat in a row, '
                             f"got {twice} twice")
        try:
            self.keys.extend(ids)
        except OverflowError:
            raise ValueError('"hash_ids" must be 0 to 18446744073709551615, got '
                             f"{min(ids)} to {max(ids)}") from None
        self.lengths.append(length)

    def trace(self):
        lengths = np.array(self.lengths, np.int64)
        # A block that is larger than every request need not fit int64.
        size = min(self.block_tokens, int(lengths.max()))
        ends = np.cumsum(-(-lengths // size))
        tokens = np.full(len(self.keys), size, np.int64)
        tokens[ends - 1] = (lengths - 1) % size + 1
        starts = np.concatenate(([0], ends[:-1]))
        # The ids only name; as int64 they sort faster.
        keys = np.array(self.keys).view(np.int64)
        return Trace(keys, tokens, starts, self.block_tokens)


class DocumentRows:
    """Collects reads of documents, each one block of its own size."""

    def __init__(self):
        self.numbers, self.sizes = {}, []       # by name, by number
        self.keys, self.lengths, self.total = array("q"), array("q"), 0

    def add(self, row):
        if "hash_ids" in row:
            raise ValueError('a row after one without "hash_ids" must have none')
        name, length = row.get("doc"), token_count(row, "doc_tokens", 0)
        self.total = checked_total(self.total, length)
        if type(name) not in (str, int):
            raise ValueError('"doc" must be a string or a whole number, '
                             f"got {shown(name)}")
        number = self.numbers.setdefault(name, len(self.numbers))
        if number == len(self.sizes):
            self.sizes.append(length)
        if self.sizes[number] != length:
            raise ValueError(f"document {shown(name)} must keep its "
                             f"{self.sizes[number]} tokens, got {length}")
        self.keys.append(number)
        self.lengths.append(length)

    def trace(self):
        tokens = np.array(self.lengths, np.int64)
        return Trace(np.array(self.keys), tokens, np.arange(len(tokens)), None)


def token_count(row, name, least):
    value = row.get(name)
    if type(value) is not int or value < least:
        raise ValueError(f'"{name}" must be a whole number of tokens >= {least}, '
                         f"got {shown(value)}")
    return value


def checked_total(total, length):
    # Sums of tokens are int64.
    if total + length >= NEVER:
        raise ValueError(f"the tokens of all rows must be fewer than {NEVER}, "
                         f"got {shown(total + length)}")
    return total + length


def shown(value):
    """Return `value` as JSON, cut to what fits into an error message."""
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


# -- One number a block answers every capacity --------------------------------

class Touches(NamedTuple):
    """Accesses in the order in which the blocks are touched."""

    keys: np.ndarray        # [N]
    begins: np.ndarray      # int64 [N], position of the request's first touch
    place: np.ndarray       # int64 [N], position at which walked block i is touched


def touch_order(trace, touch):
    """Return the Touches of a trace, "head" first or "tail" first."""
    lengths = np.diff(trace.starts, append=len(trace.keys))
    begins = np.repeat(trace.starts, lengths)
    place = np.arange(len(trace.keys))
    if touch == "tail":
        place = begins + np.repeat(trace.starts + lengths - 1, lengths) - place
    # Mirroring a request is its own inverse, so that `place` serves both ways.
    return Touches(trace.keys[place], begins, place)


def needed_blocks(keys, now):
    """Return int64 [N]: the smallest LRU, in blocks, that holds key i at `now`.

    `now` [N] is the position from which access i is seen; see
    needs.sizes_touched_since.
    """
    last = last_touches(keys)
    ones = np.broadcast_to(np.int64(1), len(keys))
    needed = sizes_touched_since(last, now, ones, counting)
    needed += 1
    needed[last < 0] = NEVER
    return needed


def counting(total):
    return records.Progress("counting", total).step


def held_needs(trace: Trace, touch: str) -> np.ndarray:
    """Return int64 [N]: the smallest one-tier LRU that holds block i when its
    request starts, `NEVER` for a block not seen before.

    In blocks or, for documents, in tokens and at least the largest size.
    """
    if trace.block_tokens is None:
        return lru_needs(trace.keys, trace.tokens)
    touches = touch_order(trace, touch)
    return needed_blocks(touches.keys, touches.begins)[touches.place]


def block_needs(trace: Trace, held: np.ndarray) -> np.ndarray:
    """Return int64 [N]: the smallest one-tier LRU in which block i hits.

    A block hits when all before it hit too: its number is the running maximum
    of `held` [N], as held_needs returns it, over its request.
    """
    if trace.block_tokens is None:
        return held
    never = len(held) + 1                           # above every need in blocks
    request = np.zeros(len(held), np.int64)
    request[trace.starts[1:]] = never
    np.cumsum(request, out=request)
    # Lifted above all requests before it, a request starts its maximum anew.
    needs = np.minimum(held, never - 1) + request
    np.maximum.accumulate(needs, out=needs)
    needs -= request
    needs[needs == never - 1] = NEVER
    return needs


# -- Replay at one capacity ---------------------------------------------------

def found_blocks(trace: Trace, held: np.ndarray, gpu_tokens: int,
                 cpu_tokens: int = 0, tiers: str = "inclusive",
                 touch: str = "tail") -> np.ndarray:
    """Return int8 [N]: GPU, CPU or MISS, where each block was found.

    `held` is what held_needs returns for the trace and the same `touch`.
    """
    if trace.block_tokens is None:
        return found_documents(trace, TIERS[tiers](gpu_tokens, cpu_tokens))
    # Halved, so that the sum of both fits int64 and stays below NEVER.
    gpu = min(gpu_tokens // trace.block_tokens, NEVER // 2)
    cpu = min(cpu_tokens // trace.block_tokens, NEVER // 2)
    in_gpu = held <= gpu
    if tiers == "inclusive" and cpu:
        in_cpu = held_behind(trace, touch, gpu) <= cpu
    else:
        # One LRU tier of `cpu` blocks, or of both together.
        in_cpu = held <= (gpu + cpu if tiers == "exclusive" else cpu)
    found = np.where(in_gpu, GPU, np.where(in_cpu, CPU, MISS)).astype(np.int8)
    found[~leading(found != MISS, trace.starts)] = MISS
    return found


def held_behind(trace, touch, gpu):
    """Return int64 [N]: the smallest CPU tier, behind an inclusive GPU tier of
    `gpu` blocks, that holds block i when its request starts.

    The CPU tier is an LRU of its own trace: the touches that miss the GPU.
    What a request walks and does not find in the GPU is among them, because
    it is not put there before its touch; `NEVER` stands for the others.
    """
    missed, keys, now, place = cpu_touches(trace, touch, gpu)
    behind = needed_blocks(keys, now)
    needs = np.full(len(missed), NEVER)
    needs[missed] = behind
    return needs[place]


def cpu_touches(trace, touch, gpu):
    """Return which touches miss the GPU, bool [N]; of those the keys and the
    positions, among them, at which their requests begin; and Touches.place."""
    keys, begins, place = touch_order(trace, touch)
    missed = needed_blocks(keys, np.arange(len(keys))) > gpu
    before = np.cumsum(missed) - missed
    return missed, keys[missed], before[begins[missed]], place


def leading(hits, starts):
    """Return bool [N]: True up to the first miss of each request."""
    misses = np.cumsum(~hits)
    before = misses[starts] - ~hits[starts]
    lengths = np.diff(starts, append=len(hits))
    return misses == np.repeat(before, lengths)


class MirroredTiers:
    """Two tiers that are both touched on every access."""

    def __init__(self, gpu_capacity, cpu_capacity):
        self.gpu = kvsim.LRUCache(gpu_capacity)
        self.cpu = kvsim.LRUCache(cpu_capacity)

    def access(self, key, size):
        in_gpu, in_cpu = self.gpu.access(key, size), self.cpu.access(key, size)
        return "gpu" if in_gpu else "cpu" if in_cpu else "miss"


TIERS = {"inclusive": kvsim.TwoTierCache, "mirror": MirroredTiers,
         "exclusive": kvsim.ExclusiveTwoTierCache}


def found_documents(trace, cache):
    # Simulated, because a document may be larger than a tier.
    code = {"gpu": GPU, "cpu": CPU, "miss": MISS}
    found = np.empty(len(trace.keys), np.int8)
    reads = zip(trace.keys.tolist(), trace.tokens.tolist())
    with records.Progress("replaying", len(found)) as progress:
        for index, (key, tokens) in enumerate(reads):
            found[index] = code[cache.access(key, tokens)]
            progress.step()
    return found


# -- A bound for every policy -------------------------------------------------

def belady_hits(trace: Trace, capacity: int) -> int:
    """Return how many single blocks a cache of `capacity` blocks can hit.

    After each request it keeps the blocks that will be read soonest, and need
    not keep the request's own (Belady 1966, with the right not to store).  No
    rule of touching or tiers hits more: what hits was kept since its last read.
    """
    request = np.repeat(np.arange(len(trace.starts)),
                        np.diff(trace.starts, append=len(trace.keys)))
    last = last_touches(trace.keys)
    again = np.flatnonzero(last >= 0)
    # Every re-read asks for room from one request to the next; [M], by time.
    order = np.argsort(last[again])
    since, until = request[last[again]][order], request[again][order]
    ends = np.split(until, np.searchsorted(since, np.arange(1, len(trace.starts))))
    kept = [0] * len(trace.starts)      # by the request that will read them
    latest, held, hits = [], 0, 0
    with records.Progress("bounding", len(ends)) as progress:
        for now, readers in enumerate(ends):
            hits += kept[now]
            held += len(readers) - kept[now]
            for reader in readers.tolist():
                kept[reader] += 1
                heapq.heappush(latest, -reader)
            while held > capacity:
                kept[-heapq.heappop(latest)] -= 1
                held -= 1
            progress.step()
    return hits


def bound_blocks(trace, gpu_tokens, cpu_tokens):
    """Return how many blocks both tiers have room for; blocks of one size."""
    size = trace.block_tokens or int(trace.tokens[0])
    if size == 0:
        return len(trace.keys)
    return gpu_tokens // size + cpu_tokens // size


# -- Answers ------------------------------------------------------------------

def how_many(mask):
    return int(np.count_nonzero(mask))      # json knows no NumPy integers


def rates(trace, hits):
    """Return the hit rates of `hits`, bool [N], by what they are shares of.

    Rounded to 6 decimals; a rate of nothing, as of no tokens, is left out.
    """
    first, final = trace.starts, np.append(trace.starts[1:], len(hits)) - 1
    parts = {"block": (how_many(hits), len(hits)),
             "token": (int(trace.tokens[hits].sum()), int(trace.tokens.sum())),
             "request": (how_many(hits[first]), len(first)),
             "full_request": (how_many(hits[final]), len(first))}
    return {name: round(count / whole, 6)
            for name, (count, whole) in parts.items() if whole}


def curve(trace: Trace, needs: np.ndarray) -> list:
    """Return [(capacity_tokens, hit_blocks, hit_tokens), ...] of one tier.

    `needs` is what block_needs returns.  The first row is that of the largest
    size, and each other one a capacity at which a count changes.
    """
    unit = trace.block_tokens or 1
    least = 1 if trace.block_tokens else int(trace.tokens.max())
    hits = np.flatnonzero(needs < NEVER)
    ordered, order = sort_with_positions(needs[hits])
    # The last of equal needs; the slice is for no hits at all.
    change = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[:len(hits)])
    tokens = np.cumsum(trace.tokens[hits[order]])[change]
    rows = list(zip((unit * need for need in ordered[change].tolist()),
                    (change + 1).tolist(), tokens.tolist()))
    if not rows or rows[0][0] > unit * least:
        rows.insert(0, (unit * least, 0, 0))
    return rows


def thinned(rows, points):
    """Return at most `points` of the rows, log-spaced, first and last kept."""
    if len(rows) <= points:
        return rows
    # Capacities may be too large for int64, their logarithms are not.
    places = np.array([math.log(max(1, row[0])) for row in rows])
    wanted = np.linspace(places[0], places[-1], points)
    step = np.arange(points)
    index = np.searchsorted(places, wanted - 1e-9)
    # Each row once: move on where several fall together, leave room at the end.
    index = np.maximum.accumulate(index - step) + step
    index = np.minimum(index, len(rows) - points + step)
    return [rows[0]] + [rows[place] for place in index[1:].tolist()]


def curve_csv(rows):
    lines = "".join(f"{tokens},{blocks},{hit}\n" for tokens, blocks, hit in rows)
    return "capacity_tokens,hit_blocks,hit_tokens\n" + lines


def capacity_for(rows, bytes_per_token=None):
    """Return {"50": {"tokens": n}, ...} for the SHARES of the last row's tokens."""
    whole, answer = rows[-1][2], {}
    for share in SHARES if whole else ():
        tokens = next(row[0] for row in rows if 100 * row[2] >= share * whole)
        answer[str(share)] = {"tokens": tokens}
        if bytes_per_token is not None:
            answer[str(share)]["gib"] = round(tokens * bytes_per_token / 2**30, 6)
    return answer


def answer(trace, args, held, needs, rows):
    """Return the JSON object of one replay, whole."""
    result = {"requests": len(trace.starts), "blocks": len(trace.keys),
              "distinct_blocks": how_many(held == NEVER),
              "input_tokens": int(trace.tokens.sum()),
              "gpu_tokens": args.gpu_tokens, "cpu_tokens": args.cpu_tokens,
              "tiers": args.tiers, "touch": args.touch,
              "block_tokens": trace.block_tokens,
              **hit_counts(trace, args, held),
              "unbounded_hit_rate": rates(trace, needs < NEVER)}
    if args.bound:
        result["bound_block_hit_rate"] = bound_rate(trace, args)
    result["capacity_for"] = capacity_for(rows, args.bytes_per_token)
    return result


def hit_counts(trace, args, held):
    names = ("gpu_hit_blocks", "cpu_hit_blocks", "miss_blocks", "hit_tokens",
             "hit_rate")
    if args.gpu_tokens is None:
        return dict.fromkeys(names)
    found = found_blocks(trace, held, args.gpu_tokens, args.cpu_tokens,
                         args.tiers, args.touch)
    hits = found != MISS
    counts = (how_many(found == tier) for tier in (GPU, CPU, MISS))
    return dict(zip(names, (*counts, int(trace.tokens[hits].sum()),
                            rates(trace, hits))))


def bound_rate(trace, args):
    if args.gpu_tokens is None:
        return None
    blocks = bound_blocks(trace, args.gpu_tokens, args.cpu_tokens)
    return round(belady_hits(trace, blocks) / len(trace.keys), 6)


# -- Command ------------------------------------------------------------------

# A trace may be larger than any cache, and its blocks than any request.
TOKENS = records.whole_number(0, 10 ** 40)
COUNT = records.whole_number(1, 10 ** 40)


def make_parser():
    parser = argparse.ArgumentParser(
        description="Replay a trace of requests through simulated KV caches.",
        allow_abbrev=False)
    add = parser.add_argument
    add("trace", metavar="TRACE.jsonl", help="requests, one JSON object a line")
    add("--gpu-tokens", type=TOKENS, metavar="N",
        help="GPU capacity; may be left out with --curve")
    add("--cpu-tokens", type=TOKENS, metavar="M", default=0,
        help="CPU capacity; 0 is no CPU tier (%(default)s)")
    add("--tiers", choices=list(TIERS), default="inclusive",
        help="what the CPU tier keeps (%(default)s)")
    add("--touch", choices=["tail", "head"], default="tail",
        help="which block of a request is touched first (%(default)s)")
    add("--block-tokens", type=COUNT, metavar="B", default=512,
        help="tokens in a whole block (%(default)s)")
    add("--rows", type=COUNT, metavar="K", help="replay the first K rows only")
    add("--bytes-per-token", type=COUNT, metavar="B",
        help="give capacities in GiB too")
    add("--bound", action="store_true",
        help="add an upper bound for every policy; blocks of one size only")
    add("--curve", metavar="FILE.csv",
        help="write the hits at every capacity of one tier")
    add("--points", type=records.whole_number(2), metavar="P",
        help="thin the curve to P rows, log-spaced")
    return parser


def check_usage(parser, args):
    if args.gpu_tokens is None and args.curve is None:
        parser.error("--gpu-tokens is needed without --curve")
    if args.points is not None and args.curve is None:
        parser.error("--points is for --curve, which is not given")


def check_bound(trace):
    """Raise WrongUsage unless all blocks of a trace are of one size."""
    if trace.block_tokens is None and np.ptp(trace.tokens):
        raise records.WrongUsage(
            "--bound: the documents must be of one size, got "
            f"{trace.tokens.min()} to {trace.tokens.max()} tokens")


def main(argv: Optional[list] = None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    check_usage(parser, args)

    def work():
        if args.curve is not None:
            records.refuse_input_as_output(args.trace, args.curve)
        trace = read_trace(args.trace, args.block_tokens, args.rows)
        if args.bound:
            check_bound(trace)
        held = held_needs(trace, args.touch)
        needs = block_needs(trace, held)
        rows = curve(trace, needs)
        text = json.dumps(answer(trace, args, held, needs, rows),
                          allow_nan=False) + "\n"
        if args.curve is not None:
            points = rows if args.points is None else thinned(rows, args.points)
            records.write_file(args.curve, curve_csv(points))
        records.emit(text)

    return records.run_main("replay.py", work)


if __name__ == "__main__":
    sys.exit(main())
