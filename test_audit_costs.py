"""Tests of audit_costs.py: true folders pass, forged ones are named."""

import functools
import hashlib
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
    import audit_costs
    import bench
    import costs
    import experiments
    import records
    import timings
    import verdicts
except ImportError as error:
    raise unittest.SkipTest(f"needs NumPy: {error}")

from test_support import call, read, write

LABELS = {"admission": "admission", "break-even": "break_even", "limit": "limit"}
SMALL = {"admission": {"repeats": 1}, "limit": {"repeats": 7, "lengths": (16, 256, 300)},
         "break-even": {"repeats": 6, "hidden_sizes": (4, 16), "prefixes": (4, 8)}}


@functools.lru_cache(maxsize=None)
def groups_of(name, settings):
    """Return the groups with calls that do nothing, their counts kept."""
    if name == "limit":         # its inputs and oracles are large
        keys = [(path, tokens) for tokens in settings.lengths
                for path in timings.SCANS["limit"].columns["path"]
                if not timings.SCANS["limit"].absent(path, tokens)]
        return [experiments.Group(key, lambda: [((), int)], None) for key in keys]
    return [group._replace(calls=functools.partial(
                list, [(rest, int) for rest, _ in group.calls()]))
            for group in experiments.EXPERIMENTS[name].groups(settings)]


