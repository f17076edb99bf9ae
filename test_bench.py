"""Tests of bench.py: the harness by a fake clock, the commands in a folder."""

import contextlib
import csv
import functools
import gc
import hashlib
import io
import json
import mmap
import os
import random
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

try:
    import numpy as np

    import attention
    import bench
    import experiments
    import figures
    import records
    import timings
except ImportError as error:
    raise unittest.SkipTest(f"needs NumPy: {error}")

from test_support import HOME, TemporaryFolder, call

SMALL = ("--warmup", "0", "--repeats", "2")
FILES = {"cache-strategy": {"raw.csv", "environment.json", "summary.csv",
                            "analysis.md", "latency.svg"},
         "m0-length-scan": {"raw.csv", "environment.json", "summary.csv",
                            "analysis.md", "speedup.svg"},
         "m1-batch-size-scan": {"raw.csv", "environment.json", "summary.csv",
                                "knee-analysis.md", "latency-p50-p95.svg",
                                "throughput-positions-per-second.svg"}}


class FakeClock:
    """A clock that stands still unless a call lets time pass."""

    def __init__(self):
        self.now, self.faults, self.log = 0, 0, []

    def time_ns(self):
        return self.now

    def minor_faults(self):
        return self.faults

    def call(self, name, elapsed_ns, faults=0):
        self.log.append(name)
        self.now += elapsed_ns
        self.faults += faults

    def group(self, name, elapsed_ns, faults=0):
        call = functools.partial(self.call, name, elapsed_ns, faults)
        return experiments.Group((name, 1, 8), lambda: [((), call)], lambda: 0.0)


