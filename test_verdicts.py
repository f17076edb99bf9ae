"""Tests of verdicts.py: reading, statistics, rules, summaries, analyses."""

import os
import random
import unittest

import oracle
import timings
import verdicts
from test_timings import HEADER, csv_text
from verdicts import Facts, Ratio

HOME = os.path.dirname(os.path.abspath(__file__))


def samples_of(experiment, groups):
    return timings.read_samples(csv_text(experiment, groups), "raw.csv")


def batch_sizes(times, rounds=6):
    """Return a batch-size scan {B: (sequential ms, batched ms)} at T = 128."""
    groups = {}
    for batch, pair in times.items():
        for path, elapsed in zip(("sequential", "batched"), pair):
            groups[path, batch, 128] = [elapsed] * rounds
    return samples_of("batch_size_scan", groups)


def steady(median, low=None, high=None):
    """Return a Ratio that did not move."""
    interval = (median if low is None else low, median if high is None else high)
    return Ratio(median, interval, median, median)


FEW = Ratio(5.0, None, 5.0, 5.0)
MOVED = Ratio(5.0, (4.0, 6.0), 5.0, 4.0)


class TestPercentile(unittest.TestCase):
    def test_percentiles_interpolate_linearly(self):
        for values, share, expected in (
                (range(1, 31), 0.95, 28.55), (range(1, 21), 0.95, 19.05),
                (range(1, 31), 0.5, 15.5), ([3], 0.95, 3), ([1, 2], 0, 1),
                ([1, 2], 1, 2), ([1, 2, 4], 0.5, 2), ([0.1, 0.3], 0.5, 0.2)):
            shuffled = random.Random(5).sample(list(values), len(values))
            with self.subTest(values=values, share=share):
                self.assertEqual(verdicts.percentile(shuffled, share), expected)

    def test_percentiles_equal_the_oracle_to_the_last_bit(self):
        rng = random.Random(7)
        for count in range(1, 40):
            values = [round(rng.uniform(0.1, 9), 6) for _ in range(count)]
            for share in (0.05, 0.5, 0.95):
                self.assertEqual(verdicts.percentile(values, share),
                                 oracle.percentile(values, share))


class TestMedianInterval(unittest.TestCase):
    def test_ranks_are_those_of_the_published_table(self):
        # Ranks of the 95 % interval of the median, from binomial tables.
        for count, ranks in ((5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)),
                             (10, (2, 9)), (20, (6, 15)), (25, (8, 18)),
                             (30, (10, 21)), (50, (18, 33)), (100, (40, 61))):
            values = random.Random(count).sample(range(1, count + 1), count)
            with self.subTest(count=count):
                self.assertEqual(verdicts.median_interval(values), ranks)

    def test_interval_holds_at_least_95_percent_of_the_coins(self):
        from math import comb
        for count in range(6, 60):
            low, high = verdicts.median_interval(range(1, count + 1))
            self.assertEqual(low + high, count + 1)
            for rank, fits in ((low, True), (low + 1, False)):
                below = sum(comb(count, k) for k in range(rank))
                self.assertEqual(40 * below <= 2 ** count, fits, (count, rank))


class TestRatio(unittest.TestCase):
    def test_ratios_are_taken_within_each_round(self):
        # A round that is slow for both leaves their ratio alone.
        over = [2, 20, 2, 200, 2, 2, 2]
        under = [1, 10, 1, 100, 1, 1, 4]
        self.assertEqual(verdicts.ratio(over, under), Ratio(2, (0.5, 2), 2, 2))

    def test_halves_are_of_rounds_and_the_middle_belongs_to_the_second(self):
        found = verdicts.ratio([1, 1, 1, 3, 3, 5, 5], [1] * 7)
        self.assertEqual((found.first_half, found.second_half), (1, 4))

    def test_single_round_has_both_halves_and_no_interval(self):
        self.assertEqual(verdicts.ratio([3], [2]), Ratio(1.5, None, 1.5, 1.5))

    def test_sides_of_a_bound(self):
        for found, bound, expected in (
                (steady(1.2, 1.1, 1.3), 1, "above"),
                (steady(1.2, 1.0, 1.3), 1, "undecided"),
                (steady(0.9, 0.8, 1.0), 1, "undecided"),
                (steady(0.9, 0.8, 0.99), 1, "below"),
                (steady(1.2, 1.1, 1.3), 2, "below"),
                (FEW, 1, "few"), (MOVED, 1, "moved"),
                (Ratio(1.2, (1.1, 1.3), 1.0, 1.1), 1, "above"),
                (Ratio(1.2, (1.1, 1.3), 1.0, 0.9), 1, "above"),
                (Ratio(1.2, (1.1, 1.3), 1.0, 1.11), 1, "moved"),
                (Ratio(1.2, (1.1, 1.3), 1.0, 0.89), 1, "moved")):
            with self.subTest(found=found, bound=bound):
                self.assertEqual(verdicts.side(found, bound), expected)

    def test_drift_compares_the_last_five_with_the_first_five(self):
        for values, expected in (([2] * 5 + [9] * 20 + [3] * 5, 0.5),
                                 ([4, 4, 4, 9, 9, 1, 2, 2, 2, 9], -0.5),
                                 ([1, 1, 2, 3, 3, 3, 9, 5, 5, 6, 7, 7], 2),
                                 ([1, 2, 3], 0)):
            with self.subTest(values=values):
                self.assertEqual(verdicts.drift(values), expected)


