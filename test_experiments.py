"""Tests of experiments.py: which groups there are, on which inputs, how near."""

import unittest
from unittest import mock

try:
    import numpy as np

    import attention
    import decoder
    import experiments
    import timings
except ImportError as error:
    raise unittest.SkipTest(f"needs NumPy: {error}")

from experiments import EXPERIMENTS, Settings


class TestGroups(unittest.TestCase):
    SETTINGS = experiments.Settings(lengths=(2, 5), batch_sizes=(1, 3), length=4)

    def test_groups_and_their_sizes(self):
        batching = ("sequential", "batched")
        caches = ("no_cache", "dynamic_cache", "preallocated_cache")
        for name, expected in (
                ("cache", [(path, 1, tokens) for tokens in (2, 5) for path in caches]),
                ("batch-length", [(path, 2, tokens) for tokens in (2, 5)
                                  for path in batching]),
                ("batch-size", [(path, batch, 4) for batch in (1, 3)
                                for path in batching])):
            experiment = EXPERIMENTS[name]
            groups = experiment.groups(self.SETTINGS)
            with self.subTest(name):
                self.assertEqual([group.key for group in groups], expected)
                self.assertTrue(all(0 <= group.error() < 1e-13 for group in groups))
                self.assertEqual({group.key[0] for group in groups},
                                 set(timings.SCANS[experiment.label].columns["path"]))

    def test_full_settings_give_450_300_and_240_rows(self):
        settings = experiments.Settings()
        self.assertEqual(settings, (10, 30, (16, 32, 64, 128, 256), (1, 2, 4, 8), 128,
                                    (16, 64, 256), (4, 8, 16, 32, 64, 128),
                                    "float64", 42))
        with mock.patch.object(attention, "decode_without_cache",
                               lambda x, *weights: x):
            rows = [len(EXPERIMENTS[name].groups(settings)) * settings.repeats
                    for name in ("cache", "batch-length", "batch-size")]
        self.assertEqual(rows, [450, 300, 240])

    def test_a_smaller_batch_is_a_prefix_of_the_largest_input(self):
        seen = {}

        def path(x, *weights):
            seen[x.shape] = x, weights
            return x

        sizes = [(1, 4), (2, 4), (3, 2)]
        for group in experiments.decode_groups({"p": path}, lambda _: sizes,
                                               self.SETTINGS):
            (_, call), = group.calls()
            call()
        self.assertEqual(sorted(seen), [(*size, 64) for size in sizes])
        largest, weights = experiments.make_inputs(sizes, self.SETTINGS)
        self.assertEqual(largest.shape, (3, 4, 64))
        for (batch, tokens, _), (x, found) in seen.items():
            np.testing.assert_array_equal(x, largest[:batch, :tokens])
            self.assertTrue(x.flags.c_contiguous)
            np.testing.assert_array_equal(found, weights)

    def test_inputs_follow_seed_and_dtype(self):
        one, weights = experiments.make_inputs([(1, 2)], self.SETTINGS)
        again, _ = experiments.make_inputs([(1, 2)], self.SETTINGS)
        other, _ = experiments.make_inputs([(1, 2)], self.SETTINGS._replace(seed=43))
        np.testing.assert_array_equal(one, again)
        self.assertFalse(np.array_equal(one, other))
        self.assertEqual([weight.shape for weight in weights], [(64, 64)] * 3)
        single, weights = experiments.make_inputs(
            [(1, 2)], self.SETTINGS._replace(dtype="float32"))
        self.assertEqual({array.dtype for array in (single, *weights)},
                         {np.dtype("float32")})

    def test_largest_error_is_absolute_and_sees_nan(self):
        expected = np.array([1.0, 2.0])
        for output, error in (([1.5, 2.25], 0.5), ([1.0, 1.0], 1.0)):
            output = np.array(output)
            self.assertEqual(
                experiments.largest_error(lambda: output, expected), error)
            self.assertEqual(
                experiments.largest_error(lambda: (output, 7), expected), error)
        self.assertTrue(np.isnan(experiments.largest_error(
            lambda: np.array([np.nan, 2.0]), expected)))

    def test_errors_are_taken_against_the_path_without_a_cache(self):
        wrong = attention.decode_without_cache
        with mock.patch.object(attention, "decode_without_cache",
                               lambda *arrays: wrong(*arrays) + 1):
            groups = experiments.EXPERIMENTS["batch-size"].groups(self.SETTINGS)
        for group in groups:
            self.assertAlmostEqual(group.error(), 1)


