"""scenario.py: passes over the caches, and the command that prints them."""

import json
import os
import random
import tempfile
import unittest

import oracle
import scenario
from kvsim import LRUCache, TwoTierCache
from test_support import call, copy_scripts, run


# Documents 0 to 4 of 5, 4, 1, 8 and 1 tokens; a GPU of 4 tokens and a CPU of 7.
#          read     GPU after   CPU after (oldest first)
#   fwd    0 miss   -           0         too large for the GPU alone
#          1 miss   1           1         0 makes room
#          2 miss   2           1 2       1 makes room in the GPU
#          3 miss   2           1 2       too large for both: evicts nothing
#          4 miss   2 4         1 2 4
#   rev    4 gpu    2 4         1 2 4     the CPU is not touched
#          3 miss   2 4         1 2 4
#          2 gpu    4 2         1 2 4
#          1 cpu    1           2 4 1     2 and 4 make room in the GPU
#          0 miss   1           0         all make room in the CPU
#   fwd    0 cpu    1           0
#          1 gpu    1           0
#          2 miss   2           0 2
#          3 miss   2           0 2
#          4 miss   2 4         0 2 4
#   fwd    0 cpu    2 4         2 4 0
#          1 miss   1           1
#          2, 3, 4 miss, as in the first pass
WORKED = [((0, 0, 5), []), ((2, 1, 2), [4, 2, 1]), ((1, 1, 3), [0, 1]),
          ((0, 1, 4), [0])]


def counts(row):
    return row["gpu_hits"], row["cpu_hits"], row["misses"]


class TestPasses(unittest.TestCase):

    def rows(self, gpu, cpu, sizes, orders):
        return scenario.run_passes(TwoTierCache(gpu, cpu), sizes, orders)

    def test_one_pass_row_holds_all_that_was_counted(self):
        self.assertEqual(
            self.rows(2, 0, [1] * 3, ["fwd", "rev"])[1],
            {"order": "rev", "gpu_hits": 2, "cpu_hits": 0, "misses": 1,
             "hit_docs": [2, 1]})

    def test_every_read_is_counted_once(self):
        rows = self.rows(4, 10, [1] * 5, ["fwd", "fwd", "rev"])
        self.assertEqual([counts(row) for row in rows],
                         [(0, 0, 5), (0, 5, 0), (4, 1, 0)])

    def test_more_capacity_never_costs_hits_of_equal_documents(self):
        for seed in range(20):
            rng = random.Random(seed)
            orders = [rng.choice(("fwd", "rev")) for _ in range(4)]
            hits = [sum(row["gpu_hits"] for row in self.rows(gpu, 0, [3] * 6, orders))
                    for gpu in range(0, 22)]
            self.assertEqual(hits, sorted(hits), orders)

    def test_passes_agree_with_the_list_model(self):
        for seed in range(100):
            rng = random.Random(seed)
            gpu, cpu = rng.randrange(30), rng.choice((0, rng.randrange(60)))
            sizes = [rng.randrange(1, 30) for _ in range(rng.randrange(1, 8))]
            orders = [rng.choice(("fwd", "rev")) for _ in range(rng.randrange(1, 5))]
            model = oracle.ListTiers(gpu, cpu)
            for row, order in zip(self.rows(gpu, cpu, sizes, orders), orders):
                reading = sorted(range(len(sizes)), reverse=order == "rev")
                found = [model.access(doc, sizes[doc]) for doc in reading]
                with self.subTest(seed=seed):
                    self.assertEqual(row, {
                        "order": order, "gpu_hits": found.count("gpu"),
                        "cpu_hits": found.count("cpu"),
                        "misses": found.count("miss"),
                        "hit_docs": [doc for doc, tier in zip(reading, found)
                                     if tier != "miss"]})