class TestRules(unittest.TestCase):
    def test_the_slower_over_the_faster(self):
        above, below = steady(1.1), steady(0.9)
        undecided = steady(1.1, 0.9, 1.3)
        for ratios, expected in (
                ([above, above], "Supported"), ([above, below], "Refuted"),
                ([above, undecided], "Inconclusive"), ([FEW], "Inconclusive"),
                ([undecided, below], "Refuted"), ([above, MOVED], "Inconclusive"),
                ([MOVED, below], "Refuted"), ([above], "Supported")):
            with self.subTest(ratios=ratios):
                self.assertEqual(verdicts.beats(ratios), expected)

    def test_speed_up_narrows(self):
        def scan(*medians):
            return [steady(median) for median in medians]

        for name, ratios, expected in (
                ("published", scan(1.683, 1.817, 1.6, 1.5, 1.362), "Supported"),
                ("falls from the start", scan(1.9, 1.5), "Supported"),
                ("regains 2 per cent", scan(1.8, 1.5, 1.53), "Supported"),
                ("regains more", scan(1.8, 1.5, 1.54), "Inconclusive"),
                ("peak at the end", scan(1.3, 1.4), "Refuted"),
                ("peak twice", scan(1.4, 1.2, 1.2, 1.2), "Supported"),
                ("a median at 2", [steady(2.0, 1.9, 2.1), *scan(1.4)],
                 "Inconclusive"),
                ("an interval at 2", [steady(2.1, 2.0, 2.2), *scan(1.4)], "Refuted"),
                ("one length", scan(1.4), "Inconclusive"),
                ("one length above 2", scan(2.4), "Refuted"),
                ("moved", [steady(1.9), MOVED], "Inconclusive"),
                ("moved, above 2 elsewhere", [steady(2.4), MOVED], "Refuted"),
                ("few", [FEW, FEW], "Inconclusive")):
            with self.subTest(name):
                self.assertEqual(verdicts.narrows(ratios), expected)

    def test_throughput_levels_off(self):
        for gains, threshold, rounds, expected in (
                ([0.61, 0.36, -0.01], 0.1, 6, "Supported"),
                ([0.61, 0.36, -0.01], 0.1, 5, "Inconclusive"),
                ([0.61, 0.36, 0.10], 0.1, 6, "Inconclusive"),
                ([0.61, 0.36, 0.0999], 0.1, 6, "Supported"),
                ([0.09, 0.36], 0.1, 6, "Refuted"), ([0.36], 0.1, 6, "Inconclusive"),
                ([], 0.1, 6, "Inconclusive"), ([0.09, 0.08], 0.05, 6, "Inconclusive"),
                ([0.61, 0.05, 0.3], 0.1, 30, "Supported")):
            with self.subTest(gains=gains, threshold=threshold, rounds=rounds):
                self.assertEqual(verdicts.levels_off(gains, threshold, rounds),
                                 expected)

    def test_paths_agree_within_the_tolerance_in_every_group(self):
        nan = float("nan")
        for errors, tolerance, expected in (
                ({"a": 0.0, "b": 1e-8}, 1e-8, "Supported"),
                ({"a": 0.0, "b": 1.1e-8}, 1e-8, "Refuted"),
                ({"a": 0.0, "b": nan}, 1e-8, "Refuted"),
                ({"a": 0.0}, 1e-8, "Inconclusive"), ({}, None, "Inconclusive"),
                ({"a": 0.0, "b": 0.0}, None, "Inconclusive")):
            with self.subTest(errors=errors, tolerance=tolerance):
                self.assertEqual(verdicts.agrees(errors, ["a", "b"], tolerance),
                                 expected)


