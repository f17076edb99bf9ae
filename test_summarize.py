"""summarize.py: medians, means and ratios, and what is refused."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

import oracle
import summarize
from kvsim import TwoTierCache
from test_support import (HOME, TemporaryFolder, call, copy_scripts, read, run,
                          write)

FIXTURE = os.path.join(HOME, "fixtures", "ttft.jsonl")


def row(config, pass_name, ttft_ms, **others):
    return json.dumps({"config": config, "pass": pass_name, "doc": 0,
                       "doc_tokens": 5011, "ttft_ms": ttft_ms,
                       "total_ms": 2000.0, **others})


def rows(config, pass_name, *times):
    return [row(config, pass_name, ttft_ms) for ttft_ms in times]


def summary(*lines):
    text = "\n".join(lines).encode("utf-8")
    return summarize.summarize(
        summarize.read_samples(text.splitlines(keepends=True), "x"))


class TestSummary(unittest.TestCase):
    """Values worked out by hand."""

    def test_odd_and_even_counts(self):
        got = summary(*rows("baseline", "cold", 300, 100, 400, 200),
                      *rows("lmcache", "cold", 50, 10, 30))
        self.assertEqual(got, {
            "baseline": {"cold": {"n": 4, "p50_ms": 250.0, "mean_ms": 250.0}},
            "lmcache": {"cold": {"n": 3, "p50_ms": 30.0, "mean_ms": 30.0}},
            "ratio": {"cold": {"p50": 8.33, "mean": 8.33}}})

    def test_median_is_not_the_mean(self):
        got = summary(*rows("baseline", "cold", 1, 2, 9.5))
        self.assertEqual(got["baseline"]["cold"],
                         {"n": 3, "p50_ms": 2.0, "mean_ms": 4.2})

    def test_ratio_is_of_unrounded_values(self):
        for under, ratio in ((0.06, 2.33), (0.04, 3.5)):
            got = summary(row("baseline", "p", 0.14), row("lmcache", "p", under))
            self.assertEqual(got["ratio"], {"p": {"p50": ratio, "mean": ratio}})

    def test_ties_round_as_python_rounds(self):
        # 0.25 and 0.75 are exact in binary and go to the even neighbour;
        # 0.35 lies a little below its decimal, 2.675 too.
        for value, rounded in ((0.25, 0.2), (0.75, 0.8), (0.35, 0.3), (12.25, 12.2)):
            got = summary(row("baseline", "p", value))["baseline"]["p"]
            self.assertEqual(got, {"n": 1, "p50_ms": rounded, "mean_ms": rounded})
        got = summary(row("baseline", "p", 2.675), row("lmcache", "p", 1))
        self.assertEqual(got["ratio"]["p"], {"p50": 2.67, "mean": 2.67})

    def test_shuffled_rows_of_several_passes(self):
        lines = [row("lmcache", "b", 5), row("baseline", "b", 30),
                 row("lmcache", "a", 7), row("baseline", "a", 14),
                 row("baseline", "b", 10), row("lmcache", "b", 15)]
        got = summary(*lines)
        self.assertEqual(got["baseline"]["b"],
                         {"n": 2, "p50_ms": 20.0, "mean_ms": 20.0})
        self.assertEqual(got["ratio"], {"b": {"p50": 2.0, "mean": 2.0},
                                        "a": {"p50": 2.0, "mean": 2.0}})

    def test_passes_keep_their_names_and_first_seen_order(self):
        got = summary(*(row(config, name, 1) for name in ("1", "2", "10", "\u7b2c")
                        for config in ("baseline", "lmcache")))
        for key in ("baseline", "lmcache", "ratio"):
            self.assertEqual(list(got[key]), ["1", "2", "10", "\u7b2c"])

    def test_ratio_keeps_the_order_of_baseline(self):
        got = summary(row("lmcache", "b", 1), row("lmcache", "a", 1),
                      row("baseline", "a", 1), row("baseline", "b", 1))
        self.assertEqual(list(got["ratio"]), ["a", "b"])

    def test_ratio_holds_only_passes_of_both_configs(self):
        got = summary(row("baseline", "a", 1), row("lmcache", "b", 1))
        self.assertEqual(got["ratio"], {})

    def test_the_three_keys_are_always_there(self):
        self.assertEqual(list(summary(row("lmcache", "a", 1)).items()),
                         [("baseline", {}), ("lmcache", {"a": {
                             "n": 1, "p50_ms": 1.0, "mean_ms": 1.0}}), ("ratio", {})])

    def test_whole_numbers_are_summarized_as_floats(self):
        got = summary(row("baseline", "a", 3))["baseline"]["a"]
        self.assertIs(type(got["p50_ms"]), float)
        self.assertIs(type(got["mean_ms"]), float)

    def test_ratio_beyond_floats_is_left_out(self):
        got = summary(row("baseline", "a", 1e307), row("lmcache", "a", 1e-307))
        self.assertEqual(got["ratio"], {"a": {}})

    def test_other_keys_are_ignored_or_missing(self):
        line = '{"ttft_ms": 2, "pass": "a", "config": "baseline", "tier": "gpu"}'
        self.assertEqual(summary(line)["baseline"]["a"]["n"], 1)


class TestCommand(TemporaryFolder):

    def summarize(self, text, *more):
        source = write(self.folder, "in.jsonl", text)
        return call(summarize.main, source, *more)

    def test_bom_blank_lines_crlf_and_no_final_newline(self):
        text = "\ufeff" + row("baseline", "a", 1) + "\r\n  \t \r\n" + \
               row("baseline", "a", 3)
        status, out, err = self.summarize(text)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(json.loads(out)["baseline"]["a"]["n"], 2)

    def test_only_a_line_feed_ends_a_line(self):
        name = "a\u2028b\u0085c"
        line = json.dumps({"config": "baseline", "pass": name, "ttft_ms": 1},
                          ensure_ascii=False)
        status, out, _ = self.summarize(line + "\n" + line)
        self.assertEqual(json.loads(out)["baseline"][name]["n"], 2)

    def test_prints_one_line_of_json(self):
        _, out, _ = self.summarize(row("baseline", "a", 1))
        self.assertEqual(out, '{"baseline": {"a": {"n": 1, "p50_ms": 1.0, '
                              '"mean_ms": 1.0}}, "lmcache": {}, "ratio": {}}\n')

    def test_writes_the_same_to_the_output(self):
        _, out, _ = self.summarize(row("baseline", "a", 1), self.path("out.json"))
        self.assertEqual(read(self.path("out.json")), out.encode("utf-8"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.jsonl", "out.json"])

    def test_replaces_an_output_and_keeps_its_mode(self):
        out = write(self.folder, "out.json", "old")
        os.chmod(out, 0o640)
        self.summarize(row("baseline", "a", 1), out)
        self.assertTrue(read(out).startswith(b'{"baseline"'))
        self.assertEqual(stat.S_IMODE(os.stat(out).st_mode), 0o640)

    def test_a_name_as_long_as_may_be_is_written(self):
        out = self.path("x" * 255)
        self.assertEqual(self.summarize(row("baseline", "a", 1), out)[0], 0)

    def test_a_link_to_the_output_stays_a_link(self):
        out = write(self.folder, "out.json", "old")
        os.symlink(out, self.path("link"))
        self.summarize(row("baseline", "a", 1), self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertTrue(read(out).startswith(b'{"baseline"'))

    def test_output_that_is_the_input_is_refused(self):
        text = row("baseline", "a", 1)
        source = write(self.folder, "in.jsonl", text)
        os.symlink(source, self.path("soft"))
        os.link(source, self.path("hard"))
        os.symlink(source + "/", self.path("slashed"))
        for name in (source, os.path.join(self.folder, ".", "in.jsonl"),
                     self.path("soft"), self.path("hard"), self.path("slashed"),
                     source + "/", source + "/.", source + "/x/..",
                     self.path("no", "..", "in.jsonl")):
            with self.subTest(name=name):
                status, out, err = self.summarize(text, name)
                self.assertEqual((status, out), (2, ""))
                self.assertIn("is the input", err)
                self.assertEqual(read(source), text.encode("utf-8"))

    def test_bad_input_leaves_the_output_untouched(self):
        out = write(self.folder, "out.json", "old")
        status, printed, _ = self.summarize("{", out)
        self.assertEqual((status, printed, read(out)), (1, "", b"old"))

    def test_output_that_cannot_be_written_is_one_line(self):
        os.symlink("loop", self.path("loop"))
        for name, why in (("no/such/out.json", "No such file or directory"),
                          ("", "No such file or directory"),
                          ("new/", "No such file or directory"),
                          ("loop", "Too many levels of symbolic links"),
                          ("/dev/full", "No space left on device"),
                          (".", "Is a directory")):
            out = self.path(name) if name else ""
            with self.subTest(name=name):
                answer = self.summarize(row("baseline", "a", 1), out)
                self.assertEqual(answer, (1, "", "summarize.py: {}: {}\n".format(
                    out, why)))
                self.assertEqual(sorted(os.listdir(self.folder)),
                                 ["in.jsonl", "loop"])

    def test_what_is_no_regular_file_is_written_directly(self):
        self.assertEqual(self.summarize(row("baseline", "a", 1), os.devnull)[0], 0)
        self.assertFalse(os.path.isfile(os.devnull))

    @unittest.skipUnless(hasattr(os, "mkfifo"), "needs named pipes")
    def test_a_named_pipe_is_written_and_stays(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        _, out, _ = self.summarize(row("baseline", "a", 1), pipe)
        self.assertEqual(os.read(reader, 1000).decode(), out)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_a_redirected_stdout_is_written_once_and_not_replaced(self):
        write(self.folder, "in.jsonl", row("baseline", "a", 1))
        log = write(self.folder, "log", "before\n")
        with open(log, "a") as stream:
            subprocess.run([sys.executable, "summarize.py", self.path("in.jsonl"),
                            "/dev/stdout"], cwd=HOME, stdout=stream, check=True)
        before, answer = read(log).decode("utf-8").splitlines()
        self.assertEqual((before, json.loads(answer)["ratio"]), ("before", {}))

    def test_missing_input_is_one_line(self):
        missing = self.path("missing.jsonl")
        self.assertEqual(call(summarize.main, missing), (
            1, "", "summarize.py: {}: No such file or directory\n".format(missing)))

    def test_wrong_usage_exits_2_and_prints_nothing(self):
        for argv in ((), ("a", "b", "c"), ("--out", "a")):
            with self.subTest(argv=argv):
                status, out, _ = call(summarize.main, *argv)
                self.assertEqual((status, out), (2, ""))

    def test_runs_alone_without_packages(self):
        with tempfile.TemporaryDirectory() as folder:
            copy_scripts(folder, "summarize.py")
            write(folder, "in.jsonl", row("baseline", "a", 1))
            done = run("-S", "-B", "summarize.py", "in.jsonl", "out.json",
                       folder=folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(read(os.path.join(folder, "out.json")).decode("utf-8"),
                             done.stdout)

    def test_a_reader_that_has_gone_is_no_error(self):
        done = run("-c", "import os, sys, summarize; r, w = os.pipe(); os.close(r); "
                         "os.dup2(w, 1); sys.exit(summarize.main(sys.argv[1:]))",
                   FIXTURE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class TestRefusals(unittest.TestCase):

    GOOD = row("baseline", "a", 1)
    BAD = (
        ("broken JSON", '{"config": "baseline",', "Expecting property name enclosed in "
         "double quotes at column 23"),
        ("two objects", GOOD + " " + GOOD, "extra data"),
        ("no object", "[1]", "a row must be a JSON object, got [1]"),
        ("null", "null", "a row must be a JSON object, got null"),
        ("null inside", row("baseline", "a", None), "> 0, got null"),
        ("deep nesting", "[" * 100000, ""),
        ("missing config", '{"pass": "a", "ttft_ms": 1}',
         '"config" must be "baseline" or "lmcache", got nothing'),
        ("unknown config", row("vllm", "a", 1), 'got "vllm"'),
        ("config of another type", row(["baseline"], "a", 1), 'got ["baseline"]'),
        ("missing pass", '{"config": "baseline", "ttft_ms": 1}',
         '"pass" must be a non-empty string, got nothing'),
        ("empty pass", row("baseline", "", 1), 'got ""'),
        ("pass of another type", row("baseline", 1, 1), "got 1"),
        ("missing ttft_ms", '{"config": "baseline", "pass": "a"}',
         '"ttft_ms" must be a finite number of milliseconds > 0, got nothing'),
        ("true", row("baseline", "a", True), "got true"),
        ("string", row("baseline", "a", "5"), 'got "5"'),
        ("zero", row("baseline", "a", 0), "got 0"),
        ("negative", row("baseline", "a", -0.5), "got -0.5"),
        ("NaN", row("baseline", "a", float("nan")), "NaN is not a JSON number"),
        ("Infinity", row("baseline", "a", float("inf")),
         "Infinity is not a JSON number"),
        ("minus Infinity", row("baseline", "a", float("-inf")), "-Infinity is not"),
        ("NaN elsewhere", row("baseline", "a", 1, doc=float("nan")), "NaN"),
        ("beyond floats", GOOD.replace('"ttft_ms": 1', '"ttft_ms": 1e999'),
         "got Infinity"),
        ("twice it beyond floats", row("baseline", "a", 1.7e308), "got 1.7e+308"),
        ("whole and beyond floats", GOOD.replace('"ttft_ms": 1', '"ttft_ms": 1'
                                                 + "0" * 400), "got 1000"),
        ("a second mark", "\ufeff" + GOOD, ""),
        ("another white space", GOOD + "\x0c", "extra data"),
    )

    def test_bad_rows_name_file_and_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for case, line, message in self.BAD:
                path = write(folder, "in.jsonl", self.GOOD + "\n\n" + line + "\n")
                with self.subTest(case=case):
                    status, out, err = call(summarize.main, path)
                    self.assertEqual((status, out), (1, ""))
                    self.assertTrue(err.startswith(
                        "summarize.py: {}:3: ".format(path)), err)
                    self.assertIn(message, err)
                    self.assertEqual(err.count("\n"), 1)
                    self.assertLess(len(err), 300)

    def test_bytes_that_are_not_utf8(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "in.jsonl")
            with open(path, "wb") as file:
                file.write(self.GOOD.encode("utf-8") + b'\n{"pass": "\xff"}\n')
            status, out, err = call(summarize.main, path)
        self.assertEqual((status, out), (1, ""))
        self.assertIn("in.jsonl:2: 'utf-8' codec can't decode", err)

    def test_a_file_without_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "\n \n", "\ufeff"):
                path = write(folder, "in.jsonl", text)
                self.assertEqual(call(summarize.main, path), (
                    1, "", "summarize.py: {}: no rows, at least one is "
                    "needed\n".format(path)))


class TestFixture(unittest.TestCase):
    """fixtures/ttft.jsonl is made; it agrees with the published facts."""

    @classmethod
    def setUpClass(cls):
        with open(FIXTURE, encoding="utf-8") as file:
            cls.rows = [json.loads(line) for line in file]

    def times(self, config, pass_name):
        return [row["ttft_ms"] for row in self.rows
                if (row["config"], row["pass"]) == (config, pass_name)]

    def test_its_script_rewrites_it_byte_for_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ttft.jsonl")
            done = run(os.path.join("fixtures", "make_ttft.py"), path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(read(path), read(FIXTURE))

    def test_two_configs_three_passes_ten_documents(self):
        self.assertEqual(len(self.rows), 60)
        forward = list(range(10))
        for config in ("baseline", "lmcache"):
            for pass_name, order in (("pass1-cold", forward),
                                     ("pass2-replay", forward),
                                     ("pass3-reverse", forward[::-1])):
                self.assertEqual([row["doc"] for row in self.rows if
                                  (row["config"], row["pass"]) == (config, pass_name)],
                                 order)
        self.assertEqual({row["doc_tokens"] for row in self.rows}, {5011})

    def test_medians_are_the_published_ones(self):
        for config, pass_name, ms in (("baseline", "pass1-cold", 576.0),
                                      ("baseline", "pass2-replay", 576.0),
                                      ("lmcache", "pass2-replay", 48.6)):
            self.assertAlmostEqual(oracle.median(self.times(config, pass_name)),
                                   ms, delta=0.1)

    def test_first_pass_is_slower_with_offloading(self):
        self.assertLess(oracle.median(self.times("baseline", "pass1-cold")),
                        oracle.median(self.times("lmcache", "pass1-cold")))

    def test_reverse_pass_has_the_simulator_s_counts(self):
        tiers = TwoTierCache(21520, 56000)
        for doc in list(range(10)) * 2:
            tiers.access(doc, 5011)
        found = [tiers.access(doc, 5011) for doc in range(9, -1, -1)]
        times = self.times("lmcache", "pass3-reverse")
        self.assertEqual(["gpu" if ms < 35 else "cpu" if ms < 60 else "miss"
                          for ms in times], found)
        for tier, ms in (("gpu", 30), ("cpu", 48)):
            self.assertAlmostEqual(oracle.median(
                [time for time, where in zip(times, found) if where == tier]),
                ms, delta=1)

    def test_time_to_first_token_is_part_of_the_total(self):
        for row_ in self.rows:
            self.assertLess(row_["ttft_ms"], row_["total_ms"])


if __name__ == "__main__":
    unittest.main()
