"""Tests of costs.py: summaries, bounds and rules, on samples made by hand."""

import random
import unittest

import costs
from timings import FIRST_SEED, PARTS, POLICIES, SCANS, Samples
from verdicts import Facts, Ratio

SUPPORTED, REFUTED, INCONCLUSIVE = "Supported", "Refuted", "Inconclusive"
TRACES = SCANS["admission"].columns["trace"]


def admission(pace, rounds=6, seeds=(7, 11), budgets=(8192,), requests=2):
    """Return Samples in which a request takes pace(seed, budget, trace, policy)."""
    elapsed = {}
    for seed in seeds:
        for budget in budgets:
            for trace in TRACES:
                for policy in POLICIES:
                    for part in ("query", *(PARTS if seed == FIRST_SEED else ())):
                        for index in range(requests):
                            key = (seed, budget, trace, policy, part, index)
                            one = pace(*key[:4]) if part == "query" else \
                                0.25 * (1 + PARTS.index(part))
                            elapsed[key] = [one * (1 + number)
                                            for number in range(rounds)]
    return Samples("admission", elapsed, {})


def counted(rows, seeds=(7, 11), budgets=(8192,)):
    """Return Facts with the rows of each policy, the same in every trace."""
    return Facts(projected_rows={
        (seed, budget, trace, policy, "query"): rows[policy] for seed in seeds
        for budget in budgets for trace in TRACES for policy in POLICIES})


ROWS = {"none": 100, "all": 100, "longest": 50, "shared": 40}


def paces(**by_policy):
    """Return the pace of policies over `none`; 0.5 where none is given."""
    return lambda seed, budget, trace, policy: {
        "none": 1, **by_policy}.get(policy, 0.5)


class TestAdmission(unittest.TestCase):
    def test_a_trace_is_the_sum_of_its_requests_in_one_round(self):
        samples = admission(paces(), rounds=3, seeds=(7,), requests=4)
        sums = costs.trace_sums(samples)
        self.assertEqual(sums[7, 8192, "hot-prefix", "none", "query"], [4, 8, 12])
        self.assertEqual(sums[7, 8192, "hot-prefix", "none", "gather"], [2, 4, 6])

    def test_seeds_of_a_round_count_one_after_the_other(self):
        samples = admission(lambda seed, *_: seed, rounds=2, requests=1)
        series = costs.trace_series(samples)
        self.assertEqual(series[8192, "hot-prefix", "all"], [7, 11, 14, 22])

    def test_summary_has_time_beside_rows(self):
        lines = costs.summary_csv(admission(paces(longest=0.75), rounds=3),
                                  counted(ROWS)).split("\n")
        self.assertEqual(lines[0], "budget,trace,policy,projected_rows,rows_over_none,"
                         "trace_ms,time_over_none,lookup_ms,gather_ms,compute_ms,"
                         "save_ms,other_ms")
        self.assertEqual(lines[2], "8192,alternating-branches,longest,50,0.500000,"
                         "3.000000,0.750000,1.000000,2.000000,3.000000,4.000000,"
                         "5.000000")
        self.assertEqual(len(lines), 1 + 16 + 1)

    def test_what_nobody_recorded_is_left_empty(self):
        samples = admission(paces(), seeds=(11, 23))
        self.assertTrue(costs.summary_csv(samples).split("\n")[1].endswith(",,,,,"))
        self.assertIn(",all,,,", costs.summary_csv(samples))
        self.assertIn("not recorded", costs.headline(samples, Facts()))

    def test_rows_that_differ_between_seeds_are_not_shown(self):
        facts = counted(ROWS)
        facts.projected_rows[11, 8192, "hot-prefix", "all", "query"] = 99
        samples = admission(paces())
        label = 8192, "hot-prefix", "all"
        self.assertIsNone(costs.projected_rows(samples, facts, label))
        self.assertEqual(costs.projected_rows(samples, counted(ROWS), label), 100)

    def test_fewer_rows_need_not_mean_less_time(self):
        slow_once = lambda seed, budget, trace, policy: (
            1.03 if (trace, policy) == ("three-scopes", "shared") else
            1 if policy == "none" else 0.5)
        for name, pace, rows, expected in (
                ("one takes longer", slow_once, ROWS, SUPPORTED),
                ("all are faster", paces(), ROWS, REFUTED),
                ("longer by too little", paces(shared=1.02), ROWS, INCONCLUSIVE),
                ("as long", paces(shared=1), ROWS, INCONCLUSIVE),
                ("longer with as many rows", paces(all=2), ROWS, REFUTED),
                ("nothing has fewer rows", paces(all=2), dict.fromkeys(POLICIES, 9),
                 INCONCLUSIVE)):
            samples = admission(pace)
            with self.subTest(name):
                self.assertEqual(costs.takes_longer(samples, counted(rows)), expected)
        self.assertEqual(costs.takes_longer(admission(slow_once), Facts()),
                         INCONCLUSIVE)
        of_none = Facts(projected_rows={
            key: rows for key, rows in counted(ROWS).projected_rows.items()
            if key[3] != "shared"})
        self.assertEqual(costs.takes_longer(admission(slow_once), of_none),
                         INCONCLUSIVE)
        few = admission(slow_once, rounds=2)
        self.assertEqual(costs.takes_longer(few, counted(ROWS)), INCONCLUSIVE)

    def test_errors_are_recorded_for_a_trace_as_a_whole(self):
        samples = admission(paces(), seeds=(7,))
        errors = {key[:5] if key[4] == "query" else key[:4]: 1e-15
                  for key in samples.elapsed_ms}
        facts = Facts(errors=errors, tolerance=1e-12)
        self.assertEqual(costs.verdicts(samples, facts)["H1"], SUPPORTED)
        errors[7, 8192, "hot-prefix", "all"] = 1e-11
        self.assertEqual(costs.verdicts(samples, facts)["H1"], REFUTED)
        del errors[7, 8192, "hot-prefix", "all"]
        self.assertEqual(costs.verdicts(samples, facts)["H1"], INCONCLUSIVE)


