"""The audit of cache runs: what decoder.py writes, derived anew.

`audit_cache_run(folder)` checks an audit.Folder with results.json, arrays.npz
and manifest.json.  Requests and scopes come from the protocol, every hit,
event and byte from the list model of oracle.py, and every state from seed and
tokens by the decoder below, which shares nothing with the one that it checks.

Array differences under 1e-12 cannot be told from another BLAS kernel: they
are counted (`bit_exact`), not judged.
"""

import io
import json
import struct
import warnings
import zipfile
from collections import Counter
from functools import lru_cache
from typing import Optional

import numpy as np

import oracle
from audit_charts import Bars

__all__ = ["PUBLISHED", "ADMISSION", "audit_cache_run", "chart_names"]

SOURCES = ("attention.py", "decoder.py", "records.py")
TOLERANCE = 1e-12
LARGEST_MEMBER = 1 << 20    # bytes; what a forged archive may make us read
# Method, date, comment, extra, flags and attributes of a member that np.savez wrote.
AS_SAVED = (zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0), b"", b"", 0, 0, 0o600 << 16)
HIDDEN, LAYERS, VOCABULARY, STRIDE, REQUESTS = 16, 2, 32, 4, 12
TOKEN_BYTES = LAYERS * (HIDDEN * 8 + HIDDEN * 8 + 8)
SEEDS = [7, 11, 23]
FIRST, SECOND = [1, 2, 3, 4, 5, 6, 7, 8], [13, 14, 15, 16, 17, 18, 19, 20]
PUBLISHED_TRACES = ["hot-prefix", "alternating-branches", "three-scopes"]
TRACES = PUBLISHED_TRACES + ["hot-and-cold"]

# Runs whose protocol is fixed by the folder that holds them.
PUBLISHED = ((4096, 8192, 32768), ())
ADMISSION = ((8192, 12288, 16384), ("none", "all", "longest", "shared"))


# -- The protocol -------------------------------------------------------------

def protocol(budgets, policies):
    """Return what a manifest must say of a run."""
    return {"seeds": SEEDS, "budgets": list(budgets),
            "traces": TRACES if policies else PUBLISHED_TRACES,
            "policies": list(policies), "requests": REQUESTS, "stride": STRIDE}


def request(trace, index):
    """Return the scope and the tokens of one request."""
    scope, prefix = "owner", FIRST
    if trace == "three-scopes":
        scope = f"owner-{index % 3}"
    elif trace == "alternating-branches" and index % 2 == 1:
        prefix = SECOND
    elif trace == "hot-and-cold" and index % 2 == 1:
        prefix = [13 + index] + FIRST[1:]
    return scope, prefix + [21, 22, 23, 24 + index % 6]


@lru_cache(maxsize=8)
def expected_records(budgets, policies):
    """Return all records in order, without their errors; leave them unchanged."""
    rows = []
    for seed in SEEDS:
        for budget in budgets:
            for trace in TRACES if policies else PUBLISHED_TRACES:
                for policy in policies or [None]:
                    rows += expected_trace(seed, budget, trace, policy)
    return rows


def expected_trace(seed, budget, trace, policy):
    cache = oracle.ListPrefixCache(budget, STRIDE, policy or "all", TOKEN_BYTES)
    labels = {"seed": seed, "budget": budget, "trace": trace}
    if policy:
        labels["policy"] = policy
    rows = []
    for index in range(REQUESTS):
        scope, tokens = request(trace, index)
        hit, copied, resident, events = cache.query(seed, scope, tokens)
        rows.append({
            "key": "_".join(str(part) for part in [*labels.values(), index]),
            **labels, "index": index, "scope": scope, "tokens": tokens,
            "hit_tokens": hit, "full_projected_rows": rows_projected(len(tokens)),
            "projected_rows": rows_projected(len(tokens) - hit),
            "resident_bytes": resident, "copied_bytes": copied,
            "max_abs_error": None, "events": events})
    return rows


def rows_projected(tokens):
    return LAYERS * 3 * tokens


# -- The model ----------------------------------------------------------------

@lru_cache(maxsize=None)
def model(seed, hidden):
    rng = np.random.default_rng(seed)
    embedding = rng.normal(0, 0.3, (VOCABULARY, hidden))
    return embedding, [[rng.normal(0, 0.25, (hidden, hidden)) for _ in "qkv"]
                       for _ in range(LAYERS)]


@lru_cache(maxsize=None)
def states(seed, tokens, ends):
    return forward(seed, tokens, ends, HIDDEN)


