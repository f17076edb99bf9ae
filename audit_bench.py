"""Audit the folders of bench.py: raw samples, summaries, verdicts, charts.

    audit_scan(folder, "cache_strategy")        a scan of timed samples
    audit_capacity(folder)                      the bytes of K and V

`folder` is audit.py's Folder; nothing here imports what made the evidence.
What every audit of samples has, records and statistics, is in
audit_samples.py.  From the samples follow every number, verdict and knee, by
exact fractions, and every point of a chart.  The prose around them is pinned
by its hash.  A timing is a declaration.
"""

import contextlib
import re
from fractions import Fraction
from functools import partial

import oracle
from audit_charts import Lines
from audit_samples import (Doubt, Form, Sampled, check_records, compare_csv,
                           compare_lines, count, fact_lines, ratio_cells, ratio_of,
                           row_of, rule, time_cells)

__all__ = ["audit_scan", "audit_capacity", "DERIVED"]

DERIVED = {
    "cache_strategy": ("summary.csv", "analysis.md", "latency.svg"),
    "batch_length_scan": ("summary.csv", "analysis.md", "speedup.svg"),
    "batch_size_scan": ("summary.csv", "knee-analysis.md", "latency-p50-p95.svg",
                        "throughput-positions-per-second.svg")}

# -- The protocol -------------------------------------------------------------

PATHS = {"cache_strategy": ("no_cache", "dynamic_cache", "preallocated_cache"),
         "batch_length_scan": ("sequential", "batched"),
         "batch_size_scan": ("sequential", "batched")}
FULL = {"warmup": 10, "repeats": 30, "dtype": "float64", "seed": 42}
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "33554432",
               "MALLOC_TRIM_THRESHOLD_": "1073741824"}

FIXTURE_SHA256 = "427e4941484eececab98ae1fa9f2d6359b884974ba498ffd2e15afe890d571f9"

# The text around the numbers of each analysis; a test tells the new value.
PROSE_SHA256 = {
    "cache_strategy":
        "e4281aae1fd68bcb319a333ae0c5ae4467ec14162eb56720e258c8f1ed7288dc",
    "batch_length_scan":
        "85ffa9e7aee10d9ee499f3ff7d1b03b376361458980bd0c2c21a75490e5f11c8",
    "batch_size_scan":
        "08c7827ec92906a193079af308f26a7dccbbaeab56b6001f301efc7a1d94ea86",
}


def scan_groups(paths, sizes, arguments):
    keys = [(path, *size) for size in sizes(arguments) for path in paths]
    return [Sampled(key, {}, [key]) for key in keys]


def scan_form(label, option, sizes, full, pairs):
    return Form(option, ("path", "batch_size", "sequence_length"), sizes,
                {**FULL, **full}, partial(scan_groups, PATHS[label], pairs))


LENGTHS = {"lengths": [16, 32, 64, 128, 256]}
FORMS = {
    "cache_strategy": scan_form(
        "cache_strategy", "cache", ("lengths",), LENGTHS,
        lambda said: [(1, tokens) for tokens in said["lengths"]]),
    "batch_length_scan": scan_form(
        "batch_length_scan", "batch-length", ("lengths",), LENGTHS,
        lambda said: [(2, tokens) for tokens in said["lengths"]]),
    "batch_size_scan": scan_form(
        "batch_size_scan", "batch-size", ("batch_sizes", "length"),
        {"batch_sizes": [1, 2, 4, 8], "length": 128},
        lambda said: [(batch, said["length"]) for batch in said["batch_sizes"]])}


def audit_scan(folder, experiment=None, malloc=None) -> None:
    """Audit one scan; `experiment` and `malloc` are what a known one must be."""
    try:
        found, declared, rows = check_records(folder, FORMS, experiment, malloc)
    except Doubt as doubt:
        folder.fault(*doubt.args)
        return
    run = Run(found, declared, rows)
    audit_derived(folder, run)
    if folder.known and found == "batch_size_scan":
        check_fixture(folder)
    count(folder, declared, rows, run.elapsed)


def check_fixture(folder):
    """The published medians, which README sets beside this scan, are pinned."""
    folder.fixture("published-batch-size.csv", FIXTURE_SHA256)


# -- What follows from the samples --------------------------------------------

def group_of(row):
    return row["path"], int(row["batch_size"]), int(row["sequence_length"])


