"""Audit what bench.py measured of prefix caches and of the limit.

    audit_costs(folder, "admission")        also "break_even", "limit"

`folder` is audit.py's Folder; nothing here imports what made the evidence.
Records and statistics are those of audit_samples.py.  Projected rows come
from the list model of oracle.py; every other number, each bound, verdict and
point of a chart follows from the samples by the rules spelled out here.  The
prose around them is pinned by its hash.

It is a room of its own beside audit_bench.py, as costs.py is beside
verdicts.py.  A timing is a declaration here too.
"""

import math
from fractions import Fraction
from functools import lru_cache

import oracle
from audit_cache import ADMISSION, SEEDS, TRACES, expected_records
from audit_charts import Bars, Lines
from audit_samples import (Doubt, Form, Sampled, check_records, compare_csv,
                           compare_lines, count, fact_lines, ratio_cells, ratio_of,
                           row_of, rule, side_of, time_cells)

__all__ = ["audit_costs", "DERIVED"]

DERIVED = {
    "admission": ("summary.csv", "analysis.md",
                  *(f"ratios-{trace}.svg" for trace in TRACES)),
    "break_even": ("summary.csv", "analysis.md", "ratio-all.svg",
                   "ratio-longest.svg", "ratio-shared.svg"),
    "limit": ("summary.csv", "analysis.md", "latency.svg", "over-bare.svg")}

# The text around the numbers of each analysis; a test tells the new value.
PROSE_SHA256 = {
    "admission":
        "6768277487769f4d41f98a26fb90c8f724110061123b2ee248cc5d4e4ee75821",
    "break_even":
        "26fe2f1734ef8b96688cf4dd51559669426307a56be637e63e4145471c3438d4",
    "limit":
        "923f8fee16f17e7230a7331205518f74221de1d91a9c984b22149fb9fd5e3346",
}


# -- The protocol -------------------------------------------------------------

BUDGETS, POLICIES = ADMISSION
PARTS = ["lookup", "gather", "compute", "save", "other"]
REQUESTS, NO_CACHE_UP_TO = 12, 256
SOURCES = (["attention.py", "bench.py", "costs.py", "decoder.py", "experiments.py",
            "records.py", "timings.py", "verdicts.py"],)
FULL = {"warmup": 10, "repeats": 100, "dtype": "float64", "seed": 42}


@lru_cache(maxsize=1)
def counted_rows():
    """Return {(seed, budget, trace, policy): projected rows}; leave it unchanged."""
    found = {}
    for row in expected_records(BUDGETS, POLICIES):
        key = row["seed"], row["budget"], row["trace"], row["policy"]
        found[key] = found.get(key, 0) + row["projected_rows"]
    return found


def admission_groups(arguments):
    require_float64(arguments)
    groups = []
    for key, rows in counted_rows().items():
        groups.append(Sampled((*key, "query"), {"projected_rows": rows},
                              [(*key, "query", index) for index in range(REQUESTS)]))
        if key[0] == SEEDS[0]:
            groups.append(Sampled(key, {}, [(*key, part, index)
                                            for index in range(REQUESTS)
                                            for part in PARTS]))
    return groups


def break_even_groups(arguments):
    require_float64(arguments)
    file = "environment.json"
    for name, step in (("hidden_sizes", 2), ("prefixes", 4)):
        if any(value % step for value in arguments[name]):
            raise Doubt(file, f"arguments.{name}", arguments[name],
                        f"multiples of {step}")
    return [Sampled(key, {}, [key]) for key in
            ((policy, hidden, length) for hidden in arguments["hidden_sizes"]
             for length in arguments["prefixes"] for policy in POLICIES)]


def require_float64(arguments):
    if arguments["dtype"] != "float64":
        raise Doubt("environment.json", "arguments.dtype", arguments["dtype"],
                    "float64")


def limit_groups(arguments):
    keys = [(path, tokens) for tokens in arguments["lengths"]
            for path in ("no_cache", "preallocated_cache", "fused", "bare_products")
            if path != "no_cache" or tokens <= NO_CACHE_UP_TO]
    return [Sampled(key, {}, [key]) for key in keys]


FORMS = {
    "admission": Form("admission",
                      ("seed", "budget", "trace", "policy", "part", "index"), (),
                      {**FULL, "warmup": 1, "repeats": 25}, admission_groups, SOURCES),
    "break_even": Form("break-even", ("policy", "hidden", "prefix_tokens"),
                       ("hidden_sizes", "prefixes"),
                       {**FULL, "hidden_sizes": [16, 64, 256],
                        "prefixes": [4, 8, 16, 32, 64, 128]},
                       break_even_groups, SOURCES),
    "limit": Form("limit", ("path", "sequence_length"), ("lengths",),
                  {**FULL, "warmup": 1, "repeats": 60,
                   "lengths": [16, 64, 256, 1024, 4096]},
                  limit_groups, SOURCES)}


