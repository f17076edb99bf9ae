"""Tests of audit_replay.py: what was forged is found and named."""

import contextlib
import copy
import functools
import io
import json
import os
import shutil
import tempfile
import unittest
from unittest import mock

try:
    import audit
    import audit_replay
    import figures
    import replay
except ImportError:
    raise unittest.SkipTest("audit.py needs NumPy") from None

import scenario

HERE = os.path.dirname(os.path.abspath(__file__))
EVIDENCE = os.path.join(HERE, "evidence", "replay")
FIXTURES = os.path.join(HERE, "fixtures")
TOUCHES = ("tail", "head")


def leaves(value, path=()):
    """Yield the path to each number, string, null and truth value of a JSON."""
    items = (value.items() if isinstance(value, dict)
             else enumerate(value) if isinstance(value, list) else ())
    for key, member in items:
        yield from leaves(member, path + (key,))
    if not isinstance(value, (dict, list)):
        yield path


def changed(value, path, change):
    """Return a copy of `value` with `change` made to the leaf at `path`."""
    value = copy.deepcopy(value)
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change(place[path[-1]])
    return value


def other(leaf):
    if isinstance(leaf, str):
        return leaf + "x"
    return 1 if leaf is None else leaf + 1


class AuditCase(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.folder = os.path.join(home.name, "replay")
        shutil.copytree(EVIDENCE, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def faults(self):
        return audit.audit_folder(self.folder).faults

    def assert_found(self, name, found=None, expected=None):
        faults = self.faults()
        self.assertEqual({fault["file"] for fault in faults}, {f"replay/{name}"})
        if expected is not None:
            self.assertIn((found, expected), [(fault["found"], fault["expected"])
                                              for fault in faults])


@functools.lru_cache(maxsize=None)
def derived(derive=audit_replay.derive):
    fixtures = {}
    for name in audit_replay.FIXTURES_SHA256:
        with open(os.path.join(FIXTURES, name), encoding="utf-8") as file:
            fixtures[name] = [json.loads(line) for line in file]
    return derive(fixtures)


class TestForgedEvidence(AuditCase):
    def setUp(self):
        super().setUp()
        self.expect()

    def expect(self, **changes):
        """Let the audit use what it derives once, with `changes`."""
        expected = derived()._replace(**changes)
        patch = mock.patch.object(audit_replay, "derive", lambda _: expected)
        patch.start()
        self.addCleanup(patch.stop)

    def test_committed_evidence_holds(self):
        self.assertEqual(self.faults(), [])

    def test_changed_value_of_a_run_is_found_with_both_values(self):
        self.expect(charts={})      # to read them takes most of the time
        for name in ("one-tier.jsonl", "two-tiers.jsonl"):
            text = self.read(name)
            rows = [json.loads(line) for line in text.splitlines()]
            for place in leaves(rows[-3], (len(rows) - 3,)):
                forged = changed(rows, place, other)
                self.write(name, "".join(json.dumps(row) + "\n" for row in forged))
                with self.subTest(name=name, place=place):
                    true, false = rows, forged
                    for key in place:
                        true, false = true[key], false[key]
                    self.assert_found(name, false, true)
            self.write(name, text)

    def test_changed_value_of_a_json_file_is_found(self):
        self.expect(charts={})      # to read them takes most of the time
        for name in ("curve-tail.json", "curve-head.json", "cpu-inclusive.json",
                     "cpu-exclusive.json"):
            text = self.read(name)
            value = json.loads(text)
            for place in leaves(value):
                self.write(name, json.dumps(changed(value, place, other)))
                with self.subTest(name=name, place=place):
                    self.assert_found(name)
            self.write(name, text)

    def test_changed_public_figure_is_found(self):
        self.expect(charts={})      # to read them takes most of the time
        name = "public-conversation.jsonl"
        lines = self.read(name).splitlines()
        for index, line in enumerate(lines):
            value = json.loads(line)
            for place in leaves(value):
                forged = json.dumps(changed(value, place, other))
                self.write(name, "\n".join(lines[:index] + [forged]
                                           + lines[index + 1:]) + "\n")
                with self.subTest(index=index, place=place):
                    self.assert_found(name)

    def test_changed_type_is_found(self):
        name = "public-synthetic.jsonl"
        first, *lines = self.read(name).splitlines()
        for place, change in ((("requests",), float), (("requests",), str),
                              (("cpu_tokens",), bool)):
            forged = json.dumps(changed(json.loads(first), place, change))
            self.write(name, "\n".join([forged] + lines) + "\n")
            with self.subTest(place=place, change=change):
                self.assert_found(name)

    def test_changed_hash_is_found(self):
        text = self.read("public.sha256")
        for forged in (text.replace("a", "b", 1), text + "x\n", ""):
            self.write("public.sha256", forged)
            self.assert_found("public.sha256")

    def test_changed_added_and_missing_lines_are_found(self):
        for name in os.listdir(self.folder):
            if not name.endswith((".csv", ".jsonl")):
                continue
            text = self.read(name)
            lines = text.splitlines(keepends=True)
            for case, forged in (
                    ("last line missing", lines[:-1]),
                    ("first line missing", lines[1:]),
                    ("a line twice", lines + lines[-1:]),
                    ("lines exchanged", lines[:-2] + lines[:-3:-1]),
                    ("no final newline", lines[:-1] + [lines[-1][:-1]]),
                    ("more after the end", lines + ["x"]),
                    ("a digit changed", lines[:-1] + [lines[-1].replace("5", "6")
                                                      .replace("1", "2")])):
                self.write(name, "".join(forged))
                with self.subTest(name=name, case=case):
                    self.assert_found(name)
            self.write(name, text)

    def test_changed_point_of_a_chart_is_found(self):
        for name in ("curve.svg", "tiers.svg", "ramp.svg"):
            text = self.read(name)
            start = text.index('<polyline points="', text.index("data-series")) + 18
            place = text.index(",", start)
            self.write(name, text[:start] + "77.77" + text[place:])
            with self.subTest(name=name):
                self.assert_found(name)
            self.write(name, text)

    def test_nothing_that_is_no_evidence_ends_in_a_traceback(self):
        for name in sorted(os.listdir(self.folder)):
            text = self.read(name)
            for junk in ("", "\n", "{}", "[]", "null\n", "1e999\n", "NaN\n", '{"a": 1',
                         '{"a": 1, "a": 2}\n', "[" * 50_000, "9" * 5000 + "\n",
                         "<svg", "<svg xmlns='http://www.w3.org/2000/svg'/>",
                         "<!DOCTYPE svg>",
                         text.replace("polyline", "path"),
                         text.replace('class="tick-x"', ""),
                         text.replace("0", "1e999") + "\n"):
                self.write(name, junk)
                if junk == text:
                    continue
                with self.subTest(name=name, junk=junk[:20]):
                    self.assertTrue(self.faults())
            with open(self.path(name), "wb") as file:
                file.write(b"\xff\xfe")
            with self.subTest(name=name, junk="bytes"):
                self.assert_found(name)
            self.write(name, text)

    def test_missing_and_unknown_files_are_found(self):
        for name in sorted(os.listdir(self.folder)):
            os.rename(self.path(name), self.folder + ".kept")
            with self.subTest(missing=name):
                self.assertIn({"file": f"replay/{name}", "record": "",
                               "found": "missing",
                               "expected": "a file of this experiment"},
                              self.faults())
            os.rename(self.folder + ".kept", self.path(name))
        self.write("extra.json", "{}")
        self.assert_found("extra.json")


class TestFixture(AuditCase):
    def test_committed_evidence_follows_from_the_fixtures(self):
        self.assertEqual(self.faults(), [])

    def test_changed_or_missing_fixture_is_found(self):
        for name, digest in audit_replay.FIXTURES_SHA256.items():
            home = tempfile.TemporaryDirectory()
            self.addCleanup(home.cleanup)
            fixtures = os.path.join(home.name, "fixtures")
            shutil.copytree(FIXTURES, fixtures)
            with open(os.path.join(fixtures, name), "a", encoding="utf-8") as file:
                file.write("\n")
            with mock.patch.object(audit, "HOME", home.name):
                [fault] = self.faults()
                self.assertEqual((fault["file"], fault["record"], fault["expected"]),
                                 (f"replay/../../fixtures/{name}", "sha256", digest))
                os.unlink(os.path.join(fixtures, name))
                [fault] = self.faults()
                self.assertEqual(fault["found"], "No such file or directory")


class TestRemake(unittest.TestCase):
    """Every file of the evidence, made again, has the same bytes."""

    def command(self, main, *options):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(main([str(option) for option in options]), 0)
        return out.getvalue()

    def replay(self, fixture, *options):
        return self.command(replay.main, os.path.join(FIXTURES, fixture), *options)

    def assert_committed(self, name, text):
        with open(os.path.join(EVIDENCE, name), encoding="utf-8") as file:
            self.assertEqual(file.read(), text, name)

    def test_runs(self):
        sizes = [512 * 2 ** power for power in range(11)]
        self.assert_committed("one-tier.jsonl", "".join(
            self.replay("trace.jsonl", "--touch", touch, "--bound",
                        "--gpu-tokens", size)
            for touch in TOUCHES for size in sizes))
        self.assert_committed("two-tiers.jsonl", "".join(
            self.replay("trace.jsonl", "--tiers", tiers, "--gpu-tokens", size,
                        "--cpu-tokens", size)
            for tiers in ("inclusive", "mirror", "exclusive")
            for size in sizes[:-1]))

    def test_curves(self):
        with tempfile.TemporaryDirectory() as folder:
            curve = os.path.join(folder, "curve.csv")

            def check(name, fixture, *options):
                answer = self.replay(fixture, "--curve", curve, *options)
                with open(curve, encoding="utf-8") as file:
                    self.assert_committed(name, file.read())
                return answer

            check("documents.csv", "documents.jsonl")
            for touch in TOUCHES:
                self.assert_committed(f"curve-{touch}.json", check(
                    f"curve-{touch}.csv", "trace.jsonl", "--touch", touch,
                    "--bytes-per-token", 28672))
                for name in ("document-blocks", "cycle"):
                    check(f"{name}-{touch}.csv", f"{name}.jsonl", "--touch", touch)

    def test_cpu_sweeps(self):
        for tiers in ("inclusive", "exclusive"):
            self.assert_committed(f"cpu-{tiers}.json", self.command(
                scenario.main, "--passes", "fwd,fwd", "--tiers", tiers,
                "--sweep-cpu", "30065,30066,50109,50110"))

    def test_charts(self):
        charts = figures.replay_charts(EVIDENCE)
        self.assertEqual(sorted(charts), ["curve.svg", "ramp.svg", "tiers.svg"])
        for name, svg in charts.items():
            self.assert_committed(name, svg)

    def test_public_figures_are_those_of_the_exercise(self):
        runs = {}
        for name in ("conversation", "synthetic"):
            with open(os.path.join(EVIDENCE, f"public-{name}.jsonl"),
                      encoding="utf-8") as file:
                runs[name] = [json.loads(line) for line in file]
        for name, rate in (("conversation", 0.3664), ("synthetic", 0.6396)):
            self.assertEqual(
                round(runs[name][0]["unbounded_hit_rate"]["block"], 4), rate)
        self.assertEqual([round(answer["hit_rate"]["block"], 4)
                          for answer in runs["conversation"]],
                         [0.2116, 0.2112, 0.118, 0.1118, 0.2116])


class TestFixtureScripts(unittest.TestCase):
    def test_scripts_rewrite_the_fixtures_byte_for_byte(self):
        for script, options, name in (
                ("make_trace.py", (), "trace.jsonl"),
                ("make_cycle.py", ("documents", "10", "5011", "2"),
                 "documents.jsonl"),
                ("make_cycle.py", ("blocks", "10", "5011", "2"),
                 "document-blocks.jsonl"),
                ("make_cycle.py", ("blocks", "4", "4096", "6"), "cycle.jsonl")):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, name)
                with open(os.path.join(FIXTURES, script), encoding="utf-8") as file:
                    source = compile(file.read(), script, "exec")
                with mock.patch("sys.argv", [script, *options, path]):
                    exec(source, {"__name__": "__main__"})
                with open(path, "rb") as made, \
                        open(os.path.join(FIXTURES, name), "rb") as committed:
                    self.assertEqual(made.read(), committed.read())


if __name__ == "__main__":
    unittest.main()
