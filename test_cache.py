"""The caches: kvsim's LRUCache and TwoTierCache, decoder's PrefixCache."""

import importlib.util
import math
import os
import random
import unittest
from collections import OrderedDict

try:
    import numpy as np
    from decoder import Decoder, PrefixCache, checkpoint_bytes
except ImportError:
    np = None

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

    @unittest.skipIf(np is None, "needs NumPy")
    def test_small_numpy_integers_do_not_overflow(self):
        cache = LRUCache(np.int32(100000))
        for key in range(30):
            cache.access(key, np.uint16(5011))
        self.check(cache, list(range(11, 30)), 19 * 5011)

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

    def test_runs_when_its_text_is_executed(self):
        names = {}
        exec(read(self.PATH).decode("utf-8"), names)
        self.check(names)


POLICIES = ("none", "all", "longest", "shared")
TOKEN_BYTES = 528           # 2 layers x (K 16 x 8 + V 16 x 8 + position 8)
HOT, COLD = list(range(1, 9)), list(range(13, 21))


class WatchedEntries(OrderedDict):
    """Entries that check the budget whenever one is stored."""

    def __init__(self, test, budget):
        super().__init__()
        self.test, self.budget = test, budget

    def __setitem__(self, key, checkpoint):
        super().__setitem__(key, checkpoint)
        self.test.assertLessEqual(sum(map(checkpoint_bytes, self.values())),
                                  self.budget)


