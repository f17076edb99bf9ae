"""offload.py: its tiers are the simulated ones, its states the recomputed ones."""

import itertools
import json
import os
import random
import tempfile
import unittest
from unittest import mock

try:
    import numpy as np
    import offload
    from decoder import Decoder
    from offload import ROOM, Protocol, Tiers, timed_read
except ImportError:             # without NumPy
    raise unittest.SkipTest("offload.py needs NumPy") from None

import summarize
from kvsim import TwoTierCache
from test_support import call, read, run, write

SMALL = ("--docs", 3, "--tokens", 6, "--hidden", 8, "--gpu-docs", 1,
         "--cpu-docs", 2)


def made(docs=5, tokens=6, fast=2, slow=3, hidden=8):
    """Return Tiers over random documents of a small decoder."""
    decoder = Decoder(3, hidden)
    documents = np.random.default_rng(1).integers(32, size=(docs, tokens))
    return Tiers(decoder, documents, fast, slow)


def ticks(step=1_000_000):
    """Return a timer that moves by `step` nanoseconds at each look."""
    return itertools.count(0, step).__next__


def same(found, expected):
    """Tell whether two checkpoints are equal bit for bit."""
    return all(one.tobytes() == other.tobytes() and one.dtype == other.dtype
               for layer, wanted in zip(found, expected)
               for one, other in zip(layer, wanted))


def document_rows(slot, tokens):
    return tuple(tuple(array[:tokens] for array in layer) for layer in slot)


class TestInPlace(unittest.TestCase):
    """Decoder.extend_in_place: `extend` into rows that are there already."""

    TOKENS = [3, 1, 4, 1, 5, 9, 2]

    def test_every_split_equals_extend_bit_for_bit(self):
        model = Decoder(7)
        for first in range(1, 7):
            _, checkpoint = model.extend(self.TOKENS[:first])
            expected, grown = model.extend(self.TOKENS[first:], checkpoint)
            layers = model.room_for(7)
            model.extend_in_place(self.TOKENS[:first], layers, 0)
            found = model.extend_in_place(self.TOKENS[first:], layers, first)
            with self.subTest(first=first):
                self.assertEqual(found.tobytes(), expected.tobytes())
                self.assertTrue(same(layers, grown))

    def test_later_rows_are_neither_read_nor_written(self):
        model = Decoder(7)
        expected, _ = model.extend(self.TOKENS)
        layers = model.room_for(9)
        for layer in layers:
            layer.k.fill(np.nan), layer.v.fill(np.nan), layer.positions.fill(-5)
        found = model.extend_in_place(self.TOKENS, layers, 0)
        self.assertEqual(found.tobytes(), expected.tobytes())
        for layer in layers:
            self.assertTrue(np.isnan(layer.k[7:]).all() and np.isnan(layer.v[7:]).all())
            self.assertEqual(layer.positions.tolist(), [*range(7), -5, -5])

    def test_what_does_not_fit_is_refused_and_changes_nothing(self):
        model = Decoder(7)
        layers = model.room_for(7)
        model.extend_in_place(self.TOKENS, layers, 0)
        before = [array.tobytes() for layer in layers for array in layer]
        for error, tokens, start, words in (
                (ValueError, [1], 7, "there is room for 7 tokens, got 7 and 1 more"),
                (ValueError, [1, 2, 3], 5, "got 5 and 3 more"),
                (ValueError, [1], -1, "start must be a whole number >= 0, got -1"),
                (TypeError, [1], 1.0, "start must be a whole number, got 1.0"),
                (ValueError, [32], 0, "ids from 0 to 31"), (ValueError, [], 0, "ids"),
                (TypeError, [True], 0, "whole numbers")):
            with self.subTest(tokens=tokens, start=start):
                with self.assertRaises(error) as caught:
                    model.extend_in_place(tokens, layers, start)
                self.assertIn(words, str(caught.exception))
                self.assertEqual(
                    [array.tobytes() for layer in layers for array in layer], before)

    def test_extend_shares_no_memory_with_its_checkpoint(self):
        model = Decoder(7)
        _, checkpoint = model.extend(self.TOKENS)
        _, grown = model.extend([1], checkpoint)
        for layer, old in zip(grown, checkpoint):
            for array, rows in zip(layer, old):
                self.assertFalse(np.shares_memory(array, rows))
                self.assertIsNone(array.base)


