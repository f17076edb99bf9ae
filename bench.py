"""Time what experiments.py declares, and summarize what was timed.

What are a KV cache, preallocation, a batch and a stored prefix worth, by the
clock, and how near is decoding to the limit?

    python3 bench.py measure --experiment limit --csv raw.csv
    python3 bench.py measure --experiment all --out DIR
    python3 bench.py summarize --input raw.csv --output-dir DIR
    python3 bench.py capacity --csv capacity.csv

`measure` writes one row for each sample and environment.json beside it,
`summarize` makes medians, charts and an analysis with verdicts of such rows,
by others too, `capacity` counts the bytes of K and V.  `all` are the three scans of
decode paths that were published.  Every result is checked against one without
a cache before anything is timed.  Each round samples every group once, in an
order shuffled by the seed, on one BLAS thread, with garbage collection off and
all inputs made beforehand.

Toys on one machine: the ratios say nothing about a server.
"""

import os
import sys

import records

# The one thing that importing this file does: BLAS reads its threads when
# NumPy is first imported.  Unpinned, a path can look 40 times faster.
BLAS_PINNED = records.one_blas_thread()

import argparse
import errno
import hashlib
import json
import math
import platform
import random
import time
from typing import NamedTuple

import numpy as np

import attention
import costs
import figures
import timings
import verdicts
from experiments import EXPERIMENTS, STRIDE, WIDTH, Settings

__all__ = ["Sample", "measure", "raw_csv", "derived_files", "capacity_csv", "main"]

TOLERANCE = {"float64": 1e-8, "float32": 1e-4}
ENVIRONMENT = "environment.json"
PUBLISHED = ("cache", "batch-length", "batch-size")


# -- The harness --------------------------------------------------------------

class Sample(NamedTuple):
    """One timed call: `order` is its position in the run, from 1."""
    key: tuple
    sample: int
    elapsed_ns: int
    order: int
    minor_faults: object


def minor_faults():
    """Return the page faults of this process without I/O, None if unknown."""
    try:
        import resource                             # not on every platform
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def check_errors(groups, tolerance):
    """Return the error of each group; raise ValueError when one is too large."""
    errors = []
    for group in groups:
        error = group.error()
        if not error <= tolerance:                  # NaN is not within either
            raise ValueError(
                f"{timings.shown(group.key)}: the largest error against the "
                f"path without a cache is {error:.3g}, allowed is {tolerance:g}; "
                "nothing was timed")
        errors.append(error)
    return errors


def measure(groups, settings: Settings, timer=time.perf_counter_ns,
            faults=minor_faults, step=lambda: None) -> list:
    """Return the Samples of all groups, sorted by group, key and round.

    Rounds of warm-up run as all others and are not recorded.  `timer` gives
    nanoseconds, `faults` a count or None; `step` is called after each group.
    """
    rng, found = random.Random(settings.seed), []
    with records.garbage_collection_off():
        for number in range(1 - settings.warmup, settings.repeats + 1):
            shuffled = list(range(len(groups)))
            rng.shuffle(shuffled)
            for place in shuffled:
                for rest, call in groups[place].calls():
                    elapsed_ns, faulted = time_call(call, timer, faults)
                    if number > 0:
                        found.append((place, rest, Sample(
                            (*groups[place].key, *rest), number, elapsed_ns,
                            len(found) + 1, faulted)))
                step()
    found.sort(key=lambda entry: entry[:2])         # stable: rounds stay in order
    return [sample for _, _, sample in found]


def time_call(call, timer, faults):
    """Return the elapsed nanoseconds and the page faults of one call."""
    before = faults()
    start = timer()
    result = call()
    elapsed_ns = timer() - start
    after = faults()
    del result                                      # freed outside the interval
    return elapsed_ns, None if before is None else after - before


def raw_csv(label: str, samples) -> str:
    """Return the CSV of Samples, milliseconds with all their nanoseconds."""
    lines = [",".join(("experiment", *timings.SCANS[label].columns, "sample",
                       "elapsed_ms", "order", "minor_faults"))]
    for key, sample, elapsed_ns, order, faults in samples:
        cells = (label, *key, sample, f"{elapsed_ns / 1e6:.6f}", order,
                 "" if faults is None else faults)
        lines.append(",".join(map(str, cells)))
    return "\n".join(lines) + "\n"


# -- What a run was -----------------------------------------------------------