class TestHarness(unittest.TestCase):
    def setUp(self):
        self.clock = FakeClock()

    def measure(self, groups, faults=None, step=lambda: None, **settings):
        settings = experiments.Settings(**{"warmup": 0, "repeats": 1, **settings})
        return bench.measure(groups, settings, self.clock.time_ns,
                             faults or self.clock.minor_faults, step)

    def groups(self, names="abc"):
        return [self.clock.group(name, 10 ** place, place)
                for place, name in enumerate(names)]

    def test_samples_are_exact_and_sorted_by_group(self):
        found = self.measure(self.groups(), repeats=2)
        self.assertEqual([(row.key, row.sample, row.elapsed_ns, row.minor_faults)
                          for row in found],
                         [(("a", 1, 8), 1, 1, 0), (("a", 1, 8), 2, 1, 0),
                          (("b", 1, 8), 1, 10, 1), (("b", 1, 8), 2, 10, 1),
                          (("c", 1, 8), 1, 100, 2), (("c", 1, 8), 2, 100, 2)])

    def test_every_round_samples_every_group_once(self):
        self.measure(self.groups("abcd"), warmup=3, repeats=7)
        rounds = [self.clock.log[place:place + 4] for place in range(0, 40, 4)]
        self.assertEqual([sorted(names) for names in rounds], [list("abcd")] * 10)
        self.assertGreater(len({tuple(names) for names in rounds}), 4)

    def test_order_is_that_of_the_seed_and_position_in_the_run(self):
        found = self.measure(self.groups(), warmup=1, repeats=3, seed=5)
        rng, expected = random.Random(5), []
        for _ in range(4):
            names = list("abc")
            rng.shuffle(names)
            expected += names
        self.assertEqual(self.clock.log, expected)
        by_order = sorted(found, key=lambda row: row.order)
        self.assertEqual([row.order for row in by_order], list(range(1, 10)))
        self.assertEqual([row.key[0] for row in by_order], expected[3:])
        self.assertEqual([row.sample for row in by_order], [1, 1, 1, 2, 2, 2, 3, 3, 3])

    def test_warm_up_runs_and_is_not_recorded(self):
        found = self.measure(self.groups("a"), warmup=4, repeats=2)
        self.assertEqual(len(self.clock.log), 6)
        self.assertEqual([row[1:4] for row in found], [(1, 1, 1), (2, 1, 2)])

    def test_setting_up_a_sample_is_outside_its_interval(self):
        clock = self.clock

        def calls():
            clock.call("set up", 1000, 50)
            return [((), functools.partial(clock.call, "timed", 7, 3))]

        found, = self.measure([experiments.Group(("a", 1, 8), calls, None)])
        self.assertEqual(clock.log, ["set up", "timed"])
        self.assertEqual((found.elapsed_ns, found.minor_faults), (7, 3))

    def test_freeing_the_result_is_outside_the_interval(self):
        clock = self.clock

        class Result:
            def __del__(self):
                clock.call("freed", 1000, 50)

        found = self.measure([experiments.Group(("a", 1, 8), lambda: [((), Result)],
                                                None)],
                             repeats=2)
        self.assertEqual(clock.log, ["freed"] * 2)
        self.assertEqual([row.elapsed_ns for row in found], [0, 0])
        self.assertEqual([row.minor_faults for row in found], [0, 0])

    def test_one_sample_may_be_several_calls_with_keys_of_their_own(self):
        call = functools.partial(self.clock.call, "x", 5)
        group = experiments.Group(("a",), lambda: [((2,), call), ((1,), call)], None)
        found = self.measure([group], repeats=2)
        self.assertEqual([(row.key, row.sample, row.order) for row in found],
                         [(("a", 1), 1, 2), (("a", 1), 2, 4),
                          (("a", 2), 1, 1), (("a", 2), 2, 3)])

    def test_unknown_page_faults_stay_unknown(self):
        found, = self.measure(self.groups("a"), faults=lambda: None)
        self.assertIsNone(found.minor_faults)
        self.assertEqual(bench.raw_csv("batch_size_scan", [found]).split("\n")[1],
                         "batch_size_scan,a,1,8,1,0.000001,1,")

    def test_garbage_collection_is_off_while_timing_and_as_before_after(self):
        seen = []
        call = lambda: seen.append(gc.isenabled())
        group = experiments.Group(("a", 1, 8), lambda: [((), call)], None)
        for was_on in (True, False):
            (gc.enable if was_on else gc.disable)()
            try:
                self.measure([group], warmup=1)
                self.assertEqual(gc.isenabled(), was_on)
            finally:
                gc.enable()
        self.assertEqual(seen, [False] * 4)
        with self.assertRaises(ZeroDivisionError):
            self.measure([experiments.Group(("a",), lambda: 1 / 0, None)])
        self.assertTrue(gc.isenabled())

    def test_the_interval_holds_the_call_and_nothing_else(self):
        log = []

        def count(name, value):
            log.append(name)
            return value

        bench.time_call(lambda: log.append("call"), lambda: count("timer", 0),
                        lambda: count("faults", 0))
        self.assertEqual(log, ["faults", "timer", "call", "timer", "faults"])

    def test_variables_of_the_allocator_are_recorded(self):
        settings = experiments.Settings()
        variables = {"GLIBC_TUNABLES": "x", "MALLOC_ARENA_MAX": "1"}
        with mock.patch.dict(os.environ, variables):
            malloc = bench.environment("cache", settings, [], [])["malloc"]
        self.assertEqual(malloc, {**malloc, **variables})

    def test_progress_counts_every_group_of_every_round(self):
        steps = []
        self.measure(self.groups(), warmup=2, repeats=3,
                     step=lambda: steps.append(len(self.clock.log)))
        self.assertEqual(steps, list(range(1, 16)))

    def test_raw_csv_keeps_every_nanosecond(self):
        rows = [bench.Sample(("batched", 2, 16), 1, 1234567, 5, 3),
                bench.Sample(("batched", 2, 16), 2, 12345678901234, 6, 0)]
        self.assertEqual(
            bench.raw_csv("batch_length_scan", rows),
            "experiment,path,batch_size,sequence_length,sample,elapsed_ms,order,"
            "minor_faults\nbatch_length_scan,batched,2,16,1,1.234567,5,3\n"
            "batch_length_scan,batched,2,16,2,12345678.901234,6,0\n")

    def test_real_page_faults_are_a_count_that_never_falls(self):
        before = bench.minor_faults()
        if before is None:
            self.skipTest("no page faults on this platform")
        with mmap.mmap(-1, 1 << 20) as fresh:       # pages that nobody has touched
            fresh.write(bytes(1 << 20))
            self.assertGreater(bench.minor_faults(), before)


