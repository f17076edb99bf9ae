"""audit.py: true evidence passes, every forgery of it is named."""

import json
import os
import shutil
import tempfile
import unittest
from unittest import mock

try:
    import audit
except ImportError:             # without NumPy
    raise unittest.SkipTest("audit.py needs NumPy") from None
from test_support import (EVIDENCE, HOME, TemporaryFolder, at, call, copy_scripts,
                          places, read, readme_block, replaced, run, run_block, write)

KVLAB = os.path.join(EVIDENCE, "kvlab")
NUMBERS = 103               # in the seven JSON files of evidence/kvlab


class EvidenceCopy(TemporaryFolder):
    """A copy of one evidence folder that a test may forge."""

    NAME = "kvlab"

    def setUp(self):
        super().setUp()
        self.folder = self.path(self.NAME)
        shutil.copytree(os.path.join(EVIDENCE, self.NAME), self.folder)

    def audit(self):
        """Return the exit status and the faults of the copy."""
        status, out, err = call(audit.main, self.folder)
        self.assertEqual(err, "")
        report = json.loads(out)
        faults = report["folders"][os.path.basename(self.folder)]["faults"]
        self.assertEqual((status == 0, report["ok"]), (not faults, not faults))
        return faults

    def assert_named(self, file, record="", found=None):
        """Assert that the audit fails and names what was forged."""
        faults = [fault for fault in self.audit()
                  if fault["file"] == f"{self.NAME}/{file}"
                  and record in fault["record"]
                  and (found is None or found == fault["found"])]
        self.assertTrue(faults, (file, record, found, self.audit()))


def evidence_copy(folder):
    """Copy the evidence's own folders, and nothing that was added to them."""
    for name in audit.EVIDENCE:
        shutil.copytree(os.path.join(EVIDENCE, name), os.path.join(folder, name))
    return folder


