"""Audit the folders of bench.py: raw samples, summaries, verdicts, charts.

    audit_samples(folder, "cache_strategy")     a scan of timed samples
    audit_capacity(folder)                      the bytes of K and V

`folder` is audit.py's Folder; nothing here imports what made the evidence.
From the arguments follow the groups, the samples and, by replaying the seed,
the order in which they were taken.  From the samples follow every number,
verdict and knee, by exact fractions, and every point of a chart.  The prose
around them is pinned by its hash.

Timings, errors, page faults and the machine are declarations: raw.csv is
bound to its hash in environment.json, and who changes both is not caught.
"""

import hashlib
import random
import re
from fractions import Fraction

import oracle
from audit_charts import Lines

__all__ = ["audit_samples", "audit_capacity", "RECORDS", "DERIVED"]

RECORDS = ("raw.csv", "environment.json")
DERIVED = {
    "cache_strategy": ("summary.csv", "analysis.md", "latency.svg"),
    "batch_length_scan": ("summary.csv", "analysis.md", "speedup.svg"),
    "batch_size_scan": ("summary.csv", "knee-analysis.md", "latency-p50-p95.svg",
                        "throughput-positions-per-second.svg")}
ALL_DERIVED = tuple(sorted({name for names in DERIVED.values() for name in names}))

# -- The protocol -------------------------------------------------------------

PATHS = {"cache_strategy": ("no_cache", "dynamic_cache", "preallocated_cache"),
         "batch_length_scan": ("sequential", "batched"),
         "batch_size_scan": ("sequential", "batched")}
OPTION = {"cache_strategy": "cache", "batch_length_scan": "batch-length",
          "batch_size_scan": "batch-size"}
FULL = {"warmup": 10, "repeats": 30, "dtype": "float64", "seed": 42}
FULL_SIZES = {"lengths": [16, 32, 64, 128, 256], "batch_sizes": [1, 2, 4, 8],
              "length": 128}
TOLERANCE = {"float64": 1e-8, "float32": 1e-4}
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "33554432",
               "MALLOC_TRIM_THRESHOLD_": "1073741824"}
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
           "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS")
SOURCES = ("attention.py", "bench.py", "records.py", "verdicts.py")
MEMBERS = {"python": str, "numpy": str, "blas": (dict, type(None)),
           "platform": str, "cpu": str, "blas_threads": (int, type(None)),
           "numpy_came_first": bool, "threads": dict, "variables": dict,
           "malloc": dict, "dtype": str,
           "seed": int, "arguments": dict, "tolerance": float, "errors": list,
           "sources": dict, "csv": dict}
COLUMNS = ("experiment", "path", "batch_size", "sequence_length", "sample",
           "elapsed_ms", "order", "minor_faults")
CELL = {"batch_size": r"[1-9]\d{0,14}", "sequence_length": r"[1-9]\d{0,14}",
        "sample": r"[1-9]\d{0,14}", "elapsed_ms": r"(0|[1-9]\d{0,14})\.\d{6}",
        "order": r"[1-9]\d{0,14}", "minor_faults": r"(0|[1-9]\d{0,14})?"}
MOST_WARMUP = 100_000

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


class Doubt(Exception):
    """Nothing further can be derived: what was found, where, and the rule."""


def require(condition, file, record, found, expected):
    if not condition:
        raise Doubt(file, record, found, expected)


def audit_samples(folder, experiment=None, malloc=None) -> None:
    """Audit one scan; `experiment` and `malloc` are what a known one must be."""
    try:
        declared, rows = folder.json("environment.json"), read_raw(folder)
        found = rows[0]["experiment"]
        require(experiment in (None, found), "raw.csv", "line 2: experiment",
                found, experiment)
        check_environment(folder, found, declared, malloc)
        check_rows(folder, found, declared["arguments"], rows)
    except Doubt as doubt:
        folder.fault(*doubt.args)
        return
    run = Run(found, declared, rows)
    audit_derived(folder, run)
    if folder.known and found == "batch_size_scan":
        check_fixture(folder)
    folder.totals = {"samples": len(rows), "groups": len(run.elapsed),
                     "sources_changed_since": folder.changed_sources(declared["sources"])}


# -- Raw records --------------------------------------------------------------

