"""Draw charts as SVG text, and redraw every chart of a folder of evidence.

    python3 figures.py evidence            every experiment below the folder
    python3 figures.py evidence/kvlab      one run folder

    svg = line_chart(title, x_axis, y_axis, {"LRU": [(1, 0.5), (2, 0.7)]})
    svg = bar_chart(title, y_axis, ["a", "b"], {"LRU": [1.0, 2.0]})

Equal data give equal bytes: every coordinate has two decimals, nothing is
random and nothing depends on fonts.  The charts have no background, mid-grey
text and colours of middle brightness with dashes and markers, so that they
read on white and on black and without colour.  Each marker and bar holds
its value as a tooltip.

A chart shows what its evidence file holds and can be no better than that.
"""

import argparse
import csv
import io
import json
import math
import os
import statistics
import sys
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import records

__all__ = ["Axis", "line_chart", "bar_chart", "bench_charts", "redraw",
           "main"]

WIDTH, PLOT_HEIGHT = 680, 300
RIGHT, FONT = 24, 12
CHARACTER = 7.0                     # px; a wide guess, so that nothing is cut
GREY = "#808080"
STYLES = (("#2f7fd0", "", "circle"), ("#d2691e", "7 3", "square"),
          ("#2e9e5b", "2 3", "triangle"), ("#a65fc4", "9 3 2 3", "diamond"),
          ("#c2476b", "5 5", "circle"), ("#8a8a2c", "1 4", "square"))


# -- Axes ---------------------------------------------------------------------

class Axis(NamedTuple):
    """What an axis says: its name with the unit, and whether it is a log."""
    name: str
    log: bool = False


class Scale:
    """The place of values on one axis, from the pixel `start` to `end`."""

    def __init__(self, values, log, start, end):
        self.log, self.start, self.end = log, start, end
        self.ticks = log_ticks(values) if log else linear_ticks(values)
        self.first, self.last = self._at(self.ticks[0]), self._at(self.ticks[-1])

    def _at(self, value):
        return math.log10(value) if self.log else value

    def place(self, value):
        share = (self._at(value) - self.first) / (self.last - self.first)
        return self.start + share * (self.end - self.start)


def linear_ticks(values, wanted=6):
    """Return ticks at a 1-2-5 step that enclose `values` and 0."""
    low, high = min(0, clean(min(values))), max(0, clean(max(values)))
    if low == high:
        high = 1
    step = next(step for step in steps_of_1_2_5((high - low) / 100)
                if clean((high - low) / step) <= wanted)
    first, last = math.floor(clean(low / step)), math.ceil(clean(high / step))
    return [clean(index * step) for index in range(first, last + 1)]


def log_ticks(values):
    """Return ticks that enclose `values`: at 1-2-5 up to three decades.

    Three at least, as two do not tell a log axis from a linear one.
    """
    low, high = clean(min(values)), clean(max(values))
    marks = (1, 2, 5) if high < 1000 * low else (1,)
    places = [clean(mark * 10.0 ** power)
              for power in range(math.floor(math.log10(low)),
                                 math.floor(math.log10(high)) + 4)
              for mark in marks]
    first = max(place for place in places if place <= low)
    inside = [place for place in places if first <= place < high]
    return places[places.index(first):][:max(len(inside) + 1, 3)]


def steps_of_1_2_5(least):
    power = math.floor(math.log10(least))
    while True:
        for mark in (1, 2, 5):
            yield mark * 10.0 ** power
        power += 1


def clean(value):
    """Return `value` without the dust of binary fractions, whole if it is."""
    value = float(f"{value:.12g}")
    return int(value) if value.is_integer() else value