def break_even(ratios, rounds=6, lengths=(4, 8, 16)):
    """Return Samples with {hidden: ratio of each length}, for every policy."""
    elapsed = {}
    for hidden, found in ratios.items():
        for length, over in zip(lengths, found):
            for policy in POLICIES:
                one = 2.0 if policy == "none" else 2.0 * over
                elapsed[policy, hidden, length] = [one] * rounds
    return Samples("break_even", elapsed, {})


class TestBreakEven(unittest.TestCase):
    def test_summary_has_a_ratio_for_each_policy(self):
        self.assertEqual(costs.summary_csv(break_even({16: (1.5, 0.5)})), "\n".join((
            "hidden,prefix_tokens,none_ms,all_ms,longest_ms,shared_ms,all_over_none,"
            "longest_over_none,shared_over_none",
            "16,4,2.000000,3.000000,3.000000,3.000000,1.500000,1.500000,1.500000",
            "16,8,2.000000,1.000000,1.000000,1.000000,0.500000,0.500000,0.500000", "")))

    def test_first_length_below_1(self):
        samples = break_even({16: (1.1, 1, 0.9), 64: (0.9, 1.1, 0.9), 256: (1, 1, 1)})
        for hidden, expected in ((16, 16), (64, 4), (256, None)):
            self.assertEqual(costs.first_below(samples, "shared", hidden), expected)
        self.assertIn("| longest | 256 | none of these |",
                      costs.analysis(samples, Facts()))

    def test_reuse_pays_no_later_in_a_wider_model(self):
        for ratios, expected in (
                ({16: (1.1, 1.1, 0.9), 64: (1.1, 0.9, 0.9)}, SUPPORTED),
                ({16: (1.1, 0.9, 0.9), 64: (1.1, 0.9, 0.9)}, SUPPORTED),
                ({16: (0.9, 0.9, 0.9), 64: (1.1, 0.9, 0.9)}, REFUTED),
                ({16: (0.9, 0.9, 0.9), 64: (1.1, 1.1, 1.1)}, REFUTED)):
            with self.subTest(ratios=ratios):
                self.assertEqual(costs.pays_sooner(break_even(ratios)), expected)
                self.assertEqual(costs.pays_sooner(break_even(ratios, rounds=5)),
                                 INCONCLUSIVE)
        moved = break_even({16: (1.1, 0.9, 0.9)})
        moved.elapsed_ms["longest", 16, 8][3:] = [5.0] * 3
        self.assertEqual(costs.pays_sooner(moved), INCONCLUSIVE)

    def test_each_bound_of_a_hot_query_decides(self):
        bounds = {(16, 8): 1.25, (16, 32): 0.95, (64, 64): 0.5, (256, 128): 0.25}

        def judged(**changed):
            elapsed = {}
            for hidden in (16, 64, 256):
                for length in (8, 32, 64, 128):
                    over = changed.get(f"h{hidden}_{length}",
                                       bounds.get((hidden, length), 1) - 0.01)
                    for policy in POLICIES:
                        one = 1.0 if policy == "none" else over
                        elapsed[policy, hidden, length] = [one] * 6
            return costs.verdicts(Samples("break_even", elapsed, {}), Facts())

        self.assertEqual(list(judged()), ["H1", "H7", "H8"])
        self.assertEqual(judged()["H7"], SUPPORTED)
        for (hidden, length), bound in bounds.items():
            for over, expected in ((bound, INCONCLUSIVE), (bound + 0.01, REFUTED)):
                with self.subTest(hidden=hidden, length=length, over=over):
                    self.assertEqual(judged(**{f"h{hidden}_{length}": over})["H7"],
                                     expected)