def read_raw(folder):
    """Return raw.csv as a list of {column: text}; only its canonical form."""
    text = folder.text("raw.csv")
    header, *lines = text.split("\n")
    require(header == ",".join(COLUMNS), "raw.csv", "line 1", header[:200],
            ",".join(COLUMNS))
    require(lines and lines.pop() == "" and lines, "raw.csv", "end",
            text[-40:], "rows, and a final newline")
    return [read_line(number, line) for number, line in enumerate(lines, 2)]


def read_line(number, line):
    cells = line.split(",")
    require(len(cells) == len(COLUMNS), "raw.csv", f"line {number}", line[:200],
            f"{len(COLUMNS)} cells")
    row = dict(zip(COLUMNS, cells))
    require(row["experiment"] in PATHS, "raw.csv", f"line {number}: experiment",
            row["experiment"][:40], list(PATHS))
    for column, pattern in CELL.items():
        require(re.fullmatch(pattern, row[column], re.ASCII), "raw.csv",
                f"line {number}: {column}", row[column][:40], pattern)
    require(float(row["elapsed_ms"]) > 0, "raw.csv", f"line {number}: elapsed_ms",
            row["elapsed_ms"], "a time above 0")
    return row


def whole(value, least=0):
    return type(value) is int and least <= value < 10 ** 15


def check_arguments(arguments, experiment):
    """Require arguments from which groups can be derived; return the sizes."""
    file, record = "environment.json", "arguments"
    sizes = (("batch_sizes", "length") if experiment == "batch_size_scan"
             else ("lengths",))
    require(list(arguments) == ["experiment", "warmup", "repeats", "dtype", "seed",
                                *sizes], file, record, list(arguments), list(sizes))
    require(arguments["experiment"] == OPTION[experiment], file,
            f"{record}.experiment", arguments["experiment"], OPTION[experiment])
    require(whole(arguments["warmup"]) and arguments["warmup"] <= MOST_WARMUP, file,
            f"{record}.warmup", arguments["warmup"], f"0 to {MOST_WARMUP}")
    require(whole(arguments["repeats"], 1), file, f"{record}.repeats",
            arguments["repeats"], "a whole number above 0")
    require(whole(arguments["seed"]), file, f"{record}.seed", arguments["seed"],
            "a whole number")
    for name in sizes:
        value = arguments[name]
        numbers = [value] if name == "length" else value
        require(isinstance(numbers, list) and numbers
                and all(whole(number, 1) for number in numbers)
                and numbers == sorted(set(numbers)), file, f"{record}.{name}",
                value, "rising whole numbers above 0")
    if experiment == "batch_size_scan":
        return [(batch, arguments["length"]) for batch in arguments["batch_sizes"]]
    batch = 1 if experiment == "cache_strategy" else 2
    return [(batch, tokens) for tokens in arguments["lengths"]]


def groups_of(experiment, arguments):
    return [(path, *size) for size in check_arguments(arguments, experiment)
            for path in PATHS[experiment]]


def check_rows(folder, experiment, arguments, rows):
    """Compare every row's group, sample and order with a replay of the seed."""
    groups = groups_of(experiment, arguments)
    repeats = arguments["repeats"]
    require(len(rows) == len(groups) * repeats, "raw.csv", "rows", len(rows),
            len(groups) * repeats)
    rng, order = random.Random(arguments["seed"]), {}
    for number in range(-arguments["warmup"], repeats):
        places = list(range(len(groups)))
        rng.shuffle(places)
        if number >= 0:
            for place in places:
                order[groups[place], number + 1] = len(order) + 1
    expected = [(group, sample) for group in groups
                for sample in range(1, repeats + 1)]
    for number, (row, (group, sample)) in enumerate(zip(rows, expected), 2):
        wanted = (experiment, *group, sample, order[group, sample])
        names = ("experiment", "path", "batch_size", "sequence_length", "sample",
                 "order")
        for name, value in zip(names, wanted):
            if row[name] != str(value):
                folder.fault("raw.csv", f"line {number}: {name}", row[name],
                             str(value))
    recorded = {row["minor_faults"] != "" for row in rows}
    require(len(recorded) == 1, "raw.csv", "minor_faults", "in some rows only",
            "in all rows or in none")
    require(all(row["path"] in PATHS[experiment] for row in rows)
            and {group_of(row) for row in rows} == set(groups)
            and not any("line" in fault["record"] for fault in folder.faults),
            "raw.csv", "groups", "other rows", "those of the arguments")


def group_of(row):
    return row["path"], int(row["batch_size"]), int(row["sequence_length"])