def forward(seed, tokens, ends, hidden):
    """Return the states [T, D] of `tokens`, computed in pieces up to `ends`."""
    embedding, weights = model(seed, hidden)
    kept = [(np.empty((0, hidden)), np.empty((0, hidden))) for _ in weights]
    pieces, start = [], 0
    for end in ends:
        x = embedding[list(tokens[start:end])] + encoding(start, end, hidden)
        past = np.tri(end - start, end, start, dtype=bool)
        for layer, (wq, wk, wv) in enumerate(weights):
            k = np.vstack([kept[layer][0], x @ wk])
            v = np.vstack([kept[layer][1], x @ wv])
            kept[layer] = k, v
            scores = np.where(past, (x @ wq) @ k.T / hidden ** 0.5, -np.inf)
            x = np.tanh(x + softmax(scores) @ v)
        pieces.append(x)
        start = end
    return np.vstack(pieces)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=1)[:, None])
    return powers / powers.sum(axis=1)[:, None]


def encoding(start, end, hidden):
    """Return the sinusoidal encoding [end - start, D] of absolute positions."""
    even = np.arange(0, hidden, 2)
    angles = np.arange(start, end)[:, None] / 10000 ** (even / hidden)
    table = np.zeros((end - start, hidden))
    table[:, even], table[:, even + 1] = np.sin(angles), np.cos(angles)
    return table


def expected_arrays(row):
    """Return the states after the hit: in full, and by way of the cache."""
    tokens, hit = tuple(row["tokens"]), row["hit_tokens"]
    count = len(tokens)
    if row.get("policy", "all") == "all":
        # What lies before a hit was computed by an earlier query, in the same
        # pieces as if there had been none.
        ends = (*range(STRIDE, count, STRIDE), count)
    else:
        ends = (hit, count) if hit else (count,)
    return {"full": states(row["seed"], tokens, (count,))[hit:],
            "cached": states(row["seed"], tokens, ends)[hit:]}


# -- The archive --------------------------------------------------------------

def read_archive(data, names, largest=LARGEST_MEMBER):
    """Return ({name: array or what is wrong with it}, faults of the container).

    Only the members in `names` are read, whatever else a forger packed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            found = [member.filename for member in members]
            faults = container_faults(archive, data, members)
            if faults and found != names:
                faults += [(name, "unknown array", "only the run's arrays")
                           for name in sorted(set(found) - set(names))]
            known = set(names)
            return {name: read_member(archive, name, largest) if name in known
                    else "unknown" for name in found}, faults
    except Exception as error:      # whatever zipfile finds wrong with it
        return {}, [("container", f"is no archive: {error!r}", "an archive of arrays")]


def container_faults(archive, data, members):
    """Check that the container is as np.savez leaves it, and hides nothing."""
    names = [member.filename for member in members]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    faults = [(name, "stands twice", "every array once") for name in twice]
    if archive.comment:
        faults.append(("container", "has a comment", "none"))
    end = 0
    for member in members:
        form = (member.compress_type, member.date_time, member.comment, member.extra,
                member.flag_bits, member.internal_attr, member.external_attr)
        if form != AS_SAVED or member.header_offset != end:
            faults.append((member.filename, f"container differs: {form!r} at byte "
                           f"{member.header_offset}", f"{AS_SAVED!r} at byte {end}"))
        end = end_of_member(data, member)
    if archive.start_dir != end:
        faults.append(("container", f"{archive.start_dir} bytes before the directory",
                       end))
    return faults


def end_of_member(data, member):
    """Return where a stored member's bytes end in the archive."""
    start = member.header_offset + 30
    name_length, extra_length = struct.unpack("<HH", data[start - 4:start])
    return start + name_length + extra_length + member.compress_size


def read_member(archive, name, largest):
    """Return the array of a member, or a string that says why it is none."""
    try:
        member = archive.getinfo(name)
        if member.file_size > largest:
            return f"is larger than {largest} bytes"
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return "is compressed in a way that may unpack without bound"
        with archive.open(name) as packed:      # `read()` alone unpacks without bound
            stream = io.BytesIO(packed.read(member.file_size))
        again = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array = np.lib.format.read_array(stream, allow_pickle=False)
            if array.itemsize == 0:
                return "has elements of no bytes"
            np.lib.format.write_array(again, array, allow_pickle=False)
    except Exception as error:      # whatever NumPy finds wrong with it
        return f"is no array: {error!r}"
    if again.getvalue() != stream.getvalue() or not array.flags.c_contiguous:
        return "is an array in another form than np.savez gives it"
    return array


