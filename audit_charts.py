"""The audit of charts: every line that a chart must have, derived anew.

    faults = chart_faults(svg, Lines("Hits", "tokens", "share", {"LRU": points}))
    faults = chart_faults(svg, Bars("Hits", "rows", ["a", "b"], {"LRU": [1, 2]}))

An audit says what a chart must show: titles, names and numbers.  From these
follow the ticks, the scales, the place of every mark and so each line of the
file, with every attribute.  A line may differ from it by the rounding of its
coordinates alone; one that is missing, added or moved is a fault that names
the line and what differs in it.  Whatever has no line of its own here, be it
a style, a transform or a shape, can stand in no chart.

Nothing here draws or imports what does.  That texts do not overlap and that
colours can be told apart is not judged; names with <, >, & or " are beyond it.
"""

import math
import re
from fractions import Fraction
from itertools import zip_longest
from typing import NamedTuple, Union

__all__ = ["Bars", "Lines", "chart_faults", "stairs"]

COORDINATE = re.compile(r"-?[0-9]{1,9}\.[0-9]{2}")
ROUNDING = 0.02             # px; of a coordinate's two decimals
LONGEST = 200               # characters of what a fault quotes
WIDTH, PLOT_HEIGHT, MARGIN, CHARACTER = 680, 300, 24, 7     # px
MOST_STEPS = 6              # of a linear axis
# What a tick may be, or the step from tick to tick: 1, 2, 5, 10, 20, ...
ROUND_NUMBERS = [digit * Fraction(10) ** power for power in range(-9, 60)
                 for digit in (1, 2, 5)]

# Colour, dashes and marker of the first series, the second, ...
LOOKS = (("#2f7fd0", "", "circle"), ("#d2691e", "7 3", "square"),
         ("#2e9e5b", "2 3", "triangle"), ("#a65fc4", "9 3 2 3", "diamond"),
         ("#c2476b", "5 5", "circle"), ("#8a8a2c", "1 4", "square"))