def make_folder(path, name, **settings):
    """Measure with a made-up clock and summarize into the folder `path`."""
    experiment = experiments.EXPERIMENTS[name]
    settings = experiments.Settings(**{**experiment.defaults, **settings})
    rng, now = random.Random(5), [0]

    def timer():
        now[0] += rng.randrange(9000, 11000)
        return now[0]

    groups = groups_of(name, settings)
    samples = bench.measure(groups, settings, timer, lambda: now[0] // 10_007)
    with mock.patch.object(bench, "BLAS_PINNED", True), mock.patch.dict(
            os.environ, dict.fromkeys(records.THREAD_VARIABLES, "1")):
        facts = bench.environment(name, settings, groups, [1e-15] * len(groups))
    raw = os.path.join(path, "raw.csv")
    bench.write_measurement(raw, bench.raw_csv(experiment.label, samples),
                            {**facts, "malloc": {}})
    status, _, err = call(bench.main, "summarize", "--input", raw, "--output-dir", path)
    if status:
        raise AssertionError(f"{path} could not be summarized: {err}")


class AuditCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.true = {}
        for name in LABELS:
            cls.true[name] = os.path.join(cls.folder, f"true-{name}")
            make_folder(cls.true[name], name, **SMALL[name])

    def copy(self, name):
        path = os.path.join(tempfile.mkdtemp(dir=self.folder), "my-run")
        shutil.copytree(self.true[name], path)
        return path

    def text(self, path, name):
        return read(os.path.join(path, name)).decode()

    def change(self, path, name, old, new):
        text = self.text(path, name)
        self.assertIn(old, text)
        write(path, name, text.replace(old, new, 1))

    def declare(self, path, change):
        facts = json.loads(self.text(path, "environment.json"))
        change(facts)
        write(path, "environment.json", json.dumps(facts, indent=1))

    def sign(self, path):
        """Make environment.json bear the hash of raw.csv as it is now."""
        found = hashlib.sha256(read(os.path.join(path, "raw.csv"))).hexdigest()
        self.declare(path, lambda facts: facts["csv"].update(sha256=found))

    def assert_fault(self, path, file, record, found=None, expected=None):
        faults = audit.audit_folder(path).faults
        json.dumps(faults, allow_nan=False)
        fits = [fault for fault in faults
                if fault["file"] == os.path.join("my-run", file)
                and record in fault["record"]
                and (found is None or fault["found"] == found)
                and (expected is None or fault["expected"] == expected)]
        self.assertTrue(fits, faults[:5])


class TestTrueFolders(AuditCase):
    def test_runs_of_any_settings_pass_by_what_they_hold(self):
        for name in LABELS:
            found = audit.audit_folder(self.true[name])
            with self.subTest(name):
                self.assertEqual((found.faults, found.known), ([], False))
                self.assertEqual(set(found.names()), found.audited)

    def test_full_runs_pass_under_the_names_of_the_evidence(self):
        full = audit_costs.FORMS["admission"].full
        self.assertEqual((full["warmup"], full["repeats"]), (1, 25))
        # One round of the 25, as all of them take seconds.
        short = audit_costs.FORMS["admission"]._replace(full={**full, "repeats": 1})
        for name, samples, settings in (
                ("break-even", 7200, {}), ("limit", 1080, {}),
                ("admission", 4608, {"repeats": 1})):
            path = os.path.join(self.folder, name)
            make_folder(path, name, **settings)
            with self.subTest(name), mock.patch.dict(audit_costs.FORMS, admission=short):
                found = audit.audit_folder(path)
                self.assertTrue(found.known)
                self.assertEqual((found.faults, found.totals["samples"]), ([], samples))

    def test_a_known_folder_needs_its_full_settings_and_all_files(self):
        for name in ("break-even", "limit"):
            path = os.path.join(tempfile.mkdtemp(dir=self.folder), name)
            shutil.copytree(self.true[name], path)
            os.unlink(os.path.join(path, "analysis.md"))
            faults = audit.audit_folder(path).faults
            self.assertIn("arguments.repeats", {fault["record"] for fault in faults})
            self.assertIn("missing", {fault["found"] for fault in faults})

    def test_prose_of_the_analyses_is_pinned(self):
        for label in audit_costs.PROSE_SHA256:
            scan = timings.SCANS[label]
            groups = {group: [1.0] for group in itertools.product(*(
                (7,) if isinstance(allowed, int) else allowed
                for allowed in scan.columns.values())) if not scan.absent(*group)}
            text = costs.analysis(timings.Samples(label, groups, {}), verdicts.Facts())
            prose = re.sub(r"(^(\||- ).*\n?)+", "@\n", text, flags=re.M)
            self.assertEqual(audit_costs.PROSE_SHA256[label],
                             hashlib.sha256(prose.encode()).hexdigest(),
                             f"the text of {label} has changed: pin its new hash")


class TestForged(AuditCase):
    def lines_to_forge(self, name, lines):
        """Return the places of lines of data, of long tables not all."""
        data = [place for place, line in enumerate(lines)
                if line.startswith(("|", "- "))]
        return data if name == "limit" else data[::9]

    def test_a_changed_time_fails_the_hash_and_signed_what_is_derived(self):
        for name, chart, series in (("limit", "over-bare.svg", "fused"),
                                    ("break-even", "ratio-all.svg", "hidden 4"),
                                    ("admission", "ratios-hot-prefix.svg", "")):
            path = self.copy(name)
            lines = self.text(path, "raw.csv").split("\n")
            for number, line in enumerate(lines):
                if re.search(r",fused,16,|,all,4,|,hot-prefix,all,query,", line):
                    lines[number] = re.sub(r"\d+\.\d{6}", "7.000000", line)
            write(path, "raw.csv", "\n".join(lines))
            with self.subTest(name):
                self.assert_fault(path, "environment.json", "csv.sha256")
                self.sign(path)
                self.assert_fault(path, "summary.csv", "line")
                self.assert_fault(path, "analysis.md", "line")
                self.assert_fault(path, chart, "line")

    def test_cells_of_the_protocol_are_named_with_both_values(self):
        for name, line, column, value in (
                ("limit", 3, "path", "bare_products"), ("limit", 3, "order", "9999"),
                ("limit", 3, "sequence_length", "17"), ("limit", 3, "sample", "7"),
                ("break-even", 4, "policy", "shared"), ("break-even", 4, "hidden", "5"),
                ("break-even", 4, "prefix_tokens", "5"),
                ("admission", 5, "seed", "11"), ("admission", 5, "budget", "0"),
                ("admission", 5, "trace", "x"), ("admission", 5, "policy", "shared"),
                ("admission", 5, "part", "save"), ("admission", 5, "index", "11")):
            path = self.copy(name)
            lines = self.text(path, "raw.csv").split("\n")
            place = lines[0].split(",").index(column)
            cells = lines[line - 1].split(",")
            true, cells[place] = cells[place], value
            lines[line - 1] = ",".join(cells)
            write(path, "raw.csv", "\n".join(lines))
            self.sign(path)
            with self.subTest(name=name, column=column):
                self.assert_fault(path, "raw.csv", f"line {line}: {column}", value, true)

    def test_forms_that_are_not_canonical_are_refused(self):
        for name, old, new, record in (
                ("limit", "limit,fused,16,1,", "limit,fused,016,1,", "sequence_length"),
                ("limit", "limit,fused,16,1,", "other,fused,16,1,", "experiment"),
                ("limit", "limit,fused,16,1,", "limit,fused,16,1,,", "line"),
                ("limit", "path,seq", "path,batch_size,seq", "line 1"),
                ("break-even", "break_even,all,4,4,1,", "break_even,all,0,4,1,",
                 "hidden"),
                ("limit", "limit,no_cache,16,1,", "nothing,no_cache,16,1,", "line")):
            path = self.copy(name)
            self.change(path, "raw.csv", old, new)
            self.sign(path)
            with self.subTest(new=new):
                self.assert_fault(path, "raw.csv", record)

    def test_counts_that_stand_beside_the_times_are_derived(self):
        path = self.copy("admission")
        rows = [error for error in json.loads(self.text(path, "environment.json"))
                ["errors"] if "projected_rows" in error]
        self.assertEqual(len(rows), 144)

        def forge(facts):
            facts["errors"][0]["projected_rows"] += 6

        self.declare(path, forge)
        self.assert_fault(path, "environment.json", "errors[0]")

    def test_arguments_are_checked_before_they_are_used(self):
        for name, changes, record in (
                ("admission", {"dtype": "float32"}, "arguments.dtype"),
                ("break-even", {"hidden_sizes": [3, 16]}, "arguments.hidden_sizes"),
                ("break-even", {"prefixes": [5, 8]}, "arguments.prefixes"),
                ("break-even", {"prefixes": []}, "arguments.prefixes"),
                ("break-even", {"prefixes": "4"}, "arguments.prefixes"),
                ("break-even", {"prefixes": [[4]]}, "arguments.prefixes"),
                ("limit", {"lengths": list(range(1, 200))}, "arguments.lengths"),
                ("limit", {"lengths": [16, 16]}, "arguments.lengths"),
                ("limit", {"more": 1}, "arguments"),
                ("limit", {"seed": 43}, "dtype, seed, tolerance"),
                ("limit", {"experiment": "cache"}, "arguments.experiment")):
            path = self.copy(name)

            def change(facts):
                facts["arguments"].update(changes)
                facts["dtype"] = changes.get("dtype", facts["dtype"])

            self.declare(path, change)
            with self.subTest(changes=changes):
                self.assert_fault(path, "environment.json", record)

    def test_sources_are_those_of_the_experiment(self):
        path = self.copy("limit")
        self.declare(path, lambda facts: facts["sources"].pop("decoder.py"))
        self.assert_fault(path, "environment.json", "sources")

    def test_every_line_of_data_is_checked(self):
        for name in LABELS:
            path, text = self.copy(name), self.text(self.true[name], "analysis.md")
            lines = text.split("\n")
            for number in self.lines_to_forge(name, lines):
                forged = [*lines[:number], lines[number] + "7", *lines[number + 1:]]
                write(path, "analysis.md", "\n".join(forged))
                with self.subTest(name=name, line=lines[number]):
                    self.assert_fault(path, "analysis.md", f"line {number + 1}",
                                      lines[number] + "7", lines[number])
            write(path, "analysis.md", text.replace("thread", "GPU") + "More.\n")
            self.assert_fault(path, "analysis.md", "prose sha256")

    def test_every_column_of_a_summary_is_checked(self):
        for name in LABELS:
            path, text = self.copy(name), self.text(self.true[name], "summary.csv")
            lines = text.split("\n")
            for place, column in enumerate(lines[0].split(",")):
                cells = lines[2].split(",")
                true, cells[place] = cells[place], "9.990000"
                write(path, "summary.csv", "\n".join(
                    [*lines[:2], ",".join(cells), *lines[3:]]))
                with self.subTest(name=name, column=column):
                    self.assert_fault(path, "summary.csv", f"line 3: {column}",
                                      "9.990000", true)

    def test_a_moved_point_or_bar_of_a_chart_is_found(self):
        for name, label in LABELS.items():
            for chart in audit_costs.DERIVED[label][2:]:
                path = self.copy(name)
                if name == "admission":
                    text = self.text(path, chart)
                    place = text.index('height="', text.index("<rect")) + len('height="')
                    write(path, chart, text[:place] + "9" + text[place:])
                else:
                    text = self.text(path, chart)
                    place = text.index("points=", text.index("<g data")) + len("points=.")
                    write(path, chart, text[:place] + "9" + text[place:])
                with self.subTest(chart):
                    self.assert_fault(path, chart, "")

    def test_files_of_another_experiment_are_named(self):
        path = self.copy("limit")
        write(path, "ratio-all.svg", "<svg/>")
        self.assert_fault(path, "ratio-all.svg", "", "a file of another experiment")

    def test_odd_values_are_faults_and_no_traceback(self):
        path = self.copy("limit")
        true = json.loads(self.text(path, "environment.json"))
        for key in ("arguments", "errors", "csv", "dtype", "tolerance", "sources"):
            for odd in (None, True, -1, 1.5, 1e308, "x\ud800", [[]], [{}], {"a": {}}):
                write(path, "environment.json", json.dumps({**true, key: odd}))
                with self.subTest(key=key, odd=odd):
                    self.assertTrue(audit.audit_folder(path).faults)
        for name in LABELS:
            for text in ("", "\n", "experiment\n", "experiment\nlimit\n", "a,b\n1\n"):
                path = self.copy(name)
                write(path, "raw.csv", text)
                self.assertTrue(audit.audit_folder(path).faults)


class TestTwoJudges(unittest.TestCase):
    """The auditor's rules and those of costs.py, written apart, agree."""

    DECLARED = {"dtype": "float64", "blas_threads": 1, "tolerance": 1e-8,
                "malloc": {}, "errors": [{"max_abs_error": 1e-15}]}
    ARGUMENTS = {"admission": {}, "limit": {"lengths": [16, 64, 256, 1024, 4096]},
                 "break_even": {"hidden_sizes": [16, 64, 256],
                                "prefixes": [4, 8, 32, 64, 128]}}
    TURNS = {"admission": (0.9, 0.99, 1, 1.01, 1.02, 1.05, 1.3),
             "break_even": (0.2, 0.24, 0.3, 0.6, 0.9, 0.99, 1, 1.1, 1.3),
             "limit": (0.4, 1, 1.4, 2, 3, 25)}

    def made_up(self, rng, label):
        """Return {group: [ms, ...]} around ratios at which rules turn."""
        rounds, spread = rng.choice((1, 5, 6, 7, 9)), rng.choice((0, 0, 0.01, 0.3))
        shift = rng.choice((0, 0, 0.09, 0.11))
        arguments = {**self.ARGUMENTS[label], "repeats": rounds}
        turns = self.TURNS[label]
        # Now all faster, now all slower, now mixed: else "all" is never met.
        turns = rng.choice((turns, turns[:2], turns[:1], turns[-1:], turns[1:3]))
        paces, elapsed = {}, {}
        for group in audit_costs.FORMS[label].groups(
                {**arguments, "dtype": "float64"}):
            for key in group.rows:
                place = key[1:4] if label == "admission" else key
                fixed = "none" in place or "fused" in place
                pace = paces.setdefault(place, 1 if fixed else rng.choice(turns))
                elapsed[key] = [
                    round(pace * (1 + shift * (not fixed and sample >= rounds // 2))
                          * (1 + spread * (rng.random() - 0.5)), 6)
                    for sample in range(rounds)]
        return arguments, elapsed

    def test_both_draw_the_same_lines_from_the_same_samples(self):
        rng, seen = random.Random(12), set()
        counted = {(*key, "query"): rows
                   for key, rows in audit_costs.counted_rows().items()}
        for case in range(96):
            label = ("limit", "break_even", "break_even", "limit", "limit",
                     "admission")[case % 6]
            arguments, elapsed = self.made_up(rng, label)
            samples = timings.Samples(label, elapsed, {})
            facts = verdicts.Facts("float64", 1, dict.fromkeys(
                costs.checked_groups(samples), 1e-15), 1e-8, {}, projected_rows=counted)
            lines = [line for line in costs.analysis(samples, facts).split("\n")
                     if line.startswith(("|", "- "))]
            run = audit_costs.RUNS[label]({**self.DECLARED, "arguments": arguments},
                                          elapsed)
            found = itertools.chain(*audit_costs.analysis_blocks(run))
            self.assertEqual(list(found), lines, case)
            self.assertEqual(
                [",".join(run.columns)] + [",".join(map(audit_costs.csv_cell, row))
                                           for row in run.rows] + [""],
                costs.summary_csv(samples, facts).split("\n"))
            seen.update(costs.verdicts(samples, facts).items())
        # The cases reach every verdict.
        self.assertEqual({(name, verdict) for name in ("H6", "H7", "H8", "H9", "H10",
                                                       "H11")
                          for verdict in ("Supported", "Refuted", "Inconclusive")}
                         - seen, set())


if __name__ == "__main__":
    unittest.main()
