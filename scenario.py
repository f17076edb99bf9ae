"""Read documents in passes through a simulated KV cache; print JSON.

How often is a document still in the cache when it is read again?

    python3 scenario.py --passes fwd,fwd
    python3 scenario.py --cpu 56000 --passes fwd,fwd,rev
    python3 scenario.py --passes fwd,fwd --sweep-gpu 50109,50110
    python3 scenario.py --cpu 30066 --tiers exclusive --passes fwd,fwd

Documents 0, 1, 2, ... have one size, or those of --sizes.  `fwd` reads them
from the first to the last, `rev` from the last to the first, and one cache
lives through all passes.  The output is one JSON object: the counts of every
pass or, with a sweep, one count of the last pass for each capacity: hits in
either tier for --sweep-gpu, misses for --sweep-cpu.  `inclusive` tiers keep
in the CPU a copy of all that is read, `exclusive` ones a document in one tier.

Everything here is simulated: the answer counts hits and measures nothing.
"""

import argparse
import errno
import json
import os
import sys
from typing import Dict, List, Optional

from kvsim import ExclusiveTwoTierCache, TwoTierCache

__all__ = ["run_passes", "sweep_gpu", "sweep_cpu", "main"]

DOCS, DOC_TOKENS = 10, 5011     # of the exercise
TIERS = {"inclusive": TwoTierCache, "exclusive": ExclusiveTwoTierCache}


def run_passes(cache, sizes: List[int], orders: List[str]) -> List[dict]:
    """Read documents 0, 1, ... of `sizes` tokens, once for every order.

    `cache` is anything with TwoTierCache's `access`, `orders` a sequence of
    "fwd" and "rev".  Return one dict a pass; its `hit_docs` are the
    documents found in either tier, in reading order.
    """
    return [read_pass(cache, sizes, order) for order in orders]


def read_pass(cache, sizes, order):
    docs = range(len(sizes))
    reading = docs if order == "fwd" else reversed(docs)
    found = {"gpu": 0, "cpu": 0, "miss": 0}
    hit_docs = []
    for doc in reading:
        tier = cache.access(doc, sizes[doc])
        found[tier] += 1
        if tier != "miss":
            hit_docs.append(doc)
    return {"order": order, "gpu_hits": found["gpu"],
            "cpu_hits": found["cpu"], "misses": found["miss"],
            "hit_docs": hit_docs}


def sweep_gpu(capacities: List[int], cpu: int, sizes: List[int],
              orders: List[str], tiers=TwoTierCache) -> Dict[str, int]:
    """Return {GPU capacity, as text: hits of the last pass in either tier}.

    `tiers` makes the cache of each run from its GPU and CPU capacity.
    """
    hits = {}
    for gpu in capacities:
        last = run_passes(tiers(gpu, cpu), sizes, orders)[-1]
        hits[str(gpu)] = last["gpu_hits"] + last["cpu_hits"]
    return hits


def sweep_cpu(gpu: int, capacities: List[int], sizes: List[int],
              orders: List[str], tiers=TwoTierCache) -> Dict[str, int]:
    """Return {CPU capacity, as text: misses of the last pass}; see sweep_gpu."""
    misses = {}
    for cpu in capacities:
        last = run_passes(tiers(gpu, cpu), sizes, orders)[-1]
        misses[str(cpu)] = last["misses"]
    return misses


def whole_number(text, least=0, most=10 ** 15):
    digits = text.isascii() and text.isdigit() and len(text) < 20
    if not digits or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(
            "must be a whole number from {} to {}, got {!r}".format(
                least, most, text[:20]))
    return int(text)


def token_count(text):
    return whole_number(text, least=1)


def doc_count(text):
    return whole_number(text, least=1, most=10 ** 7)


def capacity_list(text):
    return [whole_number(part) for part in text.split(",")]


def size_list(text):
    return [token_count(part) for part in text.split(",")]


def pass_list(text):
    orders = text.split(",")
    for order in orders:
        if order not in ("fwd", "rev"):
            raise argparse.ArgumentTypeError(
                "must be fwd and rev joined by commas, got {!r}".format(text))
    return orders


def make_parser():
    parser = argparse.ArgumentParser(
        description="Read documents in passes through a simulated KV cache.",
        allow_abbrev=False)
    parser.add_argument("--gpu", type=whole_number, default=21520,
                        metavar="TOKENS", help="GPU capacity (%(default)s)")
    parser.add_argument("--cpu", type=whole_number, default=0,
                        metavar="TOKENS",
                        help="CPU capacity; 0 is no CPU tier (%(default)s)")
    parser.add_argument("--tiers", choices=sorted(TIERS), default="inclusive",
                        help="whether the CPU keeps copies (%(default)s)")
    parser.add_argument("--docs", type=doc_count, metavar="N",
                        help="number of documents ({})".format(DOCS))
    parser.add_argument("--tokens", type=token_count, metavar="N",
                        help="tokens in each document ({})".format(DOC_TOKENS))
    parser.add_argument("--sizes", type=size_list, metavar="LIST",
                        help="tokens of each document, in place of these two")
    parser.add_argument("--passes", type=pass_list, default="fwd,fwd,rev",
                        metavar="LIST", help="orders to read in (%(default)s)")
    sweep = parser.add_mutually_exclusive_group()
    sweep.add_argument("--sweep-gpu", type=capacity_list, metavar="LIST",
                       help="print the hits of the last pass by GPU capacity")
    sweep.add_argument("--sweep-cpu", type=capacity_list, metavar="LIST",
                       help="print the misses of the last pass by CPU capacity")
    return parser


def pass_lines(passes):
    """Return the JSON of all passes as text, one pass a line."""
    rows = ",\n".join(" " + json.dumps(row) for row in passes)
    return '{"passes": [\n' + rows + "\n]}\n"


def emit(text):
    """Write `text` to stdout; return the exit status."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "is closed")
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    except OSError as error:
        # What is still buffered must not fail once more at exit.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):      # as in `... | head`
            return 0
        print("scenario.py: stdout: {}".format(error.strerror),
              file=sys.stderr)
        return 1


def main(argv: Optional[List[str]] = None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.sizes and (args.docs or args.tokens):
        parser.error("argument --sizes: not allowed with --docs or --tokens")
    sizes = args.sizes or [args.tokens or DOC_TOKENS] * (args.docs or DOCS)
    reading, tiers = (sizes, args.passes), TIERS[args.tiers]
    if args.sweep_gpu:
        hits = sweep_gpu(args.sweep_gpu, args.cpu, *reading, tiers)
        return emit(json.dumps(hits) + "\n")
    if args.sweep_cpu:
        misses = sweep_cpu(args.gpu, args.sweep_cpu, *reading, tiers)
        return emit(json.dumps(misses) + "\n")
    return emit(pass_lines(run_passes(tiers(args.gpu, args.cpu), *reading)))


if __name__ == "__main__":
    sys.exit(main())