@unittest.skipIf(np is None, "needs NumPy")
class TestPrefixCache(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.decoder = Decoder(7)

    def query(self, cache, tokens, scope="owner", decoder=None):
        """Query, check the states against a full recompute, return the record."""
        decoder = decoder or self.decoder
        states, record = cache.query(scope, decoder, tokens)
        full = decoder.extend(tokens)[0][record["hit_tokens"]:]
        self.assertEqual(states.shape, full.shape)
        self.assertLess(np.abs(states - full).max(), 1e-12)
        stored = list(cache._entries.values())
        self.assertEqual(record["resident_bytes"], sum(map(checkpoint_bytes, stored)))
        self.assertEqual(cache.resident_bytes, record["resident_bytes"])
        self.assertLessEqual(cache.resident_bytes, cache.budget_bytes)
        return record

    def kinds(self, record):
        return [(event["type"], len(event["prefix"])) for event in record["events"]]

    # A budget too small for anything.

    def test_zero_budget_stores_nothing_and_still_answers(self):
        skips = {"none": [], "all": [("skip", 4), ("skip", 8)],
                 "longest": [("skip", 8)], "shared": [("skip", 4), ("skip", 8)]}
        for policy, expected in skips.items():
            cache = PrefixCache(0, policy=policy)
            for again in range(3):
                record = self.query(cache, HOT + [21])
                with self.subTest(policy=policy, again=again):
                    self.assertEqual((record["hit_tokens"], record["copied_bytes"],
                                      record["resident_bytes"]), (0, 0, 0))
                    self.assertEqual(self.kinds(record), expected)

    def test_checkpoint_above_the_budget_is_skipped_and_evicts_nothing(self):
        cache = PrefixCache(4 * TOKEN_BYTES)
        self.query(cache, HOT[:5])
        record = self.query(cache, HOT + [21])
        self.assertEqual(record["hit_tokens"], 4)
        self.assertEqual(record["events"], [{"type": "skip", "scope": "owner",
                                             "prefix": HOT, "bytes": 8 * TOKEN_BYTES}])

    def test_checkpoint_of_just_the_budget_is_stored(self):
        for budget, stored in ((8 * TOKEN_BYTES - 1, 4), (8 * TOKEN_BYTES, 8)):
            cache = PrefixCache(budget)
            self.query(cache, HOT + [21])
            self.assertEqual(cache.resident_bytes, stored * TOKEN_BYTES)

    # Scopes.

    def test_the_same_tokens_in_another_scope_are_not_reused(self):
        for policy in POLICIES[1:]:
            cache = PrefixCache(10 ** 6, policy=policy)
            for scope in ("a", "b", "A", "a ", "\u00e4"):
                self.assertEqual(self.query(cache, HOT, scope)["hit_tokens"], 0)
            for scope in ("a", "b", "A", "a ", "\u00e4"):
                self.assertEqual(self.query(cache, HOT, scope)["hit_tokens"], 4)

    # Models.

    def test_another_model_is_never_served(self):
        models = [Decoder(7), Decoder(11), Decoder(7, layers=1), Decoder(7, hidden=8),
                  Decoder(7, vocabulary=31)]
        for policy in POLICIES[1:]:
            cache = PrefixCache(10 ** 6, policy=policy)
            for model in models:
                self.assertEqual(
                    self.query(cache, HOT, decoder=model)["hit_tokens"], 0)
            self.assertEqual(
                self.query(cache, HOT, decoder=Decoder(7))["hit_tokens"], 4)

    # Owned arrays.

    def test_stored_arrays_own_their_memory(self):
        for policy in POLICIES[1:]:
            cache = PrefixCache(10 ** 6, policy=policy)
            self.query(cache, HOT * 3)
            arrays = [array for checkpoint in cache._entries.values()
                      for layer in checkpoint for array in layer]
            for array in arrays:
                self.assertTrue(array.flags.owndata)
                self.assertIsNone(array.base)
            for index, array in enumerate(arrays):
                self.assertFalse(any(np.shares_memory(array, other)
                                     for other in arrays[:index]))

    def test_writing_to_what_was_handed_out_reaches_no_entry(self):
        class Spoiler:
            """Computes as its decoder does, then spoils what it was given."""
            def __init__(self, decoder):
                self.decoder = decoder

            def __getattr__(self, name):
                return getattr(self.decoder, name)

            def extend(self, tokens, checkpoint=None):
                states, extended = self.decoder.extend(tokens, checkpoint)
                for layer in checkpoint or ():
                    for array in layer:
                        array[...] = 0
                return states, extended

        for policy in POLICIES[1:]:
            cache = PrefixCache(10 ** 6, policy=policy)
            for _ in range(3):
                states, _ = cache.query("owner", Spoiler(self.decoder), HOT + [21])
                states[...] = 0
            self.assertEqual(self.query(cache, HOT + [22])["hit_tokens"], 8)

    # Short requests.

    def test_the_last_token_is_always_computed_again(self):
        for policy in POLICIES:
            for length, hit in ((1, 0), (4, 0), (5, 4), (8, 4), (9, 8)):
                cache = PrefixCache(10 ** 6, policy=policy)
                for again in range(3):
                    record = self.query(cache, (HOT + COLD)[:length])
                    expected = hit if again and policy != "none" else 0
                    with self.subTest(policy=policy, length=length, again=again):
                        self.assertEqual(record["hit_tokens"], expected)
                        self.assertEqual(record["projected_rows"],
                                         6 * (length - expected))

    # Input.

    BAD_TOKENS = ([-1], [32], [1, 2 ** 70], [], [1.0, 2.0], [True, False], [1, True],
                  [[1, 2]], [[1], [2, 3]], ["1"], "12", None, 5, [None], [1, 2.5])

    def test_bad_input_changes_nothing(self):
        bad_arrays = (np.array([[1]]), np.array([1.0]), np.array([True]), np.array(3),
                      np.array([], int), np.array([32]), np.array([-1]),
                      [np.bool_(True)], [np.float64(1)])
        cache = PrefixCache(10 ** 6)
        self.query(cache, HOT)
        self.query(cache, COLD)
        before = list(cache._entries)
        cases = [("owner", tokens) for tokens in (*self.BAD_TOKENS, *bad_arrays)]
        cases += [(scope, HOT) for scope in ("", None, 5, b"owner", ["owner"])]
        for scope, tokens in cases:
            with self.subTest(scope=scope, tokens=tokens):
                with self.assertRaises((ValueError, TypeError)) as caught:
                    cache.query(scope, self.decoder, tokens)
                self.assertRegex(str(caught.exception), "^(tokens|scope) must .* got ")
                self.assertEqual(list(cache._entries), before)

    def test_numpy_integers_and_arrays_are_tokens(self):
        cache = PrefixCache(10 ** 6)
        for tokens in (HOT, tuple(HOT), range(1, 9), np.array(HOT, np.uint8),
                       [np.int32(token) for token in HOT]):
            self.query(cache, tokens)
        self.assertEqual(len(cache._entries), 1)
        event = PrefixCache(10 ** 6).query("a", self.decoder,
                                           np.array(HOT))[1]["events"][0]
        self.assertEqual([type(token) for token in event["prefix"]], [int] * 4)

    def test_bad_budget_stride_and_policy_are_refused(self):
        for error, options in (
                (ValueError, {"budget_bytes": -1}), (TypeError, {"budget_bytes": 1.0}),
                (TypeError, {"budget_bytes": True}), (TypeError, {"budget_bytes": "9"}),
                (ValueError, {"budget_bytes": 0, "stride": 0}),
                (TypeError, {"budget_bytes": 0, "stride": 4.0}),
                (ValueError, {"budget_bytes": 0, "policy": "lru"})):
            with self.subTest(options=options), self.assertRaises(error) as caught:
                PrefixCache(**options)
            self.assertIn(list(options)[-1] + " must be", str(caught.exception))

    # Bytes.

    def test_a_token_takes_k_v_and_position_of_each_layer(self):
        cache = PrefixCache(10 ** 6)
        sizes = [event["bytes"] for event in self.query(cache, HOT + [21])["events"]]
        self.assertEqual(sizes, [2112, 4224])
        for decoder, token_bytes in ((Decoder(1, hidden=8, layers=3), 3 * (2 * 64 + 8)),
                                     (Decoder(1, hidden=2, layers=1), 2 * 16 + 8)):
            cache = PrefixCache(10 ** 6)
            record = self.query(cache, HOT, decoder=decoder)
            self.assertEqual(record["resident_bytes"], 4 * token_bytes)

    def test_copied_bytes_are_those_out_and_in(self):
        for policy, copies in (("none", (0, 0)), ("all", (4 + 8, 8)),
                               ("longest", (8, 8)), ("shared", (4 + 4, 8))):
            cache = PrefixCache(10 ** 6, policy=policy)
            for tokens in copies:
                record = self.query(cache, HOT + [21])
                self.assertEqual(record["copied_bytes"], tokens * TOKEN_BYTES)

    # What is kept.

    def test_a_hit_is_the_longest_stored_prefix(self):
        for policy in POLICIES[1:]:
            cache = PrefixCache(10 ** 6, policy=policy)
            self.query(cache, HOT[:5])
            self.query(cache, HOT + [21])
            self.assertEqual(self.query(cache, HOT + COLD)["hit_tokens"], 8)

    def test_a_prefix_that_differs_anywhere_is_no_hit(self):
        for at in range(4):
            cache = PrefixCache(10 ** 6)
            self.query(cache, HOT)
            other = [*HOT]
            other[at] = 30
            self.assertEqual(self.query(cache, other)["hit_tokens"], 0)

    def test_a_hit_keeps_its_entry_where_fifo_would_evict_it(self):
        for policy in POLICIES[1:]:
            cache = PrefixCache(2 * 4 * TOKEN_BYTES, policy=policy)
            first, second, third = ([start] * 5 for start in (1, 2, 3))
            for tokens in (first, second, first):
                self.query(cache, tokens)
            evicted = [event["prefix"] for event in self.query(cache, third)["events"]
                       if event["type"] == "evict"]
            self.assertEqual(evicted, [second[:4]])
            self.assertEqual(self.query(cache, first)["hit_tokens"], 4)

    def test_what_each_policy_saves(self):
        events = {"none": [], "all": [("admit", 4), ("admit", 8), ("admit", 12)],
                  "longest": [("admit", 12)],
                  "shared": [("admit", 4), ("admit", 8), ("admit", 12)]}
        for policy, expected in events.items():
            cache = PrefixCache(10 ** 6, policy=policy)
            self.assertEqual(self.kinds(self.query(cache, HOT + [9] * 5)), expected)

    def test_shared_evicts_tails_before_heads(self):
        # Room for four blocks: HOT takes 4 and 8, COLD takes 4 and 8.
        cache = PrefixCache(4 * 4 * TOKEN_BYTES, policy="shared")
        self.query(cache, HOT + [21])
        self.query(cache, COLD + [21])
        self.assertEqual(self.kinds(self.query(cache, [30] * 5)),
                         [("evict", 8), ("admit", 4)])
        self.assertEqual(self.query(cache, HOT + [21])["hit_tokens"], 4)

    def test_shared_skips_a_block_whose_whole_prefix_is_above_the_budget(self):
        cache = PrefixCache(8 * TOKEN_BYTES, policy="shared")
        record = self.query(cache, HOT + COLD)
        self.assertEqual(record["events"][-1], {
            "type": "skip", "scope": "owner", "prefix": HOT + COLD[:4],
            "bytes": 4 * TOKEN_BYTES})
        self.assertEqual(self.query(cache, HOT + COLD)["hit_tokens"], 8)

    def test_random_requests_agree_with_the_list_model(self):
        decoders = [Decoder(7), Decoder(11)]
        for seed in range(60):
            rng = random.Random(seed)
            policy, stride = POLICIES[seed % 4], rng.randrange(1, 6)
            budget = rng.choice((0, rng.randrange(40), rng.randrange(80))) * TOKEN_BYTES
            budget += rng.randrange(3) - 1 if budget else 0
            cache = PrefixCache(budget, stride, policy)
            cache._entries = WatchedEntries(self, budget)
            model = oracle.ListPrefixCache(budget, stride, policy, TOKEN_BYTES)
            for step in range(40):
                which, scope = rng.randrange(2), rng.choice("abc")
                tokens = [rng.randrange(2) for _ in range(rng.randrange(1, 18))]
                record = self.query(cache, tokens, scope, decoders[which])
                hit, copied, resident, events = model.query(which, scope, tokens)
                with self.subTest(seed=seed, step=step):
                    self.assertEqual(record, {
                        "hit_tokens": hit, "projected_rows": 6 * (len(tokens) - hit),
                        "resident_bytes": resident, "copied_bytes": copied,
                        "events": events})
                    self.assertEqual(
                        [[key[1], list(key[2])] for key in cache._entries],
                        [[its_scope, prefix] for _, its_scope, prefix, _
                         in model.entries])


if __name__ == "__main__":
    unittest.main()