class TestKnee(unittest.TestCase):
    def test_knee_is_the_first_gain_below_the_threshold(self):
        # Throughput 1, 1.5, 1.65, 3.3: gains of 50, 10 and 100 per cent.
        times = {1: (1, 1), 2: (1, 2 / 1.5), 4: (1, 4 / 1.65), 8: (1, 8 / 3.3)}
        samples = batch_sizes(times)
        self.assertEqual(verdicts.throughput_gains(samples), [0.5, 0.1, 1.0])
        for threshold, expected in ((0.1, None), (0.11, 4), (0.5, 4), (0.51, 2),
                                    (0, None)):
            with self.subTest(threshold=threshold):
                self.assertEqual(verdicts.knee(samples, threshold), expected)

    def test_a_single_batch_size_has_no_gain_and_no_knee(self):
        samples = batch_sizes({4: (4, 2)})
        self.assertEqual(verdicts.throughput_gains(samples), [])
        self.assertIsNone(verdicts.knee(samples, 0.1))
        self.assertIn("\nKnee: Not reached in B <= 4\n",
                      verdicts.analysis(samples, Facts()))

    def test_gains_follow_the_size_and_not_the_order_of_the_file(self):
        times = {8: (8, 4), 2: (2, 2), 4: (4, 3)}
        self.assertEqual([row["batch_size"] for row in
                          verdicts.size_summary(batch_sizes(times))], [2, 4, 8])


class TestSummary(unittest.TestCase):
    def test_cache_strategy(self):
        samples = samples_of("cache_strategy", {
            ("no_cache", 1, 16): [8, 1, 2], ("dynamic_cache", 1, 16): [3, 1, 0.5],
            ("preallocated_cache", 1, 16): [0.8, 9, 0.1]})
        self.assertEqual(
            verdicts.summary_csv(samples),
            "sequence_length,no_cache_ms,dynamic_ms,preallocated_ms,"
            "no_cache_over_preallocated,dynamic_over_preallocated\n"
            "16,2.000000,1.000000,0.800000,2.500000,1.250000\n")

    def test_batch_length(self):
        samples = samples_of("batch_length_scan", {
            ("sequential", 2, 64): [6], ("batched", 2, 64): [4],
            ("sequential", 2, 16): [3], ("batched", 2, 16): [2]})
        self.assertEqual(
            verdicts.summary_csv(samples),
            "sequence_length,sequential_ms,batched_ms,speedup,positions_per_second\n"
            "16,3.000000,2.000000,1.500000,16000.000000\n"
            "64,6.000000,4.000000,1.500000,32000.000000\n")

    def test_batch_size(self):
        samples = samples_of("batch_size_scan", {
            ("sequential", 1, 128): [1, 1], ("batched", 1, 128): [2, 3],
            ("sequential", 4, 128): [9, 9], ("batched", 4, 128): [4, 4]})
        self.assertEqual(
            verdicts.summary_csv(samples),
            "batch_size,batch_p50_ms,batch_p95_ms,p50_per_sequence_ms,"
            "positions_per_second,sequential_over_batch,throughput_gain\n"
            "1,2.500000,2.950000,2.500000,51200.000000,0.400000,\n"
            "4,4.000000,4.000000,1.000000,128000.000000,2.250000,1.500000\n")

    def test_published_medians_give_the_published_summary_and_knee(self):
        path = os.path.join(HOME, "fixtures", "published-batch-size.csv")
        with open(path, encoding="utf-8") as file:
            samples = timings.read_samples(file.read(), path)
        rows = list(verdicts.size_summary(samples))
        self.assertEqual([row["batch_p50_ms"] for row in rows],
                         [1.442, 1.789, 2.627, 5.264])
        for row, published in zip(rows[1:], (0.6127, 0.3619, -0.0021)):
            self.assertAlmostEqual(row["throughput_gain"], published, delta=0.001)
        self.assertAlmostEqual(rows[0]["sequential_over_batch"], 0.938, delta=0.001)
        self.assertAlmostEqual(rows[3]["sequential_over_batch"], 2.064, delta=0.001)
        self.assertAlmostEqual(rows[2]["p50_per_sequence_ms"], 0.657, delta=0.001)
        self.assertEqual(verdicts.knee(samples, 0.10), 8)


