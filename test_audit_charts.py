"""audit_charts.py: true charts have no fault, every forgery has one."""

import functools
import math
import os
import random
import re
import unittest
from functools import partial
from unittest import mock
from xml.etree import ElementTree

try:
    import audit
except ImportError:             # without NumPy
    raise unittest.SkipTest("audit.py needs NumPy") from None

import audit_charts
import charts
from audit_charts import Bars, Lines, chart_faults, difference
from test_support import EVIDENCE, read

SVG = "{http://www.w3.org/2000/svg}"
STEP, CLIFF = "kvlab/cliff.svg", "kvlab/cpu-cliff.svg"
MANY, LOOSE = "cache-strategy/latency.svg", "offload/reads.svg"
BARS, BUDGET = "kvlab/ttft.svg", "cache-budget/evictions.svg"


@functools.lru_cache(maxsize=None)
def evidence():
    """Return {path: (text, what it must show)} of all charts, as audits say."""
    charts = {}

    def keep(folder, name, chart):
        path = os.path.join(folder.path, name)
        charts[os.path.relpath(path, EVIDENCE).replace(os.sep, "/")] = (
            read(path).decode("utf-8"), chart)

    with mock.patch.object(audit.Folder, "compare_chart", keep):
        audit.audit_tree(EVIDENCE)
    return charts


class ChartCase(unittest.TestCase):

    def walk(self):
        """Yield path, lines and judge of each chart; what it must show is kept."""
        for path, (text, chart) in evidence().items():
            lines = list(audit_charts.chart_lines(chart))
            with mock.patch.object(audit_charts, "chart_lines", lambda _: lines):
                yield path, text.split("\n"), lambda forged: chart_faults(
                    "\n".join(forged), chart)


class TestEveryForgery(ChartCase):
    """Whatever one changes in any chart of the evidence is a fault."""

    def test_true_charts_have_none(self):
        self.assertEqual(len(evidence()), sum(
            name.endswith(".svg") for _, _, names in os.walk(EVIDENCE)
            for name in names))
        for path, (text, chart) in evidence().items():
            self.assertEqual(chart_faults(text, chart), [], path)

    def test_every_line_removed_doubled_swapped_and_followed_by_another(self):
        for path, lines, faults in self.walk():
            for at in range(len(lines)):
                for forged in (lines[:at] + lines[at + 1:],
                               lines[:at] + lines[at:at + 1] + lines[at:],
                               lines[:at] + lines[at:at + 2][::-1] + lines[at + 2:],
                               lines[:at] + ["<!-- -->"] + lines[at:]):
                    if forged != lines:
                        self.assertTrue(faults(forged), (path, at + 1))

    def test_every_number_and_every_word_changed(self):
        rng, changed = random.Random(3), 0
        for path, lines, faults in self.walk():
            for at, line in enumerate(lines):
                found = list(re.finditer(r"\d+(?:\.\d+)?|[A-Za-z]+", line))
                # A path may have a thousand places.
                for piece in rng.sample(found, min(len(found), 40)):
                    for new in self.others(piece[0]):
                        forged = line[:piece.start()] + new + line[piece.end():]
                        (record, _, _), = faults(lines[:at] + [forged] + lines[at + 1:])
                        self.assertTrue(record.startswith(f"line {at + 1}: "), path)
                        changed += 1
        self.assertGreater(changed, 10_000)

    def others(self, piece):
        if piece.isalpha():
            return piece + "x", piece[:-1]
        if "." not in piece:
            return str(int(piece) + 1), ""
        digits = len(piece.split(".")[1])
        return f"{float(piece) + 0.03:.{max(digits, 2)}f}", f"-{piece}0"