def environment(name, settings, groups, errors):
    """Return what environment.json holds, but for the CSV's name and hash."""
    experiment = EXPERIMENTS[name]
    columns = timings.SCANS[experiment.label].columns
    home = os.path.dirname(os.path.abspath(__file__))
    return {
        "python": platform.python_version(), "numpy": np.__version__,
        "blas": blas(), "platform": platform.platform(),
        "cpu": records.cpu_model(), "blas_threads": 1 if BLAS_PINNED else None,
        "numpy_came_first": not BLAS_PINNED,
        "threads": {name: os.environ.get(name) for name in records.THREAD_VARIABLES},
        "variables": records.kernel_variables(),
        "malloc": {name: value for name, value in sorted(os.environ.items())
                   if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"},
        "dtype": settings.dtype, "seed": settings.seed,
        "arguments": {"experiment": name,
                      **{key: getattr(settings, key) for key in experiment.reads}},
        "tolerance": TOLERANCE[settings.dtype],
        "errors": [{**dict(zip(columns, group.key)), "max_abs_error": error,
                    **group.counted} for group, error in zip(groups, errors)],
        "sources": {name: records.source_sha256(os.path.join(home, name))
                    for name in experiment.sources}}


def blas():
    """Return what NumPy says of its BLAS; None where it cannot say."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except (TypeError, KeyError):                   # NumPy before 1.26
        return None
    told = ("name", "version", "openblas configuration")
    return {name: found[name] for name in told if name in found}


def run_experiment(name, settings):
    """Check and measure; return the texts of raw.csv and environment.json."""
    experiment = EXPERIMENTS[name]
    groups = experiment.groups(settings)
    errors = check_errors(groups, TOLERANCE[settings.dtype])
    progress = records.Progress(
        f"measure {name}", len(groups) * (settings.warmup + settings.repeats))
    samples = measure(groups, settings, step=progress.step)
    return (raw_csv(experiment.label, samples),
            environment(name, settings, groups, errors))


def write_measurement(path, text, facts):
    """Write the CSV and, beside it, environment.json with the CSV's hash."""
    make_parent(path)
    records.write_file(path, text)
    if records.written_directly(path):              # a pipe has no beside
        records.note("bench.py", f"{path} is no file, so no {ENVIRONMENT} is written")
        return
    facts = {**facts, "csv": {"name": os.path.basename(path),
                              "sha256": records.sha256(path)}}
    records.write_file(beside(path), records.json_text(facts))


def beside(path):
    return os.path.join(os.path.dirname(path), ENVIRONMENT)


def make_parent(path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)


def check_csv_path(path):
    """Refuse, before anything is timed, a path that cannot be written."""
    if os.path.basename(path) == ENVIRONMENT:
        raise ValueError(f"{path}: this name is wanted for what the run was")
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "is a folder, a file is needed", path)
    if records.written_directly(path):
        return
    if not os.path.basename(path):
        raise ValueError(f"{path!r} names no file, a file is needed")
    if os.path.isdir(beside(path)):
        raise IsADirectoryError(errno.EISDIR, "is a folder, a file is needed",
                                beside(path))
    place = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not (os.path.isdir(place) and os.access(place, os.W_OK)):
        raise OSError(errno.ENOTDIR, f"cannot be written, {place} is no folder to "
                                     "write in", path)


# -- Summaries ----------------------------------------------------------------

def derived_files(samples: timings.Samples, facts: verdicts.Facts) -> dict:
    """Return {file name: text} of all that is derived from the samples."""
    room = judging(samples)
    summary = room.summary_csv(samples, facts)
    name = ("knee-analysis.md" if samples.experiment == "batch_size_scan"
            else "analysis.md")
    return {"summary.csv": summary, name: room.analysis(samples, facts),
            **figures.bench_charts(summary)}


def judging(samples):
    """Return the room that summarizes and judges the samples."""
    return costs if samples.experiment in costs.STUDIES else verdicts


def summarize(args):
    """Write the derived files of args.input; return what to print."""
    with open(args.input, "rb") as file:
        data = file.read()
    try:
        samples = timings.read_samples(data.decode("utf-8"), args.input)
    except UnicodeDecodeError as error:
        line = data[:error.start].count(b"\n") + 1
        raise ValueError(f"{args.input}:{line}: is not UTF-8: {error}") from None
    facts = facts_of(args, samples, data)
    # Encoded before anything is written, so that all can be or none.
    files = {os.path.join(args.output_dir, name): text.encode("utf-8")
             for name, text in derived_files(samples, facts).items()}
    for path in files:
        records.refuse_input_as_output(args.input, path)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "is a folder, a file is needed", path)
    os.makedirs(args.output_dir, exist_ok=True)
    for path, text in files.items():
        records.write_file(path, text)
    return judging(samples).headline(samples, facts)