class TestErrors(unittest.TestCase):
    def test_errors_are_those_of_the_groups(self):
        groups = [experiments.Group(("a",), None, lambda: 1e-9),
                  experiments.Group(("b",), None, lambda: 1e-8)]
        self.assertEqual(bench.check_errors(groups, 1e-8), [1e-9, 1e-8])

    def test_an_error_that_is_too_large_names_its_group(self):
        for error, text in ((1.1e-8, "1.1e-08"), (float("nan"), "nan"),
                            (float("inf"), "inf")):
            groups = [experiments.Group(("batched", 2, 16), None, lambda: error)]
            with self.subTest(error), self.assertRaises(ValueError) as caught:
                bench.check_errors(groups, 1e-8)
            self.assertEqual(str(caught.exception), "batched/2/16: the largest error "
                             f"against the path without a cache is {text}, allowed is "
                             "1e-08; nothing was timed")


class CommandCase(TemporaryFolder):
    def text(self, *names):
        with open(self.path(*names), encoding="utf-8", newline="") as file:
            return file.read()

    def write(self, text, *names):
        os.makedirs(os.path.dirname(self.path(*names)), exist_ok=True)
        with open(self.path(*names), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return self.path(*names)

    def run_main(self, *argv):
        """Return the exit status, stdout and stderr of one command."""
        return call(bench.main, *argv)

    def measure(self, name="batch-size", *more):
        path = self.path("run", "raw.csv")
        status, out, _ = self.run_main("measure", "--experiment", name, "--csv", path,
                                       *SMALL, *more)
        self.assertEqual((status, out), (0, ""))
        return path

    def fails(self, *argv):
        """Return the one line of a command that fails with status 1."""
        status, out, err = self.run_main(*argv)
        self.assertEqual((status, out), (1, ""), err)
        *notes, line = err.splitlines()
        self.assertTrue(line.startswith("bench.py: "), err)
        self.assertLessEqual(len(notes), 1, err)
        return line[len("bench.py: "):]


class TestMeasure(CommandCase):
    def test_rows_of_each_experiment(self):
        for name, label, rows in (("cache", "cache_strategy", 12),
                                  ("batch-length", "batch_length_scan", 8),
                                  ("batch-size", "batch_size_scan", 8)):
            path = self.measure(name, "--lengths", "3,2", "--batch-sizes", "1,2",
                                "--length", "2")
            with open(path, encoding="utf-8", newline="") as file:
                found = list(csv.DictReader(file))
            with self.subTest(name):
                self.assertEqual(len(found), rows)
                self.assertEqual({row["experiment"] for row in found}, {label})
                self.assertEqual(sorted(int(row["order"]) for row in found),
                                 list(range(1, rows + 1)))
                self.assertTrue(all(float(row["elapsed_ms"]) > 0 for row in found))

    def test_environment_says_what_the_run_was(self):
        with mock.patch.dict(os.environ, {"MALLOC_TRIM_THRESHOLD_": "5"}):
            path = self.measure("batch-size", "--batch-sizes", "2,1", "--length", "3",
                                "--dtype", "float32", "--seed", "9")
        facts = json.loads(self.text("run", "environment.json"))
        self.assertEqual(facts["arguments"], {
            "experiment": "batch-size", "warmup": 0, "repeats": 2, "dtype": "float32",
            "seed": 9, "batch_sizes": [1, 2], "length": 3})
        self.assertEqual((facts["dtype"], facts["seed"], facts["tolerance"],
                          facts["numpy"]), ("float32", 9, 1e-4, np.__version__))
        self.assertEqual(facts["malloc"]["MALLOC_TRIM_THRESHOLD_"], "5")
        self.assertEqual([(row["path"], row["batch_size"], row["sequence_length"])
                          for row in facts["errors"]],
                         [("sequential", 1, 3), ("batched", 1, 3),
                          ("sequential", 2, 3), ("batched", 2, 3)])
        self.assertTrue(all(0 <= row["max_abs_error"] < 1e-4
                            for row in facts["errors"]))
        with open(path, "rb") as file:
            self.assertEqual(facts["csv"], {
                "name": "raw.csv", "sha256": hashlib.sha256(file.read()).hexdigest()})
        with open(os.path.join(HOME, "bench.py"), "rb") as file:
            self.assertEqual(facts["sources"]["bench.py"],
                             hashlib.sha256(file.read()).hexdigest())
        self.assertEqual(list(facts["sources"]), [
            "attention.py", "bench.py", "experiments.py", "records.py", "timings.py",
            "verdicts.py"])

    def test_existing_csv_is_replaced(self):
        self.write("old", "run", "raw.csv")
        self.measure("cache", "--lengths", "2")
        self.assertTrue(self.text("run", "raw.csv").startswith("experiment,path"))
        self.assertEqual(sorted(os.listdir(self.path("run"))),
                         ["environment.json", "raw.csv"])

    def test_a_path_that_is_wrong_stops_everything_before_timing(self):
        def wrong(x, *weights):
            return attention.batched_cached_attention(x, *weights)[0] + 1e-7

        path = self.write("old", "run", "raw.csv")
        groups = functools.partial(experiments.decode_groups, {"batched": wrong},
                                   experiments.batch_sizes_of)
        experiment = experiments.EXPERIMENTS["batch-size"]._replace(groups=groups)
        with mock.patch.dict(experiments.EXPERIMENTS, {"batch-size": experiment}), \
                mock.patch.object(bench, "measure") as timed:
            line = self.fails("measure", "--experiment", "batch-size", "--csv", path,
                              "--length", "2", *SMALL)
        self.assertIn("batched/1/2: the largest error", line)
        self.assertFalse(timed.called)
        self.assertEqual(os.listdir(self.path("run")), ["raw.csv"])
        self.assertEqual(self.text("run", "raw.csv"), "old")

    def test_bad_paths_are_refused_before_timing(self):
        self.write("", "file")
        os.mkdir(self.path("folder"))
        with mock.patch.object(bench, "run_experiment") as run:
            for path, words in (
                    (self.path("file", "raw.csv"), "is no folder to write in"),
                    (self.path("folder"), "is a folder, a file is needed"),
                    (self.path("environment.json"), "this name is wanted")):
                with self.subTest(path):
                    line = self.fails("measure", "--experiment", "cache", "--csv", path)
                    self.assertTrue(line.startswith(path + ": "), line)
                    self.assertIn(words, line)
        self.assertFalse(run.called)

    @unittest.skipUnless(os.path.exists("/dev/null"), "no null device")
    def test_null_device_gets_the_csv_and_no_environment(self):
        before = set(os.listdir("/dev"))
        status, out, err = self.run_main(
            "measure", "--experiment", "cache", "--lengths", "2", "--csv", "/dev/null",
            *SMALL)
        self.assertEqual((status, out), (0, ""))
        self.assertIn("no environment.json is written", err)
        self.assertNotIn("environment.json", set(os.listdir("/dev")) - before)

    def test_wrong_usage_names_the_option(self):
        path = ("--csv", self.path("raw.csv"))
        for argv, word in (
                (("--experiment", "cache"), "--csv"),
                (("--experiment", "all", *path), "--out"),
                (("--experiment", "cache", "--out", "x"), "--csv"),
                (("--experiment", "cache", "--out", "x", *path), "--csv"),
                (("--experiment", "none", *path), "--experiment"),
                (("--exp", "cache", *path), "--experiment"),
                (path, "--experiment"),
                *((("--experiment", "cache", *path, option, value), option)
                  for option, value in (
                      ("--warmup", "-1"), ("--repeats", "0"), ("--repeats", "1.5"),
                      ("--lengths", ""), ("--lengths", "4,,8"), ("--lengths", "4,4"),
                      ("--batch-sizes", "0"), ("--length", "x"), ("--seed", "-1"),
                      ("--seed", "9" * 5000), ("--dtype", "float16")))):
            with self.subTest(argv=argv):
                status, out, err = self.run_main("measure", *argv)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(word, err)
        self.assertEqual(os.listdir(self.folder), [])

    def test_out_of_memory_is_one_line(self):
        with mock.patch.object(bench, "run_experiment", side_effect=MemoryError("big")):
            self.assertEqual(self.fails("measure", "--experiment", "cache", "--csv",
                                        self.path("raw.csv")), "out of memory: big")

    def test_all_measures_and_summarizes_the_three(self):
        out = self.path("all")
        status, printed, _ = self.run_main(
            "measure", "--experiment", "all", "--out", out, *SMALL, "--lengths", "2,3",
            "--length", "2")
        self.assertEqual(status, 0)
        self.assertEqual({name: set(os.listdir(os.path.join(out, name)))
                          for name in os.listdir(out)}, FILES)
        self.assertEqual([line for line in printed.split("\n")
                          if line in timings.SCANS], list(timings.SCANS)[:3])
        self.assertIn("exists already", self.fails(
            "measure", "--experiment", "all", "--out", out))
        self.redraw_gives_the_same_bytes(out)

    def redraw_gives_the_same_bytes(self, out):
        for name, files in FILES.items():
            charts = [file for file in files if file.endswith(".svg")]
            before = [self.text("all", name, file) for file in charts]
            for file in charts:
                self.write("", "all", name, file)
            self.assertEqual(set(figures.redraw(os.path.join(out, name))),
                             {os.path.join(out, name, file) for file in charts})
            self.assertEqual([self.text("all", name, file) for file in charts], before)
        for summary in ("", "a,b\n1,2\n", "speedup\n1\n",
                        "sequence_length,speedup\n1,x\n"):
            self.write(summary, "all", "m0-length-scan", "summary.csv")
            with self.assertRaisesRegex(ValueError, "m0-length-scan: cannot be drawn"):
                figures.redraw(os.path.join(out, "m0-length-scan"))

    def test_a_failing_run_of_all_leaves_nothing(self):
        with mock.patch.object(bench, "summarize", side_effect=ValueError("no")):
            self.fails("measure", "--experiment", "all", "--out", self.path("all"),
                       *SMALL, "--lengths", "2", "--length", "2")
        self.assertEqual(os.listdir(self.folder), [])


class TestLaterExperiments(CommandCase):
    """admission, break-even and limit, measured and summarized in small."""

    ARGUMENTS = {"admission": (), "limit": ("--lengths", "3,2"),
                 "break-even": ("--hidden-sizes", "4,2", "--prefixes", "8,4")}
    DERIVED = {
        "admission": {"ratios-hot-prefix.svg", "ratios-alternating-branches.svg",
                      "ratios-three-scopes.svg", "ratios-hot-and-cold.svg"},
        "break-even": {"ratio-all.svg", "ratio-longest.svg", "ratio-shared.svg"},
        "limit": {"latency.svg", "over-bare.svg"}}

    def test_each_is_measured_summarized_and_redrawn(self):
        for name, more in self.ARGUMENTS.items():
            self.measure(name, *more)
            out = self.path(f"run-{name}")
            os.rename(self.path("run"), out)
            status, printed, err = self.run_main(
                "summarize", "--input", os.path.join(out, "raw.csv"), "--output-dir",
                out)
            with self.subTest(name):
                self.assertEqual((status, err), (0, ""))
                label = experiments.EXPERIMENTS[name].label
                self.assertEqual(printed.split("\n")[0], label)
                self.assertIn("- H1 the results agree: Supported", printed)
                self.assertEqual(set(os.listdir(out)), self.DERIVED[name] | {
                    "raw.csv", "environment.json", "summary.csv", "analysis.md"})
                for chart in self.DERIVED[name]:
                    before = self.text(out, chart)
                    figures.redraw(out)
                    self.assertEqual(self.text(out, chart), before)

    def test_rows_have_the_columns_of_their_experiment(self):
        path = self.measure("break-even", *self.ARGUMENTS["break-even"])
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(rows[0]), ["experiment", "policy", "hidden",
                                         "prefix_tokens", "sample", "elapsed_ms",
                                         "order", "minor_faults"])
        self.assertEqual([(row["policy"], row["hidden"], row["prefix_tokens"])
                          for row in rows[:16:2]],
                         [(policy, "2", length) for length in ("4", "8") for policy in
                          ("none", "all", "longest", "shared")])

    def test_what_was_counted_goes_from_the_environment_into_the_summary(self):
        path = self.measure("admission")
        facts = json.loads(self.text("run", "environment.json"))
        self.assertEqual(facts["errors"][0], {
            "seed": 7, "budget": 8192, "trace": "hot-prefix", "policy": "none",
            "part": "query", "max_abs_error": 0.0, "projected_rows": 864})
        self.assertEqual(list(facts["errors"][1]), ["seed", "budget", "trace", "policy",
                                                    "max_abs_error"])
        self.run_main("summarize", "--input", path, "--output-dir", self.path("run"))
        self.assertIn("\n8192,alternating-branches,shared,624,0.722222,",
                      self.text("run", "summary.csv"))
        self.assertIn("decoder.py", facts["sources"])

    def test_samples_by_others_need_no_counts_and_no_chart_breaks(self):
        path = self.measure("admission")
        os.unlink(self.path("run", "environment.json"))
        status, printed, _ = self.run_main("summarize", "--input", path,
                                           "--output-dir", self.path("run"))
        self.assertEqual(status, 0)
        self.assertIn("less time: Inconclusive", printed)
        chart = self.text("run", "ratios-hot-prefix.svg")
        self.assertIn("time (measured)", chart)
        self.assertNotIn("projected rows (counted)", chart)

    def test_what_is_not_given_is_the_experiment_s_own(self):
        for name, warmup, repeats in (("cache", 10, 30), ("admission", 1, 25),
                                      ("break-even", 10, 100), ("limit", 1, 60)):
            for given, expected in (((), (warmup, repeats)),
                                    (("--repeats", "7"), (warmup, 7)),
                                    (("--warmup", "0"), (0, repeats))):
                args = bench.make_parser().parse_args(
                    ["measure", "--experiment", name, "--csv", "x", *given])
                found = bench.settings_of(args, experiments.EXPERIMENTS[name])
                self.assertEqual((found.warmup, found.repeats), expected)
        self.assertEqual(found.lengths, (16, 64, 256, 1024, 4096))

    def test_settings_that_do_not_fit_are_refused(self):
        path = ("--csv", self.path("raw.csv"))
        for argv, word in ((("--prefixes", "4,6"), "multiples of 4, got '4,6'"),
                           (("--hidden-sizes", "3"), "multiples of 2, got '3'"),
                           (("--hidden-sizes", "x"), "--hidden-sizes")):
            status, out, err = self.run_main("measure", "--experiment", "break-even",
                                             *path, *argv)
            with self.subTest(argv):
                self.assertEqual((status, out), (2, ""))
                self.assertIn(word, err)
        self.assertEqual(self.fails("measure", "--experiment", "admission", *path,
                                    "--dtype", "float32"),
                         "the decoder computes in float64, got --dtype float32")
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_length_that_the_file_cannot_have_is_a_contradiction(self):
        path = self.measure("break-even", *self.ARGUMENTS["break-even"])
        self.assertEqual(self.fails(
            "summarize", "--input", path, "--output-dir", self.folder,
            "--sequence-length", "8"),
            f"{path}: --sequence-length 8 contradicts the file, which has none")


