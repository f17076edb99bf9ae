"""README.md: its commands do what it says, its figures are the evidence's."""

import json
import os
import re
import shutil
import tempfile
import unittest

from test_support import HOME, read, readme_block, run_block

README = read(os.path.join(HOME, "README.md")).decode("utf-8")
EVIDENCE = os.path.join(HOME, "evidence")


def evidence_json(*names):
    return json.loads(read(os.path.join(EVIDENCE, *names)))


def table(first_header):
    """Return the rows, cell by cell, of the table with this first line."""
    start = README.index(first_header)
    lines = README[start:].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")]
            for line in lines]


class TestFirstPage(unittest.TestCase):

    def test_first_command_prints_what_stands_there_by_line_20(self):
        top = README.splitlines()[:20]
        start = top.index("$ python3 scenario.py")
        shown = top[start + 1:top.index("```", start)]
        with tempfile.TemporaryDirectory() as folder:
            for name in ("kvsim.py", "scenario.py"):
                shutil.copy(os.path.join(HOME, name), folder)
            done = run_block("python3 scenario.py", folder)
        self.assertEqual(done.stdout.splitlines(), shown)

    def test_every_file_that_it_names_is_there(self):
        for name in set(re.findall(r"\]\((evidence/[^)#]+)\)|`((?:evidence|fixtures)/"
                                   r"[^`<]+)`", README)):
            path = os.path.join(HOME, *("".join(name)).split("/"))
            with self.subTest(name=name):
                self.assertTrue(os.path.exists(path))


class TestTwoTierChapter(unittest.TestCase):

    FILES = ("cyclic.json", "baseline.json", "cliff.json", "offload.json",
             "cpu_cliff.json", "measured.json", "rules.json")

    def test_the_clone_block_makes_the_evidence_byte_for_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("kvsim.py", "scenario.py", "summarize.py"):
                shutil.copy(os.path.join(HOME, name), folder)
            shutil.copytree(os.path.join(HOME, "fixtures"),
                            os.path.join(folder, "fixtures"))
            done = run_block(readme_block("clone"), folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for name in self.FILES:
                self.assertEqual(read(os.path.join(folder, name)),
                                 read(os.path.join(EVIDENCE, "kvlab", name)), name)

    def test_the_sandbox_block_differs_only_in_where_files_lie(self):
        sandbox, clone = readme_block("sandbox"), readme_block("clone")
        head = "cd /root/kvlab\ncp /opt/fixtures/kvoffload/ttft.jsonl .\n"
        self.assertTrue(sandbox.startswith(head))
        commands = clone.replace("fixtures/ttft.jsonl", "ttft.jsonl").splitlines()
        self.assertEqual(sandbox[len(head):].splitlines(), commands[:-1])
        self.assertIn("rules.json", commands[-1])

    def test_table_of_passes(self):
        for name, number, *counts in table("| file | pass |"):
            row = evidence_json("kvlab", name)["passes"][int(number) - 1]
            self.assertEqual([str(row[key]) for key in
                              ("gpu_hits", "cpu_hits", "misses")], counts)

    def test_table_of_times(self):
        measured = evidence_json("kvlab", "measured.json")
        rows = [[name, *(str(measured[config][name]["p50_ms"])
                         for config in ("baseline", "lmcache")),
                 *(str(measured["ratio"][name][key]) for key in ("p50", "mean"))]
                for name in measured["ratio"]]
        self.assertEqual(table("| pass | baseline p50"), rows)


class TestCacheBudgetChapter(unittest.TestCase):

    def test_table_of_the_nine_rows(self):
        rows = evidence_json("cache-budget", "audit.json")
        for seed in (7, 11, 23):
            self.assertEqual(table("| budget | trace | hits of 12 | projected"), [
                [f"{row['budget'] // 1024} KiB", row["trace"], str(row["hits"]),
                 str(row["projected_rows"]), str(row["evictions"]),
                 f"{row['copied_bytes']:,}"] for row in rows if row["seed"] == seed])

    def test_largest_error(self):
        rows = evidence_json("cache-budget", "audit.json")
        largest = max(row["max_abs_error"] for row in rows)
        self.assertIn(f"the largest difference is {largest!r}, the published", README)

    def test_derivations(self):
        rows = evidence_json("cache-budget", "results.json")
        sizes = {len(event["prefix"]): event["bytes"] for row in rows
                 for event in row["events"]}
        for text, value in (("2,112", sizes[4]), ("4,224", sizes[8]),
                            ("6,336", sizes[4] + sizes[8]),
                            ("12,672", 2 * (sizes[4] + sizes[8])),
                            ("72 + 11 x 24 = 336", 336), ("12 x 72 = 864", 864)):
            self.assertIn(text, README)
            self.assertEqual(int(text.replace(",", "").split("=")[-1]), value)
        self.assertEqual({row["full_projected_rows"] for row in rows}, {72})


if __name__ == "__main__":
    unittest.main()