class TestCommand(unittest.TestCase):

    def answer(self, *argv):
        status, out, err = call(scenario.main, *argv)
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_defaults_are_the_baseline_of_the_exercise(self):
        rows = self.answer()["passes"]
        self.assertEqual([row["order"] for row in rows], ["fwd", "fwd", "rev"])
        self.assertEqual([counts(row) for row in rows],
                         [(0, 0, 10), (0, 0, 10), (4, 0, 6)])
        self.assertEqual(rows[2]["hit_docs"], [9, 8, 7, 6])

    def test_a_cycle_over_too_small_a_cache_never_hits(self):
        rows = self.answer("--passes", "fwd,fwd")["passes"]
        self.assertEqual([(counts(row), row["hit_docs"]) for row in rows],
                         [((0, 0, 10), []), ((0, 0, 10), [])])

    def test_offloading_serves_the_second_and_third_pass(self):
        rows = self.answer("--gpu", 21520, "--cpu", 56000,
                           "--passes", "fwd,fwd,rev")["passes"]
        self.assertEqual([counts(row) for row in rows],
                         [(0, 0, 10), (0, 10, 0), (4, 6, 0)])
        self.assertEqual(rows[1]["hit_docs"], list(range(10)))
        self.assertEqual(rows[2]["hit_docs"], list(range(9, -1, -1)))

    def test_cpu_zero_is_the_answer_of_one_tier(self):
        self.assertEqual(self.answer("--cpu", 0), self.answer())

    def test_output_is_bare_json_with_one_pass_a_line(self):
        _, out, _ = call(scenario.main, "--docs", 1, "--passes", "fwd,rev")
        self.assertEqual(out, (
            '{"passes": [\n'
            ' {"order": "fwd", "gpu_hits": 0, "cpu_hits": 0, "misses": 1, '
            '"hit_docs": []},\n'
            ' {"order": "rev", "gpu_hits": 1, "cpu_hits": 0, "misses": 0, '
            '"hit_docs": [0]}\n'
            ']}\n'))

    def test_gpu_sweep_finds_the_cliff_at_the_sum_of_all_sizes(self):
        _, out, _ = call(scenario.main, "--passes", "fwd,fwd", "--sweep-gpu",
                         "21520,30000,40000,45000,50109,50110")
        self.assertEqual(out, '{"21520": 0, "30000": 0, "40000": 0, "45000": 0, '
                              '"50109": 0, "50110": 10}\n')

    def test_cpu_sweep_finds_the_cliff_at_the_sum_of_all_sizes(self):
        _, out, _ = call(scenario.main, "--gpu", 21520, "--passes", "fwd,fwd",
                         "--sweep-cpu", "0,20000,30000,40000,50109,50110,56000")
        self.assertEqual(out, '{"0": 10, "20000": 10, "30000": 10, "40000": 10, '
                              '"50109": 10, "50110": 0, "56000": 0}\n')

    def test_sweeps_use_the_other_tier_and_keep_the_order_given(self):
        reading = ("--docs", 5, "--tokens", 1, "--passes", "fwd,rev")
        hits = self.answer("--cpu", 4, "--sweep-gpu", "3,1,0", *reading)
        self.assertEqual(list(hits.items()), [("3", 4), ("1", 4), ("0", 4)])
        misses = self.answer("--gpu", 2, "--sweep-cpu", "3,0,5", *reading)
        self.assertEqual(list(misses.items()), [("3", 2), ("0", 3), ("5", 0)])

    def test_sizes_stand_in_for_docs_and_tokens(self):
        rows = self.answer("--gpu", 4, "--cpu", 7, "--sizes", "5,4,1,8,1",
                           "--passes", "fwd,rev,fwd,fwd")["passes"]
        self.assertEqual([(counts(row), row["hit_docs"]) for row in rows],
                         WORKED)

    def test_sweeps_answer_for_the_last_of_three_passes(self):
        orders = ("--passes", "fwd,fwd,rev")
        self.assertEqual(self.answer("--sweep-gpu", "21520", *orders), {"21520": 4})
        self.assertEqual(self.answer("--sweep-cpu", "0,56000", *orders),
                         {"0": 6, "56000": 0})

    def test_one_document_too_large_never_hits(self):
        rows = self.answer("--docs", 1, "--tokens", 30000, "--passes", "fwd,fwd")
        self.assertEqual([counts(row) for row in rows["passes"]], [(0, 0, 1)] * 2)

    def test_capacity_zero_and_leading_zeros(self):
        self.assertEqual(self.answer("--gpu", 0, "--docs", "02")["passes"][1],
                         {"order": "fwd", "gpu_hits": 0, "cpu_hits": 0,
                          "misses": 2, "hit_docs": []})


