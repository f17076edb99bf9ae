"""Draw line charts, step charts and bar charts as SVG text.

    svg = line_chart(title, x_axis, y_axis, {"LRU": [(1, 0.5), (2, 0.7)]})
    svg = bar_chart(title, y_axis, ["a", "b"], {"LRU": [1.0, 2.0]})

How can a sandbox with the standard library alone show results, on white and
on black, the same bytes for the same data?  Every coordinate has two decimals,
nothing is random and nothing depends on fonts.  The charts have no background,
mid-grey text and colours of middle brightness with dashes and markers.  Each
marker and bar holds its value as a tooltip.

Texts may overlap where names are many or long: nothing here measures a font.
"""

import math
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

__all__ = ["Axis", "line_chart", "bar_chart", "stairs"]

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


def stairs(points) -> list:
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