def audit_costs(folder, experiment=None) -> None:
    """Audit one measurement; `experiment` is what a known one must be."""
    try:
        found, declared, rows = check_records(folder, FORMS, experiment)
    except Doubt as doubt:
        folder.fault(*doubt.args)
        return
    elapsed = samples_of(found, rows)
    run = RUNS[found](declared, elapsed)
    summary, analysis, *_ = DERIVED[found]
    if folder.has(summary):
        compare_csv(folder, summary, [run.columns] + [
            [csv_cell(value) for value in row] for row in run.rows])
    if folder.has(analysis):
        compare_lines(folder, analysis, analysis_blocks(run), PROSE_SHA256[found])
    compare_charts(folder, run)
    count(folder, declared, rows, elapsed)


def samples_of(experiment, rows):
    """Return {group: [ms, ...]}, numbers made whole numbers."""
    elapsed, columns = {}, FORMS[experiment].columns
    for row in rows:
        key = tuple(int(row[name]) if row[name].isdigit() else row[name]
                    for name in columns)
        elapsed.setdefault(key, []).append(float(row["elapsed_ms"]))
    return elapsed


def csv_cell(value):
    if value is None or type(value) in (int, str):
        return "" if value is None else str(value)
    return f"{float(value):.6f}"


def compare_charts(folder, run):
    """Compare what the charts show: the values of summary.csv, six decimals."""
    for name, shown in run.charts().items():
        if folder.has(name):
            folder.compare_chart(name, shown)


# -- What follows from the samples --------------------------------------------

class Run:
    """What one run comes to; each experiment fills in the rest.

    `columns` and `rows` are those of summary.csv, `ratios` are {label: ratio},
    `series` {label: [ms, ...]}, `bounds` what a prediction asks for.
    """
    bounds = ()
    with_first = False

    def __init__(self, declared, elapsed):
        self.declared, self.elapsed = declared, elapsed
        self.rounds = declared["arguments"]["repeats"]
        self.series = elapsed
        self.prepare()

    def values(self, column):
        """Return the values in a column of the summary, in order."""
        place = self.columns.index(column)
        return list(dict.fromkeys(row[place] for row in self.rows))

    def points(self, x, y, **chosen):
        """Return the points of the rows with the chosen values, as drawn."""
        found = []
        for row in self.rows:
            cells = dict(zip(self.columns, row))
            if cells[y] is not None and all(cells[name] == value
                                            for name, value in chosen.items()):
                found.append((cells[x], float(csv_cell(cells[y]))))
        return found

    def bounded(self, prediction):
        """Judge a prediction by all of its bounds."""
        wanted = [bound for bound in self.bounds if bound[0] == prediction]
        found = [self.reached(bound) for bound in wanted if bound[1] in self.ratios]
        if "missed" in found:
            return "Refuted"
        return ("Supported" if found.count("reached") == len(wanted)
                else "Inconclusive")

    def reached(self, bound):
        _, label, number, word = bound
        _, interval, first, second, _ = self.ratios[label]
        where = side_of(interval, first, second, number)
        if where not in ("above", "below"):
            return where
        return "reached" if (where == "below") == (word == "at most") else "missed"


def median(values):
    return Fraction(oracle.median(values))


