"""Read documents with the real decoder through two real tiers, by the clock.

What is a copy in a slower tier worth, when the alternative is to recompute?

    python3 offload.py --out DIR
    python3 offload.py --out DIR --cpu-docs 9

Each read brings the K/V of one document into a slot of the fast tier, answers
a question of four tokens (`ttft_ms` ends with the first token) and decodes
eight tokens more (`total_ms`).  `baseline` has the fast tier only, `lmcache`
a slow one behind it; their reads alternate.  The new folder DIR holds
ttft.jsonl, which summarize.py reads, states.npz (the states of each question
and the tokens produced) and manifest.json.  Where a read's tier is not the
simulated one, or its states are not those of a full recompute, the run says
so and exits 1, with its records kept.

Both tiers are the same RAM and one process: this compares recomputing with
copying.  There is no GPU here, no bus and no server.
"""

import argparse
import io
import json
import os
import sys
import time
from collections import OrderedDict
from typing import NamedTuple

import records

# The one thing that importing this file does; the reason stands there.
BLAS_PINNED = records.one_blas_thread()

import numpy as np

from decoder import Decoder, paste, rows_of, whole
from kvsim import TwoTierCache

__all__ = ["Protocol", "Tiers", "Read", "timed_read", "run", "main"]

# n tokens of a document, D hidden size

QUESTION, DECODED = 4, 8
# The last token decoded is produced, but never fed: it needs no room.
ROOM = QUESTION + DECODED
TOLERANCE = 1e-12


# -- The tiers ----------------------------------------------------------------

class Tiers:
    """The K/V of documents in a fast tier backed by a slow one.

    `documents` is [N, n]: N documents of n token ids.  The fast tier is a pool
    of `fast_docs` slots, allocated and touched here, each with rows for a
    document, a question and what is decoded after it.  The slow tier owns
    copies of up to `slow_docs` documents; with 0 there is none.

    `fast` and `slow` map a document's number to its K/V, oldest first.  Both
    are filled by the same misses and evict the least recently used; a hit in
    the fast tier does not touch the slow one.
    """

    def __init__(self, decoder: Decoder, documents, fast_docs: int, slow_docs: int):
        whole("fast_docs", fast_docs, least=1)      # a read needs a slot
        whole("slow_docs", slow_docs, least=0)
        self.decoder, self.slow_docs = decoder, slow_docs
        self.documents = [decoder.token_ids(document) for document in documents]
        self.doc_tokens = len(self.documents[0])
        self.fast, self.slow = OrderedDict(), OrderedDict()
        # More slots than documents would never be used.
        self._free = [self._new_slot() for _ in range(min(fast_docs, len(documents)))]

    def _new_slot(self):
        slot = self.decoder.room_for(self.doc_tokens + ROOM)
        for layer in slot:
            for array in layer:
                array.fill(0)           # so that no timed read faults its pages in
        return slot

    def bring(self, doc: int):
        """Return (slot that holds a document's K/V, tier where it was found).

        The tier is "gpu" (fast: nothing is moved), "cpu" (slow: pasted into a
        slot) or "miss" (computed into a slot, and stored down).
        """
        if doc in self.fast:
            self.fast.move_to_end(doc)
            return self.fast[doc], "gpu"
        slot = self.fast[doc] = self._take_slot()
        if doc in self.slow:
            self.slow.move_to_end(doc)
            paste(self.slow[doc], slot)
            return slot, "cpu"
        self.decoder.extend_in_place(self.documents[doc], slot, 0)
        self._store(doc, slot)
        return slot, "miss"

    def _take_slot(self):
        return self._free.pop() if self._free else self.fast.popitem(last=False)[1]

    def _store(self, doc, slot):
        if not self.slow_docs:
            return
        # Evict before copying, so that the capacity holds at every moment.
        if len(self.slow) == self.slow_docs:
            self.slow.popitem(last=False)
        self.slow[doc] = rows_of(slot, 0, self.doc_tokens)


# -- One read -----------------------------------------------------------------

class Read(NamedTuple):
    """What one read found, produced and took."""
    tier: str
    tokens: list                # 1 + DECODED ids, greedily chosen
    states: np.ndarray          # [ROOM, D] of the question and of what was fed
    ttft_ms: float
    total_ms: float


