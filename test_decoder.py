"""decoder.py: the model, the run and the command; the cache is in test_cache.py."""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import unittest

try:
    import numpy as np
    import decoder
    from decoder import Decoder, Layer, PrefixCache, Protocol, checkpoint_bytes
except ImportError:
    raise unittest.SkipTest("decoder.py needs NumPy") from None

import oracle
from test_support import HOME, TemporaryFolder, call, read, run

TOKENS = [3, 1, 4, 1, 5, 9, 2]


class TestModel(unittest.TestCase):

    def assert_close(self, found, expected, tolerance=1e-12):
        self.assertEqual(np.shape(found), np.shape(expected))
        self.assertLess(np.abs(np.subtract(found, expected)).max(), tolerance)

    def test_weights_are_drawn_as_published(self):
        model, rng = Decoder(7), np.random.default_rng(7)
        self.assertTrue((model.embedding == rng.normal(0, 0.3, (32, 16))).all())
        for layer in model.weights:
            for matrix in layer:
                self.assertTrue((matrix == rng.normal(0, 0.25, (16, 16))).all())
        self.assertEqual([len(layer) for layer in model.weights], [3, 3])

    def test_states_equal_scalar_loops(self):
        for options in ({}, {"hidden": 6, "layers": 3, "vocabulary": 10}):
            model = Decoder(11, **options)
            expected = oracle.decoder_states(
                model.embedding.tolist(),
                [[matrix.tolist() for matrix in layer] for layer in model.weights],
                TOKENS)
            with self.subTest(options=options):
                self.assert_close(model.extend(TOKENS)[0], expected)

    def test_every_split_into_pieces_equals_the_full_pass(self):
        model = Decoder(7)
        full, whole = model.extend(TOKENS)
        for first in range(1, 6):
            for second in range(first + 1, 7):
                states, checkpoint = [], None
                for start, end in ((0, first), (first, second), (second, 7)):
                    piece, checkpoint = model.extend(TOKENS[start:end], checkpoint)
                    states.append(piece)
                self.assert_close(np.concatenate(states), full)
                for ours, theirs in zip(checkpoint, whole):
                    for one, other in zip(ours, theirs):
                        self.assert_close(one, other)

    def test_new_tokens_see_what_was_before_and_themselves(self):
        # 4 tokens cached, 3 new ones in one piece: they see 5, 6 and 7 keys.
        model = Decoder(7, layers=1)
        _, cached = model.extend(TOKENS[:4])
        states, _ = model.extend(TOKENS[4:], cached)
        singles, checkpoint = [], cached
        for token in TOKENS[4:]:
            state, checkpoint = model.extend([token], checkpoint)
            singles.append(state[0])
        self.assert_close(states, singles)
        self.assert_close(states, model.extend(TOKENS)[0][4:])
        for row in range(3):
            other = TOKENS[:]
            other[4 + row] = 30
            changed, _ = model.extend(other[4:], cached)
            moved = np.abs(changed - states).max(axis=1) > 1e-9
            self.assertEqual(list(moved), [index >= row for index in range(3)])

    def test_a_checkpoint_holds_k_v_and_absolute_positions_of_each_layer(self):
        _, first = Decoder(7).extend(TOKENS[:4])
        _, checkpoint = Decoder(7).extend(TOKENS[4:], first)
        self.assertEqual(len(checkpoint), 2)
        for layer in checkpoint:
            self.assertEqual((layer.k.shape, layer.v.shape), ((7, 16), (7, 16)))
            self.assertEqual((layer.k.dtype, layer.v.dtype), (np.float64, np.float64))
            self.assertEqual(layer.positions.dtype, np.int64)
            self.assertEqual(layer.positions.tolist(), list(range(7)))
        self.assertEqual((checkpoint_bytes(first), checkpoint_bytes(checkpoint)),
                         (2112, 7 * 528))

    def test_extend_changes_neither_argument(self):
        model, tokens = Decoder(7), np.array(TOKENS)
        _, checkpoint = model.extend(tokens)
        before = [array.copy() for layer in checkpoint for array in layer]
        states, longer = model.extend(tokens, checkpoint)
        for layer in longer:
            for array in layer:
                array[...] = 0
        self.assertEqual(tokens.tolist(), TOKENS)
        for array, kept in zip((array for layer in checkpoint for array in layer),
                               before):
            self.assertTrue((array == kept).all())

    def test_checkpoints_own_their_arrays(self):
        model = Decoder(7)
        _, first = model.extend(TOKENS)
        _, second = model.extend(TOKENS, first)
        arrays = [array for checkpoint in (first, second)
                  for layer in checkpoint for array in layer]
        for index, array in enumerate(arrays):
            self.assertIsNone(array.base)
            self.assertFalse(any(np.shares_memory(array, other)
                                 for other in arrays[:index]))

    def test_weights_cannot_be_changed(self):
        model = Decoder(7)
        for array in (model.embedding, *(m for layer in model.weights for m in layer)):
            with self.assertRaises(ValueError):
                array[0, 0] = 1
            with self.assertRaises(ValueError):
                array.flags.writeable = True
        for name in ("embedding", "weights", "signature"):
            with self.assertRaises(AttributeError):
                setattr(model, name, None)
        with self.assertRaises(TypeError):
            model.weights[0] = None

    def test_copies_and_pickles_cannot_be_changed_either(self):
        model = Decoder(7, hidden=8)
        for twin in (copy.copy(model), copy.deepcopy(model),
                     pickle.loads(pickle.dumps(model))):
            self.assertEqual(twin.signature, model.signature)
            with self.assertRaises(ValueError):
                twin.weights[0][0][...] = 0

    def test_a_checkpoint_of_another_shape_is_refused(self):
        model = Decoder(7)
        _, good = model.extend(TOKENS)
        for bad in ("x", [], (), good[:1], good * 2, [*good],
                    (good[0], Layer(*(array[:3] for array in good[1]))),
                    (good[0], good[1]._replace(v=good[1].v[:, :8])),
                    (good[0], good[1]._replace(k=good[1].k.ravel())),
                    (good[0], good[1]._replace(positions=good[1].positions[:3])),
                    Decoder(7, hidden=8).extend(TOKENS)[1],
                    Decoder(7, layers=3).extend(TOKENS)[1]):
            with self.subTest(bad=bad), self.assertRaises(ValueError) as caught:
                model.extend(TOKENS, bad)
            self.assertIn("checkpoint must have 2 layers of width 16",
                          str(caught.exception))
            with self.assertRaises(ValueError):
                model.extend_in_place(TOKENS, bad, 0)

    def test_a_long_list_of_tokens_is_cut_in_the_message(self):
        for tokens in ([99] * 5000, np.full((99, 99), 1)):
            with self.assertRaises((TypeError, ValueError)) as caught:
                Decoder(7).extend(tokens)
            self.assertLess(len(str(caught.exception)), 150)
            self.assertNotIn("\n", str(caught.exception))

    def test_numpy_random_is_loaded_with_the_script(self):
        # An interrupt during its late import would be lost.
        done = run("-c", "import decoder, sys; print('numpy.random' in sys.modules)")
        self.assertEqual(done.stdout, "True\n")

    def test_any_bit_of_any_weight_changes_the_signature(self):
        model = Decoder(7)
        self.assertEqual(model.signature, Decoder(7).signature)
        seen = {model.signature}
        arrays = [model.embedding, *(m for layer in model.weights for m in layer)]
        for at in range(len(arrays)):
            changed = [array.copy() for array in arrays]
            changed[at][-1, -1] = np.nextafter(changed[at][-1, -1], 1)
            layers = [changed[1:4], changed[4:7]]
            seen.add(decoder.signature(changed[0], layers))
        self.assertEqual(len(seen), 8)

    def test_the_same_bytes_in_another_shape_sign_differently(self):
        flat = np.zeros((2, 8)), [[np.zeros((4, 4))] * 3]
        tall = np.zeros((8, 2)), [[np.zeros((4, 4))] * 3]
        self.assertNotEqual(decoder.signature(*flat), decoder.signature(*tall))

    def test_bad_configuration_is_refused(self):
        for error, options in ((ValueError, {"hidden": 3}), (ValueError, {"hidden": 0}),
                               (ValueError, {"layers": 0}), (TypeError, {"layers": 2.0}),
                               (ValueError, {"vocabulary": 0}),
                               (TypeError, {"seed": "x"}), (ValueError, {"seed": -1}),
                               (TypeError, {"hidden": True})):
            with self.subTest(options=options), self.assertRaises(error) as caught:
                Decoder(**{"seed": 7, **options})
            self.assertIn(list(options)[0] + " must be", str(caught.exception))

    def test_a_token_costs_three_rows_a_layer(self):
        self.assertEqual(Decoder(7).projected_rows(12), 72)
        self.assertEqual(Decoder(7, layers=3).projected_rows(4), 36)