class TestTiers(unittest.TestCase):

    def test_a_trace_by_hand(self):
        tiers = made(fast=2, slow=3)
        for doc, tier, fast, slow in (
                (0, "miss", [0], [0]), (1, "miss", [0, 1], [0, 1]),
                (0, "gpu", [1, 0], [0, 1]),     # the slow tier is not touched
                (2, "miss", [0, 2], [0, 1, 2]),
                (3, "miss", [2, 3], [1, 2, 3]),
                (1, "cpu", [3, 1], [2, 3, 1]), (0, "miss", [1, 0], [3, 1, 0]),
                (2, "miss", [0, 2], [1, 0, 2]), (0, "gpu", [2, 0], [1, 0, 2])):
            with self.subTest(doc=doc, tier=tier):
                self.assertEqual(tiers.bring(doc)[1], tier)
                self.assertEqual((list(tiers.fast), list(tiers.slow)), (fast, slow))

    def test_tiers_are_the_simulated_ones(self):
        rng, decoder = random.Random(5), Decoder(7, 2)
        documents = np.random.default_rng(1).integers(32, size=(6, 2))
        for fast, slow in itertools.product((1, 2, 4, 6), (0, 1, 3, 5, 6, 9)):
            tiers = Tiers(decoder, documents, fast, slow)
            simulated = TwoTierCache(fast * 2, slow * 2)
            for step in range(60):
                doc = rng.randrange(6)
                _, tier = tiers.bring(doc)
                where = fast, slow, step
                self.assertEqual(tier, simulated.access(doc, 2), where)
                self.assertEqual(list(tiers.fast), simulated.gpu.keys(), where)
                self.assertEqual(list(tiers.slow), simulated.cpu.keys(), where)

    def test_every_tier_holds_the_document_bit_for_bit(self):
        tiers, rng, seen = made(), random.Random(3), set()
        expected = [tiers.decoder.extend(document)[1] for document in tiers.documents]
        for step in range(80):
            doc = rng.randrange(5)
            slot, tier = tiers.bring(doc)
            seen.add(tier)
            self.assertIs(slot, tiers.fast[doc])
            self.assertTrue(same(document_rows(slot, 6), expected[doc]), (step, tier))
            for kept, copy in tiers.slow.items():
                self.assertTrue(same(copy, expected[kept]), (step, kept))
        self.assertEqual(seen, {"gpu", "cpu", "miss"})

    def test_the_fast_tier_never_allocates_again(self):
        tiers = made(fast=2)
        slots = {id(tiers.bring(doc)[0]) for doc in (0, 1)}
        for doc in (2, 3, 0, 4, 1, 1, 2):
            self.assertIn(id(tiers.bring(doc)[0]), slots)
        self.assertEqual({id(slot) for slot in tiers.fast.values()}, slots)

    def test_a_slot_has_room_for_a_question_and_what_is_decoded(self):
        tiers = made(tokens=6)
        slot, _ = tiers.bring(0)
        self.assertEqual(ROOM, 4 + 8)
        self.assertEqual([array.shape for array in slot[0]], [(18, 8), (18, 8), (18,)])

    def test_slots_are_touched_before_anything_is_read(self):
        with mock.patch.object(Decoder, "room_for", autospec=True,
                               side_effect=self.garbage):
            tiers = made(fast=3)
        self.assertEqual(len(tiers._free), 3)
        for slot in tiers._free:
            self.assertFalse(any(array.any() for layer in slot for array in layer))

    @staticmethod
    def garbage(decoder, tokens):
        return tuple((np.full((tokens, 8), 7.0), np.full((tokens, 8), 7.0),
                      np.full(tokens, 7)) for _ in decoder.weights)

    def test_copies_own_their_memory(self):
        tiers = made()
        for doc in (0, 1, 2):
            tiers.bring(doc)
        for copy in tiers.slow.values():
            for layer in copy:
                for array in layer:
                    self.assertIsNone(array.base)
                    self.assertEqual(len(array), 6)

    def test_each_tier_costs_only_what_it_must(self):
        tiers = made(fast=1, slow=3)
        tiers.bring(0), tiers.bring(1)
        for doc, expected in ((1, []), (0, ["paste"]), (2, ["compute", "copy"])):
            with self.subTest(doc=doc):
                self.assertEqual(self.work(tiers, lambda: tiers.bring(doc)), expected)
        alone = made(fast=1, slow=0)
        self.assertEqual(self.work(alone, lambda: alone.bring(0)), ["compute"])
        self.assertEqual(len(alone.slow), 0)

    def work(self, tiers, call, timer=None):
        """Return what `call` does to K/V, in order; looks at the clock are "|"."""
        done = []

        def logged(name, function):
            def log(*args):
                done.append(name)
                return function(*args)
            return log

        decoder = mock.Mock(wraps=tiers.decoder)
        decoder.embedding = tiers.decoder.embedding
        decoder.extend_in_place = logged("compute", tiers.decoder.extend_in_place)
        with mock.patch.object(tiers, "decoder", decoder), \
                mock.patch("offload.paste", logged("paste", offload.paste)), \
                mock.patch("offload.rows_of", logged("copy", offload.rows_of)):
            call(*([logged("|", ticks())] if timer else []))
        return done

    def test_all_that_a_tier_costs_is_within_the_time_to_first_token(self):
        tiers = made(fast=1, slow=3)
        tiers.bring(0), tiers.bring(1)
        rest = ["compute", "|", *8 * ["compute"], "|"]
        for doc, bring in ((1, []), (0, ["paste"]), (2, ["compute", "copy"])):
            with self.subTest(doc=doc):
                self.assertEqual(
                    self.work(tiers, lambda timer: timed_read(
                        tiers, doc, [1, 2, 3, 4], timer), timer=True),
                    ["|", *bring, *rest])

    def test_bad_capacities_and_documents_are_refused(self):
        for error, options, words in (
                (ValueError, {"fast": 0}, "fast_docs must be a whole number >= 1"),
                (ValueError, {"slow": -1}, "slow_docs must be a whole number >= 0"),
                (TypeError, {"fast": 1.0}, "fast_docs must be a whole number, got 1.0"),
                (TypeError, {"slow": True}, "slow_docs must be a whole number"),
                (ValueError, {"tokens": 0}, "tokens must be one or more ids")):
            with self.subTest(options=options), self.assertRaises(error) as caught:
                made(**options)
            self.assertIn(words, str(caught.exception))


