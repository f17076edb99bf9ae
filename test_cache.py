"""The caches: kvsim's LRUCache and TwoTierCache."""

import importlib.util
import math
import os
import random
import unittest

import oracle
from kvsim import LRUCache, TwoTierCache
from test_support import HOME, read

NO_NUMBERS = ("3", None, [], {}, 3j, True, False)
BAD_NUMBERS = (-1, -0.5, math.nan, -math.inf)


def filled(capacity, *entries):
    cache = LRUCache(capacity)
    for key, size in entries:
        cache.access(key, size)
    return cache


class TestLRUCache(unittest.TestCase):

    def check(self, cache, keys, used):
        self.assertEqual(cache.keys(), keys)
        self.assertEqual(cache.used, used)
        self.assertEqual(len(cache), len(keys))

    def test_empty_cache(self):
        self.check(LRUCache(10), [], 0)

    def test_miss_stores_and_hit_finds(self):
        cache = LRUCache(10)
        self.assertIs(cache.access("a", 3), False)
        self.assertIs(cache.access("a", 3), True)
        self.check(cache, ["a"], 3)

    def test_hit_keeps_the_stored_size_and_evicts_no_neighbour(self):
        cache = LRUCache(10)
        answers = [cache.access("a", 3), cache.access("b", 3), cache.access("b", 7)]
        self.assertEqual(answers, [False, False, True])
        self.check(cache, ["a", "b"], 6)

    def test_hit_with_a_size_above_the_capacity_is_a_hit(self):
        cache = filled(10, ("a", 3))
        self.assertIs(cache.access("a", 11), True)
        self.check(cache, ["a"], 3)

    def test_hit_makes_the_entry_the_most_recent(self):
        cache = filled(3, ("a", 1), ("b", 1), ("c", 1), ("a", 1))
        self.check(cache, ["b", "c", "a"], 3)

    def test_miss_evicts_the_least_recently_used(self):
        cache = filled(3, *((key, 1) for key in "abcabcde"))
        self.check(cache, ["c", "d", "e"], 3)

    def test_miss_evicts_only_until_the_entry_fits(self):
        cache = filled(10, ("a", 2), ("b", 3), ("c", 5), ("d", 4))
        self.check(cache, ["c", "d"], 9)

    def test_exact_fit_evicts_nothing(self):
        self.check(filled(10, ("a", 4), ("b", 6)), ["a", "b"], 10)

    def test_entry_as_large_as_the_capacity_is_stored_alone(self):
        self.check(filled(10, ("a", 4), ("b", 10)), ["b"], 10)

    def test_oversized_entry_is_not_stored_and_evicts_nothing(self):
        cache = filled(10, ("a", 4), ("b", 6))
        self.assertIs(cache.access("big", 11), False)
        self.check(cache, ["a", "b"], 10)

    def test_looking_changes_no_order(self):
        cache = filled(2, ("a", 1), ("b", 1))
        self.assertIn("a", cache)
        self.assertNotIn("c", cache)
        cache.access("c", 1)
        self.check(cache, ["b", "c"], 2)

    def test_keys_is_a_snapshot(self):
        cache = filled(2, ("a", 1), ("b", 1))
        keys = cache.keys()
        for key in cache.keys():
            cache.access(key, 1)
        keys.clear()
        self.check(cache, ["a", "b"], 2)

    def test_capacity_zero_stores_only_what_takes_no_room(self):
        self.check(filled(0, ("a", 1), ("b", 0)), ["b"], 0)

    def test_size_zero_is_stored_in_a_full_cache(self):
        self.check(filled(1, ("a", 1), ("b", 0)), ["a", "b"], 1)

    def test_unbounded_cache_never_evicts(self):
        cache = filled(math.inf, ("a", 5), ("b", math.inf), ("c", 1))
        self.assertEqual(cache.keys(), ["a", "b", "c"])

    def test_fractions_leave_no_dust_behind(self):
        # 0.1 + 0.2 - 0.1 - 0.2 is not 0 in binary fractions.
        cache = filled(0.3, ("a", 0.1), ("b", 0.2), ("c", 0.3), ("d", 0.3))
        self.check(cache, ["d"], 0.3)

    def test_bad_capacity_is_refused(self):
        for error, values in ((TypeError, NO_NUMBERS), (ValueError, BAD_NUMBERS)):
            for value in values:
                with self.subTest(value=value), self.assertRaises(error) as caught:
                    LRUCache(value)
                self.assertIn("capacity must be", str(caught.exception))
                self.assertIn(repr(value), str(caught.exception))

    def test_bad_size_is_refused_and_leaves_the_cache_unchanged(self):
        cache = filled(3, ("a", 1), ("b", 1))
        for error, values in ((TypeError, NO_NUMBERS), (ValueError, BAD_NUMBERS)):
            for value in values:
                for key in ("a", "new"):
                    with self.subTest(value=value, key=key):
                        with self.assertRaises(error) as caught:
                            cache.access(key, value)
                        self.assertIn("size must be", str(caught.exception))
                        self.assertIn(repr(value), str(caught.exception))
                        self.check(cache, ["a", "b"], 2)

    def test_unhashable_key_leaves_the_cache_unchanged(self):
        cache = filled(3, ("a", 3))
        with self.assertRaises(TypeError):
            cache.access([], 3)
        self.check(cache, ["a"], 3)

    def test_repr_tells_entries_use_and_capacity(self):
        self.assertEqual(repr(filled(10, ("a", 3), ("b", 4))),
                         "<LRUCache: 2 entries, 7 of 10 tokens>")

    def test_capacity_is_public(self):
        self.assertEqual(LRUCache(10).capacity, 10)

    def test_random_accesses_agree_with_the_list_model(self):
        for seed in range(60):
            rng = random.Random(seed)
            capacity = rng.randrange(0, 30)
            cache, model = LRUCache(capacity), oracle.ListLRU(capacity)
            for step in range(200):
                key, size = rng.randrange(12), rng.randrange(0, 12)
                with self.subTest(seed=seed, step=step):
                    self.assertEqual(cache.access(key, size),
                                     model.access(key, size))
                    self.check(cache, [key for key, _ in model.entries],
                               model.total())
                    self.assertLessEqual(cache.used, capacity)