def array_fault(found, expected):
    """Return None or (found, expected) for one array."""
    if isinstance(found, str):
        return found, described(expected)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return described(found), described(expected)
    with np.errstate(invalid="ignore"):     # of infinities
        apart = np.abs(found - expected)
    if not (apart <= TOLERANCE).all():      # NaN is not <= anything
        worst = np.unravel_index(np.argmax(np.where(np.isnan(apart), np.inf, apart)),
                                 apart.shape)
        return (f"{found[worst]!r} at {list(map(int, worst))}",
                f"{expected[worst]!r} within {TOLERANCE}")
    return None


def described(array):
    return f"{array.dtype} {list(array.shape)}"


# -- The audit ----------------------------------------------------------------

def audit_cache_run(folder, fixed: Optional[tuple] = None) -> None:
    """Audit one cache run; `fixed` is (budgets, policies), or the manifest says."""
    manifest, results = folder.json("manifest.json"), folder.json("results.json")
    budgets, policies = fixed or declared_protocol(manifest)
    if budgets is None:
        folder.fault("manifest.json", "protocol", manifest,
                     "budgets and policies that decoder.py takes")
        return
    expected = expected_records(budgets, policies)
    arrays, faults = read_archive(folder.bytes("arrays.npz"), member_names(expected))
    for fault in faults:
        folder.fault("arrays.npz", *fault)
    bit_exact, equal = check_arrays(folder, arrays, expected)
    check_results(folder, results, expected, arrays)
    check_manifest(folder, manifest, protocol(budgets, policies), equal)
    folder.totals = {"requests": len(expected), "arrays": 2 * len(expected),
                     "bit_exact": f"{bit_exact} of {2 * len(expected)}",
                     "max_abs_error": largest_error(results)}
    check_totals(folder, results)
    for name, chart in expected_charts(expected).items():
        if folder.has(name):
            folder.compare_chart(name, chart)


def declared_protocol(manifest):
    """Return the (budgets, policies) that a manifest declares, or Nones."""
    said = manifest.get("protocol") if isinstance(manifest, dict) else None
    budgets, policies = ((said.get("budgets"), said.get("policies"))
                         if isinstance(said, dict) else (None, None))
    if (is_list(budgets, lambda value: type(value) is int and 0 <= value < 10 ** 12)
            and is_list(policies, lambda value: value in ADMISSION[1])
            and budgets and len(budgets) <= 256):
        return tuple(budgets), tuple(policies)
    return None, None


def is_list(values, allowed):
    return (type(values) is list and all(map(allowed, values))
            and len({repr(value) for value in values}) == len(values))


def member_names(expected):
    return [f"{row['key']}_{kind}.npy" for row in expected
            for kind in ("full", "cached")]


def check_arrays(folder, arrays, expected):
    """Compare the archive with the states.

    Return how many arrays agree bit for bit, and whether all are equal as far
    as it can be told.
    """
    before = len(folder.faults)
    names = member_names(expected)
    for name in sorted(set(names) - set(arrays)):
        folder.fault("arrays.npz", name, "missing", "an array")
    for name in sorted(set(arrays) - set(names)):
        folder.fault("arrays.npz", name, "unknown array", "only the run's arrays")
    bit_exact = 0
    for row in expected:
        for kind, exact in expected_arrays(row).items():
            found = arrays.get(f"{row['key']}_{kind}.npy")
            if found is None:
                continue
            fault = array_fault(found, exact)
            if fault:
                folder.fault("arrays.npz", f"{row['key']}_{kind}", *fault)
            elif found.tobytes() == exact.tobytes():
                bit_exact += 1
    equal = len(folder.faults) == before
    if equal and names != list(arrays):
        folder.fault("arrays.npz", "container", "another order of members",
                     "the order of results.json")
    return bit_exact, equal


def check_results(folder, results, expected, arrays):
    """Compare every record; an error is the one between the archive's arrays."""
    if type(results) is not list:
        folder.fault("results.json", "", type(results).__name__, "a list of records")
        return
    if len(results) != len(expected):
        folder.fault("results.json", "length", len(results), len(expected))
    for found, row in zip(results, expected):
        row = {**row, "max_abs_error": archived_error(arrays, row["key"])}
        folder.same("results.json", found, row, row["key"])


