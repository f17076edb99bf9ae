"""Read the raw.csv of bench.py: timed samples, checked, by group.

    samples = read_samples(text, "raw.csv")
    samples.elapsed_ms["fused", 256]            milliseconds, round by round

Which rows does each experiment hold, and are they all there?  `SCANS` declares
the columns that name a group, and the values that they allow; `bench.py`
writes them, `verdicts.py` and `costs.py` judge them.  It is a room of its own
because all of these need it and it needs none of them.

Rows by others are read too, in any order.  Whether a clock ran true nobody
can tell from them.
"""

import csv
import io
import itertools
import math
from typing import Callable, NamedTuple

__all__ = ["SCANS", "Scan", "Samples", "read_samples", "shown", "POLICIES", "PARTS",
           "FIRST_SEED", "LONGEST_WITHOUT_CACHE"]


# -- Reading samples ----------------------------------------------------------

class Scan(NamedTuple):
    """What the rows of one experiment hold.

    `columns` name a group, in order, each with the names that it allows or
    with the least whole number.  Every name must be there with every
    combination of the numbers that occur, but for the groups of which
    `absent` is true.  `one_value` are the columns that may not vary, with the
    value where only one is allowed.
    """
    columns: dict
    one_value: dict = {}
    absent: Callable = lambda *group: False


BATCHING = ("sequential", "batched")
POLICIES = ("none", "all", "longest", "shared")
PARTS = ("lookup", "gather", "compute", "save", "other")
FIRST_SEED = 7
LONGEST_WITHOUT_CACHE = 256     # its time grows with the cube of the length

SCANS = {
    "cache_strategy": Scan(
        {"path": ("no_cache", "dynamic_cache", "preallocated_cache"),
         "batch_size": 1, "sequence_length": 1}, {"batch_size": 1}),
    "batch_length_scan": Scan(
        {"path": BATCHING, "batch_size": 1, "sequence_length": 1},
        {"batch_size": 2}),
    "batch_size_scan": Scan(
        {"path": BATCHING, "batch_size": 1, "sequence_length": 1},
        {"sequence_length": None}),
    # The parts of a query are sampled under the first seed only: they are
    # there to explain, and would be five sixths of all rows otherwise.
    "admission": Scan(
        {"seed": 0, "budget": 0,
         "trace": ("hot-prefix", "alternating-branches", "three-scopes",
                   "hot-and-cold"),
         "policy": POLICIES, "part": ("query", *PARTS), "index": 0},
        absent=lambda seed, budget, trace, policy, part, index:
            part != "query" and seed != FIRST_SEED),
    "break_even": Scan({"policy": POLICIES, "hidden": 1, "prefix_tokens": 1}),
    "limit": Scan(
        {"path": ("no_cache", "preallocated_cache", "fused", "bare_products"),
         "sequence_length": 1},
        absent=lambda path, tokens:
            path == "no_cache" and tokens > LONGEST_WITHOUT_CACHE),
}


class Samples(NamedTuple):
    """The samples of one experiment, by group and in the order of rounds.

    `elapsed_ms` is {group: [float, ...]}, a group being the values of the
    experiment's columns; `minor_faults` is {group: [int, ...]}, or empty when
    any sample has none recorded.
    """
    experiment: str
    elapsed_ms: dict
    minor_faults: dict

    @property
    def rounds(self):
        return len(next(iter(self.elapsed_ms.values())))

    def values(self, column):
        """Return the values that a column takes, sorted; [] without it."""
        columns = list(SCANS[self.experiment].columns)
        if column not in columns:
            return []
        place = columns.index(column)
        return sorted({group[place] for group in self.elapsed_ms})


def read_samples(text: str, name: str) -> Samples:
    """Return the checked samples in the CSV `text`; errors call it `name`.

    It needs the column `experiment`, those that name a group, `sample` and
    `elapsed_ms`; `minor_faults` is used when it is there, others are not.
    Raise ValueError for anything but one experiment with samples 1 to n, once
    each, in every group.
    """
    experiment, rows = None, {}
    for line, row in csv_rows(text, name):
        try:
            experiment = check_experiment(row, experiment)
            group, sample, values = read_row(row, SCANS[experiment])
            if sample in rows.setdefault(group, {}):
                raise ValueError(f"sample {sample} of {shown(group)} is repeated")
        except ValueError as error:
            raise ValueError(f"{name}:{line}: {error}") from None
        rows[group][sample] = values
    if not rows:
        raise ValueError(f"{name}: no samples, at least one is needed")
    check_groups(rows, SCANS[experiment], name)
    return sorted_samples(experiment, rows)