class TestTwoTierCache(unittest.TestCase):

    def test_miss_stores_in_both_tiers(self):
        tiers = TwoTierCache(10, 20)
        self.assertEqual(tiers.access("a", 3), "miss")
        self.assertEqual((tiers.gpu.keys(), tiers.cpu.keys()), (["a"], ["a"]))
        self.assertEqual((tiers.gpu.used, tiers.cpu.used), (3, 3))

    def test_gpu_hit_does_not_touch_the_cpu(self):
        tiers = TwoTierCache(10, 20)
        for key in "ab":
            tiers.access(key, 3)
        self.assertEqual(tiers.access("a", 3), "gpu")
        self.assertEqual(tiers.gpu.keys(), ["b", "a"])
        self.assertEqual(tiers.cpu.keys(), ["a", "b"])

    def test_gpu_hit_stores_nothing_in_a_cpu_that_lost_the_entry(self):
        tiers = TwoTierCache(10, 3)
        for key in "ab":
            tiers.access(key, 3)
        self.assertEqual(tiers.access("a", 3), "gpu")
        self.assertEqual(tiers.cpu.keys(), ["b"])

    def test_cpu_hit_is_most_recent_there_and_put_into_the_gpu(self):
        tiers = TwoTierCache(3, 20)
        for key in "abc":
            tiers.access(key, 3)
        self.assertEqual(tiers.access("a", 3), "cpu")
        self.assertEqual(tiers.gpu.keys(), ["a"])
        self.assertEqual(tiers.cpu.keys(), ["b", "c", "a"])

    def test_each_tier_stores_the_size_given(self):
        tiers = TwoTierCache(5, 20)
        for key, size in (("a", 3), ("b", 5), ("a", 2)):
            last = tiers.access(key, size)
        self.assertEqual((last, tiers.gpu.used, tiers.cpu.used), ("cpu", 2, 8))

    def test_entry_too_large_for_the_gpu_is_served_by_the_cpu(self):
        tiers = TwoTierCache(2, 10)
        found = [tiers.access(*read) for read in
                 (("s", 1), ("big", 5), ("big", 5), ("s", 1))]
        self.assertEqual(found, ["miss", "miss", "cpu", "gpu"])

    def test_without_a_cpu_it_is_the_single_tier(self):
        rng = random.Random(5)
        tiers, single = TwoTierCache(20, 0), LRUCache(20)
        for _ in range(500):
            key, size = rng.randrange(12), rng.randrange(1, 9)
            self.assertEqual(tiers.access(key, size) == "gpu",
                             single.access(key, size))
            self.assertEqual(tiers.gpu.keys(), single.keys())

    def test_bad_size_changes_neither_tier(self):
        tiers = TwoTierCache(3, 6)
        for key in "abc":
            tiers.access(key, 2)
        for value in NO_NUMBERS + BAD_NUMBERS:
            for key in ("a", "c", "new"):
                with self.subTest(value=value, key=key):
                    with self.assertRaises((TypeError, ValueError)):
                        tiers.access(key, value)
                    self.assertEqual(tiers.gpu.keys(), ["c"])
                    self.assertEqual(tiers.cpu.keys(), ["a", "b", "c"])

    def test_bad_capacity_of_either_tier_is_refused(self):
        for capacities in ((-1, 5), (5, -1), (math.nan, 5), (5, math.nan)):
            with self.subTest(capacities=capacities), self.assertRaises(ValueError):
                TwoTierCache(*capacities)

    def test_repr_shows_both_tiers(self):
        self.assertEqual(
            repr(TwoTierCache(3, 6)),
            "<TwoTierCache: gpu <LRUCache: 0 entries, 0 of 3 tokens>, "
            "cpu <LRUCache: 0 entries, 0 of 6 tokens>>")

    def test_random_accesses_agree_with_the_list_model(self):
        for seed in range(60):
            rng = random.Random(seed)
            sizes = rng.randrange(0, 20), rng.randrange(0, 40)
            tiers, model = TwoTierCache(*sizes), oracle.ListTiers(*sizes)
            for step in range(200):
                key, size = rng.randrange(12), rng.randrange(0, 12)
                with self.subTest(seed=seed, step=step):
                    self.assertEqual(tiers.access(key, size),
                                     model.access(key, size))
                    for ours, theirs in ((tiers.gpu, model.gpu),
                                         (tiers.cpu, model.cpu)):
                        self.assertEqual(ours.keys(),
                                         [key for key, _ in theirs.entries])
                        self.assertEqual(ours.used, theirs.total())


class TestLoading(unittest.TestCase):
    """A grader loads kvsim by path, or runs its text, without a module."""

    PATH = os.path.join(HOME, "kvsim.py")

    def check(self, names):
        tiers = names["TwoTierCache"](1, 2)
        self.assertEqual([tiers.access(key, 1) for key in "aba"],
                         ["miss", "miss", "cpu"])

    def test_by_path_without_registering_a_module(self):
        spec = importlib.util.spec_from_file_location("learner_kvsim", self.PATH)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.check(vars(module))

    def test_pasted(self):
        names = {}
        exec(read(self.PATH).decode("utf-8"), names)
        self.check(names)


if __name__ == "__main__":
    unittest.main()