class Run:
    """The samples of a checked run by group, and what they come to."""

    def __init__(self, experiment, declared, rows):
        self.experiment, self.declared, self.threshold = experiment, declared, 0.1
        self.elapsed, self.faults = {}, {}
        for row in rows:
            group = group_of(row)
            self.elapsed.setdefault(group, []).append(float(row["elapsed_ms"]))
            if row["minor_faults"]:
                self.faults.setdefault(group, []).append(int(row["minor_faults"]))
        self.batches = sorted({batch for _, batch, _ in self.elapsed})
        self.lengths = sorted({tokens for _, _, tokens in self.elapsed})
        self.sizes = [(batch, tokens) for batch in self.batches
                      for tokens in self.lengths]
        self.rounds = len(rows) // len(self.elapsed)
        self.pairs = ([("no_cache", "preallocated_cache"),
                       ("dynamic_cache", "preallocated_cache")]
                      if experiment == "cache_strategy"
                      else [("sequential", "batched")])

    def p50(self, path, batch, tokens):
        return Fraction(oracle.median(self.elapsed[path, batch, tokens]))

    def gains(self):
        tokens, = self.lengths
        pace = [batch / self.p50("batched", batch, tokens) for batch in self.batches]
        return [round(float(pace[place] / pace[place - 1] - 1), 9)
                for place in range(1, len(pace))]

    def knee(self):
        return next((batch for batch, gain in zip(self.batches[1:], self.gains())
                     if gain < self.threshold), None)

    def summary(self):
        """Return the columns and the rows of exact numbers of summary.csv."""
        if self.experiment == "cache_strategy":
            names = PATHS["cache_strategy"]
            rows = []
            for batch, tokens in self.sizes:
                none, grown, kept = (self.p50(name, batch, tokens) for name in names)
                rows.append([tokens, none, grown, kept, none / kept, grown / kept])
            return ["sequence_length", "no_cache_ms", "dynamic_ms",
                    "preallocated_ms", "no_cache_over_preallocated",
                    "dynamic_over_preallocated"], rows
        gains = [None] + (self.gains() if self.experiment == "batch_size_scan" else [])
        rows = []
        for place, (batch, tokens) in enumerate(self.sizes):
            one, many = (self.p50(name, batch, tokens)
                         for name in ("sequential", "batched"))
            pace = Fraction(1000 * batch * tokens) / many
            if self.experiment == "batch_length_scan":
                rows.append([tokens, one, many, one / many, pace])
                continue
            late = oracle.percentile(self.elapsed["batched", batch, tokens], 0.95)
            rows.append([batch, many, late, many / batch, pace, one / many,
                         gains[place]])
        if self.experiment == "batch_length_scan":
            return ["sequence_length", "sequential_ms", "batched_ms", "speedup",
                    "positions_per_second"], rows
        return ["batch_size", "batch_p50_ms", "batch_p95_ms", "p50_per_sequence_ms",
                "positions_per_second", "sequential_over_batch",
                "throughput_gain"], rows

    def ratio(self, over, under, size):
        return ratio_of(self.elapsed[(over, *size)], self.elapsed[(under, *size)])

    def verdicts(self):
        """Return [(prediction, verdict)] by the rules of the analysis."""
        over, under = self.pairs[-1]
        ratios = [self.ratio(over, under, size) for size in self.sizes]
        # The errors were required to be within the tolerance.
        judged = [("H1 the paths agree", "Supported")]
        if self.experiment == "cache_strategy":
            judged.append(("H2 preallocated beats dynamic at every length",
                           judge_sides(ratios)))
        elif self.experiment == "batch_length_scan":
            judged.append(("H3 batched beats sequential at B = 2 at every length",
                           judge_sides(ratios)))
            judged.append(("H4 the speed-up stays under 2 and narrows",
                           judge_narrowing(ratios)))
        else:
            judged.append(("H5 throughput rises, then gains little",
                           judge_gains(self.gains(), self.threshold, self.rounds)))
        return judged


def judge_sides(ratios):
    sides = {ratio[-1] for ratio in ratios}
    return ("Refuted" if "below" in sides else
            "Supported" if sides == {"above"} else "Inconclusive")


def judge_narrowing(ratios):
    if any(where not in ("few", "moved") and interval[0] >= 2
           for _, interval, _, _, where in ratios):
        return "Refuted"
    if len(ratios) == 1 or any(ratio[-1] in ("few", "moved") for ratio in ratios):
        return "Inconclusive"
    medians = [ratio[0] for ratio in ratios]
    top = max(medians)
    peak = medians.index(top)
    if peak + 1 == len(medians):
        return "Refuted"
    rises = any(round(medians[place + 1] / medians[place] - 1, 9) > 0.02
                for place in range(peak, len(medians) - 1))
    return "Inconclusive" if top >= 2 or rises else "Supported"


def judge_gains(gains, threshold, rounds):
    if rounds < 6 or all(gain >= threshold for gain in gains):
        return "Inconclusive"
    return "Refuted" if gains[0] < threshold else "Supported"


# -- Derived files ------------------------------------------------------------

def audit_derived(folder, run):
    summary, analysis, *_ = DERIVED[run.experiment]
    if folder.has(summary):
        header, rows = run.summary()
        compare_csv(folder, summary, [header] + [
            ["" if value is None else str(value) if type(value) is int
             else f"{float(value):.6f}" for value in row] for row in rows])
    if folder.has(analysis):
        compare_analysis(folder, analysis, run)
    for name, chart in charts(run).items():
        if folder.has(name):
            folder.compare_chart(name, chart)