def csv_rows(text, name):
    """Yield (line, {column: cell}) of a CSV with a header."""
    reader = csv.reader(io.StringIO(text[text.startswith("\ufeff"):], newline=""),
                        strict=True)
    try:
        header = next(reader, [])
        for column in header:
            if header.count(column) > 1:
                raise ValueError(f"column {column!r} stands twice")
        for cells in filter(None, reader):
            if len(cells) != len(header):
                raise ValueError(f"a row needs {len(header)} cells, "
                                 f"got {len(cells)}")
            yield reader.line_num, dict(zip(header, cells))
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{name}:{reader.line_num}: {error}") from None


def check_experiment(row, experiment):
    found = cell(row, "experiment")
    if found not in SCANS:
        raise ValueError(f"experiment must be one of {', '.join(SCANS)}, "
                         f"got {found!r}")
    if experiment not in (None, found):
        raise ValueError(f"one file holds one experiment, got {found} "
                         f"after {experiment}")
    return found


def read_row(row, scan):
    """Return the group, the sample number and (elapsed_ms, minor_faults)."""
    group = []
    for column, allowed in scan.columns.items():
        value = cell(row, column)
        if isinstance(allowed, int):
            value = whole(column, value, allowed)
        elif value not in allowed:
            raise ValueError(f"{column} must be one of {', '.join(allowed)}, "
                             f"got {value!r}")
        group.append(value)
    faults = row.get("minor_faults") or None
    if faults is not None:
        faults = whole("minor_faults", faults, least=0)
    return (tuple(group), whole("sample", cell(row, "sample")),
            (milliseconds(cell(row, "elapsed_ms")), faults))


def cell(row, column):
    if column not in row:
        raise ValueError(f"column {column} is missing, got {', '.join(row)}")
    return row[column]


def whole(column, text, least=1):
    if not (text.isascii() and text.isdigit() and len(text) < 16
            and int(text) >= least):
        raise ValueError(f"{column} must be a whole number >= {least}, "
                         f"got {text[:40]!r}")
    return int(text)


def milliseconds(text):
    try:
        # float also takes 1_0 for 10, and digits of other scripts.
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    # The bounds keep every sum and ratio within the range of floats.
    if not 1e-12 <= value <= 1e12:
        raise ValueError("elapsed_ms must be a finite number of milliseconds > 0 "
                         f"(1e-12 to 1e12), got {text[:40]!r}")
    return value


def check_groups(rows, scan, name):
    """Raise ValueError unless all groups are there, with equal samples."""
    columns = list(scan.columns)
    for column, only in scan.one_value.items():
        values = sorted({group[columns.index(column)] for group in rows})
        if len(values) > 1 or only not in (None, values[0]):
            wanted = "one value" if only is None else only
            raise ValueError(f"{name}: {column} must be {wanted} in this "
                             f"experiment, got {', '.join(map(str, values))}")
    for group in itertools.product(*(
            sorted(set(found)) if isinstance(allowed, int) else allowed
            for allowed, found in zip(scan.columns.values(), zip(*rows)))):
        if scan.absent(*group) == (group in rows):
            wrong = "needless" if group in rows else "no"
            raise ValueError(f"{name}: {wrong} samples of {shown(group)}")
    most = max(map(len, rows.values()))
    for group, samples in rows.items():
        for sample in range(1, most + 1):
            if sample not in samples:
                raise ValueError(f"{name}: sample {sample} of {shown(group)} is "
                                 f"missing, every group needs 1 to {most}")


def sorted_samples(experiment, rows):
    elapsed_ms, minor_faults = {}, {}
    for group, samples in rows.items():
        values = [samples[sample] for sample in sorted(samples)]
        elapsed_ms[group] = [elapsed for elapsed, _ in values]
        minor_faults[group] = [faults for _, faults in values]
    if any(None in faults for faults in minor_faults.values()):
        minor_faults = {}
    return Samples(experiment, elapsed_ms, minor_faults)


def shown(group) -> str:
    """Return a group as the errors name it."""
    return "/".join(map(str, group))
