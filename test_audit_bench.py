"""Tests of audit_bench.py: true folders pass, forged ones are named."""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import random
import re
import shutil
import tempfile
import unittest
from unittest import mock

try:
    import audit
    import audit_bench
    import audit_samples
    import bench
    import experiments
    import records
    import timings
    import verdicts
except ImportError as error:
    raise unittest.SkipTest(f"needs NumPy: {error}")

COLUMNS = ("experiment", "path", "batch_size", "sequence_length", "sample",
           "elapsed_ms", "order", "minor_faults")
PACE_NS = {"no_cache": 900, "dynamic_cache": 300, "preallocated_cache": 250,
           "sequential": 300, "batched": 170}
FULL = {"cache": {"lengths": (16, 32, 64, 128, 256)},
        "batch-length": {"lengths": (16, 32, 64, 128, 256)},
        "batch-size": {"batch_sizes": (1, 2, 4, 8), "length": 128}}
FOLDERS = {"cache": "cache-strategy", "batch-length": "m0-length-scan",
           "batch-size": "m1-batch-size-scan"}


def made_up_run(name, settings, malloc):
    """Return the texts of a run whose clock depends on the group alone."""
    experiment = experiments.EXPERIMENTS[name]
    columns = {"cache": timings.SCANS["cache_strategy"].columns["path"]}
    sizes = ([(batch, settings.length) for batch in settings.batch_sizes]
             if name == "batch-size" else
             [(1 if name == "cache" else 2, tokens) for tokens in settings.lengths])
    now, groups = [0], []

    def call(key):
        path, batch, tokens = key
        now[0] += PACE_NS[path] * tokens * (batch + 3) + 7 * (now[0] % 5003)

    for size in sizes:
        for path in columns.get(name, ("sequential", "batched")):
            key = (path, *size)
            groups.append(experiments.Group(key, functools.partial(
                list, [((), functools.partial(call, key))]), None))
    samples = bench.measure(groups, settings, lambda: now[0], lambda: now[0] // 10_007)
    with mock.patch.object(bench, "BLAS_PINNED", True), mock.patch.dict(
            os.environ, {**dict.fromkeys(records.THREAD_VARIABLES, "1"), **malloc}):
        facts = bench.environment(name, settings, groups, [1e-15] * len(groups))
    return bench.raw_csv(experiment.label, samples), {**facts, "malloc": malloc}


def make_folder(path, name, malloc=(), **settings):
    """Measure with the made-up clock and summarize into the folder `path`."""
    settings = experiments.Settings(**{**FULL[name], **settings})
    raw = os.path.join(path, "raw.csv")
    bench.write_measurement(raw, *made_up_run(name, settings, dict(malloc)))
    with contextlib.redirect_stdout(io.StringIO()):
        status = bench.main(["summarize", "--input", raw, "--output-dir", path])
    if status:
        raise AssertionError(f"{path} could not be summarized")


def faults_of(path):
    return audit.audit_folder(path).faults


class AuditCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.true = {}
        for name, folder in FOLDERS.items():
            cls.true[name] = os.path.join(cls.folder, "true", folder)
            make_folder(cls.true[name], name)

    def copy(self, name, folder=None):
        """Return a copy of a true folder, under its own or another name."""
        place = tempfile.mkdtemp(dir=self.folder)
        path = os.path.join(place, folder or FOLDERS[name])
        shutil.copytree(self.true[name], path)
        return path

    def read(self, path, name):
        with open(os.path.join(path, name), encoding="utf-8", newline="") as file:
            return file.read()

    def write(self, path, name, text):
        with open(os.path.join(path, name), "w", encoding="utf-8",
                  newline="") as file:
            file.write(text)

    def declare(self, path, change):
        """Change environment.json by a function of its value."""
        facts = json.loads(self.read(path, "environment.json"))
        self.write(path, "environment.json",
                   json.dumps(change(facts) or facts, indent=1))

    def sign(self, path):
        """Make environment.json bear the hash of raw.csv as it is now."""
        with open(os.path.join(path, "raw.csv"), "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
        self.declare(path, lambda facts: facts["csv"].update(sha256=found))

    def assert_fault(self, path, file, record, found=None, expected=None):
        faults = faults_of(path)
        name = os.path.join(os.path.basename(path), file)
        fits = [fault for fault in faults
                if fault["file"] == name and record in fault["record"]
                and (found is None or fault["found"] == found)
                and (expected is None or fault["expected"] == expected)]
        self.assertTrue(fits, faults)
        json.dumps(faults, allow_nan=False)


class TestTrueFolders(AuditCase):
    def test_full_runs_pass_under_the_names_of_the_evidence(self):
        for name, samples in (("cache", 450), ("batch-length", 300),
                              ("batch-size", 240)):
            found = audit.audit_folder(self.true[name])
            with self.subTest(name):
                self.assertTrue(found.known)
                self.assertEqual((found.faults, found.totals["samples"]), ([], samples))
                self.assertEqual(found.totals["sources_changed_since"], [])

    def test_kept_memory_needs_its_variables_and_the_other_none(self):
        kept = "m1-batch-size-scan-kept-memory"
        for folder, malloc, record in (
                (kept, audit_bench.KEPT_MEMORY, None), (kept, {}, "malloc"),
                ("m1-batch-size-scan", audit_bench.KEPT_MEMORY, "malloc"),
                ("my-run", {"MALLOC_ARENA_MAX": "1"}, None)):
            path = os.path.join(tempfile.mkdtemp(dir=self.folder), folder)
            make_folder(path, "batch-size", malloc)
            with self.subTest(folder=folder, malloc=malloc):
                if record:
                    self.assert_fault(path, "environment.json", record)
                else:
                    self.assertEqual(faults_of(path), [])

    def test_folders_by_other_names_are_audited_by_what_they_hold(self):
        for name, settings in (
                ("cache", {"repeats": 1, "lengths": (16,)}),
                ("cache", {"repeats": 5, "warmup": 0, "dtype": "float32"}),
                ("batch-length", {"repeats": 6, "lengths": (8,)}),
                ("batch-length", {"repeats": 7, "lengths": (8, 24), "seed": 3}),
                ("batch-size", {"repeats": 6, "batch_sizes": (2,), "length": 5}),
                ("batch-size", {"repeats": 11, "batch_sizes": (1, 3, 5)})):
            path = os.path.join(tempfile.mkdtemp(dir=self.folder), "my-run")
            make_folder(path, name, **settings)
            with self.subTest(name=name, settings=settings):
                found = audit.audit_folder(path)
                self.assertEqual((found.faults, found.known), ([], False))

    def test_another_gain_threshold_is_read_from_the_analysis_of_an_own_run(self):
        path = self.copy("batch-size", "my-run")
        with contextlib.redirect_stdout(io.StringIO()):
            bench.main(["summarize", "--input", os.path.join(path, "raw.csv"),
                        "--output-dir", path, "--gain-threshold", "0.5"])
        self.assertEqual(faults_of(path), [])
        known = self.copy("batch-size")
        self.write(known, "knee-analysis.md", self.read(path, "knee-analysis.md"))
        self.assert_fault(known, "knee-analysis.md", "line",
                          "- Gain threshold: 0.5", "- Gain threshold: 0.1")

    def test_prose_of_the_analyses_is_pinned(self):
        for label in audit_bench.PROSE_SHA256:
            groups = {(path, 2 if label == "batch_length_scan" else 1, 8): [1.0]
                      for path in timings.SCANS[label].columns["path"]}
            text = verdicts.analysis(timings.Samples(label, groups, {}),
                                     verdicts.Facts())
            prose = re.sub(r"(^(\||- |Knee:).*\n?)+", "@\n", text, flags=re.M)
            found = hashlib.sha256(prose.encode()).hexdigest()
            self.assertEqual(audit_bench.PROSE_SHA256[label], found,
                             f"the text of {label} has changed: pin its new hash")

    def test_page_faults_may_be_unknown(self):
        path = self.copy("cache")
        text = re.sub(r",\d+$", ",", self.read(path, "raw.csv"), flags=re.M)
        self.write(path, "raw.csv", text)
        self.sign(path)
        with contextlib.redirect_stdout(io.StringIO()):
            bench.main(["summarize", "--input", os.path.join(path, "raw.csv"),
                        "--output-dir", path])
        self.assertEqual(faults_of(path), [])

    def test_fixture_of_the_published_medians_is_pinned(self):
        path = self.true["batch-size"]
        os.mkdir(os.path.join(self.folder, "fixtures"))
        self.write(os.path.join(self.folder, "fixtures"), "published-batch-size.csv", "")
        with mock.patch.object(audit, "HOME", self.folder):
            self.assert_fault(path, "../../fixtures/published-batch-size.csv", "sha256",
                              expected=audit_bench.FIXTURE_SHA256)

    def test_changed_sources_are_reported_and_not_judged(self):
        path = self.copy("cache")
        self.declare(path, lambda facts: facts["sources"].update(
            {"bench.py": "0" * 64}))
        found = audit.audit_folder(path)
        self.assertEqual((found.faults, found.totals["sources_changed_since"]),
                         ([], ["bench.py"]))


class TestForgedSamples(AuditCase):
    def change_row(self, path, place, column, value):
        lines = self.read(path, "raw.csv").split("\n")
        cells = lines[place].split(",")
        before = cells[COLUMNS.index(column)]
        cells[COLUMNS.index(column)] = value
        lines[place] = ",".join(cells)
        self.write(path, "raw.csv", "\n".join(lines))
        return before

    def test_a_changed_sample_fails_the_hash_of_its_file(self):
        path = self.copy("batch-size")
        self.change_row(path, 7, "elapsed_ms", "1.000000")
        self.assert_fault(path, "environment.json", "csv.sha256")

    def test_a_changed_sample_that_is_signed_fails_what_is_derived(self):
        path = self.copy("batch-size")
        for place in range(31, 61):                 # batched, B = 1
            self.change_row(path, place, "elapsed_ms", "1.000000")
        self.sign(path)
        self.assert_fault(path, "summary.csv", "line 2: batch_p50_ms",
                          expected="1.000000")
        self.assert_fault(path, "knee-analysis.md", "line")
        self.assert_fault(path, "throughput-positions-per-second.svg", "line")

    def test_protocol_cells_are_named_with_both_values(self):
        for column, value in (("path", "batched"), ("batch_size", "3"),
                              ("sequence_length", "64"), ("sample", "9"),
                              ("order", "999")):
            path = self.copy("batch-size")
            before = self.change_row(path, 4, column, value)
            self.sign(path)
            with self.subTest(column):
                self.assert_fault(path, "raw.csv", f"line 5: {column}", value, before)

    def test_first_row_may_be_of_no_known_experiment(self):
        path = self.copy("cache", "my-run")
        self.change_row(path, 1, "experiment", "other")
        self.sign(path)
        self.assert_fault(path, "raw.csv", "line 2: experiment", "other")

    def test_swapped_order_is_found(self):
        path = self.copy("cache")
        first = self.change_row(path, 1, "order", "1")
        other = self.change_row(path, 2, "order", first)
        self.change_row(path, 1, "order", other)
        self.sign(path)
        self.assert_fault(path, "raw.csv", "line 2: order", other, first)

    def test_forms_that_are_not_canonical_are_refused(self):
        for column, values in {
                "experiment": ("", "other", "cache_strategy"),
                "elapsed_ms": ("0.000000", "-1.000000", "nan", "1e3", "1.0", "inf",
                               "01.000000", " 1.000000", "٣.000000", "9" * 400),
                "order": ("0", "-1", "1.0", "", "x"), "sample": ("0", "+1", ""),
                "batch_size": ("0", "1.0"), "sequence_length": ("", "1e2"),
                "minor_faults": ("-1", "1.5", "x", "")}.items():
            for value in values:
                path = self.copy("batch-size")
                self.change_row(path, 4, column, value)
                self.sign(path)
                with self.subTest(column=column, value=value):
                    self.assert_fault(path, "raw.csv", column)

    def test_missing_added_and_odd_rows(self):
        true = self.read(self.true["cache"], "raw.csv")
        lines = true.split("\n")
        for name, text, record in (
                ("a row less", "\n".join(lines[:5] + lines[6:]), "rows"),
                ("a row twice", "\n".join(lines[:5] + lines[4:]), "rows"),
                ("no final newline", true[:-1], "end"), ("no rows", lines[0] + "\n",
                                                         "end"),
                ("a blank line", true + "\n", "line 452"), ("empty", "", "line 1"),
                ("CRLF", true.replace("\n", "\r\n"), "line 1"),
                ("another header", true.replace("path", "p", 1), "line 1"),
                ("a cell more", true.replace("\n", ",\n").replace(",\n", "\n", 1),
                 "line 2"), ("NUL", true + "\0\n", "line 452")):
            path = self.copy("cache")
            self.write(path, "raw.csv", text)
            self.sign(path)
            with self.subTest(name):
                self.assert_fault(path, "raw.csv", record)

    def test_rows_of_another_experiment_are_refused_in_a_known_folder(self):
        path = self.copy("batch-length", "cache-strategy")
        for name in ("speedup.svg",):
            os.unlink(os.path.join(path, name))
        self.assert_fault(path, "raw.csv", "line 2: experiment", "batch_length_scan",
                          "cache_strategy")

    def test_a_link_or_a_binary_file_is_no_evidence(self):
        path = self.copy("cache")
        with open(os.path.join(path, "raw.csv"), "wb") as file:
            file.write(b"\xff")
        self.assert_fault(path, "raw.csv", "")
        os.unlink(os.path.join(path, "raw.csv"))
        os.symlink(os.path.join(self.true["cache"], "raw.csv"),
                   os.path.join(path, "raw.csv"))
        self.assert_fault(path, "raw.csv", "", "is no regular file")


class TestForgedEnvironment(AuditCase):
    def test_what_follows_from_the_protocol_is_checked(self):
        def put(*keys, value):
            def change(facts):
                for key in keys[:-1]:
                    facts = facts[key]
                facts[keys[-1]] = value
            return change

        for change, record in (
                (put("arguments", "seed", value=43), "arguments.seed"),
                (put("arguments", "warmup", value=9), "arguments.warmup"),
                (put("arguments", "warmup", value=10 ** 9), "arguments.warmup"),
                (put("arguments", "warmup", value=True), "arguments.warmup"),
                (put("arguments", "repeats", value=29), "arguments.repeats"),
                (put("arguments", "repeats", value=30.0), "arguments.repeats"),
                (put("arguments", "experiment", value="cache"), "arguments.experiment"),
                (put("arguments", "batch_sizes", value=[1, 2, 8, 4]), "batch_sizes"),
                (put("arguments", "batch_sizes", value=[1, 2, 4]), "batch_sizes"),
                (put("arguments", "batch_sizes", value=4), "batch_sizes"),
                (put("arguments", "batch_sizes", value=[]), "batch_sizes"),
                (put("arguments", "batch_sizes", value=[1, "x"]), "batch_sizes"),
                (put("arguments", "length", value=0), "arguments.length"),
                (put("arguments", "more", value=0), "arguments"),
                (put("arguments", value=[]), "arguments"),
                (put("arguments", "dtype", value="float32"), "arguments.dtype"),
                (put("seed", value=43), "seed"), (put("dtype", value="float32"), "dtype"),
                (put("dtype", value="bfloat16"), "dtype"),
                (put("tolerance", value=1e-4), "tolerance"),
                (put("tolerance", value=1), "tolerance"),
                (put("blas_threads", value=2), "blas_threads"),
                (put("blas_threads", value=None), "blas_threads"),
                (put("blas_threads", value=True), "blas_threads"),
                (put("numpy_came_first", value=True), "blas_threads"),
                (put("threads", "OMP_NUM_THREADS", value="2"), "OMP_NUM_THREADS"),
                (put("threads", "OMP_NUM_THREADS", value=1), "OMP_NUM_THREADS"),
                (put("malloc", value={"MALLOC_ARENA_MAX": "1"}), "malloc"),
                (put("malloc", value={"MALLOC_ARENA_MAX": 1}), "malloc"),
                (put("csv", "name", value="raw2.csv"), "csv.name"),
                (put("csv", value={}), "csv"),
                (put("sources", "bench.py", value="x"), "sources.bench.py"),
                (put("sources", value={}), "sources"),
                (put("errors", value=[]), "errors"),
                (put("errors", 3, value=1), "errors[3]"),
                (put("errors", 3, "path", value="sequential"), "errors[3]"),
                (put("errors", 3, "batch_size", value=2.0), "errors[3]"),
                (put("errors", 3, "max_abs_error", value=2e-8), "errors[3]"),
                (put("errors", 3, "max_abs_error", value=-1e-9), "errors[3]"),
                (put("errors", 3, "max_abs_error", value=0), "errors[3]"),
                (put("errors", 3, "more", value=1), "errors[3]"),
                (put("python", value=3), "python"), (put("more", value=1), "members"),
                (lambda facts: [1], "members"), (lambda facts: {"a": 1}, "members")):
            path = self.copy("batch-size")
            self.declare(path, change)
            with self.subTest(record=record):
                self.assert_fault(path, "environment.json", record)

    def test_arguments_of_an_own_run_are_checked_before_they_are_used(self):
        for name, record, changes in (
                ("batch-size", "arguments", {"length": None}),
                ("batch-size", "arguments", {"more": 1}),
                ("cache", "arguments", {"batch_sizes": [1]}),
                ("cache", "arguments.experiment", {"experiment": "batch-size"}),
                ("cache", "arguments.seed", {"seed": "x"}),
                ("cache", "arguments.seed", {"seed": -1}),
                ("cache", "arguments.warmup", {"warmup": 100_001}),
                ("cache", "arguments.repeats", {"repeats": 0}),
                ("cache", "arguments.lengths", {"lengths": {"16": 1}}),
                ("cache", "arguments.lengths", {"lengths": [16, 16]})):
            path = self.copy(name, "my-run")

            def change(facts):
                facts["arguments"].update(changes)
                if None in changes.values():
                    del facts["arguments"]["length"]

            self.declare(path, change)
            with self.subTest(name=name, changes=changes):
                self.assert_fault(path, "environment.json", record)

    def test_a_seed_changed_everywhere_does_not_give_this_order(self):
        path = self.copy("batch-size", "my-run")
        self.declare(path, lambda facts: (facts.update(seed=43),
                                          facts["arguments"].update(seed=43))[0])
        self.assert_fault(path, "raw.csv", "order")

    def test_largest_error_is_bound_to_the_analysis(self):
        path = self.copy("cache")
        self.declare(path, lambda facts: facts["errors"][2].update(max_abs_error=3e-9))
        self.assert_fault(path, "analysis.md", "line",
                          expected="- Largest error against the oracle: 3.00e-09, "
                          "allowed 1e-08")

    def test_odd_json_is_a_fault_and_no_traceback(self):
        true = self.read(self.true["cache"], "environment.json")
        for name, text in (
                ("empty", ""), ("a number", "1"), ("null", "null"), ("a list", "[]"),
                ("NaN", true.replace("1e-08", "NaN")), ("huge", true.replace(
                    "1e-08", "1e999")), ("deep", "[" * 100_000),
                ("a key twice", true.replace('"seed"', '"dtype"')),
                ("not UTF-8", "\udcff")):
            path = self.copy("cache")
            with open(os.path.join(path, "environment.json"), "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
            with self.subTest(name):
                self.assert_fault(path, "environment.json", "")

    def test_any_value_in_any_place_is_a_fault_or_a_declaration(self):
        declarations = {"python", "numpy", "platform", "cpu", "blas", "variables",
                        "sources"}
        odd = (None, True, -1, 10 ** 14, 1.5, 1e308, "x\ud800", [[]], {"a": {}})
        true = json.loads(self.read(self.true["cache"], "environment.json"))
        path = self.copy("cache")
        for place in places(true):
            if len(place) > 1 and place[0] in declarations:
                continue
            for value in odd:
                facts = json.loads(json.dumps(true))
                if place:
                    *keys, last = place
                    inner = functools.reduce(lambda part, key: part[key], keys, facts)
                    inner[last] = value
                else:
                    facts = value
                self.write(path, "environment.json", json.dumps(facts))
                faults = faults_of(path)
                json.dumps(faults, allow_nan=False)
                # Errors within the tolerance and the machine are declared.
                if not place or (place[0] not in declarations
                                 and place[-1] != "max_abs_error"):
                    self.assertTrue(faults or facts == true, (place, value))


def places(value):
    """Yield the path to every member of a JSON value, in lists to one."""
    yield ()
    members = (value.items() if isinstance(value, dict) else
               list(enumerate(value))[:1] if isinstance(value, list) else ())
    for key, member in members:
        for place in places(member):
            yield (key, *place)


class TestForgedDerivedFiles(AuditCase):
    def test_a_changed_summary_value_is_named_with_both_values(self):
        for name in FOLDERS:
            text = self.read(self.true[name], "summary.csv")
            header = text.split("\n")[0].split(",")
            for place, column in enumerate(header):
                path = self.copy(name)
                lines = text.split("\n")
                cells = lines[2].split(",")
                true, cells[place] = cells[place], "9.990000"
                lines[2] = ",".join(cells)
                self.write(path, "summary.csv", "\n".join(lines))
                with self.subTest(name=name, column=column):
                    self.assert_fault(path, "summary.csv", f"line 3: {column}",
                                      "9.990000", true)

    def test_every_line_of_data_of_an_analysis_is_checked(self):
        for name in FOLDERS:
            file = "knee-analysis.md" if name == "batch-size" else "analysis.md"
            text = self.read(self.true[name], file)
            path = self.copy(name)
            for number, line in enumerate(text.split("\n"), 1):
                if not line.startswith(("|", "- ", "Knee:")):
                    continue
                lines = text.split("\n")
                forged = lines[number - 1] = line + "7"
                self.write(path, file, "\n".join(lines))
                with self.subTest(name=name, line=line):
                    self.assert_fault(path, file, f"line {number}", forged, line)

    def test_a_line_that_moved_to_another_block_is_named(self):
        path = self.copy("batch-length")
        text = self.read(path, "analysis.md")
        verdict = next(line for line in text.split("\n") if line.startswith("- H1"))
        fact = next(line for line in text.split("\n")
                    if line.startswith("- Allocator"))
        for forged in (
                text.replace(verdict + "\n", "").replace(fact, fact + "\n" + verdict),
                text.replace("\n" + fact, "").replace(verdict, fact + "\n" + verdict)):
            self.write(path, "analysis.md", forged)
            self.assert_fault(path, "analysis.md", "lengths of blocks")

    def test_any_gain_threshold_of_a_run_of_another_name_is_read(self):
        for threshold in ("1e-05", "0.33333333333333", "1e+20", "0.0"):
            path = self.copy("batch-size", "my-run")
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(bench.main([
                    "summarize", "--input", os.path.join(path, "raw.csv"),
                    "--output-dir", path, "--gain-threshold", threshold]), 0)
            with self.subTest(threshold=threshold):
                self.assertEqual(faults_of(path), [])

    def test_more_samples_than_anybody_takes_are_not_replayed(self):
        path = self.copy("cache")
        self.declare(path, lambda facts: facts["arguments"].update(warmup=100000))
        with mock.patch.object(audit_samples, "MOST_SAMPLES", 1000):
            self.assert_fault(path, "environment.json", "arguments")

    def test_changed_verdicts_and_knees_are_named(self):
        for name, file, true, forged in (
                ("cache", "analysis.md", "every length: ", "every length: Not "),
                ("batch-length", "analysis.md", "narrows: ", "narrows: Not "),
                ("batch-size", "knee-analysis.md", "Knee: ", "Knee: B=2 "),
                ("batch-size", "knee-analysis.md", "agree: Supported",
                 "agree: Refuted")):
            path = self.copy(name)
            text = self.read(path, file)
            self.assertIn(true, text)
            self.write(path, file, text.replace(true, forged))
            with self.subTest(forged):
                self.assert_fault(path, file, "line")

    def test_changed_moved_and_added_prose_is_found(self):
        text = self.read(self.true["cache"], "analysis.md")
        table = text[text.index("\n| path"):text.index("\n\nDrift")]
        for name, forged in (
                ("a word", text.replace("no language model", "a language model")),
                ("a title", text.replace("# What", "# Why", 1)),
                ("a sentence", text + "This proves it.\n"),
                ("a table elsewhere", text.replace(table, "") + table)):
            path = self.copy("cache")
            self.write(path, "analysis.md", forged)
            with self.subTest(name):
                self.assert_fault(path, "analysis.md", "prose sha256")

    def test_lines_of_data_missing_or_added(self):
        text = self.read(self.true["cache"], "analysis.md")
        for forged in (text.replace("- BLAS threads: 1\n", ""),
                       text.replace("- BLAS", "- More: 1\n- BLAS")):
            path = self.copy("cache")
            self.write(path, "analysis.md", forged)
            self.assert_fault(path, "analysis.md", "lines of data")

    def test_a_moved_point_of_a_chart_is_found(self):
        for name, file in (("cache", "latency.svg"), ("batch-length", "speedup.svg"),
                           ("batch-size", "latency-p50-p95.svg"),
                           ("batch-size", "throughput-positions-per-second.svg")):
            path = self.copy(name)
            text = self.read(path, file)
            series = text.index("<g data-series")
            place = text.index("points=", series) + len('points="')
            self.write(path, file, text[:place] + "9" + text[place:])
            with self.subTest(file):
                self.assert_fault(path, file, "")

    def test_missing_and_unknown_files(self):
        path = self.copy("cache")
        os.unlink(os.path.join(path, "analysis.md"))
        self.write(path, "speedup.svg", "<svg/>")
        self.assert_fault(path, "analysis.md", "", "missing")
        self.assert_fault(path, "speedup.svg", "", "unknown file")
        own = self.copy("cache", "my-run")
        self.write(own, "speedup.svg", "<svg/>")
        self.assert_fault(own, "speedup.svg", "", "a file of another experiment")

    def test_summary_lines_and_cells_missing(self):
        text = self.read(self.true["cache"], "summary.csv")
        for forged in (text[:-1], text + "\n", text + text.split("\n")[1] + "\n",
                       text.replace(",", "", 1), ""):
            path = self.copy("cache")
            self.write(path, "summary.csv", forged)
            self.assert_fault(path, "summary.csv", "line")


class TestTwoJudges(unittest.TestCase):
    """The auditor's rules and those of verdicts.py, written apart, agree."""

    DECLARED = {"dtype": "float64", "blas_threads": 1, "tolerance": 1e-8,
                "malloc": {}, "errors": [{"max_abs_error": 1e-15}]}
    SHAPES = {"cache_strategy": ((1,), (16, 32, 64)),
              "batch_length_scan": ((2,), (16, 32, 64)),
              "batch_size_scan": ((1, 2, 4), (128,))}

    def made_up_rows(self, rng):
        """Return the experiment and rows around ratios at which rules turn."""
        label = rng.choice(sorted(self.SHAPES))
        paths = timings.SCANS[label].columns["path"]
        batches, lengths = self.SHAPES[label]
        rounds, spread = rng.choice((1, 5, 6, 7, 12)), rng.choice((0, 0, 0.01, 0.4))
        shift = rng.choice((0, 0, 0.09, 0.1, 0.11))
        rows = []
        for batch in batches:
            for tokens in lengths[:rng.choice((1, 3, 3, 3))]:
                pace = dict.fromkeys(paths, 1.0)
                pace[paths[-2]] = rng.choice((0.9, 1, 1.02, 1.5, 1.53, 2, 2.1))
                if label == "batch_size_scan":
                    pace["batched"] *= batch ** rng.choice((0.5, 0.8, 1))
                for path in paths:
                    for sample in range(1, rounds + 1):
                        late = path == paths[-2] and sample > rounds // 2
                        elapsed = (pace[path] * (1 + shift * late)
                                   * (1 + spread * (rng.random() - 0.5)))
                        rows.append(dict(zip(COLUMNS, (
                            label, path, str(batch), str(tokens), str(sample),
                            f"{elapsed:.6f}", "1", str(rng.randrange(9))))))
        return label, rows

    def test_both_draw_the_same_lines_from_the_same_samples(self):
        rng, seen = random.Random(11), set()
        for case in range(150):
            label, rows = self.made_up_rows(rng)
            text = "\n".join([",".join(rows[0]), *(",".join(row.values())
                                                   for row in rows)])
            samples = timings.read_samples(text, "x")
            facts = verdicts.Facts("float64", 1, dict.fromkeys(
                samples.elapsed_ms, 1e-15), 1e-8, {})
            lines = [line for line in verdicts.analysis(samples, facts).split("\n")
                     if line.startswith(("|", "- ", "Knee:"))]
            run = audit_bench.Run(label, self.DECLARED, rows)
            found = itertools.chain(*audit_bench.analysis_blocks(run))
            self.assertEqual(list(found), lines, case)
            seen.update(verdicts.verdicts(samples, facts).items())
            seen.update(verdicts.side(found) for ratios in
                        verdicts.round_ratios(samples).values()
                        for found in ratios.values())
        # The cases reach every side and every verdict.
        self.assertLessEqual({"few", "moved", "above", "below", "undecided"}, seen)
        self.assertLessEqual({(name, verdict) for name in ("H2", "H3", "H4", "H5")
                              for verdict in ("Supported", "Refuted",
                                              "Inconclusive")}, seen)


class TestCapacity(unittest.TestCase):
    def test_true_capacity_passes_and_every_forged_cell_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kv-capacity")
            os.mkdir(path)
            true = bench.capacity_csv()

            def audited(text):
                with open(os.path.join(path, "capacity.csv"), "w",
                          encoding="utf-8", newline="") as file:
                    file.write(text)
                return audit.audit_folder(path)

            found = audited(true)
            self.assertEqual((found.known, found.faults, found.totals),
                             (True, [], {"rows": 24}))
            lines = true.split("\n")
            for number in (0, 1, 24):
                cells = lines[number].split(",")
                for place, column in enumerate(lines[0].split(",")):
                    forged = [*cells[:place], "7", *cells[place + 1:]]
                    text = "\n".join([*lines[:number], ",".join(forged),
                                      *lines[number + 1:]])
                    self.assertEqual(audited(text).faults, [
                        {"file": os.path.join("kv-capacity", "capacity.csv"),
                         "record": f"line {number + 1}: {column}", "found": "7",
                         "expected": cells[place]}])
            self.assertTrue(audited("").faults)


if __name__ == "__main__":
    unittest.main()