class TestLimit(unittest.TestCase):
    def test_no_cache_ends_where_its_time_explodes(self):
        with mock.patch.object(experiments, "LONGEST_WITHOUT_CACHE", 5):
            groups = EXPERIMENTS["limit"].groups(Settings(lengths=(5, 6)))
        self.assertEqual([group.key for group in groups], [
            ("no_cache", 5), ("preallocated_cache", 5), ("fused", 5),
            ("bare_products", 5), ("preallocated_cache", 6), ("fused", 6),
            ("bare_products", 6)])

    def test_each_path_is_timed_under_its_own_name(self):
        self.assertIs(experiments.LIMIT["fused"], attention.decode_fused)
        self.assertIs(experiments.LIMIT["preallocated_cache"],
                      attention.cached_attention_preallocated)
        self.assertEqual(experiments.BATCHING, {
            "sequential": attention.sequential_cached_attention,
            "batched": attention.batched_cached_attention})

    def test_an_untimed_call_goes_before_each_sample(self):
        made = []
        group = experiments.warm(experiments.Group(
            ("a",), lambda: [((), lambda: made.append(1))], None))
        (rest, call), = group.calls()
        self.assertEqual((rest, made), ((), [1]))
        call()
        self.assertEqual(made, [1, 1])

    def test_every_path_gives_what_it_must_in_both_dtypes(self):
        for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-4)):
            settings = Settings(lengths=(1, 7, 300), dtype=dtype)
            for group in EXPERIMENTS["limit"].groups(settings):
                with self.subTest(dtype=dtype, key=group.key):
                    self.assertLess(group.error(), tolerance)

    def test_the_oracle_in_blocks_is_the_path_without_a_cache(self):
        rng = np.random.default_rng(3)
        x, weights = rng.normal(size=(11, 6)), list(rng.normal(size=(3, 6, 6)))
        expected = attention.decode_without_cache(x, *weights)
        for block in (1, 4, 11, 12):
            found = experiments.decode_at_once(x, *weights, block=block)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    def test_bare_products_are_three_a_step_on_real_numbers(self):
        rng = np.random.default_rng(4)
        x, weights = rng.normal(size=(5, 4)), list(rng.normal(size=(3, 4, 4)))
        bare = experiments.BareProducts(x, *weights)
        with mock.patch.object(np, "dot", wraps=np.dot) as dot:
            output = bare.run()
        self.assertEqual([call.args[0].shape + call.args[1].shape
                          for call in dot.call_args_list[-3:]],
                         [(4, 4, 12), (5, 4, 4), (5, 5, 4)])
        self.assertEqual(dot.call_count, 15)
        wq, wk, wv = weights
        scores = np.tril((x @ wq) @ (x @ wk).T) / 2
        np.testing.assert_allclose(output, scores @ (x @ wv), rtol=0, atol=1e-12)
        np.testing.assert_allclose(bare.expected(), output, rtol=0, atol=1e-12)

    def test_a_wrong_output_shows_as_an_error(self):
        with mock.patch.dict(experiments.LIMIT, fused=lambda x, *weights: x + 1e-7):
            groups = EXPERIMENTS["limit"].groups(Settings(lengths=(3,)))
        errors = {group.key[0]: group.error() for group in groups}
        self.assertGreater(errors["fused"], 1e-8)
        self.assertLess(errors["no_cache"], 1e-12)


