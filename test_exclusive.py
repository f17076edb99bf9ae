"""Tests of the exclusive tiers: kvsim.ExclusiveTwoTierCache, scenario --tiers."""

import contextlib
import io
import json
import random
import unittest

import oracle
import scenario
from kvsim import ExclusiveTwoTierCache, LRUCache

GPU, DOCS, DOC_TOKENS = 21520, 10, 5011


def filled(cache, *entries):
    for key, size in entries:
        cache.access(key, size)
    return cache


def state(tiers):
    return tiers.gpu.keys(), tiers.cpu.keys(), tiers.gpu.used, tiers.cpu.used


class TestRemove(unittest.TestCase):
    def test_remove_returns_the_size_and_frees_it(self):
        cache = filled(LRUCache(10), ("a", 3), ("b", 4))
        self.assertEqual(cache.remove("a"), 3)
        self.assertEqual((cache.keys(), cache.used), (["b"], 4))

    def test_remove_of_what_is_not_stored_changes_nothing(self):
        cache = filled(LRUCache(10), ("a", 3))
        with self.assertRaises(KeyError):
            cache.remove("b")
        self.assertEqual((cache.keys(), cache.used), (["a"], 3))

    def test_removing_the_last_entry_leaves_exactly_nothing(self):
        cache = filled(LRUCache(10), ("a", 0.1), ("b", 0.2), ("c", 0.3))
        for key in "abc":
            cache.remove(key)
        self.assertEqual((cache.used, len(cache)), (0, 0))

    def test_oldest_is_evicted_next_and_stays_the_oldest(self):
        cache = filled(LRUCache(2), ("a", 1), ("b", 1), ("a", 1))
        self.assertEqual([cache.oldest(), cache.oldest()], ["b", "b"])
        cache.access("c", 1)
        self.assertEqual(cache.keys(), ["a", "c"])

    def test_oldest_of_an_empty_cache_is_an_error(self):
        with self.assertRaisesRegex(KeyError, "the cache is empty"):
            LRUCache(2).oldest()


class TestExclusiveTwoTierCache(unittest.TestCase):
    def test_hand_worked_trace(self):
        tiers = ExclusiveTwoTierCache(4, 3)
        for key, size, found, gpu, cpu in (
                ("a", 2, "miss", ["a"], []),
                ("b", 2, "miss", ["a", "b"], []),
                ("c", 3, "miss", ["c"], ["b"]),     # a, then b go down: a is lost
                ("b", 2, "cpu", ["b"], ["c"]),      # b leaves before c goes down
                ("b", 2, "gpu", ["b"], ["c"]),
                ("d", 5, "miss", ["b"], ["c"]),     # larger than both
                ("c", 3, "cpu", ["c"], ["b"]),
                ("e", 1, "miss", ["c", "e"], ["b"]),
                ("c", 3, "gpu", ["e", "c"], ["b"])):
            with self.subTest(key=key, size=size):
                self.assertEqual(tiers.access(key, size), found)
                self.assertEqual(state(tiers)[:2], (gpu, cpu))

    def test_entry_too_large_for_the_gpu_goes_to_the_cpu(self):
        tiers = filled(ExclusiveTwoTierCache(2, 9), ("a", 2), ("b", 5), ("c", 4))
        self.assertEqual(state(tiers), (["a"], ["b", "c"], 2, 9))
        self.assertEqual(tiers.access("b", 5), "cpu")
        self.assertEqual(state(tiers), (["a"], ["c", "b"], 2, 9))

    def test_what_goes_down_evicts_the_oldest_of_the_cpu(self):
        tiers = ExclusiveTwoTierCache(2, 3)
        filled(tiers, *((key, 1) for key in "abcde"))
        self.assertEqual(state(tiers)[:2], (["d", "e"], ["a", "b", "c"]))
        tiers.access("f", 1)
        self.assertEqual(state(tiers)[:2], (["e", "f"], ["b", "c", "d"]))

    def test_moved_entry_keeps_its_stored_size(self):
        tiers = filled(ExclusiveTwoTierCache(3, 3), ("a", 3), ("b", 3))
        self.assertEqual(tiers.access("a", 1), "cpu")
        self.assertEqual(state(tiers), (["a"], ["b"], 3, 3))

    def test_refused_access_changes_nothing(self):
        tiers = filled(ExclusiveTwoTierCache(3, 3), ("a", 2), ("b", 2))
        before = state(tiers)
        for key, size, error in (("a", -1, ValueError), ("b", -1, ValueError),
                                 ("c", float("nan"), ValueError),
                                 ("a", "2", TypeError), ("b", True, TypeError),
                                 ("c", None, TypeError), ([], 1, TypeError)):
            with self.subTest(key=key, size=size):
                with self.assertRaises(error):
                    tiers.access(key, size)
                self.assertEqual(state(tiers), before)

    def test_refused_capacities(self):
        for gpu, cpu, error in ((-1, 2, ValueError), (2, -1, ValueError),
                                ("2", 2, TypeError), (2, None, TypeError)):
            with self.subTest(gpu=gpu, cpu=cpu), self.assertRaises(error):
                ExclusiveTwoTierCache(gpu, cpu)

    def test_repr_shows_both_tiers(self):
        tiers = filled(ExclusiveTwoTierCache(4, 3), ("a", 3), ("b", 3))
        self.assertEqual(repr(tiers), "<ExclusiveTwoTierCache: "
                         "gpu <LRUCache: 1 entries, 3 of 4 tokens>, "
                         "cpu <LRUCache: 1 entries, 3 of 3 tokens>>")

    def test_agrees_with_lists_and_holds_each_entry_once(self):
        rng = random.Random(5)
        for trial in range(60):
            gpu, cpu = rng.randrange(12), rng.randrange(12)
            tiers, model = ExclusiveTwoTierCache(gpu, cpu), oracle.ListExclusive(
                gpu, cpu)
            for step in range(80):
                key, size = rng.randrange(9), rng.randrange(6)
                with self.subTest(trial=trial, step=step):
                    self.assertEqual(tiers.access(key, size),
                                     model.access(key, size))
                    self.assertEqual(tiers.gpu.keys(),
                                     [key for key, _ in model.gpu.entries])
                    self.assertEqual(tiers.cpu.keys(),
                                     [key for key, _ in model.cpu.entries])
                    self.assertFalse(set(tiers.gpu.keys())
                                     & set(tiers.cpu.keys()))
                    self.assertLessEqual(tiers.gpu.used, gpu)
                    self.assertLessEqual(tiers.cpu.used, cpu)

    def test_equal_sizes_hit_as_one_tier_of_both(self):
        rng = random.Random(6)
        for gpu, cpu in ((0, 5), (1, 4), (4, 1), (5, 0), (3, 3), (0, 0)):
            tiers, one = ExclusiveTwoTierCache(2 * gpu, 2 * cpu), LRUCache(
                2 * (gpu + cpu))
            for step in range(300):
                key = rng.randrange(12)
                with self.subTest(gpu=gpu, cpu=cpu, step=step):
                    self.assertEqual(tiers.access(key, 2) != "miss",
                                     one.access(key, 2))
                    self.assertEqual(tiers.cpu.keys() + tiers.gpu.keys(),
                                     one.keys())