class TestAnalysis(unittest.TestCase):
    GROUPS = {("sequential", 2, 16): [3.0] * 6, ("batched", 2, 16): [2.0] * 6,
              ("sequential", 2, 64): [5.0, 5, 5, 5, 5, 6], ("batched", 2, 64): [4] * 6}

    def test_every_prediction_that_bears_gets_a_verdict(self):
        errors = dict.fromkeys(self.GROUPS, 1e-15)
        facts = Facts(errors=errors, tolerance=1e-8)
        samples = samples_of("batch_length_scan", self.GROUPS)
        self.assertEqual(verdicts.verdicts(samples, facts),
                         {"H1": "Supported", "H3": "Supported", "H4": "Supported"})
        caches = samples_of("cache_strategy", {
            ("no_cache", 1, 16): [1.0] * 6, ("dynamic_cache", 1, 16): [3.0] * 6,
            ("preallocated_cache", 1, 16): [4.0] * 6})
        self.assertEqual(verdicts.verdicts(caches, Facts()),
                         {"H1": "Inconclusive", "H2": "Refuted"})
        sizes = batch_sizes({1: (1, 1), 2: (1, 1.5), 4: (1, 3)})
        self.assertEqual(verdicts.verdicts(sizes, Facts()),
                         {"H1": "Inconclusive", "H5": "Supported"})
        self.assertEqual(verdicts.verdicts(sizes, Facts(gain_threshold=0.5))["H5"],
                         "Refuted")

    def test_analysis_shows_facts_verdicts_intervals_and_samples(self):
        facts = Facts("float64", 1, dict.fromkeys(self.GROUPS, 2.5e-15), 1e-8,
                      {"MALLOC_B": "2", "MALLOC_A": "1"})
        text = verdicts.analysis(samples_of("batch_length_scan", self.GROUPS), facts)
        for line in (
                "- Batch sizes: 2", "- Sequence lengths: 16, 64",
                "- Samples in each group: 6", "- dtype: float64", "- BLAS threads: 1",
                "- Largest error against the oracle: 2.50e-15, allowed 1e-08",
                "- Allocator variables: MALLOC_A=1, MALLOC_B=2",
                "- H3 batched beats sequential at B = 2 at every length: Supported",
                "| sequence_length | sequential_ms | batched_ms | speedup "
                "| positions_per_second |\n|---|---|---|---|---|\n"
                "| 16 | 3.000 | 2.000 | 1.500 | 16000 |",
                "| sequential / batched | 2 | 64 | 1.250 | 1.250 | 1.500 | 1.250 "
                "| 1.250 | above |",
                "| sequential | 2 | 64 | 5.000 | 5.000 | 5.750 | 6.000 | +0.0 % "
                "| not recorded |"):
            with self.subTest(line):
                self.assertIn(f"\n{line}\n", text)
        self.assertNotIn("Gain threshold", text)
        self.assertNotIn("Knee", text.replace("knee", "").split("\n##")[0])

    def test_what_nobody_recorded_is_said_to_be_so(self):
        text = verdicts.analysis(batch_sizes({1: (1, 1), 2: (1, 4)}), Facts())
        for line in ("Knee: B=2", "- dtype: not recorded",
                     "- BLAS threads: not recorded", "- Gain threshold: 0.1",
                     "- Largest error against the oracle: not recorded",
                     "- Allocator variables: not recorded",
                     "- H1 the paths agree: Inconclusive",
                     "| 2 | 4.000 | 4.000 | 2.000 | 64000 | 0.250 | -50.00 % |"):
            with self.subTest(line):
                self.assertIn(f"\n{line}\n", text)
        self.assertIn("- Allocator variables: none set\n", verdicts.analysis(
            batch_sizes({1: (1, 1)}), Facts(malloc={})))

    def test_few_samples_leave_the_interval_empty(self):
        text = verdicts.analysis(batch_sizes({1: (2, 1)}, rounds=5), Facts())
        self.assertIn("| sequential / batched | 1 | 128 | 2.000 |  |  | 2.000 "
                      "| 2.000 | few |", text)

    def test_page_faults_are_medians(self):
        text = HEADER + ",minor_faults\n" + "".join(
            f"batch_size_scan,{path},1,8,{sample},1.5,{sample * 10}\n"
            for path in ("sequential", "batched") for sample in (1, 2))
        samples = timings.read_samples(text, "x")
        self.assertIn("| +0.0 % | 15 |\n", verdicts.analysis(samples, Facts()))

    def test_headline_is_the_head_of_the_analysis(self):
        samples = batch_sizes({1: (1, 1), 2: (1, 4)})
        lines = verdicts.headline(samples, Facts()).strip().split("\n")
        self.assertEqual(lines[:2], ["batch_size_scan", "Knee: B=2"])
        text = verdicts.analysis(samples, Facts())
        self.assertTrue(all(f"\n{line}\n" in text for line in lines[1:]))


if __name__ == "__main__":
    unittest.main()