def facts_of(args, samples, data):
    """Return the Facts of a CSV: environment.json's, and the given labels."""
    declared = read_environment(args.input, data)
    facts = verdicts.Facts(gain_threshold=args.gain_threshold)
    if declared:
        try:
            facts = declared_facts(declared, samples, facts)
        except (KeyError, TypeError, AttributeError, ValueError,
                OverflowError) as error:
            raise ValueError(f"{beside(args.input)}: is not as bench.py writes "
                             f"it: {error!r}") from None
    lengths = samples.values("sequence_length")
    if args.sequence_length and lengths != [args.sequence_length]:
        raise ValueError(f"{args.input}: --sequence-length {args.sequence_length} "
                         f"contradicts the file, which has "
                         f"{', '.join(map(str, lengths)) or 'none'}")
    for label in ("dtype", "blas_threads"):
        given, known = getattr(args, label), getattr(facts, label)
        if given and known and given != known:
            raise ValueError(f"{beside(args.input)}: --{label.replace('_', '-')} "
                             f"{given} contradicts the recorded {known}")
        facts = facts._replace(**{label: known or given})
    return facts


def read_environment(path, data):
    """Return the environment.json of this very CSV, or None."""
    if not os.path.isfile(beside(path)):
        return None
    with open(beside(path), encoding="utf-8") as file:
        try:
            declared = json.load(file)
            if declared["csv"]["sha256"] == hashlib.sha256(data).hexdigest():
                return declared
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
    records.note("bench.py", f"{beside(path)} is not that of {path}, "
                             "its facts are not used")
    return None


def declared_facts(declared, samples, facts):
    columns = timings.SCANS[samples.experiment].columns
    rows = {tuple(row[column] for column in columns if column in row): row
            for row in declared["errors"]}
    return facts._replace(
        dtype=declared["dtype"], blas_threads=declared["blas_threads"],
        errors={group: float(row["max_abs_error"]) for group, row in rows.items()},
        projected_rows={group: int(row["projected_rows"])
                        for group, row in rows.items() if "projected_rows" in row},
        tolerance=float(declared["tolerance"]),
        malloc=dict(declared["malloc"]))


# -- Capacity -----------------------------------------------------------------

class Model(NamedTuple):
    """Whose K and V are counted; query heads None where they are not known."""
    name: str
    query_heads: object
    kv_heads: int
    head_dim: int
    layers: int
    dtype: str
    tokens: tuple


LENGTHS = (16, 32, 64, 128, 256, 1024, 4096)
MODELS = (
    Model("MHA 8/8", 8, 8, WIDTH, 1, "float64", LENGTHS),
    Model("GQA 8/2", 8, 2, WIDTH, 1, "float64", LENGTHS),
    Model("MQA 8/1", 8, 1, WIDTH, 1, "float64", LENGTHS),
    # Inferred in the two-tier exercise: a chunk, a stored and a whole document.
    Model("two-tier 28 layers", None, 2, 128, 28, "float16", (256, 4864, 5011)))