class Admission(Run):
    heads = series_heads = ("budget", "trace", "policy")

    def prepare(self):
        sums = {}
        for (*key, index), values in self.elapsed.items():
            sums.setdefault(tuple(key), []).append(values)
        sums = {key: [math.fsum(row) for row in zip(*requests)]
                for key, requests in sums.items()}
        self.series = {}
        for budget in BUDGETS:
            for trace in sorted(TRACES):
                for policy in sorted(POLICIES):
                    whole = [sums[seed, budget, trace, policy, "query"]
                             for seed in SEEDS]
                    self.series[budget, trace, policy] = [
                        whole[place][number] for number in range(self.rounds)
                        for place in range(len(SEEDS))]
        self.ratios = {
            (budget, trace, policy): ratio_of(values,
                                              self.series[budget, trace, "none"])
            for (budget, trace, policy), values in self.series.items()
            if policy != "none"}
        self.columns = ["budget", "trace", "policy", "projected_rows",
                        "rows_over_none", "trace_ms", "time_over_none",
                        *(f"{part}_ms" for part in PARTS)]
        self.rows = [self.row(sums, *label) for label in self.series]
        self.sizes = {"Seeds of the model": SEEDS, "Budgets in bytes": BUDGETS}

    def row(self, sums, budget, trace, policy):
        rows = counted_rows()[SEEDS[0], budget, trace, policy]
        most = counted_rows()[SEEDS[0], budget, trace, "none"]
        time = median(self.series[budget, trace, policy])
        return [budget, trace, policy, rows, Fraction(rows, most), time,
                time / median(self.series[budget, trace, "none"]),
                *(median(sums[SEEDS[0], budget, trace, policy, part])
                  for part in PARTS)]

    def verdicts(self):
        fewer = [self.ratios[budget, trace, policy]
                 for budget, trace, policy, rows, share, *_ in self.rows if share < 1]
        longer = [side_of(*found[1:4], 1.02) == "above" for found in fewer]
        faster = [found[-1] == "below" for found in fewer]
        yield ("H6 fewer projected rows need not mean less time",
               "Supported" if any(longer) else
               "Refuted" if all(faster) else "Inconclusive")

    def charts(self):
        return {f"ratios-{trace}.svg": self.chart(trace) for trace in TRACES}

    def chart(self, trace):
        rows = [row for row in self.rows if row[1] == trace and row[2] != "none"]
        series = {name: [round(float(csv_cell(row[self.columns.index(column)])), 2)
                         for row in rows]
                  for name, column in (("time (measured)", "time_over_none"),
                                       ("projected rows (counted)", "rows_over_none"))}
        return Bars(f"Time and projected rows of a trace, {trace}",
                    "over none, by budget (KiB) and policy",
                    [f"{row[0] / 1024:g} {row[2]}" for row in rows], series)


class BreakEven(Run):
    heads, series_heads = (("policy over none", "hidden", "prefix"),
                           ("policy", "hidden", "prefix"))
    bounds = (("H7", ("longest", 16, 8), 1.25, "at most"),
              ("H7", ("longest", 16, 32), 0.95, "at most"),
              ("H7", ("longest", 64, 64), 0.5, "at most"),
              ("H7", ("longest", 256, 128), 0.25, "at most"))
    with_first = True

    def prepare(self):
        said = self.declared["arguments"]
        self.hidden, self.lengths = said["hidden_sizes"], said["prefixes"]
        self.sizes = {"Hidden sizes": self.hidden, "Prefix lengths": self.lengths}
        self.ratios = {
            (policy, hidden, length): ratio_of(
                self.elapsed[policy, hidden, length],
                self.elapsed["none", hidden, length])
            for policy in POLICIES[1:] for hidden in self.hidden
            for length in self.lengths}
        self.columns = ["hidden", "prefix_tokens",
                        *(f"{policy}_ms" for policy in POLICIES),
                        *(f"{policy}_over_none" for policy in POLICIES[1:])]
        self.rows = []
        for hidden in self.hidden:
            for length in self.lengths:
                none, *others = (median(self.elapsed[policy, hidden, length])
                                 for policy in POLICIES)
                self.rows.append([hidden, length, none, *others,
                                  *(other / none for other in others)])

    def first(self, policy, hidden):
        for length in self.lengths:
            if self.ratios[policy, hidden, length][-1] == "below":
                return length
        return None

    def first_lines(self):
        yield row_of("policy", "hidden", "first prefix length below 1")
        yield rule(3)
        for policy in POLICIES[1:]:
            for hidden in self.hidden:
                yield row_of(policy, str(hidden),
                             str(self.first(policy, hidden) or "none of these"))

    def verdicts(self):
        yield ("H7 a hot query under longest costs a part of a full one, as bounded "
               "below", self.bounded("H7"))
        sides = {found[-1] for (policy, *_), found in self.ratios.items()
                 if policy == "longest"}
        firsts = [self.first("longest", hidden) for hidden in self.hidden]
        rises = None in firsts or any(after > before for before, after
                                      in zip(firsts, firsts[1:]))
        yield ("H8 reuse under longest pays at some prefix length, in a wider model "
               "no later",
               "Inconclusive" if sides & {"few", "moved"} else
               "Refuted" if rises else "Supported")

    def charts(self):
        return {f"ratio-{policy}.svg": Lines(
                    f"A hot query over a full one, policy {policy}",
                    "prefix length (tokens)", "time of hot over full",
                    {**{f"hidden {hidden}": self.points(
                            "prefix_tokens", f"{policy}_over_none", hidden=hidden)
                        for hidden in self.hidden},
                     "no gain": [(length, 1) for length in self.lengths]},
                    log_x=True, log_y=True)
                for policy in POLICIES[1:]}