# budget, trace, policy -> hits of 12, projected rows, evictions, copied bytes
PUBLISHED = {
    (4096, "hot-prefix"): (11, 600, 0, 25344),
    (4096, "alternating-branches"): (0, 864, 11, 25344),
    (4096, "three-scopes"): (0, 864, 11, 25344),
    (8192, "hot-prefix"): (11, 336, 0, 52800),
    (8192, "alternating-branches"): (0, 864, 22, 76032),
    (8192, "three-scopes"): (0, 864, 22, 76032),
    (32768, "hot-prefix"): (11, 336, 0, 52800),
    (32768, "alternating-branches"): (10, 384, 0, 54912),
    (32768, "three-scopes"): (9, 432, 0, 57024)}
ADMISSION = {
    (8192, "alternating-branches", "all"): (0, 864, 22, 76032),
    (8192, "alternating-branches", "longest"): (0, 864, 11, 50688),
    (8192, "alternating-branches", "shared"): (10, 624, 11, 50688),
    (8192, "three-scopes", "shared"): (0, 864, 21, 50688),
    (12288, "alternating-branches", "all"): (10, 384, 1, 54912),
    (12288, "three-scopes", "longest"): (0, 864, 10, 50688),
    (12288, "three-scopes", "shared"): (9, 648, 10, 50688),
    (16384, "three-scopes", "all"): (0, 864, 20, 76032),
    (16384, "three-scopes", "longest"): (9, 432, 0, 50688),
    (16384, "three-scopes", "shared"): (9, 432, 0, 50688),
    (8192, "hot-and-cold", "all"): (0, 864, 22, 76032),
    (8192, "hot-and-cold", "longest"): (0, 864, 11, 50688),
    (8192, "hot-and-cold", "shared"): (5, 744, 16, 50688),
    (12288, "hot-and-cold", "all"): (5, 624, 11, 65472),
    (12288, "hot-and-cold", "longest"): (5, 624, 5, 50688),
    (12288, "hot-and-cold", "shared"): (5, 624, 9, 50688),
    (16384, "hot-and-cold", "all"): (5, 624, 10, 65472),
    (16384, "hot-and-cold", "longest"): (5, 624, 4, 50688),
    (16384, "hot-and-cold", "shared"): (5, 624, 7, 50688)}