def check_environment(folder, experiment, declared, malloc):
    """Check what is declared, as far as it follows from the rest."""
    file = "environment.json"
    require(isinstance(declared, dict) and list(declared) == list(MEMBERS), file,
            "members", sorted(declared)[:40] if isinstance(declared, dict)
            else type(declared).__name__, sorted(MEMBERS))
    for name, kind in MEMBERS.items():
        fits = isinstance(declared[name], kind) and (
            kind is bool or not isinstance(declared[name], bool))
        require(fits, file, name, declared[name], str(kind))
    require(declared["dtype"] in TOLERANCE, file, "dtype", declared["dtype"],
            list(TOLERANCE))
    arguments, dtype = declared["arguments"], declared["dtype"]
    groups = groups_of(experiment, arguments)
    if folder.known:
        sizes = {name: value for name, value in FULL_SIZES.items()
                 if name in arguments}
        folder.same(file, arguments, {"experiment": OPTION[experiment], **FULL,
                                      **sizes}, "arguments")
        folder.same(file, declared["malloc"], malloc or {}, "malloc")
        folder.same(file, declared["blas_threads"], 1, "blas_threads")
        folder.same(file, declared["threads"], dict.fromkeys(THREADS, "1"), "threads")
    folder.same(file, declared["blas_threads"],
                None if declared["numpy_came_first"] else 1, "blas_threads")
    folder.same(file, [dtype, declared["seed"], declared["tolerance"]],
                [arguments["dtype"], arguments["seed"], TOLERANCE[dtype]],
                "dtype, seed, tolerance")
    folder.same(file, declared["csv"], {"name": "raw.csv",
                                        "sha256": folder.sha256("raw.csv")}, "csv")
    check_texts(declared)
    check_errors(declared, groups)


def check_texts(declared):
    file = "environment.json"
    for name in ("threads", "variables", "malloc"):
        for key, value in declared[name].items():
            require(isinstance(value, str) or name == "threads" and value is None,
                    file, f"{name}.{key}", value, "text")
    require(list(declared["sources"]) == list(SOURCES), file, "sources",
            list(declared["sources"])[:40], list(SOURCES))
    for name, value in declared["sources"].items():
        require(isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value),
                file, f"sources.{name}", value, "a SHA-256")


def check_errors(declared, groups):
    """Require one error for each group, in order, within the tolerance."""
    errors = declared["errors"]
    require(len(errors) == len(groups), "environment.json", "errors length",
            len(errors), len(groups))
    names = ("path", "batch_size", "sequence_length")
    for index, (error, group) in enumerate(zip(errors, groups)):
        largest = error.get("max_abs_error") if isinstance(error, dict) else None
        require(type(largest) is float and 0 <= largest <= declared["tolerance"],
                "environment.json", f"errors[{index}].max_abs_error", largest,
                f"0 to {declared['tolerance']}")
        wanted = {**dict(zip(names, group)), "max_abs_error": largest}
        require(error == wanted and list(error) == list(wanted)
                and type(error["batch_size"]) is type(error["sequence_length"]) is int,
                "environment.json", f"errors[{index}]", error, wanted)


def check_fixture(folder):
    """The published medians, which README sets beside this scan, are pinned."""
    folder.fixture("published-batch-size.csv", FIXTURE_SHA256)


# -- What follows from the samples --------------------------------------------

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
        """Return median, interval, halves and side of one ratio."""
        ratios = [one / other for one, other in
                  zip(self.elapsed[(over, *size)], self.elapsed[(under, *size)])]
        half = len(ratios) // 2
        first = oracle.median(ratios[:half]) if half else oracle.median(ratios)
        second, interval = oracle.median(ratios[half:]), interval_of(ratios)
        if interval is None:
            where = "few"
        elif abs(round(second / first - 1, 9)) > 0.1:
            where = "moved"
        else:
            where = ("above" if interval[0] > 1 else
                     "below" if interval[1] < 1 else "undecided")
        return oracle.median(ratios), interval, first, second, where

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


def interval_of(values):
    """Return the 95 % interval of the median: order statistics of the signs."""
    ordered, count = sorted(values), len(values)
    term = Fraction(1, 2 ** count)      # P(exactly `rank` values lie below)
    below, rank = term, 0
    while below <= Fraction(25, 1000):
        rank += 1
        term = term * (count - rank + 1) / rank
        below += term
    return None if rank == 0 else (ordered[rank - 1], ordered[-rank])


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
    names = DERIVED[run.experiment]
    for name in ALL_DERIVED:
        if folder.has(name) and name not in names and not folder.known:
            folder.fault(name, "", "a file of another experiment", list(names))
    summary, analysis, *_ = names
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