def limit(times, rounds=6):
    """Return Samples of {T: (no cache, preallocated, fused, bare)}."""
    paths = SCANS["limit"].columns["path"]
    return Samples("limit", {(path, tokens): [float(value)] * rounds
                             for tokens, values in times.items()
                             for path, value in zip(paths, values)
                             if value is not None}, {})


class TestLimit(unittest.TestCase):
    GOOD = {16: (9, 10, 7, 3), 64: (30, 20, 14, 5), 256: (1000, 70, 49, 20),
            1024: (None, 100, 90, 40), 4096: (None, 300, 290, 150)}

    def test_summary_leaves_out_what_was_not_measured(self):
        lines = costs.summary_csv(limit(self.GOOD)).split("\n")
        self.assertEqual(lines[0], "sequence_length,no_cache_ms,preallocated_ms,"
                         "fused_ms,bare_ms,no_cache_over_fused,fused_over_preallocated,"
                         "preallocated_over_bare,fused_over_bare")
        self.assertEqual(lines[2], "64,30.000000,20.000000,14.000000,5.000000,2.142857,"
                         "0.700000,4.000000,2.800000")
        self.assertEqual(lines[4], "1024,,100.000000,90.000000,40.000000,,0.900000,"
                         "2.500000,2.250000")

    def test_each_bound_decides(self):
        for change, expected in (
                ({}, (SUPPORTED, SUPPORTED, SUPPORTED)),
                ({16: (9, 10, 7.3, 3)}, (REFUTED, SUPPORTED, SUPPORTED)),
                ({64: (30, 20, 14.4, 5)}, (INCONCLUSIVE, SUPPORTED, SUPPORTED)),
                ({256: (1000, 70, 49, 13)}, (SUPPORTED, REFUTED, SUPPORTED)),
                ({1024: (None, 100, 90, 35)}, (SUPPORTED, REFUTED, SUPPORTED)),
                ({4096: (None, 300, 290, 140)}, (SUPPORTED, REFUTED, SUPPORTED)),
                ({4096: (None, 300, 299, 150)}, (SUPPORTED, SUPPORTED, SUPPORTED)),
                ({256: (900, 70, 49, 20)}, (SUPPORTED, SUPPORTED, REFUTED)),
                ({256: (980, 70, 49, 20)}, (SUPPORTED, SUPPORTED, INCONCLUSIVE))):
            found = costs.verdicts(limit({**self.GOOD, **change}), Facts())
            with self.subTest(change=change):
                self.assertEqual(tuple(found[name] for name in ("H9", "H10", "H11")),
                                 expected)

    def test_a_size_that_was_not_measured_decides_nothing(self):
        for left_out, names in ((16, ["H9"]), (1024, ["H10"]),
                                (256, ["H9", "H10", "H11"])):
            less = {tokens: values for tokens, values in self.GOOD.items()
                    if tokens != left_out}
            found = costs.verdicts(limit(less), Facts())
            with self.subTest(left_out):
                self.assertEqual([name for name, verdict in found.items()
                                  if verdict == INCONCLUSIVE], ["H1", *names])

    def test_bounds_are_listed_with_what_became_of_them(self):
        found = costs.analysis(limit({**self.GOOD, 16: (9, 10, 7.3, 3),
                                      64: (30, 25, 18, 9)}), Facts())
        for line in ("| H9 | fused / preallocated_cache | 16 | at most 0.72 | 0.730 | "
                     "0.730 | 0.730 | missed |",
                     "| H9 | fused / preallocated_cache | 64 | at most 0.72 | 0.720 | "
                     "0.720 | 0.720 | undecided |",
                     "| H11 | no_cache / fused | 256 | at least 20 | 20.408 | 20.408 | "
                     "20.408 | reached |"):
            self.assertIn(f"\n{line}\n", found)
        few = costs.analysis(limit(self.GOOD, rounds=5), Facts())
        self.assertIn("| at least 20 | 20.408 |  |  | few |", few)