def totals(results):
    """Return {labels: (hits, projected rows, evictions, copied bytes)}."""
    sums = {}
    for row in results:
        labels = tuple(row[name] for name in ("seed", "budget", "trace", "policy")
                       if name in row)
        add = (row["hit_tokens"] > 0, row["projected_rows"],
               [event["type"] for event in row["events"]].count("evict"),
               row["copied_bytes"])
        sums[labels] = tuple(map(sum, zip(sums.get(labels, (0,) * 4), add)))
    return sums


class TestRun(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.results, cls.arrays = decoder.run()

    def test_the_nine_rows_hold_for_every_seed(self):
        self.assertEqual(totals(self.results), {
            (seed, *labels): counts for seed in (7, 11, 23)
            for labels, counts in PUBLISHED.items()})

    def test_the_rows_of_the_policies_hold_for_every_seed(self):
        protocol = Protocol((8192, 12288, 16384), ("none", "all", "longest", "shared"))
        found = totals(decoder.run(protocol)[0])
        self.assertEqual(len(found), 3 * 3 * 4 * 4)
        for labels, counts in ADMISSION.items():
            for seed in (7, 11, 23):
                self.assertEqual(found[(seed, *labels)], counts, labels)
        for labels, counts in found.items():
            if labels[3] == "none":
                self.assertEqual(counts, (0, 864, 0, 0))

    def test_fifo_would_give_the_same_nine_rows(self):
        class Fifo(PrefixCache):
            def _touch(self, prefixes, end):
                pass

        self.addCleanup(setattr, decoder, "PrefixCache", PrefixCache)
        decoder.PrefixCache = Fifo
        self.assertEqual(totals(decoder.run()[0]), totals(self.results))
        hot_and_cold = Protocol((12288,), ("all",))
        fifo = totals(decoder.run(hot_and_cold)[0])
        decoder.PrefixCache = PrefixCache
        self.assertNotEqual(fifo, totals(decoder.run(hot_and_cold)[0]))

    def test_requests_in_order_with_their_keys(self):
        self.assertEqual(len(self.results), 324)
        self.assertEqual([self.results[index]["key"] for index in (0, 11, 12, 323)],
                         ["7_4096_hot-prefix_0", "7_4096_hot-prefix_11",
                          "7_4096_alternating-branches_0", "23_32768_three-scopes_11"])
        row = self.results[12 + 7]
        self.assertEqual((row["scope"], row["tokens"], row["full_projected_rows"]),
                         ("owner", [*range(13, 21), 21, 22, 23, 25], 72))
        self.assertEqual(self.results[24 + 5]["scope"], "owner-2")

    def test_each_request_has_its_two_arrays_and_their_error(self):
        self.assertEqual(len(self.arrays), 648)
        for row in self.results:
            full, cached = (self.arrays[f"{row['key']}_{kind}"]
                            for kind in ("full", "cached"))
            self.assertEqual(full.shape, (12 - row["hit_tokens"], 16))
            self.assertEqual(row["max_abs_error"], np.abs(cached - full).max())
            self.assertLess(row["max_abs_error"], 1e-12)

    def test_hot_and_cold_requests(self):
        found = [(scope, tokens) for _, scope, tokens in
                 decoder.requests("hot-and-cold")]
        self.assertEqual(found[2], ("owner", [*range(1, 9), 21, 22, 23, 26]))
        self.assertEqual(found[3], ("owner", [16, *range(2, 9), 21, 22, 23, 27]))

    def test_progress_counts_every_request(self):
        class Counter:
            steps = 0

            def step(self):
                self.steps += 1

        counter = Counter()
        decoder.run(Protocol((4096,)), counter)
        self.assertEqual(counter.steps, 3 * 3 * 12)

    def test_a_cold_cache_for_every_trace(self):
        for row in self.results:
            if row["index"] == 0:
                self.assertEqual(row["hit_tokens"], 0)


class TestCommand(TemporaryFolder):

    def test_two_runs_write_the_same_bytes(self):
        for name in ("a", "b"):
            self.assertEqual(call(decoder.main, "--out", self.path(name)), (0, "", ""))
        self.assertEqual(sorted(os.listdir(self.path("a"))),
                         ["arrays.npz", "manifest.json", "results.json"])
        for name in os.listdir(self.path("a")):
            self.assertEqual(read(self.path("a", name)), read(self.path("b", name)))

    def test_results_have_one_request_a_line(self):
        call(decoder.main, "--out", self.path("a"), "--budgets", "0",
             "--policies", "none")
        lines = read(self.path("a", "results.json")).decode().splitlines()
        self.assertEqual((lines[0], lines[-1], len(lines)), ("[", "]", 2 + 3 * 4 * 12))
        row = json.loads(lines[1].rstrip(","))
        self.assertEqual(list(row), [
            "key", "seed", "budget", "trace", "policy", "index", "scope", "tokens",
            "hit_tokens", "full_projected_rows", "projected_rows", "resident_bytes",
            "copied_bytes", "max_abs_error", "events"])
        self.assertEqual(row["key"], "7_0_hot-prefix_none_0")

    def test_an_existing_folder_is_refused_and_untouched(self):
        os.mkdir(self.path("a"))
        status, out, err = call(decoder.main, "--out", self.path("a"))
        self.assertEqual((status, out), (1, ""))
        self.assertEqual(err, f"decoder.py: {self.path('a')}: exists already, "
                              "a new folder is needed\n")
        self.assertEqual(os.listdir(self.path("a")), [])

    def test_bad_options_are_wrong_usage(self):
        for argv in ((), ("--out",), ("--out", "x", "--budgets", "1,x"),
                     ("--out", "x", "--budgets", ""), ("--out", "x", "--budgets", "-1"),
                     ("--out", "x", "--budgets", "8,8"), ("--ou", "x"),
                     ("--out", "x", "--budgets", "1" * 13),
                     ("--out", "x", "--budgets", ",".join(map(str, range(257)))),
                     ("--out", "x", "--policies", "lru"),
                     ("--out", "x", "--policies", "all,all")):
            with self.subTest(argv=argv):
                status, out, err = call(decoder.main, *argv)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(": error: ", err)

    def started_run(self):
        """Start a run that takes long; return it when its folder is there."""
        budgets = ",".join(map(str, range(0, 64000, 500)))
        process = subprocess.Popen(
            [sys.executable, "decoder.py", "--out", self.path("a"), "--budgets", budgets,
             "--policies", "all,shared"], cwd=HOME, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        while process.poll() is None and not os.listdir(self.folder):
            time.sleep(0.01)
        self.assertIsNone(process.poll())
        return process

    def test_sigterm_leaves_nothing(self):
        process = self.started_run()
        process.terminate()
        self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.assertEqual((os.listdir(self.folder), process.stderr.read()), ([], b""))

    def test_an_interrupt_leaves_nothing_and_is_one_line(self):
        process = self.started_run()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        self.assertEqual((os.listdir(self.folder), process.stderr.read()),
                         ([], b"decoder.py: interrupted\n"))

    def test_what_sigkill_leaves_hinders_no_later_run(self):
        process = self.started_run()
        process.kill()
        process.wait()
        self.assertNotIn("a", os.listdir(self.folder))
        self.assertEqual(call(decoder.main, "--out", self.path("a")), (0, "", ""))

    def test_a_wrong_result_keeps_its_records_and_exits_1(self):
        class Wrong(PrefixCache):
            def query(self, scope, model, tokens):
                states, record = super().query(scope, model, tokens)
                return states + (1e-9 if record["hit_tokens"] else 0), record

        self.addCleanup(setattr, decoder, "PrefixCache", PrefixCache)
        decoder.PrefixCache = Wrong
        status, out, err = call(decoder.main, "--out", self.path("a"))
        self.assertEqual((status, out), (1, ""))
        self.assertIn("a cached result differs from the full recompute by 1.0", err)
        self.assertTrue(os.path.exists(self.path("a", "results.json")))


if __name__ == "__main__":
    unittest.main()