def charts(run):
    """Return {file name: Lines}."""
    columns, rows = run.summary()

    def points(column):
        place = columns.index(column)
        # A chart is drawn from summary.csv, which has six decimals.
        return [(row[0], float(f"{float(row[place]):.6f}")) for row in rows]

    tokens, size = "sequence length (tokens)", "batch size"
    if run.experiment == "cache_strategy":
        return {"latency.svg": Lines(
            "Time to decode one sequence, by cache strategy", tokens, "median (ms)",
            {"no cache": points("no_cache_ms"), "dynamic cache": points("dynamic_ms"),
             "preallocated cache": points("preallocated_ms")}, log_x=True, log_y=True)}
    if run.experiment == "batch_length_scan":
        return {"speedup.svg": Lines(
            "Speed-up of a batch of two over one after the other", tokens,
            "sequential over batched",
            {"speed-up": points("speedup"), "no gain": [(row[0], 1) for row in rows]},
            log_x=True)}
    return {"latency-p50-p95.svg": Lines(
                "Time to decode a batch, by batch size", size, "time (ms)",
                {"p50": points("batch_p50_ms"), "p95": points("batch_p95_ms")}),
            "throughput-positions-per-second.svg": Lines(
                "Throughput by batch size", size, "positions per second",
                {"batched": points("positions_per_second")})}


def compare_analysis(folder, name, run):
    if not folder.known:                # another run may set another threshold
        told = re.search(r"^- Gain threshold: (\d[\d.e+-]{0,30})$",
                         folder.text(name), re.M | re.ASCII)
        with contextlib.suppress(ValueError):
            run.threshold = float(told[1]) if told else run.threshold
    compare_lines(folder, name, analysis_blocks(run), PROSE_SHA256[run.experiment])


def analysis_blocks(run):
    """Yield the lines of data of an analysis, block by block."""
    threshold = []
    if run.experiment == "batch_size_scan":
        threshold = [f"- Gain threshold: {run.threshold}"]
        found = run.knee()
        yield [f"Knee: B={found}" if found else
               f"Knee: Not reached in B <= {run.batches[-1]}"]
    yield fact_lines(
        run.declared, {"Batch sizes": run.batches, "Sequence lengths": run.lengths},
        run.rounds, threshold)
    yield [f"- {prediction}: {verdict}" for prediction, verdict in run.verdicts()]
    yield median_lines(*run.summary())
    yield ratio_lines(run)
    yield sample_lines(run)


def median_lines(columns, rows):
    yield row_of(*columns)
    yield rule(len(columns))
    for row in rows:
        cells = []
        for column, value in zip(columns, row):
            if value is None or type(value) is int:
                cells.append("" if value is None else str(value))
            elif column == "throughput_gain":
                cells.append(f"{100 * value:+.2f} %")
            else:
                digits = 0 if column == "positions_per_second" else 3
                cells.append(f"{float(value):.{digits}f}")
        yield row_of(*cells)


def ratio_lines(run):
    yield row_of("ratio", "B", "T", "median", "low", "high", "first half",
                 "second half", "side of 1")
    yield rule(9)
    for over, under in run.pairs:
        for batch, tokens in run.sizes:
            yield row_of(f"{over} / {under}", str(batch), str(tokens),
                         *ratio_cells(run.ratio(over, under, (batch, tokens))))


def sample_lines(run):
    yield row_of("path", "B", "T", "minimum ms", "median ms", "p95 ms",
                 "maximum ms", "drift", "page faults")
    yield rule(9)
    for group, values in run.elapsed.items():
        path, batch, tokens = group
        pages = (f"{oracle.median(run.faults[group]):g}" if group in run.faults
                 else "not recorded")
        yield row_of(path, str(batch), str(tokens), *time_cells(values, 3), pages)


# -- Capacity -----------------------------------------------------------------

# name, query heads, KV heads, head width, layers, dtype, bytes a number, lengths
TOY_LENGTHS = (16, 32, 64, 128, 256, 1024, 4096)
CAPACITY = (("MHA 8/8", 8, 8, 64, 1, "float64", 8, TOY_LENGTHS),
            ("GQA 8/2", 8, 2, 64, 1, "float64", 8, TOY_LENGTHS),
            ("MQA 8/1", 8, 1, 64, 1, "float64", 8, TOY_LENGTHS),
            ("two-tier 28 layers", "", 2, 128, 28, "float16", 2, (256, 4864, 5011)))


def audit_capacity(folder) -> None:
    """Check capacity.csv: K and V of one sequence, counted number by number."""
    rows = ["model,query_heads,kv_heads,head_dim,layers,batch,dtype,tokens,"
            "formula_bytes,nbytes".split(",")]
    for name, queries, heads, width, layers, dtype, size, lengths in CAPACITY:
        for tokens in lengths:
            numbers = sum(heads * tokens * width for _ in range(layers)) * 2
            rows.append([str(cell) for cell in (
                name, queries, heads, width, layers, 1, dtype, tokens,
                numbers * size, numbers * size)])
    compare_csv(folder, "capacity.csv", rows)
    folder.totals = {"rows": len(rows) - 1}
