"""The audit of offloading runs: what offload.py writes, derived anew.

`audit_offload(folder)` checks a run folder with ttft.jsonl, states.npz and
manifest.json.  Order, pass and tier of every read come from the protocol and
the list model of oracle.py, the states of every question and the tokens
produced from seed and protocol by the decoder of audit_cache.py, in one
piece, and summary and charts from the rows.

Of the times themselves it can tell no more than that they can be times.
"""

import math
import re
from functools import lru_cache

import numpy as np

import oracle
from audit_cache import (VOCABULARY, array_fault, described, forward, model,
                         read_archive)
from audit_charts import Bars, Lines

__all__ = ["STANDARD", "SHORT", "audit_offload", "ttft_summary"]

SOURCES = ("attention.py", "decoder.py", "kvsim.py", "offload.py", "records.py")
QUESTION, DECODED = 4, 8
CONFIGS = ("baseline", "lmcache")

# Runs whose protocol is fixed by the folder that holds them.
STANDARD = {"docs": 10, "tokens": 512, "hidden": 64, "gpu_docs": 4, "cpu_docs": 11,
            "passes": ["fwd", "fwd", "rev"], "seed": 7,
            "question_tokens": QUESTION, "decoded_tokens": DECODED}
SHORT = {**STANDARD, "cpu_docs": 9}

# What the audit is ready to compute again, for a run by another protocol.
BOUNDS = {"docs": (1, 64), "tokens": (1, 1024), "hidden": (2, 256),
          "gpu_docs": (1, 10 ** 6), "cpu_docs": (0, 10 ** 6), "seed": (0, 2 ** 63),
          "question_tokens": (QUESTION, QUESTION), "decoded_tokens": (DECODED, DECODED)}
MOST_PASSES = 8
LARGEST_STATES = 16 << 20   # bytes; 1024 reads of 4 states of 256 numbers take 8 MiB


# -- The protocol -------------------------------------------------------------

def declared_protocol(folder, manifest):
    """Return the protocol that a manifest declares, or None and a fault."""
    said = manifest.get("protocol") if isinstance(manifest, dict) else None
    if is_protocol(said):
        return said
    folder.fault("manifest.json", "protocol", said,
                 {**BOUNDS, "passes": f"1 to {MOST_PASSES} of fwd and rev"})
    return None


def is_protocol(said):
    return (isinstance(said, dict) and list(said) == list(STANDARD)
            and all(type(said[name]) is int and low <= said[name] <= high
                    for name, (low, high) in BOUNDS.items())
            and said["hidden"] % 2 == 0
            and isinstance(said["passes"], list)
            and 1 <= len(said["passes"]) <= MOST_PASSES
            and all(order in ("fwd", "rev") for order in said["passes"]))


def expected_reads(protocol):
    """Return (config, pass, doc, tier, place of the question) of every row."""
    capacities = {"baseline": 0, "lmcache": protocol["cpu_docs"]}
    tiers = {config: oracle.ListTiers(protocol["gpu_docs"], capacities[config])
             for config in CONFIGS}
    reads, asked = [], 0
    for number, order in enumerate(protocol["passes"], 1):
        docs = list(range(protocol["docs"]))
        if order == "rev":
            docs.reverse()
        for doc in docs:
            for config in CONFIGS:
                reads.append((config, pass_name(number, order), doc,
                              tiers[config].access(doc, 1), asked))
            asked += 1
    return reads


def pass_name(number, order):
    usual = {(1, "fwd"): "pass1-cold", (2, "fwd"): "pass2-replay",
             (3, "rev"): "pass3-reverse"}
    return usual.get((number, order), f"pass{number}-{order}")


# -- Rows and times -----------------------------------------------------------