def label(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


# -- Marks --------------------------------------------------------------------

def text(x, y, words, anchor="middle", extra=""):
    return (f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"{extra}>'
            f"{escape(words)}</text>")


def line(x1, y1, x2, y2, opacity):
    return (f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" '
            f'stroke="{GREY}" stroke-opacity="{opacity}"/>')


def marker(shape, x, y, colour, tip=""):
    """Return one mark around (x, y) that shows `tip` under the pointer."""
    if shape == "circle":
        start = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4"'
    else:
        corners = {"square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
                   "triangle": ((0, -5), (5, 4), (-5, 4)),
                   "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0))}[shape]
        places = " ".join(f"{x + dx:.2f},{y + dy:.2f}" for dx, dy in corners)
        start = f'<polygon points="{places}"'
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'{start} fill="{colour}" stroke="none">{title}{end_of(start)}'


def end_of(start):
    return f"</{start[1:].split()[0]}>"


def path(points, colour, dashes):
    places = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (f'<polyline points="{places}" fill="none" stroke="{colour}" '
            f'stroke-width="2"{dash}/>')


def stairs(points):
    """Return the corners of a step line: a value holds until the next."""
    corners = points[:1]
    for before, point in zip(points, points[1:]):
        corners += [(point[0], before[1]), point]
    return corners


# -- Charts -------------------------------------------------------------------

class Frame:
    """Title, legend and axes: what a line chart and a bar chart share."""

    def __init__(self, title, names, y_axis, y_values, last_x=""):
        self.title = title
        self.legend, legend_rows = legend(names)
        self.top = 44 + 20 * legend_rows
        self.bottom = self.top + PLOT_HEIGHT
        self.y_axis = y_axis
        self.y = Scale(y_values, y_axis.log, self.bottom, self.top)
        widest = max(len(label(tick)) for tick in self.y.ticks)
        self.left = 40 + CHARACTER * widest
        # Half of the last x tick stands to the right of the axes.
        self.right = WIDTH - max(RIGHT, CHARACTER * len(last_x) / 2)

    def grid(self):
        marks = []
        for tick in self.y.ticks:
            y = self.y.place(tick)
            marks.append(line(self.left, y, self.right, y, 0.25))
            marks.append(text(self.left - 8, y + 4, label(tick), "end",
                              ' class="tick-y"'))
        middle = (self.top + self.bottom) / 2
        turn = f' transform="rotate(-90 16.00 {middle:.2f})"'
        marks.append(text(16, middle, self.y_axis.name, extra=turn))
        return marks

    def svg(self, marks):
        height = self.bottom + 56
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
                f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                f'height="{height}" font-family="sans-serif" '
                f'font-size="{FONT}" fill="{GREY}" '
                f'aria-label={quoteattr(self.title)}>')
        title = text(WIDTH / 2, 20, self.title,
                     extra=' font-size="15" font-weight="bold"')
        return "\n".join([head, title, *self.legend, *self.grid(), *marks,
                          "</svg>"]) + "\n"


def legend(names):
    """Return marks and the number of rows; a lone series needs no legend."""
    if len(names) < 2:
        return [], 0
    marks, x, row = [], 40.0, 0
    for name, (colour, dashes, shape) in zip(names, STYLES):
        width = 46 + CHARACTER * len(name)
        if x + width > WIDTH - RIGHT:
            x, row = 40.0, row + 1
        y = 42 + 20 * row
        marks += [path([(x, y), (x + 28, y)], colour, dashes),
                  marker(shape, x + 14, y, colour),
                  text(x + 34, y + 4, name, "start")]
        x += width + 14
    return marks, row + 1


def line_chart(title: str, x_axis: Axis, y_axis: Axis, series: dict,
               step: bool = False, markers=True, joined: bool = True) -> str:
    """Return an SVG of `series`, {name: [(x, y), ...]} in the order of x.

    With `step` a value holds until the next x; without `joined` there is no
    line from point to point.  `markers` may also be the names of the series
    whose points are marked.  Raise ValueError for no points, for more series
    than there are styles and for a log axis with a value that is not above 0.
    """
    points = check_points(series, x_axis, y_axis)
    x_values = [x for x, _ in points]
    last_x = label(Scale(x_values, x_axis.log, 0, 1).ticks[-1])
    frame = Frame(title, list(series), y_axis, [y for _, y in points], last_x)
    scale = Scale(x_values, x_axis.log, frame.left, frame.right)
    marks = x_marks(frame, scale, x_axis)
    for (name, values), style in zip(series.items(), STYLES):
        marked = name in markers if isinstance(markers, tuple) else markers
        marks += series_marks(frame, scale, name, values, style, step, marked, joined)
    return frame.svg(marks)


def check_points(series, x_axis, y_axis):
    points = [point for values in series.values() for point in values]
    if not points or len(series) > len(STYLES):
        raise ValueError(f"a chart holds 1 to {len(STYLES)} series with points, "
                         f"got {len(series)} with {len(points)}")
    for axis, column in ((x_axis, 0), (y_axis, 1)):
        least = min(point[column] for point in points)
        if axis.log and least <= 0:
            raise ValueError(f"a log axis needs values > 0, got {least} "
                             f"for {axis.name}")
    return points


def x_marks(frame, scale, axis):
    marks = []
    for tick in scale.ticks:
        x = scale.place(tick)
        marks.append(line(x, frame.top, x, frame.bottom, 0.12))
        marks.append(text(x, frame.bottom + 18, label(tick),
                          extra=' class="tick-x"'))
    middle = (frame.left + frame.right) / 2
    return marks + [text(middle, frame.bottom + 42, axis.name)]


def series_marks(frame, scale, name, values, style, step, markers, joined):
    colour, dashes, shape = style
    places = [(scale.place(x), frame.y.place(y)) for x, y in values]
    marks = [f"<g data-series={quoteattr(name)}>",
             # An unseen line keeps the points where the audit reads them.
             path(stairs(places) if step else places,
                  colour if joined else "none", dashes)]
    if markers:
        marks += [marker(shape, *place, colour, f"{name}: {x}, {y}")
                  for place, (x, y) in zip(places, values)]
    return marks + ["</g>"]


def bar_chart(title: str, y_axis: Axis, groups: list, series: dict) -> str:
    """Return an SVG of bars: series {name: [value of each group]}.

    The value stands above its bar.  Raise ValueError for lists of unequal
    length, for no bars, for more series than there are styles and for a log
    axis, which has no 0 for bars to stand on.
    """
    if not groups or not 1 <= len(series) <= len(STYLES):
        raise ValueError(f"a chart holds 1 to {len(STYLES)} series of bars, "
                         f"got {len(series)} with {len(groups)} groups")
    if any(len(values) != len(groups) for values in series.values()):
        raise ValueError(f"every series needs {len(groups)} values")
    if y_axis.log:
        raise ValueError(f"bars need a linear axis, got a log axis {y_axis.name}")
    frame = Frame(title, list(series), y_axis,
                  [value for values in series.values() for value in values])
    room = (frame.right - frame.left) / len(groups)
    width = room * 0.8 / len(series)
    marks = []
    for index, group in enumerate(groups):
        start = frame.left + room * (index + 0.1)
        marks.append(text(start + room * 0.4, frame.bottom + 18, group))
        for (name, values), (colour, _, _) in zip(series.items(), STYLES):
            marks += bar(frame, start, width, values[index], colour,
                         f"{name}, {group}: {values[index]}")
            start += width
    return frame.svg(marks)


def bar(frame, x, width, value, colour, tip):
    top, foot = frame.y.place(value), frame.y.place(0)
    return [f'<rect x="{x + 1:.2f}" y="{min(top, foot):.2f}" '
            f'width="{width - 2:.2f}" height="{abs(foot - top):.2f}" '
            f'fill="{colour}"><title>{escape(tip)}</title></rect>',
            text(x + width / 2, min(top, foot) - 4, label(clean(value)),
                 extra=' class="value"')]


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