class TestAdmission(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.groups = EXPERIMENTS["admission"].groups(Settings())

    def test_every_combination_once_and_parts_of_the_first_seed(self):
        whole = [group for group in self.groups if len(group.key) == 5]
        parts = [group for group in self.groups if len(group.key) == 4]
        self.assertEqual((len({group.key for group in whole}), len(whole)), (144, 144))
        self.assertEqual((len({group.key for group in parts}), len(parts)), (48, 48))
        self.assertEqual({group.key[0] for group in parts}, {7})
        self.assertEqual({group.key[4] for group in whole}, {"query"})
        rows = {(*group.key, *rest) for group in self.groups[:2]
                for rest, _ in group.calls()}
        self.assertEqual(len(rows), 12 * 6)
        self.assertEqual({row[4] for row in rows}, {"query", *timings.PARTS})

    def test_counts_are_those_of_the_admission_run(self):
        found = {group.key[:4]: group.counted["projected_rows"]
                 for group in self.groups if group.counted}
        for key, rows in (((7, 8192, "alternating-branches", "all"), 864),
                          ((11, 8192, "alternating-branches", "shared"), 624),
                          ((23, 12288, "three-scopes", "shared"), 648),
                          ((7, 16384, "three-scopes", "longest"), 432),
                          ((7, 8192, "hot-prefix", "none"), 864)):
            self.assertEqual(found[key], rows, key)

    def test_all_results_agree_with_a_full_recompute(self):
        for group in self.groups[::11]:
            self.assertLess(group.error(), 1e-12, group.key)

    def test_one_wrong_number_in_one_request_is_the_error(self):
        extend = decoder.Decoder.extend

        def wrong(self, tokens, checkpoint=None):
            states, layers = extend(self, tokens, checkpoint)
            if tokens[-1] == 26:
                states[-1, 3] += 1e-3
            return states, layers

        group = self.groups[0]
        with mock.patch.object(decoder.Decoder, "extend", wrong):
            self.assertAlmostEqual(group.error(), 1e-3, places=12)

    def test_every_sample_starts_with_a_cold_cache(self):
        group = next(group for group in self.groups
                     if group.key == (7, 16384, "hot-prefix", "longest", "query"))
        for _ in range(2):
            hits = [call()[1]["hit_tokens"] for _, call in group.calls()]
            self.assertEqual(hits, [0] + [8] * 11)

    def test_the_decoder_knows_one_dtype(self):
        for name in ("admission", "break-even"):
            with self.assertRaisesRegex(ValueError, "float64, got --dtype float32"):
                EXPERIMENTS[name].groups(Settings(dtype="float32"))


class TestCacheInParts(unittest.TestCase):
    def test_the_parts_make_the_query(self):
        model = decoder.Decoder(7)
        for policy in decoder.POLICIES:
            for trace in decoder.TRACES:
                whole = decoder.PrefixCache(9000, 4, policy)
                cut = experiments.CacheInParts(9000, 4, policy)
                for index, scope, tokens in decoder.requests(trace):
                    states, record = whole.query(scope, model, tokens)
                    parts = cut.parts(scope, model, tokens)
                    self.assertEqual(tuple(parts), timings.PARTS)
                    *_, (found, told) = [call() for call in parts.values()]
                    with self.subTest(policy=policy, trace=trace, index=index):
                        self.assertEqual(told, record)
                        self.assertEqual(found.tobytes(), states.tobytes())


class TestBreakEven(unittest.TestCase):
    SETTINGS = Settings(hidden_sizes=(4, 6), prefixes=(4, 12))

    def test_groups_agree_with_the_full_recompute(self):
        groups = EXPERIMENTS["break-even"].groups(self.SETTINGS)
        self.assertEqual([group.key for group in groups],
                         [(policy, hidden, length) for hidden in (4, 6)
                          for length in (4, 12)
                          for policy in ("none", "all", "longest", "shared")])
        for group in groups:
            self.assertLess(group.error(), 1e-12, group.key)

    def test_a_hot_query_finds_its_whole_prefix_each_time(self):
        for group in EXPERIMENTS["break-even"].groups(self.SETTINGS):
            policy, _, length = group.key
            (_, call), = group.calls()
            for _ in range(3):
                states, record = call()
                with self.subTest(key=group.key):
                    self.assertEqual(record["hit_tokens"],
                                     0 if policy == "none" else length)
                    self.assertEqual(len(states), length + 4 - record["hit_tokens"])
                    self.assertEqual(record["events"], [])

    def test_each_policy_is_timed_under_its_own_name(self):
        for group in EXPERIMENTS["break-even"].groups(self.SETTINGS):
            (_, call), = group.calls()
            with self.subTest(key=group.key):
                self.assertEqual(call.func.__self__.policy,
                                 decoder.POLICIES[group.key[0]])


class TestTable(unittest.TestCase):
    def test_labels_and_keys_fit_the_columns(self):
        settings = Settings(lengths=(2,), length=2, batch_sizes=(1,), hidden_sizes=(2,),
                            prefixes=(4,))
        for experiment in EXPERIMENTS.values():
            scan = timings.SCANS[experiment.label]
            for group in experiment.groups(settings)[:5]:
                for rest, _ in group.calls():
                    key = (*group.key, *rest)
                    self.assertEqual(len(key), len(scan.columns))
                    self.assertFalse(scan.absent(*key))
                    for value, allowed in zip(key, scan.columns.values()):
                        self.assertTrue(value >= allowed if isinstance(allowed, int)
                                        else value in allowed)

    def test_defaults_are_settings(self):
        for experiment in EXPERIMENTS.values():
            self.assertLessEqual(set(experiment.defaults), set(experiment.reads))
            Settings(**experiment.defaults)


if __name__ == "__main__":
    unittest.main()