class Limit(Run):
    heads, series_heads = ("ratio", "T"), ("path", "T")
    pairs = (("fused", "preallocated_cache"), ("fused", "bare_products"),
             ("no_cache", "fused"))
    bounds = (*(("H9", ("fused / preallocated_cache", tokens), 0.72, "at most")
                for tokens in (16, 64, 256)),
              ("H10", ("fused / bare_products", 256), 3.5, "at most"),
              ("H10", ("fused / bare_products", 1024), 2.5, "at most"),
              ("H10", ("fused / bare_products", 4096), 2, "at most"),
              ("H11", ("no_cache / fused", 256), 20, "at least"))

    def prepare(self):
        self.lengths = self.declared["arguments"]["lengths"]
        self.sizes = {"Sequence lengths": self.lengths}
        self.ratios = {
            (f"{over} / {under}", tokens): ratio_of(self.elapsed[over, tokens],
                                                    self.elapsed[under, tokens])
            for over, under in self.pairs for tokens in self.lengths
            if over != "no_cache" or tokens <= NO_CACHE_UP_TO}
        self.columns = ["sequence_length", "no_cache_ms", "preallocated_ms",
                        "fused_ms", "bare_ms", "no_cache_over_fused",
                        "fused_over_preallocated", "preallocated_over_bare",
                        "fused_over_bare"]
        self.rows = []
        for tokens in self.lengths:
            kept, fused, bare = (median(self.elapsed[path, tokens]) for path in (
                "preallocated_cache", "fused", "bare_products"))
            none = (median(self.elapsed["no_cache", tokens])
                    if tokens <= NO_CACHE_UP_TO else None)
            self.rows.append([tokens, none, kept, fused, bare,
                              None if none is None else none / fused,
                              fused / kept, kept / bare, fused / bare])

    def verdicts(self):
        for prediction, text in (
                ("H9", "fused takes at most 0.72 of preallocated up to 256 tokens"),
                ("H10", "fused takes at most 3.5, 2.5 and 2 times the bare products"),
                ("H11", "no cache takes at least 20 times as long as fused at 256 "
                        "tokens")):
            yield f"{prediction} {text}", self.bounded(prediction)

    def charts(self):
        def over(y):
            return self.points("sequence_length", y)

        return {
            "latency.svg": Lines(
                "Time to decode one sequence, down to the bare products",
                "sequence length (tokens)", "median (ms)",
                {"no cache": over("no_cache_ms"),
                 "preallocated cache": over("preallocated_ms"),
                 "fused": over("fused_ms"), "bare products": over("bare_ms")},
                log_x=True, log_y=True),
            "over-bare.svg": Lines(
                "Decode paths over the bare products of a step",
                "sequence length (tokens)", "times the bare products",
                {"preallocated cache": over("preallocated_over_bare"),
                 "fused": over("fused_over_bare"),
                 "bare products": [(tokens, 1) for tokens in self.lengths]},
                log_x=True)}


RUNS = {"admission": Admission, "break_even": BreakEven, "limit": Limit}


# -- Analyses -----------------------------------------------------------------

def analysis_blocks(run):
    """Yield the lines of data of an analysis, block by block."""
    yield fact_lines(run.declared, run.sizes, run.rounds)
    # The errors were required to be within the tolerance.
    yield ["- H1 the results agree: Supported",
           *(f"- {prediction}: {verdict}" for prediction, verdict in run.verdicts())]
    if run.bounds:
        yield bound_lines(run)
    if run.with_first:
        yield run.first_lines()
    yield table_lines(run.columns, [
        [median_cell(column, value) for column, value in zip(run.columns, row)]
        for row in run.rows])
    yield table_lines(
        [*run.heads, "median", "low", "high", "first half", "second half",
         "side of 1"],
        [[*map(str, label), *ratio_cells(found)]
         for label, found in run.ratios.items()])
    yield table_lines(
        [*run.series_heads, "minimum ms", "median ms", "p95 ms", "maximum ms", "drift"],
        [[*map(str, label), *time_cells(values, 4)]
         for label, values in run.series.items()])


def table_lines(heads, rows):
    yield row_of(*heads)
    yield rule(len(heads))
    for row in rows:
        yield row_of(*row)


def bound_lines(run):
    rows = [[bound[0], *map(str, bound[1]), f"{bound[3]} {bound[2]:g}",
             *ratio_cells(run.ratios[bound[1]])[:3], run.reached(bound)]
            for bound in run.bounds if bound[1] in run.ratios]
    return table_lines(["prediction", *run.heads, "to reach", "median", "low", "high",
                        "verdict"], rows)


def median_cell(column, value):
    if value is None or type(value) in (int, str):
        return "" if value is None else str(value)
    return f"{float(value):.{4 if column.endswith('_ms') else 3}f}"