class TestNamedForgeries(unittest.TestCase):
    """What forgers have tried: case, chart, a pattern and what it becomes."""

    GROUP = r'(?s)(<g data-series="[^"]*">\n)(<polyline[^\n]*\n)(.*?</g>\n)'
    RECT = r'(<rect x=")([\d.]+)(" y=".*?" width=")([\d.]+)(" [^>]*>)'
    CASES = (
        ("a series before the true one", MANY, GROUP, r"\1\2</g>\n\1\2\3"),
        ("a series after the true one", MANY, GROUP, r"\1\2\3\1\2\3"),
        ("a second path in a series", STEP, GROUP, r"\1\2\2\3"),
        ("a path outside of the series", STEP, GROUP, r"\2\1\2\3"),
        ("a series of no name", STEP, GROUP, r"<g>\n\2\3\1\2\3"),
        ("another name of a series", MANY, '(?<=data-series=")no cache', "none"),
        ("series swapped", MANY, GROUP + GROUP[4:], r"\4\5\6\1\2\3"),
        ("a transform of a series", STEP, "<g ", '<g transform="scale(1 2)" '),
        ("a transform of all", STEP, "<svg ", '<svg transform="scale(1 2)" '),
        ("a path that is not shown", STEP, "<polyline ", '<polyline display="none" '),
        ("a series that is not shown", STEP, "<g ", '<g visibility="hidden" '),
        ("a path of no width", STEP, 'stroke-width="2"', 'stroke-width="0"'),
        ("a path of no colour", STEP, 'stroke="#2f7fd0"', 'stroke="none"'),
        ("points joined", LOOSE, '(<g.*\n<polyline.*) stroke="none"',
         r'\1 stroke="#2f7fd0"'),
        ("an attribute twice", STEP, 'fill="none"', 'fill="none" fill="none"'),
        ("a style", STEP, "</svg>", "<style>polyline{display:none}</style>\n</svg>"),
        ("a style of one mark", STEP, "<polyline ", '<polyline style="opacity:0" '),
        ("a style from elsewhere", STEP, "^", '<?xml-stylesheet href="a.css"?>\n'),
        ("a doctype", STEP, "^", "<!DOCTYPE svg>\n"),
        ("a comment", STEP, "</svg>", "<!-- 1 --></svg>"),
        ("a cropped view", STEP, 'viewBox="0 0 680 400"', 'viewBox="0 0 680 300"'),
        ("a lower picture", STEP, 'height="400"', 'height="300"'),
        *((f"a loose {shape[1:5]}", chart, "</svg>", shape + "\n</svg>")
          for chart in (STEP, BARS) for shape in (
              '<polyline points="54.00,44.00 656.00,344.00" stroke="#2f7fd0"/>',
              '<path d="M0 0L9 9"/>', '<use href="#a"/>', '<image href="a.png"/>',
              "<script>1</script>", "<foreignObject>1</foreignObject>",
              '<rect x="54.00" y="44.00" width="602.00" height="300.00" '
              'fill="#ffffff"/>', '<circle cx="99.00" cy="99.00" r="40"/>',
              '<text x="99.00" y="99.00">10 hits at 30,000</text>',
              '<text x="99.00" y="99.00" text-anchor="middle">-5</text>',
              '<text x="99.00" y="99.00" text-anchor="middle">100%</text>',
              '<text x="99.00" y="99.00" text-anchor="middle" class="value">5</text>')),
        ("a marker moved", STEP, 'cx="269.92"', 'cx="279.92"'),
        ("a triangle moved", LOOSE, 'points="279.17,364.00', 'points="279.17,363.00'),
        ("a marker removed", STEP, "<circle.*\n", ""),
        ("a marker more", STEP, "(<circle.*\n)", r"\1\1"),
        ("a larger marker", STEP, 'r="4"', 'r="40"'),
        ("a tooltip removed", STEP, "<title>.*</title>", ""),
        ("a tooltip changed", STEP, "hits: 30000, 0", "hits: 30000, 10"),
        ("two tooltips", STEP, "(<title>.*</title>)", r"\1\1"),
        ("a tooltip of the chart", STEP, "</svg>", "<title>10 hits</title></svg>"),
        ("bars swapped", BARS, f"(?s){RECT}(.*?){RECT}",
         r"\1\8\3\4\5\6\7\2\9\g<10>\g<11>"),
        ("a bar moved", BARS, RECT, r"\g<1>70.00\3\4\5"),
        ("a bar of no width", BARS, RECT, r"\1\2\g<3>0.00\5"),
        ("a wider bar", BARS, RECT, r"\1\2\g<3>99.33\5"),
        ("a bar of no colour", BARS, '(<rect.*)fill="#2f7fd0"', r'\1fill="none"'),
        ("a bar of the other colour", BARS, '(<rect.*)fill="#2f7fd0"',
         r'\1fill="#d2691e"'),
        ("a bar that hangs", BARS, 'y="148.00" width', 'y="248.00" width'),
        ("a higher bar", BARS, 'y="345.77" width="77.33" height="18.23"',
         'y="325.77" width="77.33" height="38.23"'),
        ("a value moved", BARS, 'y="144.00"', 'y="344.00"'),
        ("a value changed", BARS, ">576<", ">577<"),
        ("values swapped", BARS, "(?s)>576<(.*?)>612<", r">612<\1>576<"),
        ("a bar's tooltip changed", BARS, "pass1-cold: 576.0", "pass1-cold: 57.6"),
        ("groups swapped", BARS, "(?s)>pass1-cold<(.*)>pass2-replay<",
         r">pass2-replay<\1>pass1-cold<"),
        ("a group renamed", BUDGET, ">4 KiB<", ">40 KiB<"),
        ("a number in pieces", STEP, ">30,000<", ">3<tspan>0,000</tspan><"),
        ("a number hidden in part", STEP, ">30,000<",
         '>30,000<tspan font-size="0">0</tspan><'),
        *((f"a tick of {number}", STEP, ">30,000<", f">{number}<") for number in (
            "3_0000", "3,0,0,0,0", "30000", "30,000.0", "3e4", "+30,000", " 30,000",
            "31,000", "30,0000", "&#51;0,000", "nan", "")),
        ("a tick moved", STEP, 'x="355.00" y="362.00"', 'x="365.00" y="362.00"'),
        ("a tick of another kind", STEP, "tick-x", "tick-y"),
        ("a grid line moved", STEP, 'x1="54.00" y1="284.00" x2="656.00" y2="284.00"',
         'x1="54.00" y1="264.00" x2="656.00" y2="264.00"'),
        ("letters apart", STEP, '<text x="355.00"', '<text dx="9" x="355.00"'),
        ("letters of no size", STEP, ' class="tick-x"', r'\g<0> font-size="0"'),
        ("another title", STEP, ">Hits of", ">Misses of"),
        ("another label", STEP, 'aria-label="Hits', 'aria-label="Misses'),
        ("another x axis", STEP, ">GPU capacity", ">CPU capacity"),
        ("another y axis", CLIFF, ">documents of 10<", ">documents of 100<"),
        ("names of a legend swapped", MANY, "(?s)>no cache<(.*)>dynamic cache<",
         r">dynamic cache<\1>no cache<"),
        ("colours of a legend swapped", BARS, "(?s)^(.*?)#2f7fd0(.*?)#2f7fd0(.*?)"
         "#d2691e(.*?)#d2691e", r"\1#d2691e\2#d2691e\3#2f7fd0\4#2f7fd0"),
        ("dashes of a legend", MANY, ' stroke-dasharray="7 3"', ""),
        ("a shape of a legend", MANY, "<circle.*\n", ""),
        ("all of a colour that cannot be seen", BARS, "#2f7fd0", "#ffffff"),
        ("a legend of a lone series", STEP, "(</text>\n)",
         r'\1<text x="74.00" y="46.00" text-anchor="start">misses</text>\n'),
        ("all line ends", STEP, "\n", "\r\n"),
        ("no final newline", STEP, "\n$", ""),
        ("all in one line", STEP, "\n", ""),
        ("something after the end", STEP, "$", "<svg/>"),
        ("nothing", STEP, "(?s).+", ""))

    def test_each_is_a_fault(self):
        for case, path, old, new in self.CASES:
            with self.subTest(case=case, path=path):
                text, chart = evidence()[path]
                forged = re.sub(old, new, text, count=not case.startswith("all "))
                self.assertNotEqual(forged, text)
                self.assertTrue(chart_faults(forged, chart))

    def test_charts_of_other_data_are_faults(self):
        for path, (text, _) in evidence().items():
            for other, (_, chart) in evidence().items():
                if chart != evidence()[path][1]:
                    self.assertTrue(chart_faults(text, chart), (path, other))

    def test_a_chart_drawn_in_another_way_is_a_fault(self):
        text, chart = evidence()[MANY]
        for change in ({"log_x": False}, {"log_y": False}, {"step": True},
                       {"joined": False}, {"markers": False},
                       {"markers": ("no cache",)},
                       {"series": dict(reversed(chart.series.items()))}):
            with self.subTest(change=change):
                self.assertTrue(chart_faults(text, chart._replace(**change)))


