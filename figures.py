"""Redraw every chart of a folder of evidence from its files.

    python3 figures.py evidence            every experiment below the folder
    python3 figures.py evidence/kvlab      one run folder

What do the records look like?  Each kind of run folder has its charts here,
as functions of its files alone; charts.py draws them.  Equal files give equal
bytes, and a test redraws all of them.

A chart shows what its evidence file holds and can be no better than that.
"""

import argparse
import csv
import io
import json
import os
import statistics
import sys

import records
from charts import Axis, bar_chart, line_chart, stairs

__all__ = ["bench_charts", "redraw", "main"]


# -- The two-tier exercise ----------------------------------------------------

def read_json(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def kvlab_charts(folder):
    """Return {file name: SVG} for the six files of the two-tier exercise."""
    hits = sweep_points(read_json(folder, "cliff.json"))
    misses = sweep_points(read_json(folder, "cpu_cliff.json"))
    measured = read_json(folder, "measured.json")
    passes = list(measured["ratio"])
    medians = {config: [measured[config][name]["p50_ms"] for name in passes]
               for config in ("baseline", "lmcache")}
    documents = Axis("documents of 10")
    return {
        "cliff.svg": line_chart(
            "Hits of the second pass (simulated, one tier)",
            Axis("GPU capacity (tokens)"), documents, {"hits": hits}, step=True),
        "cpu-cliff.svg": line_chart(
            "Misses of the second pass (simulated, GPU 21,520 tokens)",
            Axis("CPU capacity (tokens)"), documents, {"misses": misses},
            step=True),
        "ttft.svg": bar_chart(
            "Median time to first token by pass (made data)",
            Axis("p50 TTFT (ms)"), passes, medians)}


def sweep_points(sweep):
    return [(int(capacity), count) for capacity, count in sweep.items()]


# -- Cache runs ---------------------------------------------------------------

def cache_charts(folder):
    """Return {file name: SVG} for a run of decoder.py, by its first seed.

    The published run names no policies: its series are the traces.  A run
    that does has a chart for each trace, with the policies as series.
    """
    rows = read_json(folder, "results.json")
    rows = [row for row in rows if row["seed"] == rows[0]["seed"]]
    projected = Axis("projected rows of 12 requests")
    if "policy" not in rows[0]:
        return {"projected-rows.svg": budget_bars(
                    "Projected rows by budget (counted)", projected, rows, "trace",
                    lambda row: row["projected_rows"]),
                "evictions.svg": budget_bars(
                    "Evictions by budget (counted)", Axis("evictions"), rows,
                    "trace", evictions)}
    return {f"projected-rows-{trace}.svg": budget_bars(
                f"Projected rows by budget, {trace} (counted)", projected,
                [row for row in rows if row["trace"] == trace], "policy",
                lambda row: row["projected_rows"])
            for trace in distinct(rows, "trace")}


def evictions(row):
    return sum(event["type"] == "evict" for event in row["events"])


def budget_bars(title, axis, rows, name, count):
    """Return bars of the sum of `count` for every budget and value of `name`."""
    sums = {}
    for row in rows:
        series = sums.setdefault(row[name], {})
        series[row["budget"]] = series.get(row["budget"], 0) + count(row)
    groups = [f"{budget / 1024:g} KiB" for budget in distinct(rows, "budget")]
    return bar_chart(title, axis, groups,
                     {series: list(by_budget.values())
                      for series, by_budget in sums.items()})


def distinct(rows, name):
    return list(dict.fromkeys(row[name] for row in rows))


# -- The bench ----------------------------------------------------------------

TOKENS, BATCH = Axis("sequence length (tokens)", log=True), Axis("batch size")


def strategy_charts(rows):
    paths = {"no cache": "no_cache_ms", "dynamic cache": "dynamic_ms",
             "preallocated cache": "preallocated_ms"}
    return {"latency.svg": line_chart(
        "Time to decode one sequence, by cache strategy", TOKENS,
        Axis("median (ms)", log=True),
        {name: columns(rows, "sequence_length", column)
         for name, column in paths.items()})}


def length_charts(rows):
    return {"speedup.svg": line_chart(
        "Speed-up of a batch of two over one after the other", TOKENS,
        Axis("sequential over batched"),
        {"speed-up": columns(rows, "sequence_length", "speedup"),
         "no gain": [(row["sequence_length"], 1) for row in rows]})}


def size_charts(rows):
    return {
        "latency-p50-p95.svg": line_chart(
            "Time to decode a batch, by batch size", BATCH, Axis("time (ms)"),
            {"p50": columns(rows, "batch_size", "batch_p50_ms"),
             "p95": columns(rows, "batch_size", "batch_p95_ms")}),
        "throughput-positions-per-second.svg": line_chart(
            "Throughput by batch size", BATCH, Axis("positions per second"),
            {"batched": columns(rows, "batch_size", "positions_per_second")})}


def limit_charts(rows):
    paths = {"no cache": "no_cache_ms", "preallocated cache": "preallocated_ms",
             "fused": "fused_ms", "bare products": "bare_ms"}
    return {
        "latency.svg": line_chart(
            "Time to decode one sequence, down to the bare products", TOKENS,
            Axis("median (ms)", log=True),
            {name: columns(rows, "sequence_length", column)
             for name, column in paths.items()}),
        "over-bare.svg": line_chart(
            "Decode paths over the bare products of a step", TOKENS,
            Axis("times the bare products"),
            {"preallocated cache": columns(rows, "sequence_length",
                                           "preallocated_over_bare"),
             "fused": columns(rows, "sequence_length", "fused_over_bare"),
             "bare products": [(row["sequence_length"], 1) for row in rows]})}


def break_even_charts(rows):
    lengths = list(dict.fromkeys(row["prefix_tokens"] for row in rows))
    return {f"ratio-{policy}.svg": line_chart(
                f"A hot query over a full one, policy {policy}",
                Axis("prefix length (tokens)", log=True),
                Axis("time of hot over full", log=True),
                {**{f"hidden {hidden}": columns(
                        [row for row in rows if row["hidden"] == hidden],
                        "prefix_tokens", f"{policy}_over_none")
                    for hidden in distinct(rows, "hidden")},
                 "no gain": [(length, 1) for length in lengths]})
            for policy in ("all", "longest", "shared")}


def admission_charts(rows):
    """One chart a trace: the ratios to `none`, of time and, if known, of rows."""
    charts = {}
    for trace in distinct(rows, "trace"):
        chosen = [row for row in rows
                  if row["trace"] == trace and row["policy"] != "none"]
        charts[f"ratios-{trace}.svg"] = bar_chart(
            f"Time and projected rows of a trace, {trace}",
            Axis("over none, by budget (KiB) and policy"),
            [f"{row['budget'] / 1024:g} {row['policy']}" for row in chosen],
            {name: [round(row[column], 2) for row in chosen]
             for name, column in (("time (measured)", "time_over_none"),
                                  ("projected rows (counted)", "rows_over_none"))
             if None not in [row[column] for row in chosen]})
    return charts


# A summary is known by a column that only its kind of experiment has.
BENCH_CHARTS = {"rows_over_none": admission_charts, "prefix_tokens": break_even_charts,
                "bare_ms": limit_charts, "no_cache_ms": strategy_charts,
                "speedup": length_charts, "throughput_gain": size_charts}


def bench_charts(summary: str) -> dict:
    """Return {file name: SVG} for the text of a bench's summary.csv."""
    rows = [{column: cell if column in ("trace", "policy") else number(cell)
             for column, cell in row.items()}
            for row in csv.DictReader(io.StringIO(summary))]
    for column, charts in BENCH_CHARTS.items():
        if rows and column in rows[0]:
            return charts(rows)
    raise ValueError("no summary of bench.py: its columns are not known")


def number(cell):
    """Return a cell as a number, whole if it is written so; None if empty."""
    if not cell:
        return None
    return int(cell) if cell.isdigit() else float(cell)


def columns(rows, x, y):
    """Return the points of the rows that have a value."""
    return [(row[x], row[y]) for row in rows if row[y] is not None]


def summary_charts(folder):
    path = os.path.join(folder, "summary.csv")
    with open(path, encoding="utf-8") as file:
        return bench_charts(file.read())


# -- Offloading, measured -----------------------------------------------------

def offload_charts(folder):
    """Return {file name: SVG} for a run of offload.py."""
    rows = read_json_lines(folder, "ttft.jsonl")
    tier = f"CPU tier of {read_json(folder, 'manifest.json')['protocol']['cpu_docs']}"
    passes, configs = distinct(rows, "pass"), ("baseline", "lmcache")
    medians = {config: [median_ttft(rows, config, name) for name in passes]
               for config in configs}
    reads = {}
    for index, row in enumerate(rows):
        series = reads.setdefault(f"{row['config']}, {row['tier']}", [])
        series.append((index // len(configs) + 1, row["ttft_ms"]))
    return {
        "ttft.svg": bar_chart(
            f"Median time to first token by pass, {tier} documents (measured)",
            Axis("p50 TTFT (ms)"), passes, medians),
        "reads.svg": line_chart(
            f"Time to first token by tier, {tier} documents (measured)",
            Axis("read (number)"), Axis("TTFT (ms)", log=True),
            dict(sorted(reads.items())), joined=False)}


def median_ttft(rows, config, name):
    return round(statistics.median(
        row["ttft_ms"] for row in rows
        if (row["config"], row["pass"]) == (config, name)), 2)


def read_json_lines(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# -- Replayed traces ----------------------------------------------------------

def replay_charts(folder):
    """Return {file name: SVG} of the replayed traces."""
    return {"curve.svg": touch_chart(folder), "tiers.svg": tiers_chart(folder),
            "ramp.svg": ramp_chart(folder)}


def touch_chart(folder):
    runs = read_json_lines(folder, "one-tier.jsonl")
    series = {f"touched {touch} first": stairs(
                  [(capacity, hits / runs[0]["blocks"]) for capacity, hits, _
                   in read_curve(folder, f"curve-{touch}.csv")])
              for touch in ("tail", "head")}
    series["bound for every policy"] = [
        (run["gpu_tokens"], run["bound_block_hit_rate"])
        for run in runs if run["touch"] == "tail"]
    return line_chart(
        "Hits at every capacity (made trace, one tier)",
        Axis("capacity (tokens)", log=True), Axis("share of blocks hit"), series,
        markers=("bound for every policy",))


def tiers_chart(folder):
    series = {}
    for run in read_json_lines(folder, "two-tiers.jsonl"):
        series.setdefault(run["tiers"], []).append(
            (run["gpu_tokens"] + run["cpu_tokens"], run["hit_rate"]["block"]))
    return line_chart(
        "Hits of two equal tiers (made trace)",
        Axis("capacity of both tiers (tokens)", log=True),
        Axis("share of blocks hit"), series)


def ramp_chart(folder, end=56000):
    curves = {"by document": "documents.csv",
              "by block, tail first": "document-blocks-tail.csv",
              "by block, head first": "document-blocks-head.csv"}
    series = {}
    for name, file in curves.items():
        points = [(capacity, tokens) for capacity, _, tokens
                  in read_curve(folder, file)]
        series[name] = points + [(end, points[-1][1])]
    return line_chart(
        "Hits of the second pass over ten documents (one tier)",
        Axis("capacity (tokens)"), Axis("tokens hit, of 50,110"), series,
        step=True, markers=False)


def read_curve(folder, name):
    """Return the rows of a curve: capacity, hit blocks and hit tokens."""
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return [tuple(map(int, line.split(","))) for line in list(file)[1:]]


# -- Redrawing ----------------------------------------------------------------

# A run folder is known by a file that only its kind of experiment writes.
CHARTS = (("cpu_cliff.json", kvlab_charts), ("results.json", cache_charts),
          ("curve-tail.csv", replay_charts), ("ttft.jsonl", offload_charts),
          ("raw.csv", summary_charts))


def redraw(folder: str) -> list:
    """Draw the charts of one run folder; return the paths written."""
    kinds = [charts for mark, charts in CHARTS
             if os.path.exists(os.path.join(folder, mark))]
    if not kinds:
        return []
    try:
        drawn = kinds[0](folder)
    # Evidence of any shape must give one line.
    except (ArithmeticError, LookupError, TypeError, ValueError,
            AttributeError, csv.Error) as error:
        raise ValueError(f"{folder}: cannot be drawn: {error!r}") from None
    for name, svg in drawn.items():
        records.write_file(os.path.join(folder, name), svg)
    return [os.path.join(folder, name) for name in drawn]


def run_folders(path):
    """Return `path` and the folders in it."""
    return [path] + sorted(entry.path for entry in os.scandir(path)
                           if entry.is_dir())


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(
        description="Redraw every chart of a folder of evidence.",
        allow_abbrev=False)
    parser.add_argument("path", help="evidence, or one run folder in it")
    args = parser.parse_args(argv)

    def work():
        written = [name for folder in run_folders(args.path)
                   for name in redraw(folder)]
        if not written:
            raise ValueError(f"{args.path}: no evidence to draw")
        if sys.stderr is not None:
            print(*written, sep="\n", file=sys.stderr)

    return records.run_main("figures.py", work)


if __name__ == "__main__":
    sys.exit(main())