class TestRefusals(unittest.TestCase):

    CASES = (
        ("--docs", "10000001"), ("--docs", "9" * 20), ("--docs", "-1"), ("--docs", "0"),
        ("--docs", "1.5"), ("--docs", ""),
        ("--tokens", "0"), ("--tokens", "-3"), ("--tokens", "x"),
        ("--gpu", "-1"), ("--gpu", "1e3"), ("--gpu", "1_000"), ("--gpu", "nan"),
        ("--gpu", " 5"), ("--gpu", "\u0665"), ("--gpu", "\u00b2"),
        ("--gpu", "9" * 5000), ("--cpu", "-1"), ("--cpu", "inf"),
        ("--sizes", ""), ("--sizes", "1,0"), ("--sizes", "1,,2"),
        ("--passes", "fwd,,rev"), ("--passes", "Fwd"), ("--passes", ""),
        ("--passes", "fwd,"), ("--passes", "fwd rev"),
        ("--sweep-gpu", "1,x"), ("--sweep-gpu", ""), ("--sweep-gpu", "1,-2"),
        ("--sweep-cpu", "1,,2"), ("--sweep-cpu", "1.0"))

    def test_bad_values_name_the_option_and_print_nothing(self):
        for option, value in self.CASES:
            with self.subTest(option=option, value=value[:20]):
                status, out, err = call(scenario.main, option, value)
                self.assertEqual((status, out), (2, ""))
                self.assertIn("argument " + option, err)

    def test_message_says_what_came_and_what_is_allowed(self):
        for argv, message in (
                (("--gpu", "-1"), "--gpu: must be a whole number from 0 to "
                                   "1000000000000000, got '-1'"),
                (("--docs", "0"), "--docs: must be a whole number from 1 to "
                                   "10000000, got '0'"),
                (("--passes", "Fwd"), "--passes: must be fwd and rev joined by "
                                      "commas, got 'Fwd'")):
            self.assertIn(message, call(scenario.main, *argv)[2])

    def test_abbreviation_and_unknown_words_are_refused(self):
        for argv in (("--pass", "fwd"), ("--sweep", "1"), ("extra",)):
            with self.subTest(argv=argv):
                status, out, err = call(scenario.main, *argv)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(argv[0], err)

    def test_sweeps_exclude_each_other(self):
        status, out, err = call(scenario.main, "--sweep-gpu", "1", "--sweep-cpu", "1")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("--sweep-cpu: not allowed with argument --sweep-gpu", err)

    def test_sizes_exclude_docs_and_tokens(self):
        for option in ("--docs", "--tokens"):
            status, out, err = call(scenario.main, "--sizes", "1,2", option, "3")
            self.assertEqual((status, out), (2, ""))
            self.assertIn("--sizes: not allowed with --docs or --tokens", err)


class TestProcess(unittest.TestCase):

    def test_runs_without_packages_in_an_empty_folder_with_kvsim(self):
        with tempfile.TemporaryDirectory() as folder:
            copy_scripts(folder, "kvsim.py", "scenario.py")
            done = run("-S", "-B", "scenario.py", "--docs", 2, folder=folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(len(json.loads(done.stdout)["passes"]), 3)

    def test_a_reader_that_has_gone_is_no_error(self):
        done = run("-c", "import os, sys, scenario; r, w = os.pipe(); os.close(r); "
                         "os.dup2(w, 1); sys.exit(scenario.main([]))")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_full_disk_is_one_line_on_stderr(self):
        done = run("-c", "import os, sys, scenario; os.dup2(os.open('/dev/full', "
                         "os.O_WRONLY), 1); sys.exit(scenario.main([]))")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "scenario.py: stdout: No space left on device\n"))


    def test_a_closed_stdout_is_one_line_on_stderr(self):
        done = run("-c", "import scenario, sys; sys.stdout = None; "
                         "sys.exit(scenario.main([]))")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "scenario.py: stdout: is closed\n"))


class TestPublicFunctions(unittest.TestCase):

    def test_any_cache_with_access_serves(self):
        class Always:
            def access(self, key, size):
                return "cpu"
        row = scenario.run_passes(Always(), [1, 1], ["rev"])[0]
        self.assertEqual((counts(row), row["hit_docs"]), ((0, 2, 0), [1, 0]))

    def test_sizes_are_what_the_caller_says(self):
        tiers = TwoTierCache(10, 0)
        scenario.run_passes(tiers, [4, 5], ["fwd"])
        self.assertEqual(tiers.gpu.used, 9)
        self.assertIsInstance(tiers.gpu, LRUCache)


if __name__ == "__main__":
    unittest.main()