def capacity_csv() -> str:
    """Return the bytes of K and V, by formula and by the arrays' nbytes."""
    lines = ["model,query_heads,kv_heads,head_dim,layers,batch,dtype,tokens,"
             "formula_bytes,nbytes"]
    for model in MODELS:
        for tokens in model.tokens:
            formula = attention.kv_bytes(
                batch=1, kv_heads=model.kv_heads, tokens=tokens,
                head_dim=model.head_dim, layers=model.layers, dtype=model.dtype)
            cells = (model.name, "" if model.query_heads is None else model.query_heads,
                     model.kv_heads, model.head_dim, model.layers, 1, model.dtype,
                     tokens, formula, bytes_of_arrays(model, tokens))
            lines.append(",".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def bytes_of_arrays(model, tokens):
    """Return the nbytes of K and V, made layer by layer."""
    shape = (1, model.kv_heads, tokens, model.head_dim)     # [B, H, T, D]
    return sum(np.empty(shape, model.dtype).nbytes
               for _ in range(model.layers) for _ in ("K", "V"))


# -- Commands -----------------------------------------------------------------

COUNT = records.whole_number(1)


def multiples_of(number):
    """Return the argparse type of a sorted list of multiples of `number`."""
    def multiples(text):
        numbers = tuple(sorted(records.list_of(COUNT)(text)))
        if any(value % number for value in numbers):
            raise argparse.ArgumentTypeError(
                f"must be multiples of {number}, got {text[:60]!r}")
        return numbers
    return multiples


def threshold(text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number >= 0, got {text!r}")
    return value


def make_parser():
    parser = argparse.ArgumentParser(
        description="Time decode paths, summarize samples, count K/V bytes.",
        allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    add_measure(commands.add_parser(
        "measure", help="check, then time", allow_abbrev=False))
    add_summarize(commands.add_parser(
        "summarize", help="medians, charts, verdicts", allow_abbrev=False))
    capacity = commands.add_parser("capacity", help="bytes of K and V",
                                   allow_abbrev=False)
    capacity.add_argument("--csv", required=True, metavar="FILE")
    return parser


def add_measure(parser):
    parser.add_argument("--experiment", required=True, choices=(*EXPERIMENTS, "all"))
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--csv", metavar="FILE", help="of one experiment")
    target.add_argument("--out", metavar="DIR", help="a new folder, for all")
    # Without a default: what is not given is the experiment's own.
    parser.add_argument("--warmup", type=records.whole_number(), metavar="N",
                        help="rounds before (10, admission 1, limit 1)")
    parser.add_argument("--repeats", type=COUNT, metavar="N",
                        help="rounds recorded (30, admission 25, break-even "
                             "100, limit 60)")
    parser.add_argument("--lengths", type=multiples_of(1), metavar="LIST",
                        help="T of cache, batch-length and limit")
    parser.add_argument("--batch-sizes", type=multiples_of(1), metavar="LIST",
                        help="B of batch-size (1,2,4,8)")
    parser.add_argument("--length", type=COUNT, metavar="T",
                        help="T of batch-size (128)")
    parser.add_argument("--hidden-sizes", type=multiples_of(2), metavar="LIST",
                        help="of break-even (16,64,256)")
    parser.add_argument("--prefixes", type=multiples_of(STRIDE), metavar="LIST",
                        help="in tokens, of break-even (4 to 128)")
    parser.add_argument("--dtype", choices=TOLERANCE,
                        help="of the decode paths (float64)")
    parser.add_argument("--seed", type=records.whole_number(), metavar="N",
                        help="of inputs and order (42)")


def add_summarize(parser):
    parser.add_argument("--input", required=True, metavar="CSV")
    parser.add_argument("--output-dir", required=True, metavar="DIR")
    parser.add_argument("--sequence-length", type=COUNT, metavar="T",
                        help="refused when the file has another")
    parser.add_argument("--dtype", metavar="NAME",
                        help="refused when environment.json has another")
    parser.add_argument("--blas-threads", type=COUNT, metavar="N",
                        help="refused when environment.json has another")
    parser.add_argument("--gain-threshold", type=threshold, default=0.10,
                        metavar="SHARE", help="of the knee (%(default)s)")


def measure_one(args):
    check_csv_path(args.csv)
    settings = settings_of(args, EXPERIMENTS[args.experiment])
    write_measurement(args.csv, *run_experiment(args.experiment, settings))


def measure_all(args):
    """Measure and summarize what was published; print what came out."""
    with records.run_folder(args.out) as folder:
        printed = []
        for name in PUBLISHED:
            experiment = EXPERIMENTS[name]
            place = os.path.join(folder, experiment.folder)
            path = os.path.join(place, "raw.csv")
            settings = settings_of(args, experiment)
            write_measurement(path, *run_experiment(name, settings))
            printed.append(summarize(make_parser().parse_args(
                ["summarize", "--input", path, "--output-dir", place])))
    records.emit("\n".join(printed))


def settings_of(args, experiment):
    """Return what was given; what was not is as the experiment has it."""
    given = {name: getattr(args, name) for name in Settings._fields
             if getattr(args, name) is not None}
    return Settings(**{**experiment.defaults, **given})


def main(argv=None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.command == "measure" and (args.experiment == "all") != bool(args.out):
        parser.error("--experiment all goes with --out, any other with --csv")

    def work():
        if args.command == "summarize":
            records.emit(summarize(args))
        elif args.command == "capacity":
            check_csv_path(args.csv)
            make_parent(args.csv)
            records.write_file(args.csv, capacity_csv())
        else:
            records.note_unpinned("bench.py", BLAS_PINNED)
            (measure_all if args.out else measure_one)(args)

    return records.run_main("bench.py", work)


if __name__ == "__main__":
    sys.exit(main())