class TestThreads(CommandCase):
    def run_python(self, *program):
        argv = ["measure", "--experiment", "cache", "--csv", self.path("raw.csv"),
                "--lengths", "2", *SMALL]
        environment = {key: value for key, value in os.environ.items()
                       if key not in records.THREAD_VARIABLES}
        return subprocess.run(
            [sys.executable, *program, *argv], cwd=HOME, text=True,
            capture_output=True, env={**environment, "OMP_NUM_THREADS": "7"})

    def test_threads_are_pinned_before_numpy_is_imported(self):
        done = self.run_python("bench.py")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        facts = json.loads(self.text("environment.json"))
        self.assertEqual((facts["blas_threads"], facts["numpy_came_first"]), (1, False))
        self.assertEqual(facts["threads"], dict.fromkeys(records.THREAD_VARIABLES, "1"))

    def test_numpy_that_came_first_is_noted(self):
        done = self.run_python("-c", "import sys, numpy, bench;"
                               "sys.exit(bench.main(sys.argv[1:]))")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(done.stderr, "bench.py: NumPy was imported before BLAS threads "
                         "could be pinned; their number is not known\n")
        facts = json.loads(self.text("environment.json"))
        self.assertEqual((facts["blas_threads"], facts["numpy_came_first"]),
                         (None, True))
        self.assertEqual(facts["threads"]["OMP_NUM_THREADS"], "7")