def compare_csv(folder, name, expected):
    """Compare a CSV cell by cell with rows of text."""
    text = folder.text(name)
    lines = text.split("\n")
    if len(lines) != len(expected) + 1 or lines[-1]:
        folder.fault(name, "lines", len(lines) - 1, len(expected))
    for number, (line, row) in enumerate(zip(lines, expected), 1):
        cells = line.split(",")
        if len(cells) != len(row):
            folder.fault(name, f"line {number}", line[:200], ",".join(row))
            continue
        for column, cell, wanted in zip(expected[0], cells, row):
            if cell != wanted:
                folder.fault(name, f"line {number}: {column}", cell[:200], wanted)


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
    """Compare the data lines one by one, and the text around by its hash."""
    text = folder.text(name)
    if not folder.known:                # another run may set another threshold
        told = re.search(r"^- Gain threshold: (\d{1,9}\.\d{1,9})$", text, re.M)
        run.threshold = float(told[1]) if told else run.threshold
    data, prose = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(("|", "- ", "Knee:")):
            data.append((number, line))
            prose += ["@"] if prose[-1:] != ["@"] else []
        else:
            prose.append(line)
    expected = list(analysis_lines(run))
    if len(data) != len(expected):
        folder.fault(name, "lines of data", len(data), len(expected))
    for (number, line), wanted in zip(data, expected):
        if line != wanted:
            folder.fault(name, f"line {number}", line[:300], wanted)
    found = hashlib.sha256("\n".join(prose).encode()).hexdigest()
    folder.same(name, found, PROSE_SHA256[run.experiment], "prose sha256")


def analysis_lines(run):
    """Yield every line of data of an analysis, in order."""
    declared = run.declared
    if run.experiment == "batch_size_scan":
        found = run.knee()
        yield (f"Knee: B={found}" if found else
               f"Knee: Not reached in B <= {run.batches[-1]}")
    yield f"- Batch sizes: {', '.join(map(str, run.batches))}"
    yield f"- Sequence lengths: {', '.join(map(str, run.lengths))}"
    yield f"- Samples in each group: {run.rounds}"
    yield f"- dtype: {declared['dtype']}"
    yield f"- BLAS threads: {declared['blas_threads'] or 'not recorded'}"
    if run.experiment == "batch_size_scan":
        yield f"- Gain threshold: {run.threshold}"
    largest = max(error["max_abs_error"] for error in declared["errors"])
    yield (f"- Largest error against no cache: {largest:.2e}, "
           f"allowed {declared['tolerance']:.0e}")
    variables = [f"{key}={declared['malloc'][key]}"
                 for key in sorted(declared["malloc"])]
    yield f"- Allocator variables: {', '.join(variables) or 'none set'}"
    for prediction, verdict in run.verdicts():
        yield f"- {prediction}: {verdict}"
    yield from median_lines(*run.summary())
    yield from ratio_lines(run)
    yield from sample_lines(run)


def row_of(*cells):
    return f"| {' | '.join(cells)} |"


def rule(columns):
    return "|" + columns * "---|"


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
            middle, interval, first, second, where = run.ratio(
                over, under, (batch, tokens))
            bounds = [f"{bound:.3f}" for bound in interval] if interval else ["", ""]
            yield row_of(f"{over} / {under}", str(batch), str(tokens),
                         f"{middle:.3f}", *bounds, f"{first:.3f}", f"{second:.3f}",
                         where)


def sample_lines(run):
    yield row_of("path", "B", "T", "minimum ms", "median ms", "p95 ms",
                 "maximum ms", "drift", "page faults")
    yield rule(9)
    for group, values in run.elapsed.items():
        path, batch, tokens = group
        change = 100 * (oracle.median(values[-5:]) / oracle.median(values[:5]) - 1)
        pages = (f"{oracle.median(run.faults[group]):g}" if group in run.faults
                 else "not recorded")
        yield row_of(path, str(batch), str(tokens), f"{min(values):.3f}",
                     f"{oracle.median(values):.3f}",
                     f"{oracle.percentile(values, 0.95):.3f}",
                     f"{max(values):.3f}", f"{change:+.1f} %", pages)


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