class TestFaults(unittest.TestCase):
    """What a fault tells."""

    def test_a_changed_line_is_named_with_both_values(self):
        text, chart = evidence()[STEP]
        forged = text.replace('cx="269.92"', 'cx="270.02"').replace(">40,000<", ">4<")
        self.assertEqual(chart_faults(forged, chart), [
            ("line 25: x tick", ">4</text>", ">40"),
            ("line 33: circle", "270.02", "269.92")])

    def test_of_added_and_missing_lines_the_first_is_named(self):
        text, chart = evidence()[STEP]
        self.assertEqual(chart_faults(text.replace("</g>", "<g/>\n</g>"), chart),
                         [("line 39: end of series", "<g/>", "</g>")])
        self.assertEqual(chart_faults(text[:-1], chart), [("lines", 39, 40)])
        self.assertEqual(chart_faults(text + "\n", chart), [("lines", 41, 40)])

    def test_only_coordinates_may_be_rounded_otherwise(self):
        for found, expected, told in (
                ('x="1.00"', 'x="1.00"', None), ('x="1.01"', 'x="1.00"', None),
                ('x="-0.00"', 'x="0.00"', None),
                ('x="1.02"', 'x="1.00"', ("1.02", "1.00")),
                ('p="1.00,2.01 3.00"', 'p="1.00,2.00 3.01"', None),
                ('p="1.00 2.00"', 'p="1.00,2.00"', (" ", ",")),
                ('p="1.00,2.00"', 'p="1.00"', (",", '"')),
                ('x="1.001"', 'x="1.00"', ("1.001", "1.00")),
                ('x="1"', 'x="1.00"', ("1", "1.00")),
                ('x="\u0661.00"', 'x="1.00"', ("\u0661.00", "1.00")),
                ("a 1.01", "a 1.00", ("1.01", "1.00")),
                ('x="1.00" 1.01', 'x="1.00" 1.00', ("1.01", "1.00")),
                ('x="1.00""', 'x="1.00"', ('"', "")), ("a ", "a", (" ", "")),
                ("", "</svg>", ("", "</svg>")), ("9" * 999, "1", ("9" * 200, "1"))):
            with self.subTest(found=found):
                self.assertEqual(difference(found, expected), told)