def check_rows(folder, rows, protocol, reads):
    """Compare every row; return whether all of it, times included, can be."""
    before = len(folder.faults)
    if len(rows) != len(reads):
        folder.fault("ttft.jsonl", "length", len(rows), len(reads))
    for number, (row, (config, name, doc, tier, _)) in enumerate(zip(rows, reads), 1):
        ttft, total = (row.get(key) if isinstance(row, dict) else None
                       for key in ("ttft_ms", "total_ms"))
        if not (is_time(ttft) and is_time(total) and ttft <= total):
            folder.fault("ttft.jsonl", f"line {number}: ttft_ms, total_ms",
                         [ttft, total], "milliseconds, 0 < ttft_ms <= total_ms")
        folder.same("ttft.jsonl", row, {
            "config": config, "pass": name, "doc": doc,
            "doc_tokens": protocol["tokens"], "ttft_ms": ttft, "total_ms": total,
            "tier": tier}, f"line {number}")
    return len(folder.faults) == before


def is_time(value):
    """Tell whether `value` is a time in milliseconds, in whole nanoseconds."""
    return (type(value) is float and math.isfinite(value) and 0 < value < 1e9
            and value == round(value * 1e6) / 1e6)


def ttft_summary(rows) -> dict:
    """Return the summary of TTFT rows: medians, means and their ratios."""
    times = {config: {} for config in CONFIGS}
    for row in rows:
        times[row["config"]].setdefault(row["pass"], []).append(row["ttft_ms"])
    summary = {config: {name: {"n": len(ttft), "p50_ms": round(oracle.median(ttft), 1),
                               "mean_ms": round(oracle.mean(ttft), 1)}
                        for name, ttft in passes.items()}
               for config, passes in times.items()}
    summary["ratio"] = {
        name: {key: round(of(ttft) / of(times["lmcache"][name]), 2)
               for key, of in (("p50", oracle.median), ("mean", oracle.mean))}
        for name, ttft in times["baseline"].items()}
    return summary


