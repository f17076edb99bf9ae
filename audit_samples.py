"""Audit timed samples: what the audits of all experiments of bench.py share.

    experiment, declared, rows = check_records(folder, FORMS, "limit")

From the arguments that environment.json declares follow the groups, the
samples and, by replaying the seed, the order in which they were taken: every
cell of raw.csv but the times.  `Form` says what is special to an experiment;
audit_bench.py has those of the scans, audit_costs.py the others.  Besides,
this room has the statistics and the comparing that both need, once.

Timings, errors, page faults and the machine are declarations: raw.csv is
bound to its hash in environment.json, and who changes both is not caught.
"""

import hashlib
import random
import re
from typing import Callable, NamedTuple, Optional

import oracle

__all__ = ["RECORDS", "Form", "Sampled", "Doubt", "check_records", "count",
           "interval_of", "ratio_of", "side_of", "compare_csv", "compare_lines"]

RECORDS = ("raw.csv", "environment.json")

TOLERANCE = {"float64": 1e-8, "float32": 1e-4}
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
           "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS")

# The first runs were made when bench.py declared its experiments itself.
SOURCES = (["attention.py", "bench.py", "records.py", "verdicts.py"],
           ["attention.py", "bench.py", "experiments.py", "records.py",
            "timings.py", "verdicts.py"])
MEMBERS = {"python": str, "numpy": str, "blas": (dict, type(None)),
           "platform": str, "cpu": str, "blas_threads": (int, type(None)),
           "numpy_came_first": bool, "threads": dict, "variables": dict,
           "malloc": dict, "dtype": str,
           "seed": int, "arguments": dict, "tolerance": float, "errors": list,
           "sources": dict, "csv": dict}
NUMBER, ABOVE_0 = r"0|[1-9]\d{0,14}", r"[1-9]\d{0,14}"
CELL = {"batch_size": ABOVE_0, "sequence_length": ABOVE_0, "hidden": ABOVE_0,
        "prefix_tokens": ABOVE_0, "seed": NUMBER, "budget": NUMBER, "index": NUMBER,
        "sample": ABOVE_0, "elapsed_ms": r"(0|[1-9]\d{0,14})\.\d{6}",
        "order": ABOVE_0, "minor_faults": rf"({NUMBER})?"}
MOST_WARMUP, MOST_SIZES = 100_000, 100
MOST_SAMPLES = 2_000_000        # warm-up included; what a forger may make us replay


class Doubt(Exception):
    """Nothing further can be derived: what was found, where, and the rule."""


def require(condition, file, record, found, expected):
    if not condition:
        raise Doubt(file, record, found, expected)


class Sampled(NamedTuple):
    """What one group must be: its key, what was counted, its rows in call order."""
    key: tuple
    counted: dict
    rows: list


class Form(NamedTuple):
    """The form of one experiment's records.

    `option` is its name on the command line, `columns` name a group, `sizes`
    are the arguments that only some experiments have; `full` are the arguments
    of the run in the evidence, `groups(arguments)` gives the Sampled groups,
    `sources` the lists of scripts of which one must be declared.
    """
    option: str
    columns: tuple
    sizes: tuple
    full: dict
    groups: Callable
    sources: tuple = SOURCES


# -- Raw records --------------------------------------------------------------

def check_records(folder, forms, experiment, malloc=None) -> tuple:
    """Return the experiment, what is declared and the rows; raise Doubt."""
    declared, rows = folder.json("environment.json"), read_raw(folder, forms)
    found = rows[0]["experiment"]
    require(experiment in (None, found), "raw.csv", "line 2: experiment", found,
            experiment)
    form = forms[found]
    groups = check_environment(folder, form, declared, malloc)
    check_rows(folder, found, form.columns, groups, declared["arguments"], rows)
    return found, declared, rows


def read_raw(folder, forms):
    """Return raw.csv as a list of {column: text}; only its canonical form."""
    text = folder.text("raw.csv")
    header, *lines = text.split("\n")
    form = forms.get(lines[0].split(",")[0] if lines else "", next(iter(forms.values())))
    columns = ("experiment", *form.columns, "sample", "elapsed_ms", "order",
               "minor_faults")
    require(header == ",".join(columns), "raw.csv", "line 1", header[:200],
            ",".join(columns))
    require(lines and lines.pop() == "" and lines, "raw.csv", "end",
            text[-40:], "rows, and a final newline")
    return [read_line(columns, forms, number, line)
            for number, line in enumerate(lines, 2)]


def read_line(columns, forms, number, line):
    cells = line.split(",")
    require(len(cells) == len(columns), "raw.csv", f"line {number}", line[:200],
            f"{len(columns)} cells")
    row = dict(zip(columns, cells))
    require(row["experiment"] in forms, "raw.csv", f"line {number}: experiment",
            row["experiment"][:40], list(forms))
    for column, value in row.items():
        pattern = CELL.get(column, ".*")
        require(re.fullmatch(pattern, value, re.ASCII), "raw.csv",
                f"line {number}: {column}", value[:40], pattern)
    require(0 < float(row["elapsed_ms"]) <= 1e12, "raw.csv",
            f"line {number}: elapsed_ms", row["elapsed_ms"], "above 0, to 1e12")
    return row