class TestRead(unittest.TestCase):

    def test_times_are_those_of_the_clock_in_milliseconds(self):
        found = timed_read(made(), 0, [1, 2, 3, 4], ticks(1_500_000))
        self.assertEqual((found.ttft_ms, found.total_ms), (1.5, 3.0))

    def test_tokens_are_chosen_greedily_and_fed(self):
        tiers, question = made(), [1, 2, 3, 4]
        found = timed_read(tiers, 0, question)
        text = [*tiers.documents[0], *question]
        expected = []
        for _ in range(9):
            state = tiers.decoder.extend(text)[0][-1]
            scores = [float(row @ state) for row in tiers.decoder.embedding]
            expected.append(scores.index(max(scores)))
            text.append(expected[-1])
        self.assertEqual(found.tokens, expected)
        self.assertGreater(len(set(expected)), 1)

    def test_states_equal_a_full_recompute_from_every_tier(self):
        tiers, rng, seen = made(), random.Random(4), set()
        for _ in range(40):
            doc, question = rng.randrange(5), [rng.randrange(32) for _ in range(4)]
            found = timed_read(tiers, doc, question)
            full, _ = tiers.decoder.extend(
                [*tiers.documents[doc], *question, *found.tokens[:-1]])
            self.assertEqual(found.states.shape, (12, 8))
            error = np.abs(found.states - full[6:]).max()
            self.assertLess(error, 1e-12)
            self.assertEqual(offload.error_of(found, tiers, doc, question), error)
            seen.add(found.tier)
        self.assertEqual(seen, {"gpu", "cpu", "miss"})

    def test_an_error_is_the_largest_difference_of_any_state(self):
        tiers, question = made(), [1, 2, 3, 4]
        found = timed_read(tiers, 0, question)
        for row in (0, 3, 4, 11):
            states = found.states.copy()
            states[row, 2] -= 0.5
            error = offload.error_of(found._replace(states=states), tiers, 0, question)
            self.assertAlmostEqual(error, 0.5, places=12)


