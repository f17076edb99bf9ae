"""charts.py and figures.py: the same data give the same SVG bytes."""

import os
import re
import shutil
import tempfile
import unittest
from xml.etree import ElementTree

try:
    from test_audit import evidence_copy
except ImportError:
    raise unittest.SkipTest("audit.py needs NumPy") from None

import charts
import figures
from charts import Axis, bar_chart, line_chart
from test_support import EVIDENCE, call, read, run, write

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    return ElementTree.fromstring(svg)


def ticks(svg, axis):
    return [mark.text for mark in parsed(svg).iter(SVG + "text")
            if mark.get("class") == f"tick-{axis}"]


def lines(series, x_axis=Axis("x"), y_axis=Axis("y"), **options):
    return line_chart("Title", x_axis, y_axis, series, **options)


class TestTicks(unittest.TestCase):

    def test_linear_ticks_step_1_2_5_and_enclose_the_data_and_zero(self):
        for values, expected in (
                ((0, 10), [0, 2, 4, 6, 8, 10]),
                ((3, 47), [0, 10, 20, 30, 40, 50]),
                ((0.02, 0.29), [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
                ((-4, 7), [-4, -2, 0, 2, 4, 6, 8]),
                ((0, 0), [0, 0.2, 0.4, 0.6, 0.8, 1]),
                ((0.1 + 0.2,), [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
                ((2e-5,), [0, 5e-06, 1e-05, 1.5e-05, 2e-05]),
                ((56000,), [0, 10000, 20000, 30000, 40000, 50000, 60000])):
            with self.subTest(values=values):
                self.assertEqual(charts.linear_ticks(values), expected)

    def test_log_ticks_step_1_2_5_or_by_decades(self):
        for values, expected in (
                ((16, 256), [10, 20, 50, 100, 200, 500]),
                ((1, 8), [1, 2, 5, 10]),
                ((0.3, 40000), [0.1, 1, 10, 100, 1000, 10000, 100000]),
                ((5, 5), [5, 10, 20]),
                ((100, 100000), [100, 1000, 10000, 100000])):
            with self.subTest(values=values):
                self.assertEqual(charts.log_ticks(values), expected)

    def test_labels_group_thousands(self):
        svg = lines({"a": [(0, 1), (50000, 2)]})
        self.assertIn("50,000", ticks(svg, "x"))


class TestLineChart(unittest.TestCase):

    SERIES = {"LRU": [(1, 10), (2, 30), (4, 20)], "none": [(1, 1), (4, 2)]}

    def places(self, svg, name):
        for group in parsed(svg).iter(SVG + "g"):
            if group.get("data-series") == name:
                points = group.find(SVG + "polyline").get("points").split()
                return [tuple(map(float, point.split(","))) for point in points]
        return None

    def test_equal_data_give_equal_bytes(self):
        self.assertEqual(lines(self.SERIES), lines(self.SERIES))

    def test_points_lie_where_the_ticks_say(self):
        svg = lines({"a": [(0, 0), (5, 5), (10, 10)]})
        (x0, y0), (x1, y1), (x2, y2) = self.places(svg, "a")
        self.assertAlmostEqual(x1, (x0 + x2) / 2, delta=0.011)
        self.assertAlmostEqual(y1, (y0 + y2) / 2, delta=0.011)
        self.assertLess(x0, x2)
        self.assertGreater(y0, y2)

    def test_a_log_axis_gives_decades_equal_room(self):
        svg = lines({"a": [(1, 1), (10, 10), (100, 100)]},
                    Axis("x", log=True), Axis("y", log=True))
        (x0, y0), (x1, y1), (x2, y2) = self.places(svg, "a")
        self.assertAlmostEqual(x1 - x0, x2 - x1, delta=0.011)
        self.assertAlmostEqual(y1 - y0, y2 - y1, delta=0.011)

    def test_a_step_line_holds_its_value_until_the_next(self):
        svg = lines({"a": [(0, 1), (1, 3)]}, step=True)
        start, corner, end = self.places(svg, "a")
        self.assertEqual(corner, (end[0], start[1]))

    def test_names_and_values_are_escaped(self):
        svg = line_chart("a < b & \"c\"", Axis("x > 0"), Axis("y"), {"<&>": [(0, 1)]})
        words = [mark.text for mark in parsed(svg).iter(SVG + "text")]
        self.assertIn('a < b & "c"', words)
        self.assertIn("x > 0", words)
        self.assertIsNotNone(self.places(svg, "<&>"))

    def test_markers_tell_their_values(self):
        tips = [mark.text for mark in parsed(lines(self.SERIES)).iter(SVG + "title")]
        self.assertEqual(tips, ["LRU: 1, 10", "LRU: 2, 30", "LRU: 4, 20",
                                "none: 1, 1", "none: 4, 2"])
        self.assertNotIn("<title>", lines(self.SERIES, markers=False))

    def test_legend_names_every_series_but_a_lone_one(self):
        words = [mark.text for mark in parsed(lines(self.SERIES)).iter(SVG + "text")]
        self.assertIn("LRU", words)
        self.assertIn("none", words)
        alone = lines({"LRU": [(1, 2)]})
        self.assertNotIn("LRU", [mark.text for mark in parsed(alone).iter(SVG + "text")])

    def test_a_long_legend_takes_more_rows(self):
        names = [f"a rather long name of series {index}" for index in range(5)]
        svg = lines({name: [(0, 1)] for name in names})
        heights = {mark.get("y") for mark in parsed(svg).iter(SVG + "text")
                   if mark.text in names}
        self.assertEqual(len(heights), 3)

    def test_left_margin_grows_with_the_widest_tick(self):
        narrow = self.places(lines({"a": [(0, 1)]}), "a")[0][0]
        wide = self.places(lines({"a": [(0, 1000000)]}), "a")[0][0]
        self.assertGreater(wide, narrow)

    def test_coordinates_have_two_decimals(self):
        svg = lines(self.SERIES)
        for name in ("x", "y", "x1", "y1", "x2", "y2", "cx", "cy"):
            for value in re.findall(f' {name}="([^"]*)"', svg):
                self.assertRegex(value, r"^-?\d+\.\d\d$")

    def test_no_background_and_no_black_or_white(self):
        svg = lines(self.SERIES) + bar_chart("t", Axis("y"), ["a"], {"b": [1]})
        colours = set(re.findall("#[0-9a-f]{6}", svg))
        self.assertGreater(len(colours), 2)
        for colour in colours:
            red, green, blue = (int(colour[at:at + 2], 16) for at in (1, 3, 5))
            luma = 0.299 * red + 0.587 * green + 0.114 * blue
            self.assertTrue(80 < luma < 160, colour)

    def test_series_differ_without_colour(self):
        looks = {(dashes, shape) for _, dashes, shape in charts.STYLES}
        self.assertEqual(len(looks), len(charts.STYLES))

    def test_what_cannot_be_drawn_is_refused(self):
        seven = {str(index): [(0, 1)] for index in range(7)}
        for series, axis in (({}, Axis("y")), ({"a": []}, Axis("y")),
                             (seven, Axis("y")), ({"a": [(1, 0)]}, Axis("y", log=True))):
            with self.subTest(series=series), self.assertRaises(ValueError):
                lines(series, y_axis=axis)


class TestBarChart(unittest.TestCase):

    def bars(self, svg):
        return [(float(bar.get("x")), float(bar.get("y")), float(bar.get("height")))
                for bar in parsed(svg).iter(SVG + "rect")]

    def test_heights_are_in_proportion(self):
        svg = bar_chart("t", Axis("y"), ["a", "b"], {"s": [1, 3], "r": [2, 0]})
        heights = [height for _, _, height in self.bars(svg)]
        self.assertAlmostEqual(heights[1] / heights[0], 2, places=2)
        self.assertAlmostEqual(heights[2] / heights[0], 3, places=2)
        self.assertEqual(heights[3], 0)
        places = [x for x, _, _ in self.bars(svg)]
        self.assertEqual(places, sorted(places))

    def test_negative_bars_hang_below_zero(self):
        (_, top, _), (_, below, _) = self.bars(
            bar_chart("t", Axis("y"), ["a", "b"], {"s": [5, -5]}))
        self.assertGreater(below, top)

    def test_values_stand_above_the_bars(self):
        svg = bar_chart("t", Axis("y"), ["a"], {"s": [48.6], "r": [1200]})
        self.assertEqual([mark.text for mark in parsed(svg).iter(SVG + "text")
                          if mark.get("class") == "value"], ["48.6", "1,200"])

    def test_what_cannot_be_drawn_is_refused(self):
        linear, log = Axis("y"), Axis("y", log=True)
        for axis, groups, series in (
                (linear, [], {"a": []}), (linear, ["a"], {}),
                (linear, ["a"], {"b": [1, 2]}), (log, ["a"], {"b": [1]})):
            with self.subTest(axis=axis, series=series), self.assertRaises(ValueError):
                bar_chart("t", axis, groups, series)


class TestRedraw(unittest.TestCase):

    def charts(self, folder):
        return {os.path.relpath(os.path.join(at, name), folder):
                read(os.path.join(at, name)) for at, _, names in os.walk(folder)
                for name in names if name.endswith(".svg")}

    def test_every_chart_of_the_evidence_is_redrawn_byte_for_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = evidence_copy(os.path.join(folder, "evidence"))
            committed = self.charts(copy)
            for name in committed:
                os.remove(os.path.join(copy, name))
            status, out, err = call(figures.main, copy)
            self.assertEqual((status, out), (0, ""))
            self.assertEqual(self.charts(copy), committed)
            self.assertEqual(len(err.splitlines()), len(committed))

    def test_one_run_folder_is_redrawn(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "mine")
            shutil.copytree(os.path.join(EVIDENCE, "kvlab"), copy)
            os.remove(os.path.join(copy, "ttft.svg"))
            self.assertEqual(call(figures.main, copy)[0], 0)
            self.assertTrue(os.path.exists(os.path.join(copy, "ttft.svg")))

    def test_nothing_to_draw_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(call(figures.main, folder), (
                1, "", f"figures.py: {folder}: no evidence to draw\n"))
            self.assertEqual(call(figures.main, folder + "/no")[0], 1)

    def test_broken_evidence_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "kvlab")
            shutil.copytree(os.path.join(EVIDENCE, "kvlab"), copy)
            for text in ("{", "[]", "{}", '{"ratio": {"a": 1}}'):
                write(copy, "measured.json", text)
                status, out, err = call(figures.main, copy)
                with self.subTest(text=text):
                    self.assertEqual((status, out, err.count("\n")), (1, "", 1))
                    self.assertIn(f"{copy}: cannot be drawn: ", err)

    def test_needs_no_package(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "kvlab")
            shutil.copytree(os.path.join(EVIDENCE, "kvlab"), copy)
            done = run("-S", "figures.py", copy)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