def whole(value, least=0):
    return type(value) is int and least <= value < 10 ** 15


def check_arguments(arguments, form):
    """Require arguments from which groups can be derived; return the groups."""
    file, record = "environment.json", "arguments"
    require(list(arguments) == ["experiment", "warmup", "repeats", "dtype", "seed",
                                *form.sizes],
            file, record, list(arguments), list(form.sizes))
    require(arguments["experiment"] == form.option, file,
            f"{record}.experiment", arguments["experiment"], form.option)
    require(whole(arguments["warmup"]) and arguments["warmup"] <= MOST_WARMUP, file,
            f"{record}.warmup", arguments["warmup"], f"0 to {MOST_WARMUP}")
    require(whole(arguments["repeats"], 1), file, f"{record}.repeats",
            arguments["repeats"], "a whole number above 0")
    require(whole(arguments["seed"]), file, f"{record}.seed", arguments["seed"],
            "a whole number")
    for name in form.sizes:
        value = arguments[name]
        numbers = [value] if name == "length" else value
        require(isinstance(numbers, list) and 0 < len(numbers) <= MOST_SIZES
                and all(whole(number, 1) for number in numbers)
                and numbers == sorted(set(numbers)), file, f"{record}.{name}",
                value, f"1 to {MOST_SIZES} rising whole numbers above 0")
    return form.groups(arguments)


def check_rows(folder, experiment, columns, groups, arguments, rows):
    """Compare every row's group, sample and order with a replay of the seed."""
    expected = expected_rows(groups, arguments, len(rows))
    names = ("experiment", *columns, "sample", "order")
    for number, (row, (key, sample, order)) in enumerate(zip(rows, expected), 2):
        for name, value in zip(names, (experiment, *key, sample, order)):
            if row[name] != str(value):
                folder.fault("raw.csv", f"line {number}: {name}", row[name][:40],
                             str(value))
    recorded = {row["minor_faults"] != "" for row in rows}
    require(len(recorded) == 1, "raw.csv", "minor_faults", "in some rows only",
            "in all rows or in none")
    require(not any("line" in fault["record"] for fault in folder.faults),
            "raw.csv", "groups", "other rows", "those of the arguments")


def expected_rows(groups, arguments, count):
    """Return [(key, sample, order)] of a run, by replaying the seed."""
    repeats = arguments["repeats"]
    wanted = sum(len(group.rows) for group in groups) * repeats
    require(count == wanted, "raw.csv", "rows", count, wanted)
    rounds = arguments["warmup"] + repeats
    require(rounds * len(groups) <= MOST_SAMPLES, "environment.json", "arguments",
            rounds * len(groups), f"at most {MOST_SAMPLES} samples")
    rng, order = random.Random(arguments["seed"]), {}
    for number in range(-arguments["warmup"], repeats):
        places = list(range(len(groups)))
        rng.shuffle(places)
        if number >= 0:
            for place in places:
                for key in groups[place].rows:
                    order[key, number + 1] = len(order) + 1
    return [(key, sample, order[key, sample]) for group in groups
            for key in sorted(group.rows) for sample in range(1, repeats + 1)]


def check_environment(folder, form, declared, malloc):
    """Check what is declared, as far as it follows; return the groups."""
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
    groups = check_arguments(arguments, form)
    if folder.known:
        folder.same(file, arguments, {"experiment": form.option, **form.full},
                    "arguments")
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
    check_texts(declared, form.sources)
    check_errors(declared, form.columns, groups)
    return groups


def check_texts(declared, sources):
    file = "environment.json"
    for name in ("threads", "variables", "malloc"):
        for key, value in declared[name].items():
            require(isinstance(value, str) or name == "threads" and value is None,
                    file, f"{name}.{key}", value, "text")
    pinned = dict.fromkeys(THREADS, "1")
    require(declared["numpy_came_first"] or declared["threads"] == pinned, file,
            "threads", declared["threads"], pinned)
    require(list(declared["sources"]) in sources, file, "sources",
            list(declared["sources"])[:40], sources[-1])
    for name, value in declared["sources"].items():
        require(isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value),
                file, f"sources.{name}", value, "a SHA-256")


def check_errors(declared, columns, groups):
    """Require one error for each group, in order, within the tolerance."""
    errors = declared["errors"]
    require(len(errors) == len(groups), "environment.json", "errors length",
            len(errors), len(groups))
    for index, (error, group) in enumerate(zip(errors, groups)):
        largest = error.get("max_abs_error") if isinstance(error, dict) else None
        require(type(largest) is float and 0 <= largest <= declared["tolerance"],
                "environment.json", f"errors[{index}].max_abs_error", largest,
                f"0 to {declared['tolerance']}")
        wanted = {**dict(zip(columns, group.key)), "max_abs_error": largest,
                  **group.counted}
        require(list(error) == list(wanted) and repr(error) == repr(wanted),
                "environment.json", f"errors[{index}]", error, wanted)