def archived_error(arrays, key):
    """Return the largest error between two arrays of one form, else None."""
    full, cached = (arrays.get(f"{key}_{kind}.npy") for kind in ("full", "cached"))
    if not (isinstance(full, np.ndarray) and isinstance(cached, np.ndarray)
            and full.dtype == cached.dtype == np.float64 and full.size
            and full.shape == cached.shape
            and np.isfinite(full).all() and np.isfinite(cached).all()):
        return None
    return float(np.max(np.abs(cached - full)))


def check_manifest(folder, found, said, equal=True):
    """Check protocol, sources and files; the environment is a declaration.

    `equal` says of the arrays that none differs.
    """
    environment = found.get("environment") if isinstance(found, dict) else None
    if not (isinstance(environment, dict)
            and all(type(environment.get(name)) is str
                    for name in ("python", "platform", "numpy"))):
        folder.fault("manifest.json", "environment", environment,
                     "python, platform and numpy, each a string")
    expected = {"protocol": said, "environment": environment,
                "sources": {name: folder.source_sha256(name) for name in SOURCES},
                "files": {name: folder.sha256(name)
                          for name in ("arrays.npz", "results.json")}}
    files = found.get("files") if isinstance(found, dict) else None
    if isinstance(files, dict) and files.get("arrays.npz") != \
            expected["files"]["arrays.npz"]:
        folder.fault("arrays.npz", "sha256",
                     "the arrays are equal, their container differs" if equal
                     else "the arrays differ", "the archive that the manifest names")
    folder.same("manifest.json", found, expected)


# -- Charts -------------------------------------------------------------------

PROJECTED = "projected rows of 12 requests"


def chart_names(budgets: tuple, policies: tuple) -> tuple:
    """Return the names of the charts that belong to a run."""
    return tuple(expected_charts(expected_records(budgets, policies)))


def expected_charts(expected):
    """Return {file name: Bars}, of the first seed's records."""
    rows = [row for row in expected if row["seed"] == SEEDS[0]]
    traces = [trace for trace in TRACES if any(row["trace"] == trace for row in rows)]
    if "policy" not in rows[0]:
        return {"projected-rows.svg": bars("Projected rows by budget (counted)",
                                           PROJECTED, rows, "trace", traces, projected),
                "evictions.svg": bars("Evictions by budget (counted)", "evictions",
                                      rows, "trace", traces, evictions)}
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    return {f"projected-rows-{trace}.svg": bars(
                f"Projected rows by budget, {trace} (counted)", PROJECTED,
                [row for row in rows if row["trace"] == trace], "policy", policies,
                projected) for trace in traces}


def bars(title, y_name, rows, name, series, count):
    """Return the Bars of the sums of `count` by budget, for each of `series`."""
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    sums = {value: [sum(count(row) for row in rows
                        if row["budget"] == budget and row[name] == value)
                    for budget in budgets] for value in series}
    return Bars(title, y_name, [f"{budget / 1024:g} KiB" for budget in budgets], sums)


def projected(row):
    return row["projected_rows"]


def evictions(row):
    return sum(event["type"] == "evict" for event in row["events"])


# -- Totals -------------------------------------------------------------------

def largest_error(results):
    try:
        return max(float(row["max_abs_error"]) for row in results)
    except (TypeError, KeyError, ValueError):
        return None


def check_totals(folder, results):
    """Compare audit.json, or write it where all holds and there is none."""
    if folder.faults:
        return
    totals = trace_totals(results)
    if folder.has("audit.json"):
        folder.compare_json("audit.json", totals)
        return
    rows = ",\n".join(json.dumps(row) for row in totals)
    folder.write("audit.json", "[\n" + rows + "\n]\n")


def trace_totals(results):
    """Return the totals of every trace, in the order of the run."""
    totals = []
    for start in range(0, len(results), REQUESTS):
        rows = results[start:start + REQUESTS]
        labels = {name: rows[0][name] for name in ("seed", "budget", "trace", "policy")
                  if name in rows[0]}
        totals.append({
            **labels, "requests": len(rows),
            "hits": sum(row["hit_tokens"] > 0 for row in rows),
            "full_projected_rows": sum(row["full_projected_rows"] for row in rows),
            "projected_rows": sum(row["projected_rows"] for row in rows),
            "evictions": sum(map(evictions, rows)),
            "copied_bytes": sum(row["copied_bytes"] for row in rows),
            "max_abs_error": max(row["max_abs_error"] for row in rows)})
    return totals