class TestWithin(unittest.TestCase):
    def test_bounds_on_both_sides(self):
        def steady(low, high):
            return Ratio((low + high) / 2, (low, high), 1, 1)

        below, above = costs.Bound("H", "a", 2), costs.Bound("H", "a", 2, "above")
        for found, bound, expected in (
                (steady(1, 1.9), below, SUPPORTED), (steady(1, 1.9), above, REFUTED),
                (steady(2.1, 3), below, REFUTED), (steady(2.1, 3), above, SUPPORTED),
                (steady(1, 3), below, INCONCLUSIVE),
                (Ratio(1, None, 1, 1), below, INCONCLUSIVE),
                (Ratio(1, (1, 1), 1, 1.2), below, INCONCLUSIVE)):
            with self.subTest(found=found, bound=bound):
                self.assertEqual(costs.within({"a": found}, [bound]), expected)
        self.assertEqual(costs.within({}, [below]), INCONCLUSIVE)
        other = costs.Bound("H", "b", 2)
        self.assertEqual(costs.within({"a": steady(1, 1.9), "b": steady(2.1, 3)},
                                      [below, other]), REFUTED)


class TestAnalysis(unittest.TestCase):
    def test_sections_of_each_experiment(self):
        for samples, sections in (
                (admission(paces()), ["Verdicts", "Medians"]),
                (break_even({16: (1.1, 0.9)}),
                 ["Verdicts", "Ratios to reach", "Where reuse starts to pay",
                  "Medians"]),
                (limit(TestLimit.GOOD), ["Verdicts", "Ratios to reach", "Medians"])):
            text = costs.analysis(samples, counted(ROWS))
            found = [line[3:] for line in text.split("\n") if line.startswith("## ")]
            with self.subTest(samples.experiment):
                self.assertEqual(found, [*sections, "Ratios within each round",
                                         "Samples",
                                         "What this shows, and what it does not"])
                self.assertTrue(text.endswith("\n") and "\n\n\n" not in text)

    def test_drift_and_extremes_of_a_trace(self):
        samples = admission(lambda *_: 1, rounds=6, seeds=(7,), requests=1)
        self.assertIn("| 8192 | hot-prefix | all | 1.0000 | 3.5000 | 5.7500 | 6.0000 | "
                      "+33.3 % |", costs.analysis(samples, Facts()))

    def test_predictions_of_each_experiment(self):
        for samples, expected in (
                (admission(paces()), ["H1", "H6"]),
                (break_even({16: (1.1, 0.9)}), ["H1", "H7", "H8"]),
                (limit(TestLimit.GOOD), ["H1", "H9", "H10", "H11"])):
            self.assertEqual(list(costs.verdicts(samples, Facts())), expected)

    def test_headline_names_experiment_sizes_and_verdicts(self):
        lines = costs.headline(limit(TestLimit.GOOD), Facts()).split("\n")
        self.assertEqual(lines[:3], ["limit", "- Sequence lengths: 16, 64, 256, 1024, "
                                     "4096", "- Samples in each group: 6"])
        self.assertIn("- H9 fused takes at most 0.72 of preallocated up to 256 tokens: "
                      "Supported", lines)

    def test_order_of_rows_does_not_matter(self):
        samples = admission(paces(shared=1.5), rounds=6)
        groups = list(samples.elapsed_ms.items())
        random.Random(3).shuffle(groups)
        shuffled = Samples("admission", dict(groups), {})
        for make in (costs.summary_csv, costs.analysis):
            self.assertEqual(make(shuffled, counted(ROWS)),
                             make(samples, counted(ROWS)))


if __name__ == "__main__":
    unittest.main()