def count(folder, declared, rows, groups) -> None:
    """Set the totals of the report."""
    folder.totals = {"samples": len(rows), "groups": len(groups),
                     "sources_changed_since":
                         folder.changed_sources(declared["sources"])}


# -- Statistics ---------------------------------------------------------------

def ratio_of(over, under) -> tuple:
    """Return median, interval, halves and side of 1 of a ratio within rounds."""
    ratios = [one / other for one, other in zip(over, under)]
    half = len(ratios) // 2
    first = oracle.median(ratios[:half]) if half else oracle.median(ratios)
    second, interval = oracle.median(ratios[half:]), interval_of(ratios)
    return (oracle.median(ratios), interval, first, second,
            side_of(interval, first, second, 1))


def side_of(interval, first, second, bound) -> str:
    """Say on which side of `bound` a ratio lies, if that can be said."""
    if interval is None:
        return "few"
    if abs(round(second / first - 1, 9)) > 0.1:
        return "moved"
    return ("above" if interval[0] > bound else
            "below" if interval[1] < bound else "undecided")


def interval_of(values) -> Optional[tuple]:
    """Return the 95 % interval of the median: order statistics of the signs."""
    ordered, count = sorted(values), len(values)
    ways = below = 1        # of 2^n: in which exactly, and at most, `rank` lie below
    rank = 0
    while 1000 * below <= 25 << count:
        rank += 1
        ways = ways * (count - rank + 1) // rank
        below += ways
    return None if rank == 0 else (ordered[rank - 1], ordered[-rank])


# -- Derived files ------------------------------------------------------------

def compare_csv(folder, name, expected) -> None:
    """Compare a CSV cell by cell with rows of text."""
    text = folder.text(name)
    lines = text.split("\n")
    if len(lines) != len(expected) + 1:
        folder.fault(name, "lines", len(lines) - 1, len(expected))
    if lines[-1]:
        folder.fault(name, "end", lines[-1][:40], "a final newline")
    for number, (line, row) in enumerate(zip(lines, expected), 1):
        cells = line.split(",")
        if len(cells) != len(row):
            folder.fault(name, f"line {number}", line[:200], ",".join(row))
            continue
        for column, cell, wanted in zip(expected[0], cells, row):
            if cell != wanted:
                folder.fault(name, f"line {number}: {column}", cell[:200], wanted)


def compare_lines(folder, name, blocks, prose_sha256) -> None:
    """Compare the data lines one by one, and the text around by its hash.

    `blocks` are the lines that stand together; none may move to another block.
    """
    blocks = [list(block) for block in blocks]
    expected = [line for block in blocks for line in block]
    text = folder.text(name)
    data, prose = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(("|", "- ", "Knee:")):
            data.append((number, line))
            prose += ["@"] if prose[-1:] != ["@"] else []
        else:
            prose.append(line)
    if len(data) != len(expected):
        folder.fault(name, "lines of data", len(data), len(expected))
    for (number, line), wanted in zip(data, expected):
        if line != wanted:
            folder.fault(name, f"line {number}", line[:300], wanted)
    folder.same(name, lengths_of_runs(number for number, _ in data),
                [len(block) for block in blocks], "lengths of blocks")
    found = hashlib.sha256("\n".join(prose).encode()).hexdigest()
    folder.same(name, found, prose_sha256, "prose sha256")


def lengths_of_runs(numbers):
    """Return the lengths of the runs of numbers that follow each other."""
    lengths, before = [], None
    for number in numbers:
        if before is None or number != before + 1:
            lengths.append(0)
        lengths[-1] += 1
        before = number
    return lengths


def fact_lines(declared, sizes, rounds, more=()):
    """Yield the facts of a run; `sizes` are {what: numbers}."""
    for name, numbers in sizes.items():
        yield f"- {name}: {', '.join(map(str, numbers))}"
    yield f"- Samples in each group: {rounds}"
    yield f"- dtype: {declared['dtype']}"
    yield f"- BLAS threads: {declared['blas_threads'] or 'not recorded'}"
    yield from more
    largest = max(error["max_abs_error"] for error in declared["errors"])
    yield (f"- Largest error against the oracle: {largest:.2e}, "
           f"allowed {declared['tolerance']:.0e}")
    variables = [f"{key}={declared['malloc'][key]}"
                 for key in sorted(declared["malloc"])]
    yield f"- Allocator variables: {', '.join(variables) or 'none set'}"


def row_of(*cells):
    return f"| {' | '.join(cells)} |"


def rule(columns):
    return "|" + columns * "---|"


def ratio_cells(found):
    middle, interval, first, second, where = found
    bounds = [f"{bound:.3f}" for bound in interval] if interval else ["", ""]
    return [f"{middle:.3f}", *bounds, f"{first:.3f}", f"{second:.3f}", where]


def time_cells(values, digits):
    change = 100 * (oracle.median(values[-5:]) / oracle.median(values[:5]) - 1)
    found = (min(values), oracle.median(values), oracle.percentile(values, 0.95),
             max(values))
    return [*(f"{value:.{digits}f}" for value in found), f"{change:+.1f} %"]