CORNERS = {"square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
           "triangle": ((0, -5), (5, 4), (-5, 4)),
           "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0))}

# Each kind of line that may stand in a chart.
GRID = ('<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" '
        'stroke="#808080" stroke-opacity=')
TEXT = '<text x="{x:.2f}" y="{y:.2f}" text-anchor="'
FORMS = {
    "head": '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            'viewBox="0 0 680 {height}" width="680" height="{height}" '
            'font-family="sans-serif" font-size="12" fill="#808080" '
            'aria-label="{words}">',
    "title": '<text x="340.00" y="20.00" text-anchor="middle" font-size="15" '
             'font-weight="bold">{words}</text>',
    "y grid": GRID + '"0.25"/>',
    "y tick": TEXT + 'end" class="tick-y">{words}</text>',
    "y name": TEXT + 'middle" transform="rotate(-90 {x:.2f} {y:.2f})">{words}</text>',
    "x grid": GRID + '"0.12"/>',
    "x tick": TEXT + 'middle" class="tick-x">{words}</text>',
    "x name": TEXT + 'middle">{words}</text>',
    "group": TEXT + 'middle">{words}</text>',
    "legend": TEXT + 'start">{words}</text>',
    "series": '<g data-series="{words}">',
    "line": '<polyline points="{points}" fill="none" stroke="{colour}" '
            'stroke-width="2"{dashes}/>',
    "circle": '<circle cx="{x:.2f}" cy="{y:.2f}" r="4" fill="{colour}" '
              'stroke="none">{tip}</circle>',
    "polygon": '<polygon points="{points}" fill="{colour}" stroke="none">'
               "{tip}</polygon>",
    "end of series": "</g>",
    "bar": '<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" '
           'height="{height:.2f}" fill="{colour}">{tip}</rect>',
    "value": TEXT + 'middle" class="value">{words}</text>',
    "end": "</svg>"}


class Lines(NamedTuple):
    """What a line chart must show."""
    title: str
    x_name: str
    y_name: str
    series: dict                        # {name: [(x, y), ...]}
    log_x: bool = False
    log_y: bool = False
    step: bool = False                  # a value holds until the next
    joined: bool = True                 # by a line from point to point
    markers: Union[bool, tuple] = True  # or the names of the series that have them


class Bars(NamedTuple):
    """What a bar chart must show: a value of each series in each group."""
    title: str
    y_name: str
    groups: list
    series: dict                        # {name: [value, ...]}


# -- Comparing ----------------------------------------------------------------

def chart_faults(svg: str, chart: Union[Lines, Bars]) -> list:
    """Return [(line, found, expected)]: the first that differs in every line.

    Where lines are missing or added, all that follow differ: the first is told.
    """
    found, expected = svg.split("\n"), [*chart_lines(chart), ("end of file", "")]
    faults = [(f"line {number}: {kind}", *difference(line, wanted))
              for number, (line, (kind, wanted)) in enumerate(zip(found, expected), 1)
              if line != wanted and difference(line, wanted)]
    if len(found) != len(expected):
        return faults[:1] or [("lines", len(found) - 1, len(expected) - 1)]
    return faults


def difference(found, expected):
    """Return the first pieces of two lines that differ by more than rounding."""
    quoted = False                      # in an attribute, not in words or a tooltip
    pieces = (re.split('([" ,])', line) for line in (found, expected))
    for one, other in zip_longest(*pieces, fillvalue=""):
        if one == other:
            quoted ^= one == '"'
        elif not (quoted and COORDINATE.fullmatch(one) and COORDINATE.fullmatch(other)
                  and abs(float(one) - float(other)) < ROUNDING):
            return one[:LONGEST], other
    return None


# -- Axes ---------------------------------------------------------------------

class Scale:
    """The ticks of an axis, and where values lie between two pixels."""

    def __init__(self, values, log=False):
        exact = [Fraction(f"{value:.12g}") for value in values]
        enclosing, self.at = (log_ticks, math.log10) if log else (linear_ticks, float)
        self.ticks = list(map(float, enclosing(min(exact), max(exact))))
        self.words = list(map(written, self.ticks))

    def span(self, start, end):
        """Let the axis go from the pixel `start` to the pixel `end`."""
        self.start, self.end = start, end
        return self

    def margin(self):
        """Return how much room the words of a y axis take."""
        return 40 + CHARACTER * max(map(len, self.words))

    def place(self, value):
        first, last = self.at(self.ticks[0]), self.at(self.ticks[-1])
        share = (self.at(value) - first) / (last - first)
        return self.start + share * (self.end - self.start)


def linear_ticks(low, high):
    """Return the multiples of a step of 1, 2 or 5 that enclose the values and 0."""
    low, high = min(low, 0), max(high, 0)
    if low == high:
        high = 1
    step = next(step for step in ROUND_NUMBERS if high - low <= MOST_STEPS * step)
    return [step * index for index in
            range(math.floor(low / step), math.ceil(high / step) + 1)]


def log_ticks(low, high):
    """Return three ticks or more that enclose the values, by 1, 2, 5 or decades."""
    allowed = ROUND_NUMBERS if high < 1000 * low else ROUND_NUMBERS[::3]
    first = sum(tick <= low for tick in allowed) - 1
    last = max(sum(tick < high for tick in allowed), first + 2)
    return allowed[first:last + 1]


def written(value):
    """Return a number as ticks and bars show it."""
    value = float(f"{value:.12g}")
    return f"{int(value):,}" if value.is_integer() else f"{value:g}"


# -- The lines of a chart -----------------------------------------------------

def mark(kind, **values):
    return kind, FORMS[kind].format(**values)


def chart_lines(chart):
    """Yield (kind, text) of every line of a chart, in order."""
    legend, rows = legend_lines(chart.series)
    top = 44 + 20 * rows
    bottom = top + PLOT_HEIGHT
    yield mark("head", height=bottom + 56, words=chart.title)
    yield mark("title", words=chart.title)
    yield from legend
    plot = bar_plot if isinstance(chart, Bars) else line_plot
    yield from plot(chart, top, bottom)
    yield mark("end")


def legend_lines(series):
    """Return the lines of a legend, which a lone series has not, and its rows."""
    lines, left, row = [], 40, 0
    for name, (colour, dashes, shape) in zip(series, LOOKS):
        width = 46 + CHARACTER * len(name)
        if left + width > WIDTH - MARGIN:
            left, row = 40, row + 1
        y = 42 + 20 * row
        lines += [joined([(left, y), (left + 28, y)], colour, dashes),
                  marker(shape, left + 14, y, colour),
                  mark("legend", x=left + 34, y=y + 4, words=name)]
        left += width + 14
    return (lines, row + 1) if len(series) > 1 else ([], 0)


def joined(points, colour, dashes):
    return mark("line", points=places(points), colour=colour,
                dashes=f' stroke-dasharray="{dashes}"' if dashes else "")


def marker(shape, x, y, colour, tip=""):
    if shape == "circle":
        return mark("circle", x=x, y=y, colour=colour, tip=tip)
    corners = [(x + right, y + down) for right, down in CORNERS[shape]]
    return mark("polygon", points=places(corners), colour=colour, tip=tip)


def places(points):
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)