class TestScenarioTiers(unittest.TestCase):
    def run_scenario(self, *options):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(scenario.main(list(options)), 0)
        return json.loads(out.getvalue())

    def test_exclusive_cpu_need_only_hold_what_the_gpu_cannot(self):
        for cpu, misses in ((6 * DOC_TOKENS, 0), (6 * DOC_TOKENS - 1, DOCS)):
            with self.subTest(cpu=cpu):
                passes = self.run_scenario(
                    "--gpu", str(GPU), "--cpu", str(cpu), "--tiers", "exclusive",
                    "--passes", "fwd,fwd")["passes"]
                self.assertEqual(passes[1]["misses"], misses)

    def test_sweeps_use_the_tiers_asked_for(self):
        for tiers, least in (("inclusive", 50110), ("exclusive", 30066)):
            with self.subTest(tiers=tiers):
                self.assertEqual(self.run_scenario(
                    "--passes", "fwd,fwd", "--tiers", tiers,
                    "--sweep-cpu", "{},{}".format(least - 1, least)),
                    {str(least - 1): DOCS, str(least): 0})
        for tiers, hits in (("inclusive", 0), ("exclusive", DOCS)):
            with self.subTest(tiers=tiers, sweep="gpu"):
                self.assertEqual(self.run_scenario(
                    "--passes", "fwd,fwd", "--tiers", tiers, "--cpu", "30066",
                    "--sweep-gpu", "20043,20044"), {"20043": 0, "20044": hits})

    def test_inclusive_is_the_default(self):
        options = ("--cpu", "56000")
        self.assertEqual(self.run_scenario(*options),
                         self.run_scenario(*options, "--tiers", "inclusive"))
        self.assertNotEqual(
            self.run_scenario("--cpu", "31000"),
            self.run_scenario("--cpu", "31000", "--tiers", "exclusive"))

    def test_unknown_tiers_are_refused(self):
        for value in ("mirror", "", "Exclusive"):
            with self.subTest(value=value):
                with contextlib.redirect_stderr(io.StringIO()) as err, \
                        self.assertRaises(SystemExit) as caught:
                    scenario.main(["--tiers", value])
                self.assertEqual(caught.exception.code, 2)
                self.assertIn("--tiers", err.getvalue())


if __name__ == "__main__":
    unittest.main()