def timed_read(tiers: Tiers, doc: int, question, timer=time.perf_counter_ns) -> Read:
    """Answer `question`, QUESTION token ids, about one document.

    The time to first token holds all that the tiers do; `timer` gives
    nanoseconds.
    """
    extend = tiers.decoder.extend_in_place
    start = tiers.doc_tokens
    began = timer()
    slot, tier = tiers.bring(doc)
    states = [extend(question, slot, start)]
    tokens = [next_token(tiers.decoder, states[0])]
    first = timer()
    for row in range(start + QUESTION, start + ROOM):
        states.append(extend(tokens[-1:], slot, row))
        tokens.append(next_token(tiers.decoder, states[-1]))
    end = timer()
    return Read(tier, tokens, np.concatenate(states),
                (first - began) / 1e6, (end - began) / 1e6)


def next_token(decoder, states) -> int:
    """Return the token whose embedding is most like the last state."""
    return int(np.argmax(decoder.embedding @ states[-1]))


def error_of(read, tiers, doc, question) -> float:
    """Return max |states - those of a full recompute| of one read."""
    text = np.concatenate([tiers.documents[doc], question, read.tokens[:-1]])
    full, _ = tiers.decoder.extend(text)
    return float(np.abs(read.states - full[-ROOM:]).max())


# -- The run ------------------------------------------------------------------

PASS_NAMES = {(1, "fwd"): "pass1-cold", (2, "fwd"): "pass2-replay",
              (3, "rev"): "pass3-reverse"}


class Protocol(NamedTuple):
    """What a run reads and how many documents each tier holds."""
    docs: int = 10
    tokens: int = 512
    hidden: int = 64
    gpu_docs: int = 4
    cpu_docs: int = 11
    passes: tuple = ("fwd", "fwd", "rev")
    seed: int = 7

    def reads(self):
        """Return (pass name, document) of every read of one config."""
        return [(PASS_NAMES.get((number, order), f"pass{number}-{order}"), doc)
                for number, order in enumerate(self.passes, 1)
                for doc in range(self.docs)[::1 if order == "fwd" else -1]]

    def slow_docs(self):
        """Return {config: documents in its slow tier}."""
        return {"baseline": 0, "lmcache": self.cpu_docs}

    def texts(self, vocabulary):
        """Return the documents [N, n] and a question [QUESTION] for each read."""
        rng = np.random.default_rng([self.seed, 1])     # 1: not the weights' draws
        return (rng.integers(vocabulary, size=(self.docs, self.tokens)),
                rng.integers(vocabulary, size=(self.docs * len(self.passes), QUESTION)))

    def description(self):
        return {**self._asdict(), "passes": list(self.passes),
                "question_tokens": QUESTION, "decoded_tokens": DECODED}


def run(protocol: Protocol, timer=time.perf_counter_ns,
        step=lambda: None) -> tuple:
    """Read all documents; return (rows of ttft.jsonl, Reads, errors) in order.

    After each read, untimed, its states are compared with a full recompute.
    """
    decoder = Decoder(protocol.seed, protocol.hidden)
    documents, questions = protocol.texts(len(decoder.embedding))
    tiers = {config: Tiers(decoder, documents, protocol.gpu_docs, slow_docs)
             for config, slow_docs in protocol.slow_docs().items()}
    warm_up(decoder, documents, questions)
    rows, reads, errors = [], [], []
    with records.garbage_collection_off():
        for (name, doc), question in zip(protocol.reads(), questions):
            for config in tiers:
                read = timed_read(tiers[config], doc, question, timer)
                rows.append({"config": config, "pass": name, "doc": doc,
                             "doc_tokens": protocol.tokens, "ttft_ms": read.ttft_ms,
                             "total_ms": read.total_ms, "tier": read.tier})
                reads.append(read)
                errors.append(error_of(read, tiers[config], doc, question))
                step()
    return rows, reads, errors