class TestAgainstReaders(unittest.TestCase):
    """The chart that is expected shows the numbers, if read as people do."""

    def test_ticks_are_round_and_enclose_the_values(self):
        for log, values, words in (
                (False, (0, 10), "0 2 4 6 8 10"), (False, (3, 47), "0 10 20 30 40 50"),
                (False, (-4, 7), "-4 -2 0 2 4 6 8"), (False, (12,), "0 2 4 6 8 10 12"),
                (False, (0, 0), "0 0.2 0.4 0.6 0.8 1"),
                (False, (0.1 + 0.2,), "0 0.05 0.1 0.15 0.2 0.25 0.3"),
                (False, (12.1,), "0 5 10 15"),
                (False, (2e-5,), "0 5e-06 1e-05 1.5e-05 2e-05"),
                (False, (-3,), "-3 -2.5 -2 -1.5 -1 -0.5 0"),
                (False, (3e15,), "0 500,000,000,000,000 1,000,000,000,000,000 "
                 "1,500,000,000,000,000 2,000,000,000,000,000 2,500,000,000,000,000 "
                 "3,000,000,000,000,000"),
                (True, (16, 256), "10 20 50 100 200 500"), (True, (5, 5), "5 10 20"),
                (True, (1, 999), "1 2 5 10 20 50 100 200 500 1,000"),
                (True, (1, 1000), "1 10 100 1,000"),
                (True, (0.003,), "0.002 0.005 0.01")):
            with self.subTest(values=values):
                self.assertEqual(" ".join(audit_charts.Scale(values, log).words), words)

    def test_points_and_bars_read_off_by_the_ticks_are_the_numbers(self):
        for path, (text, chart) in evidence().items():
            root = ElementTree.fromstring(text)
            y = self.reader(root, "y", getattr(chart, "log_y", False))
            if isinstance(chart, Bars):
                places = [(float(bar.get("y")), float(bar.get("height")))
                          for bar in root.iter(SVG + "rect")]
                values = [value for group in zip(*chart.series.values())
                          for value in group]
                self.assert_near([y(top) for top, _ in places], values, path)
                self.assert_near([y(top) - y(top + height) for top, height in places],
                                 values, path)
                continue
            x = self.reader(root, "x", chart.log_x)
            for group, points in zip(root.iter(SVG + "g"), chart.series.values()):
                corners = [place.split(",") for place in
                           group.find(SVG + "polyline").get("points").split()]
                corners = corners[::2] if chart.step else corners
                self.assert_near([x(place) for place, _ in corners],
                                 [number for number, _ in points], path)
                self.assert_near([y(place) for _, place in corners],
                                 [number for _, number in points], path)

    def reader(self, root, axis, log):
        """Return the function from pixels to numbers, by the nearest ticks."""
        through, back = (math.log10, partial(pow, 10)) if log else (float, float)
        ticks = [(float(mark.get(axis)) - (4 if axis == "y" else 0),
                  through(float(mark.text.replace(",", ""))))
                 for mark in root.iter(SVG + "text")
                 if mark.get("class") == f"tick-{axis}"]

        def read_off(place):
            (one, low), (other, high) = sorted(
                ticks, key=lambda tick: abs(tick[0] - float(place)))[:2]
            return back(low + (high - low) * (float(place) - one) / (other - one))
        return read_off

    def assert_near(self, found, expected, path):
        self.assertEqual(len(found), len(expected), path)
        for one, other in zip(found, expected):
            self.assertLess(abs(one - other), 1e-3 * max(expected), path)

    def test_what_figures_draws_of_any_data_is_what_is_expected(self):
        rng = random.Random(11)
        kinds = (lambda: rng.randrange(1, 20), lambda: rng.randrange(1, 70_000),
                 lambda: round(rng.uniform(0.001, 900), 6), lambda: rng.random() + 1e-9,
                 lambda: rng.randrange(1, 60) * 10.0 ** rng.randrange(-4, 5))
        for _ in range(150):
            names = [f"{'name' * rng.randrange(1, 9)}-{index}"
                     for index in range(rng.randrange(1, 7))]
            kind, log_x, log_y, step, joined = rng.choice(kinds), *(
                rng.random() < 0.5 for _ in range(4))
            markers = rng.choice((True, False, tuple(names[1:])))
            series = {name: sorted((kind(), kind()) for _ in range(rng.randrange(1, 6)))
                      for name in names}
            svg = charts.line_chart("t", charts.Axis("x", log_x),
                                     charts.Axis("y", log_y), series, step, markers,
                                     joined)
            chart = Lines("t", "x", "y", series, log_x, log_y, step, joined, markers)
            self.assertEqual(chart_faults(svg, chart), [], series)
            groups = list("abcd"[:rng.randrange(1, 5)])
            bars = {name: [rng.choice((0, kind())) for _ in groups] for name in names}
            svg = charts.bar_chart("t", charts.Axis("y"), groups, bars)
            self.assertEqual(chart_faults(svg, Bars("t", "y", groups, bars)), [], bars)


if __name__ == "__main__":
    unittest.main()