class TestRun(unittest.TestCase):

    def test_rows_by_hand(self):
        steps = []
        rows, reads, errors = offload.run(
            Protocol(docs=2, tokens=3, hidden=4, gpu_docs=1, cpu_docs=2), ticks(),
            step=lambda: steps.append(1))
        found = [(row["config"], row["pass"], row["doc"], row["tier"]) for row in rows]
        both = ("baseline", "lmcache")
        self.assertEqual(found, [
            (config, name, doc, tier) for name, doc, tiers in (
                ("pass1-cold", 0, ("miss", "miss")),
                ("pass1-cold", 1, ("miss", "miss")),
                ("pass2-replay", 0, ("miss", "cpu")),
                ("pass2-replay", 1, ("miss", "cpu")),
                ("pass3-reverse", 1, ("gpu", "gpu")),
                ("pass3-reverse", 0, ("miss", "cpu")))
            for config, tier in zip(both, tiers)])
        self.assertEqual(list(rows[0]), ["config", "pass", "doc", "doc_tokens",
                                         "ttft_ms", "total_ms", "tier"])
        self.assertEqual({(row["doc_tokens"], row["ttft_ms"], row["total_ms"])
                          for row in rows}, {(3, 1.0, 2.0)})
        self.assertEqual((len(reads), len(errors), len(steps)), (12, 12, 12))
        self.assertLess(max(errors), 1e-12)

    def test_the_slow_tier_makes_room_before_it_copies(self):
        tiers = made(fast=1, slow=2)
        copied = []

        def rows_of(*arguments):
            copied.append(len(tiers.slow))
            return decoder_rows_of(*arguments)

        decoder_rows_of = offload.rows_of
        with mock.patch.object(offload, "rows_of", rows_of):
            for doc in range(5):
                tiers.bring(doc)
        self.assertEqual(copied, [0, 1, 1, 1, 1])

    def test_a_slow_tier_one_document_too_small_is_worth_nothing_in_a_cycle(self):
        for cpu_docs, expected in ((11, "cpu"), (10, "cpu"), (9, "miss")):
            rows, _, _ = offload.run(Protocol(tokens=2, hidden=2, cpu_docs=cpu_docs))
            found = [row["tier"] for row in rows if row["config"] == "lmcache"
                     and row["pass"] == "pass2-replay"]
            self.assertEqual(found, [expected] * 10, cpu_docs)

    def test_passes_by_other_orders_are_named_by_number_and_order(self):
        for passes, names in (
                (("fwd", "fwd", "rev"), ["pass1-cold", "pass2-replay", "pass3-reverse"]),
                (("rev", "rev", "fwd", "fwd"),
                 ["pass1-rev", "pass2-rev", "pass3-fwd", "pass4-fwd"])):
            reads = Protocol(docs=2, passes=passes).reads()
            self.assertEqual([name for name, _ in reads[::2]], names)

    def test_only_lmcache_has_a_slow_tier(self):
        with mock.patch("offload.Tiers", wraps=Tiers) as made_tiers:
            offload.run(Protocol(docs=2, tokens=2, hidden=2, gpu_docs=3, cpu_docs=5))
        self.assertEqual([one.args[2:] for one in made_tiers.call_args_list],
                         [(3, 0), (3, 5), (1, 1)])      # the last is the warm-up

    def test_both_configs_get_the_same_question_and_every_read_its_own(self):
        protocol = Protocol(docs=3, tokens=3, hidden=4)
        asked = []
        with mock.patch("offload.timed_read", side_effect=lambda *args: (
                asked.append(args[2].tolist()), timed_read(*args))[1]):
            offload.run(protocol)
        warm, *asked = asked
        self.assertEqual(asked[0::2], asked[1::2])
        self.assertEqual(len(set(map(tuple, asked))), 9)

    def test_garbage_is_not_collected_within_the_run(self):
        import gc
        on = []

        def timer():
            on.append(gc.isenabled())
            return len(on)

        offload.run(Protocol(docs=1, tokens=2, hidden=2), timer)
        self.assertFalse(any(on))
        self.assertTrue(gc.isenabled())

    def test_random_protocols_agree_with_the_simulator(self):
        rng = random.Random(8)
        for _ in range(15):
            protocol = Protocol(
                docs=rng.randint(1, 6), tokens=rng.randint(1, 3), hidden=2,
                gpu_docs=rng.randint(1, 7), cpu_docs=rng.randint(0, 7),
                passes=tuple(rng.choice(("fwd", "rev"))
                             for _ in range(rng.randint(1, 4))), seed=rng.randrange(99))
            rows, _, errors = offload.run(protocol)
            self.assertEqual(
                offload.complaints("ttft.jsonl", protocol, rows, errors), [], protocol)