def warm_up(decoder, documents, questions):
    """Read one document where nobody keeps it: what is first is slow."""
    tiers = Tiers(decoder, documents[:1], 1, 1)
    error_of(timed_read(tiers, 0, questions[0]), tiers, 0, questions[0])


def predicted_tiers(protocol):
    """Return the tier that kvsim.py gives for each row."""
    caches = [TwoTierCache(protocol.gpu_docs * protocol.tokens,
                           slow_docs * protocol.tokens)
              for slow_docs in protocol.slow_docs().values()]
    return [cache.access(doc, protocol.tokens)
            for _, doc in protocol.reads() for cache in caches]


def complaints(name, protocol, rows, errors):
    """Return a line for each row of the file `name` that is not as it should be."""
    lines = []
    for number, (row, tier, error) in enumerate(
            zip(rows, predicted_tiers(protocol), errors), 1):
        if row["tier"] != tier:
            lines.append(f"{name}:{number}: found in tier {row['tier']}, "
                         f"simulated is {tier}")
        if not error <= TOLERANCE:                  # NaN is not within either
            lines.append(f"{name}:{number}: a state differs from the full "
                         f"recompute by {error:.3g}, allowed is {TOLERANCE}")
    return lines


def write_run(path, protocol, timer=time.perf_counter_ns):
    """Run `protocol` into the new folder `path`; return the complaints."""
    with records.run_folder(path) as folder:
        count = 2 * protocol.docs * len(protocol.passes)
        with records.Progress("reads", count) as progress:
            rows, reads, errors = run(protocol, timer, progress.step)
        archive = io.BytesIO()
        np.savez(archive, states=np.array([read.states[:QUESTION] for read in reads]),
                 tokens=np.array([read.tokens for read in reads]))
        lines = (json.dumps(row, allow_nan=False) + "\n" for row in rows)
        records.fill_run(
            folder, {"states.npz": archive.getvalue(), "ttft.jsonl": "".join(lines)},
            protocol.description(), environment(),
            ["attention.py", "decoder.py", "kvsim.py", "offload.py", "records.py"])
    return complaints(os.path.join(path, "ttft.jsonl"), protocol, rows, errors)


def environment():
    return {"numpy": np.__version__, "cpu": records.cpu_model(),
            "blas_threads": 1 if BLAS_PINNED else None,
            "variables": records.kernel_variables()}


# -- The command --------------------------------------------------------------

def even(text):
    value = records.whole_number(2)(text)
    if value % 2:
        raise argparse.ArgumentTypeError(f"must be an even number, got {text!r}")
    return value


def pass_list(text):
    orders = tuple(text.split(","))
    if not set(orders) <= {"fwd", "rev"}:
        raise argparse.ArgumentTypeError(
            f"must be fwd and rev joined by commas, got {text!r}")
    return orders


def make_parser():
    parser = argparse.ArgumentParser(
        description="Read documents through two real tiers, by the clock.",
        allow_abbrev=False)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="the folder to make; it must not exist")
    usual = Protocol()
    for option, kind, meaning in (
            ("docs", records.whole_number(1), "number of documents"),
            ("tokens", records.whole_number(1), "tokens in each document"),
            ("hidden", even, "hidden size of the decoder"),
            ("gpu-docs", records.whole_number(1), "slots of the fast tier"),
            ("cpu-docs", records.whole_number(0), "documents in lmcache's slow tier"),
            ("seed", records.whole_number(0), "of weights, documents and questions")):
        parser.add_argument(f"--{option}", type=kind, metavar="N",
                            default=getattr(usual, option.replace("-", "_")),
                            help=f"{meaning} (%(default)s)")
    parser.add_argument("--passes", type=pass_list, default=usual.passes,
                        metavar="LIST", help="orders to read in (fwd,fwd,rev)")
    return parser


def main(argv=None) -> int:
    args = vars(make_parser().parse_args(argv))
    path = args.pop("out")
    records.note_unpinned("offload.py", BLAS_PINNED)

    def work():
        *lines, last = write_run(path, Protocol(**args)) or [None]
        for line in lines:
            records.note("offload.py", line)
        if last:
            raise ValueError(last)

    return records.run_main("offload.py", work)


if __name__ == "__main__":
    sys.exit(main())