def y_axis(scale, name, left, right):
    for tick, words in zip(scale.ticks, scale.words):
        y = scale.place(tick)
        yield mark("y grid", x1=left, y1=y, x2=right, y2=y)
        yield mark("y tick", x=left - 8, y=y + 4, words=words)
    yield mark("y name", x=16, y=(scale.start + scale.end) / 2, words=name)


def x_axis(scale, name, top, bottom):
    for tick, words in zip(scale.ticks, scale.words):
        x = scale.place(tick)
        yield mark("x grid", x1=x, y1=top, x2=x, y2=bottom)
        yield mark("x tick", x=x, y=bottom + 18, words=words)
    yield mark("x name", x=(scale.start + scale.end) / 2, y=bottom + 42, words=name)


def line_plot(chart, top, bottom):
    points = [point for points in chart.series.values() for point in points]
    x = Scale([x for x, _ in points], chart.log_x)
    y = Scale([y for _, y in points], chart.log_y).span(bottom, top)
    # Half of the last x tick stands to the right of the axes.
    x.span(y.margin(), WIDTH - max(MARGIN, CHARACTER * len(x.words[-1]) / 2))
    yield from y_axis(y, chart.y_name, x.start, x.end)
    yield from x_axis(x, chart.x_name, top, bottom)
    for (name, points), (colour, dashes, shape) in zip(chart.series.items(), LOOKS):
        path = stairs(points) if chart.step else points
        yield mark("series", words=name)
        yield joined([(x.place(a), y.place(b)) for a, b in path],
                     colour if chart.joined else "none", dashes)
        if chart.markers is True or chart.markers and name in chart.markers:
            for a, b in points:
                yield marker(shape, x.place(a), y.place(b), colour,
                             f"<title>{name}: {a}, {b}</title>")
        yield mark("end of series")


def stairs(points: list) -> list:
    """Return the corners of a line on which a value holds until the next."""
    corners = [points[0]]
    for (_, level), (x, y) in zip(points, points[1:]):
        corners += [(x, level), (x, y)]
    return corners


def bar_plot(chart, top, bottom):
    values = [value for values in chart.series.values() for value in values]
    y = Scale(values).span(bottom, top)
    left, right = y.margin(), WIDTH - MARGIN
    yield from y_axis(y, chart.y_name, left, right)
    room = (right - left) / len(chart.groups)   # a tenth of it on each side is empty
    width = 0.8 * room / len(chart.series)
    for index, group in enumerate(chart.groups):
        yield mark("group", x=left + room * (index + 0.5), y=bottom + 18, words=group)
        for place, (name, values) in enumerate(chart.series.items()):
            x = left + room * (index + 0.1) + width * place
            value, level = values[index], y.place(values[index])
            yield mark("bar", x=x + 1, y=level, width=width - 2,
                       height=y.place(0) - level, colour=LOOKS[place][0],
                       tip=f"<title>{name}, {group}: {value}</title>")
            yield mark("value", x=x + width / 2, y=level - 4, words=written(value))