def expected_charts(rows, cpu_docs):
    """Return {file name: what it must show} for the rows of a run."""
    passes = list(dict.fromkeys(row["pass"] for row in rows))
    medians = {config: [round(oracle.median(
                           [row["ttft_ms"] for row in rows
                            if row["pass"] == name and row["config"] == config]), 2)
                        for name in passes] for config in CONFIGS}
    points = {}
    for place, row in enumerate(rows):
        series = f"{row['config']}, {row['tier']}"
        points.setdefault(series, []).append((1 + place // 2, row["ttft_ms"]))
    tier = f"CPU tier of {cpu_docs} documents (measured)"
    return {"ttft.svg": Bars(f"Median time to first token by pass, {tier}",
                             "p50 TTFT (ms)", passes, medians),
            "reads.svg": Lines(f"Time to first token by tier, {tier}",
                               "read (number)", "TTFT (ms)",
                               dict(sorted(points.items())), log_y=True,
                               joined=False)}


# -- States and tokens --------------------------------------------------------

@lru_cache(maxsize=4)
def texts(seed, docs, tokens, reads):
    """Return the documents and the questions, as lists of token ids."""
    rng = np.random.default_rng([seed, 1])
    return [rng.integers(VOCABULARY, size=shape).tolist()
            for shape in ((docs, tokens), (reads, QUESTION))]


def check_arrays(folder, protocol, reads):
    """Compare the archive with a full recompute; return the largest error."""
    arrays, faults = read_archive(folder.bytes("states.npz"),
                                  ["states.npy", "tokens.npy"], LARGEST_STATES)
    for fault in faults:
        folder.fault("states.npz", *fault)
    if list(arrays) != ["states.npy", "tokens.npy"]:
        folder.fault("states.npz", "arrays", list(arrays), ["states.npy", "tokens.npy"])
        return None
    found, produced = arrays["states.npy"], arrays["tokens.npy"]
    if not check_tokens_are_ids(folder, produced, len(reads)):
        return None
    exact = [expected_read(protocol, len(reads) // 2, doc, asked, tuple(tokens))
             for (_, _, doc, _, asked), tokens in zip(reads, produced.tolist())]
    for read, (_, tokens), found_tokens in zip(range(len(reads)), exact,
                                               produced.tolist()):
        folder.same("states.npz", found_tokens, tokens, f"tokens[{read}]")
    expected = np.array([question for question, _ in exact])
    fault = array_fault(found, expected)
    if fault:
        folder.fault("states.npz", "states", *fault)
        return None
    return float(np.abs(found - expected).max())


def check_tokens_are_ids(folder, produced, reads):
    blank = np.zeros((reads, 1 + DECODED), np.int64)
    if isinstance(produced, str) or described(produced) != described(blank):
        told = produced if isinstance(produced, str) else described(produced)
        folder.fault("states.npz", "tokens", told, described(blank))
        return False
    if not ((0 <= produced) & (produced < VOCABULARY)).all():
        folder.fault("states.npz", "tokens", [int(produced.min()), int(produced.max())],
                     f"ids from 0 to {VOCABULARY - 1}")
        return False
    return True


def expected_read(protocol, count, doc, asked, produced):
    """Return the question's states, and the token that follows each prefix.

    `produced` are the tokens of the record.  Each is judged by what stands
    before it, so that the first wrong one is found.
    """
    seed, hidden = protocol["seed"], protocol["hidden"]
    documents, questions = texts(seed, protocol["docs"], protocol["tokens"], count)
    text = (*documents[doc], *questions[asked], *produced[:-1])
    found = last_states(seed, text, hidden)
    embedding, _ = model(seed, hidden)
    tokens = [int(np.argmax(embedding @ state)) for state in found[QUESTION - 1:]]
    return found[:QUESTION], tokens


@lru_cache(maxsize=1024)
def last_states(seed, text, hidden):
    """Return the states of a question and of what was decoded, [12, D]."""
    return forward(seed, text, (len(text),), hidden)[-QUESTION - DECODED:].copy()


# -- The audit ----------------------------------------------------------------

def audit_offload(folder, fixed=None) -> None:
    """Audit one run; `fixed` is its protocol, or the manifest says."""
    manifest = folder.json("manifest.json")
    protocol = fixed or declared_protocol(folder, manifest)
    if protocol is None:
        return
    reads = expected_reads(protocol)
    rows = folder.json_lines("ttft.jsonl")
    rows_hold = check_rows(folder, rows, protocol, reads)
    folder.totals = {"reads": len(reads),
                     "max_abs_error": check_arrays(folder, protocol, reads)}
    check_manifest(folder, manifest, protocol)
    if not rows_hold:
        return
    if folder.has("measured.json"):
        folder.compare_json("measured.json", ttft_summary(rows))
    for name, shown in expected_charts(rows, protocol["cpu_docs"]).items():
        if folder.has(name):
            folder.compare_chart(name, shown)


def check_manifest(folder, found, protocol):
    """Check protocol, sources and files; the environment is a declaration."""
    environment = found.get("environment") if isinstance(found, dict) else None
    kinds = {"python": str, "platform": str, "numpy": str, "cpu": str,
             "blas_threads": int if folder.known else (int, type(None)),
             "variables": dict}
    if not (isinstance(environment, dict) and list(environment) == list(kinds)
            and all(isinstance(environment[name], kind)
                    for name, kind in kinds.items())
            and environment["blas_threads"] in (1, None)):
        folder.fault("manifest.json", "environment", environment,
                     {name: str(kind) for name, kind in kinds.items()})
    sources = found.get("sources") if isinstance(found, dict) else None
    if not (isinstance(sources, dict) and list(sources) == list(SOURCES)
            and all(type(digest) is str and re.fullmatch("[0-9a-f]{64}", digest)
                    for digest in sources.values())):
        folder.fault("manifest.json", "sources", sources, list(SOURCES))
    else:
        # A timing cannot be made again: what changed since is told, not judged.
        folder.totals["sources_changed_since"] = folder.changed_sources(sources)
    folder.same("manifest.json", found, {
        "protocol": protocol, "environment": environment, "sources": sources,
        "files": {name: folder.sha256(name) for name in ("states.npz", "ttft.jsonl")}})