class TestStrictness(unittest.TestCase):

    def test_values_of_another_type_differ(self):
        for found, expected in ((48.0, 48), (True, 1), (1, True), ("1", 1), (None, 0),
                                ([], {}), (0, -0.0)):
            with self.subTest(found=found):
                self.assertEqual(list(audit.differences(found, expected, "x")),
                                 [("x", found, expected)])

    def test_a_late_duplicate_key_among_many_is_found_at_once(self):
        text = "{" + ", ".join(f'"{key}": 1' for key in range(50000)) + ', "49999": 2}'
        with self.assertRaisesRegex(ValueError, "key '49999' stands twice"):
            audit.strict_json(text)

    def test_differences_name_their_place(self):
        found = {"a": [1, {"b": 2}], "c": 3}
        expected = {"a": [1, {"b": 5}], "c": 4}
        self.assertEqual(list(audit.differences(found, expected)),
                         [("a[1].b", 2, 5), ("c", 3, 4)])

    def test_missing_added_and_reordered_members_differ(self):
        for found, expected in (({"a": 1}, {"a": 1, "b": 2}),
                                ({"a": 1, "b": 2}, {"a": 1}),
                                ({"b": 2, "a": 1}, {"a": 1, "b": 2}),
                                ([1], [1, 2]), ([1, 2], [1])):
            with self.subTest(found=found):
                self.assertEqual(len(list(audit.differences(found, expected))), 1)

    def test_duplicate_keys_and_constants_are_refused(self):
        for text in ('{"a": 1, "a": 1}', "[NaN]", "[-Infinity]", "[1e400]"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                audit.strict_json(text)


class TestKvlab(EvidenceCopy):

    RECORDS = ("cyclic.json", "baseline.json", "cliff.json", "offload.json",
               "cpu_cliff.json", "measured.json", "rules.json")

    def test_the_evidence_passes(self):
        self.assertEqual(self.audit(), [])

    def test_every_changed_number_is_named_with_its_file_and_value(self):
        walked = 0
        for name in self.RECORDS:
            true = json.loads(read(os.path.join(KVLAB, name)))
            for where in places(true):
                number = at(true, where)
                if not isinstance(number, (int, float)):
                    continue
                for forged in (number + 1, str(number), float(number)
                               if isinstance(number, int) else number + 0.01):
                    write(self.folder, name, json.dumps(replaced(true, where, forged)))
                    self.assert_named(name, str(where[-1]), forged)
                    walked += 1
            write(self.folder, name, read(os.path.join(KVLAB, name)).decode())
        self.assertEqual(walked, 3 * NUMBERS)

    def test_changed_words_and_shapes_are_named(self):
        rows = json.loads(read(self.path("cyclic.json")))
        for forged in ({"passes": rows["passes"][:1]}, {"passes": rows["passes"] * 2},
                       {"passes": []}, {}, [], None, rows["passes"],
                       {**rows, "note": 1}, replaced(rows, ("passes", 0, "order"), "rev"),
                       replaced(rows, ("passes", 1), {})):
            with self.subTest(forged=forged):
                write(self.folder, "cyclic.json", json.dumps(forged))
                self.assert_named("cyclic.json")

    def test_text_that_is_no_strict_json_is_named(self):
        true = read(self.path("cliff.json")).decode()
        for text in ("", "{", true.replace("0}", "NaN}"), "[" * 100000,
                     true.replace("{", '{"21520": 0, '), "\ufeff" + true):
            with self.subTest(text=text[:40]):
                write(self.folder, "cliff.json", text)
                self.assert_named("cliff.json")
        with open(self.path("cliff.json"), "wb") as file:
            file.write(b"\xff" + true.encode())
        self.assert_named("cliff.json")

    def test_missing_left_over_and_linked_files_are_named(self):
        write(self.folder, "extra.json", "{}")
        self.assert_named("extra.json")
        os.remove(self.path("extra.json"))
        os.mkdir(self.path("more"))
        self.assert_named("more")
        os.rmdir(self.path("more"))
        for name in self.RECORDS + ("cliff.svg", "cpu-cliff.svg", "ttft.svg"):
            os.rename(self.path(name), self.folder + "-aside")
            self.assert_named(name)
            os.symlink(self.folder + "-aside", self.path(name))
            self.assert_named(name)
            os.remove(self.path(name))
            os.rename(self.folder + "-aside", self.path(name))
        self.assertEqual(self.audit(), [])

    def test_forged_charts_are_named(self):
        for name, old, new in (("cliff.svg", ' points="', ' points="1,1 '),
                               ("cpu-cliff.svg", ",44.00", ",45.00"),
                               ("cpu-cliff.svg", "misses: 0, 10", "misses: 0, 9"),
                               ("cliff.svg", ">30,000<", ">31,000<"),
                               ("ttft.svg", ">576<", ">577<"),
                               ("ttft.svg", ' height="216.00"', ' height="217.00"'),
                               ("ttft.svg", "</svg>", "<rect/></svg>"),
                               ("ttft.svg", "<svg", "<!DOCTYPE svg><svg"),
                               ("ttft.svg", "<svg", "svg"),
                               ("cliff.svg", "data-series=\"hits\"", ""),
                               ("cliff.svg", "tick-x", "tick")):
            true = read(self.path(name)).decode()
            self.assertIn(old, true)
            with self.subTest(name=name, new=new):
                write(self.folder, name, true.replace(old, new, 1))
                self.assert_named(name)
            write(self.folder, name, true)

    def test_a_changed_fixture_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(HOME, os.path.join(folder, "lab"),
                            ignore=shutil.ignore_patterns(".*", "__pycache__"))
            lab = os.path.join(folder, "lab")
            fixture = os.path.join(lab, "fixtures", "ttft.jsonl")
            text = read(fixture).decode()
            write(lab, "fixtures/ttft.jsonl", text.replace("5011", "5012", 1))
            done = run("audit.py", "evidence/kvlab", folder=lab)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertIn("fixtures/ttft.jsonl", done.stdout)


class TestPlantedKvsimBugs(unittest.TestCase):
    """With a bug planted in the simulator, evidence made again fails."""

    BUGS = (
        ("FIFO", "kvsim.py", "            sizes.move_to_end(key)\n", ""),
        ("an oversized entry clears the cache", "kvsim.py",
         "        if size <= self.capacity:\n",
         "        if size > self.capacity:\n            sizes.clear()\n"
         "            self._used = 0\n        else:\n"),
        ("a GPU hit touches the CPU", "kvsim.py",
         '        if self.gpu.access(key, size):\n            return "gpu"\n',
         '        if self.gpu.access(key, size):\n'
         '            self.cpu.access(key, size)\n            return "gpu"\n'),
        ("a CPU hit is not put into the GPU", "kvsim.py",
         "        if self.gpu.access(key, size):\n",
         "        if key in self.cpu and key not in self.gpu:\n"
         "            return self.cpu.access(key, size) and \"cpu\"\n"
         "        if self.gpu.access(key, size):\n"),
        ("a hit stores the new size", "kvsim.py", "        if key in sizes:\n",
         "        if key in sizes and self.capacity < 9:\n"
         "            self._used -= sizes.pop(key)\n        if key in sizes:\n"),
        ("an entry as large as the cache is refused", "kvsim.py",
         "if size <= self.capacity", "if size < self.capacity"),
        ("an entry too large for the GPU is kept from the CPU", "kvsim.py",
         "        if self.gpu.access(key, size):\n",
         "        if size > self.gpu.capacity:\n            return \"miss\"\n"
         "        if self.gpu.access(key, size):\n"),
        ("the cache is cleared between passes", "scenario.py",
         "    docs = range(len(sizes))\n",
         "    docs = range(len(sizes))\n"
         "    cache = TwoTierCache(cache.gpu.capacity, cache.cpu.capacity)\n"))

    def test_each_bug_is_found(self):
        for bug, script, old, new in self.BUGS:
            with self.subTest(bug=bug), tempfile.TemporaryDirectory() as folder:
                copy_scripts(folder, "kvsim.py", "scenario.py", "summarize.py")
                shutil.copytree(os.path.join(HOME, "fixtures"),
                                os.path.join(folder, "fixtures"))
                text = read(os.path.join(folder, script)).decode()
                self.assertEqual(text.count(old), 1)
                write(folder, script, text.replace(old, new))
                done = run_block(readme_block("clone"), folder)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                made = os.path.join(folder, "kvlab-copy")
                os.mkdir(made)
                for name in TestKvlab.RECORDS:
                    shutil.move(os.path.join(folder, name), made)
                status, out, _ = call(audit.main, made)
                self.assertEqual(status, 1)
                self.assertTrue(json.loads(out)["folders"]["kvlab-copy"]["faults"])

    def test_without_a_bug_the_same_files_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in TestKvlab.RECORDS:
                shutil.copy(os.path.join(KVLAB, name), folder)
            self.assertEqual(call(audit.main, folder)[0], 0)


class TestEvidence(unittest.TestCase):

    def test_the_committed_evidence_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = evidence_copy(os.path.join(folder, "evidence"))
            status, out, err = call(audit.main, tree)
        report = json.loads(out)
        self.assertEqual([row["faults"] for row in report["folders"].values()],
                         [[]] * len(audit.EVIDENCE))
        self.assertEqual((status, err), (0, ""))


class TestTree(TemporaryFolder):
    """What must be in a tree, and what may be, with two folders for all."""

    def setUp(self):
        super().setUp()
        few = {name: audit.EVIDENCE[name] for name in ("cache-budget", "kvlab")}
        patch = mock.patch.dict(audit.EVIDENCE, few, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        self.tree = evidence_copy(self.path("evidence"))

    def faults(self):
        status, out, err = call(audit.main, self.tree)
        self.assertEqual(err, "")
        report = json.loads(out)
        return {name: row["faults"] for name, row in report["folders"].items()
                if row["faults"]}

    def test_a_true_tree_passes(self):
        self.assertEqual(self.faults(), {})

    def test_a_missing_folder_is_named(self):
        for name in audit.EVIDENCE:
            os.rename(os.path.join(self.tree, name), self.tree + "-aside")
            self.assertEqual(list(self.faults()), [name])
            os.symlink(self.tree + "-aside", os.path.join(self.tree, name))
            self.assertEqual(list(self.faults()), [name])
            os.remove(os.path.join(self.tree, name))
            os.rename(self.tree + "-aside", os.path.join(self.tree, name))

    def test_a_tree_among_records_hides_nothing(self):
        for name in os.listdir(KVLAB):
            shutil.copy(os.path.join(KVLAB, name), self.tree)
        write(os.path.join(self.tree, "kvlab"), "cliff.json", "{}")
        self.assertLessEqual({"cliff.json", "kvlab"}, set(self.faults()))

    def test_a_folder_of_two_experiments_is_named(self):
        mine = os.path.join(self.tree, "mine")
        shutil.copytree(KVLAB, mine)
        shutil.copy(os.path.join(self.tree, "cache-budget", "arrays.npz"), mine)
        self.assertEqual(list(self.faults()), ["mine"])

    def test_a_folder_in_a_run_folder_is_named(self):
        mine = os.path.join(self.tree, "mine")
        shutil.copytree(KVLAB, mine)
        shutil.copytree(KVLAB, os.path.join(mine, "inner"))
        self.assertEqual(self.faults()["mine"][0]["file"], "mine/inner")

    def test_a_linked_path_is_refused(self):
        link = self.path("link")
        os.symlink(self.tree, link)
        for path in (link, link + "/"):
            status, out, err = call(audit.main, path)
            self.assertEqual((status, out), (1, ""))
            self.assertIn("is a symbolic link", err)

    def test_a_huge_file_is_not_read(self):
        with open(os.path.join(self.tree, "kvlab", "cliff.json"), "wb") as file:
            file.truncate(1 << 40)
        fault, = self.faults()["kvlab"]
        self.assertIn("has 1099511627776 bytes", fault["found"])

    def test_what_a_killed_run_or_audit_left_is_no_fault(self):
        write(os.path.join(self.tree, "cache-budget"), ".audit.json-0123abcd", "x")
        os.mkdir(os.path.join(self.tree, ".my-run-0123abcd"))
        self.assertEqual(self.faults(), {})

    def test_charts_of_a_run_by_another_name_count_as_audited(self):
        mine = os.path.join(self.tree, "mine")
        shutil.copytree(os.path.join(self.tree, "cache-budget"), mine)
        write(mine, "notes.txt", "x")
        report = json.loads(call(audit.main, self.tree)[1])
        self.assertEqual(report["folders"]["mine"]["not_audited"], ["notes.txt"])

    def test_a_folder_that_holds_no_experiment_is_named(self):
        os.mkdir(os.path.join(self.tree, "mine"))
        self.assertEqual(list(self.faults()), ["mine"])

    def test_a_folder_by_another_name_is_audited_by_what_it_holds(self):
        mine = os.path.join(self.tree, "my-run")
        shutil.copytree(KVLAB, mine)
        os.remove(os.path.join(mine, "ttft.svg"))
        write(mine, "notes.txt", "x")
        self.assertEqual(self.faults(), {})
        write(mine, "cliff.json", "{}")
        self.assertEqual(list(self.faults()), ["my-run"])

    def test_a_stray_file_is_named_and_hides_nothing_else(self):
        write(self.tree, ".DS_Store", "")
        self.assertEqual(list(self.faults()), [".DS_Store"])
        write(os.path.join(self.tree, "kvlab"), "cliff.json", "{}")
        self.assertEqual(list(self.faults()), [".DS_Store", "kvlab"])

    def test_an_empty_tree_misses_everything(self):
        shutil.rmtree(self.tree)
        os.mkdir(self.tree)
        self.assertEqual(list(self.faults()), sorted(audit.EVIDENCE))

    def test_a_reader_that_has_gone_is_no_error(self):
        done = run("-c", "import audit, os, sys; r, w = os.pipe(); os.close(r); "
                         "os.dup2(w, 1); sys.exit(audit.main(sys.argv[1:]))",
                   KVLAB)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_full_disk_is_one_line_on_stderr(self):
        done = run("-c", "import audit, os, sys; os.dup2(os.open('/dev/full', "
                         "os.O_WRONLY), 1); sys.exit(audit.main(sys.argv[1:]))",
                   KVLAB)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "audit.py: stdout: No space left on device\n"))

    def test_a_path_that_is_not_there_is_one_line(self):
        for path, why in (("no/such", "No such file or directory"),
                          (os.path.join(self.tree, "kvlab", "cliff.json"),
                           "Not a directory")):
            self.assertEqual(call(audit.main, path),
                             (1, "", f"audit.py: {path}: {why}\n"))


if __name__ == "__main__":
    unittest.main()