class InFolder(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "my-run")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def call(self, *argv):
        """Call offload.py; return its status, stdout and own lines of stderr."""
        status, out, err = call(offload.main, "--out", self.folder, *argv)
        return status, out, [line for line in err.splitlines()
                             if "BLAS threads" not in line]

    def rows(self):
        return [json.loads(line) for line in read(self.path("ttft.jsonl")).splitlines()]


class TestCommand(InFolder):

    def test_a_run_is_quiet_and_writes_its_records(self):
        self.assertEqual(self.call(*SMALL), (0, "", []))
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["manifest.json", "states.npz", "ttft.jsonl"])
        manifest = json.loads(read(self.path("manifest.json")))
        self.assertEqual(manifest["protocol"], {
            "docs": 3, "tokens": 6, "hidden": 8, "gpu_docs": 1, "cpu_docs": 2,
            "passes": ["fwd", "fwd", "rev"], "seed": 7,
            "question_tokens": 4, "decoded_tokens": 8})
        self.assertEqual(list(manifest["files"]), ["states.npz", "ttft.jsonl"])
        self.assertEqual(list(manifest["sources"]), [
            "attention.py", "decoder.py", "kvsim.py", "offload.py", "records.py"])
        self.assertEqual(len(self.rows()), 18)

    def test_states_and_tokens_are_kept(self):
        self.call(*SMALL)
        _, reads, _ = offload.run(Protocol(3, 6, 8, 1, 2))
        with np.load(self.path("states.npz")) as arrays:
            self.assertEqual(arrays["states"].shape, (18, 4, 8))
            self.assertEqual(arrays["tokens"].shape, (18, 9))
            for index, one in enumerate(reads):
                self.assertTrue((arrays["states"][index] == one.states[:4]).all())
                self.assertEqual(arrays["tokens"][index].tolist(), one.tokens)

    def test_two_runs_differ_in_nothing_but_times(self):
        self.call(*SMALL)
        untimed = [{**row, "ttft_ms": 0, "total_ms": 0} for row in self.rows()]
        states = read(self.path("states.npz"))
        self.folder += "-again"
        self.call(*SMALL)
        self.assertEqual(untimed, [{**row, "ttft_ms": 0, "total_ms": 0}
                                   for row in self.rows()])
        self.assertEqual(states, read(self.path("states.npz")))

    def test_summarize_reads_the_rows(self):
        self.call(*SMALL)
        status, out, err = call(summarize.main, self.path("ttft.jsonl"))
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(list(json.loads(out)["ratio"]),
                         ["pass1-cold", "pass2-replay", "pass3-reverse"])

    def test_another_tier_than_simulated_is_told_and_the_records_kept(self):
        wrong = ["miss"] * 18
        wrong[0] = "gpu"
        with mock.patch("offload.predicted_tiers", return_value=wrong):
            status, out, err = self.call("--cpu-docs", 0, *SMALL[:-2])
        place = self.path("ttft.jsonl")
        self.assertEqual((status, out, err), (1, "", [
            f"offload.py: {place}:1: found in tier miss, simulated is gpu",
            f"offload.py: {place}:13: found in tier gpu, simulated is miss",
            f"offload.py: {place}:14: found in tier gpu, simulated is miss"]))
        self.assertEqual(len(self.rows()), 18)

    def test_another_state_than_recomputed_is_told_and_the_records_kept(self):
        for error, shown in ((2e-12, "2e-12"), (float("nan"), "nan")):
            with mock.patch("offload.error_of", return_value=error):
                status, _, err = self.call(*SMALL)
            self.assertEqual((status, len(err)), (1, 18))
            self.assertEqual(err[0], f"offload.py: {self.path('ttft.jsonl')}:1: a state "
                                     f"differs from the full recompute by {shown}, "
                                     "allowed is 1e-12")
            self.assertEqual(len(self.rows()), 18)
            self.folder += "-again"

    def test_an_existing_folder_is_refused_and_left_alone(self):
        os.mkdir(self.folder)
        write(self.folder, "mine.txt", "x")
        status, out, err = self.call(*SMALL)
        self.assertEqual((status, out), (1, ""))
        self.assertEqual(err, [f"offload.py: {self.folder}: exists already, a new "
                               "folder is needed"])
        self.assertEqual(os.listdir(self.folder), ["mine.txt"])

    def test_too_much_is_one_line_and_leaves_nothing(self):
        status, out, err = self.call("--docs", 1, "--tokens", 10 ** 15)
        self.assertEqual((status, out, len(err)), (1, "", 1))
        self.assertEqual(os.listdir(os.path.dirname(self.folder)), [])

    def test_wrong_usage_is_told(self):
        for argv in (("--docs", "0"), ("--docs", "-1"), ("--docs", "1.5"),
                     ("--tokens", "0"), ("--hidden", "7"), ("--hidden", "0"),
                     ("--hidden", "x"), ("--gpu-docs", "0"), ("--cpu-docs", "-1"),
                     ("--seed", "-1"), ("--seed", "\u0663"), ("--passes", "fwd,,rev"),
                     ("--passes", ""), ("--passes", "Fwd")):
            status, out, err = call(offload.main, "--out", self.folder, *argv)
            with self.subTest(argv=argv):
                self.assertEqual((status, out), (2, ""))
                self.assertIn(f"argument {argv[0]}: must be", err)
                self.assertIn(repr(argv[1]), err)
        for argv in ((), ("--out", self.folder, "--doc", "3")):
            self.assertEqual(call(offload.main, *argv)[0], 2)
        self.assertFalse(os.path.exists(self.folder))

    def test_blas_is_pinned_before_numpy_or_the_run_says_so(self):
        code = "import sys; import offload; sys.exit(offload.main(sys.argv[1:]))"
        for first, expected, told in (("", 1, ""), ("import numpy; ", None,
                "offload.py: NumPy was imported before BLAS threads could be pinned; "
                "their number is not known\n")):
            done = run("-c", first + code, "--out", self.folder, *SMALL,
                       env={name: value for name, value in os.environ.items()
                            if not name.endswith("_NUM_THREADS")})
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", told))
            environment = json.loads(read(self.path("manifest.json")))["environment"]
            self.assertEqual(environment["blas_threads"], expected)
            self.folder += "-again"


if __name__ == "__main__":
    unittest.main()