class TestSummarize(CommandCase):
    SIX = ("experiment,path,batch_size,sequence_length,sample,elapsed_ms\n"
           "batch_size_scan,sequential,1,8,1,1.5\nbatch_size_scan,batched,1,8,1,2\n"
           "batch_size_scan,sequential,2,8,1,3\nbatch_size_scan,batched,2,8,1,2.5\n")

    def summarize(self, path, *more):
        return self.run_main("summarize", "--input", path, "--output-dir",
                             self.path("out"), *more)

    def test_six_columns_by_others_are_enough(self):
        path = self.write(self.SIX, "raw.csv")
        status, out, err = self.summarize(path, "--sequence-length", "8", "--dtype",
                                          "float64", "--blas-threads", "1")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(set(os.listdir(self.path("out"))),
                         FILES["m1-batch-size-scan"] - {"raw.csv", "environment.json"})
        self.assertEqual(self.text("out", "summary.csv").split("\n")[2],
                         "2,2.500000,2.500000,1.250000,6400.000000,1.200000,0.600000")
        self.assertEqual(out.split("\n")[:7], [
            "batch_size_scan", "Knee: Not reached in B <= 2", "- Batch sizes: 1, 2",
            "- Sequence lengths: 8", "- Samples in each group: 1", "- dtype: float64",
            "- BLAS threads: 1"])

    def test_the_gain_threshold_moves_the_knee(self):
        path = self.write(self.SIX, "raw.csv")
        for threshold, knee in (("0.6", "Not reached in B <= 2"), ("0.61", "B=2")):
            status, out, _ = self.summarize(path, "--gain-threshold", threshold)
            self.assertEqual((status, out.split("\n")[1]), (0, f"Knee: {knee}"))
        for bad in ("-0.1", "nan", "inf", "x", ""):
            status, _, err = self.summarize(path, "--gain-threshold", bad)
            self.assertEqual(status, 2)
            self.assertIn("--gain-threshold", err)

    def test_labels_come_from_the_environment(self):
        path = self.measure("batch-size", "--batch-sizes", "1,2", "--length", "3",
                            "--dtype", "float32")
        with mock.patch.object(bench, "BLAS_PINNED", True):
            path = self.measure("batch-size", "--length", "3", "--dtype", "float32")
        status, out, err = self.summarize(path)
        self.assertEqual((status, err), (0, ""))
        for line in ("- dtype: float32", "- BLAS threads: 1",
                     "- H1 the paths agree: Supported"):
            self.assertIn(f"\n{line}\n", out)
        self.assertEqual(self.summarize(path, "--sequence-length", "3", "--dtype",
                                        "float32", "--blas-threads", "1")[1], out)

    def test_labels_that_contradict_are_refused(self):
        with mock.patch.object(bench, "BLAS_PINNED", True):
            path = self.measure("cache", "--lengths", "2,3")
        environment = os.path.join(os.path.dirname(path), "environment.json")
        for label, message in (
                (("--sequence-length", "2"),
                 f"{path}: --sequence-length 2 contradicts the file, which has 2, 3"),
                (("--dtype", "float32"), f"{environment}: --dtype float32 contradicts "
                 "the recorded float64"),
                (("--blas-threads", "2"), f"{environment}: --blas-threads 2 "
                 "contradicts the recorded 1")):
            with self.subTest(label):
                self.assertEqual(self.fails(
                    "summarize", "--input", path, "--output-dir", self.path("out"),
                    *label), message)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_environment_of_another_csv_is_not_used(self):
        path = self.measure("cache", "--lengths", "2")
        for name, text in (("raw.csv", self.text("run", "raw.csv") + "\n"),
                           ("environment.json", "{"), ("environment.json", "[]"),
                           ("environment.json", '{"csv": {"sha256": 1}}')):
            self.write(text, "run", name)
            status, out, err = self.summarize(path)
            with self.subTest(text=text[:20]):
                self.assertEqual(status, 0)
                self.assertIn("H1 the paths agree: Inconclusive", out)
                self.assertEqual(err, f"bench.py: {self.path('run')}/environment.json "
                                 f"is not that of {path}, its facts are not used\n")

    def test_odd_environment_of_this_csv_is_one_line(self):
        path = self.measure("cache", "--lengths", "2")
        facts = json.loads(self.text("run", "environment.json"))
        for key, value in (("errors", 1), ("errors", [1]), ("errors", [{}]),
                           ("tolerance", "x"), ("malloc", 3)):
            self.write(json.dumps({**facts, key: value}), "run", "environment.json")
            with self.subTest(key=key, value=value):
                self.assertIn("environment.json: is not as bench.py writes it",
                              self.fails("summarize", "--input", path, "--output-dir",
                                         self.path("out")))

    def test_output_that_is_the_input_is_refused(self):
        path = self.write(self.SIX, "out", "summary.csv")
        status, out, err = self.summarize(path)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("the output is also the input", err)
        self.assertEqual(os.listdir(self.path("out")), ["summary.csv"])
        self.assertEqual(self.text("out", "summary.csv"), self.SIX)

    def test_bad_input_is_one_line_that_names_the_file(self):
        for name, text in (("no rows", ""), ("binary", "\0\udcff"),
                           ("a sample", self.SIX.replace("2.5", "nan"))):
            with open(self.path("raw.csv"), "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
            with self.subTest(name):
                line = self.fails("summarize", "--input", self.path("raw.csv"),
                                  "--output-dir", self.path("out"))
                self.assertTrue(line.startswith(self.path("raw.csv")), line)
        self.assertIn("No such file", self.fails(
            "summarize", "--input", self.path("none"), "--output-dir", self.folder))
        self.write("", "file")
        self.fails("summarize", "--input", self.write(self.SIX, "raw.csv"),
                   "--output-dir", self.path("file"))


class TestCapacity(CommandCase):
    def test_bytes_by_formula_and_by_arrays(self):
        path = self.path("new", "capacity.csv")
        self.assertEqual(self.run_main("capacity", "--csv", path), (0, "", ""))
        rows = list(csv.DictReader(io.StringIO(self.text("new", "capacity.csv"))))
        self.assertTrue(all(row["formula_bytes"] == row["nbytes"] for row in rows))
        found = {(row["model"], int(row["tokens"])): int(row["nbytes"]) for row in rows}
        self.assertEqual(found["MHA 8/8", 256], 8 * 256 * 1024)     # 256 KiB a head
        self.assertEqual(found["MHA 8/8", 256], 4 * found["GQA 8/2", 256])
        self.assertEqual(found["GQA 8/2", 16], 2 * found["MQA 8/1", 16])
        self.assertEqual(found["two-tier 28 layers", 4864], 4864 * 28672)


class TestEvidence(unittest.TestCase):
    def test_every_derived_file_is_made_again_byte_for_byte(self):
        for name in sorted(os.listdir(os.path.join(HOME, "evidence"))):
            if name.startswith("my-"):              # a learner's, not ours
                continue
            folder = os.path.join(HOME, "evidence", name)
            if not {"raw.csv", "environment.json"} <= set(os.listdir(folder)):
                continue
            with self.subTest(name), tempfile.TemporaryDirectory() as made:
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(0, bench.main([
                        "summarize", "--input", os.path.join(folder, "raw.csv"),
                        "--output-dir", made]))
                self.assertEqual(set(os.listdir(made)) | {"raw.csv", "environment.json"},
                                 set(os.listdir(folder)))
                for file in os.listdir(made):
                    self.same_bytes(os.path.join(folder, file),
                                    os.path.join(made, file))

    def test_capacity_is_made_again_byte_for_byte(self):
        path = os.path.join(HOME, "evidence", "kv-capacity", "capacity.csv")
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as file:
                self.assertEqual(file.read(), bench.capacity_csv())

    def same_bytes(self, path, other):
        with open(path, "rb") as one, open(other, "rb") as two:
            self.assertEqual(one.read(), two.read(), path)


if __name__ == "__main__":
    unittest.main()
