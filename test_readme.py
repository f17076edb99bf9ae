"""README.md: its commands do what it says, its figures are the evidence's."""

import json
import os
import re
import shutil
import tempfile
import unittest

from test_support import EVIDENCE, HOME, read, readme_block, run_block

README = read(os.path.join(HOME, "README.md")).decode("utf-8")
PROSE = " ".join(README.split())


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

    def test_table_of_passes_is_the_evidence_s(self):
        for name, number, *counts in table("| file | pass |"):
            row = evidence_json("kvlab", name)["passes"][int(number) - 1]
            self.assertEqual([str(row[key]) for key in
                              ("gpu_hits", "cpu_hits", "misses")], counts)

    def test_table_of_times_is_the_evidence_s(self):
        measured = evidence_json("kvlab", "measured.json")
        rows = [[name, *(str(measured[config][name]["p50_ms"])
                         for config in ("baseline", "lmcache")),
                 *(str(measured["ratio"][name][key]) for key in ("p50", "mean"))]
                for name in measured["ratio"]]
        self.assertEqual(table("| pass | baseline p50"), rows)

    def test_sentences_hold_the_evidence_s_figures(self):
        cliff, cpu = evidence_json("kvlab", "cliff.json"), \
            evidence_json("kvlab", "cpu_cliff.json")
        third = evidence_json("kvlab", "baseline.json")["passes"][2]["hit_docs"]
        both = evidence_json("kvlab", "offload.json")["passes"]
        ratio = evidence_json("kvlab", "measured.json")["ratio"]
        self.assertEqual((both[1]["cpu_hits"], both[2]["gpu_hits"],
                          both[2]["cpu_hits"]), (10, 4, 6))
        self.assertEqual((cliff["40000"], cliff["45000"]), (0, 0))
        for sentence, values in (
                ("the third pass hit {}", (", ".join(map(str, third)),)),
                ("at 50,109 the second pass has {} hits, at 50,110 it has {}.",
                 (cliff["50109"], cliff["50110"])),
                ("tokens: {} misses at 50,109, none at 50,110", (cpu["50109"],)),
                ("Our {} follows", (ratio["pass1-cold"]["p50"],))):
            with self.subTest(sentence=sentence):
                self.assertIn(sentence.format(*values), PROSE)
        self.assertEqual(cpu["50110"], 0)


class TestCacheBudgetChapter(unittest.TestCase):

    def test_table_of_the_nine_rows_is_the_evidence_s(self):
        rows = evidence_json("cache-budget", "audit.json")
        for seed in (7, 11, 23):
            self.assertEqual(table("| budget | trace | hits of 12 | projected"), [
                [f"{row['budget'] // 1024} KiB", row["trace"], str(row["hits"]),
                 str(row["projected_rows"]), str(row["evictions"]),
                 f"{row['copied_bytes']:,}"] for row in rows if row["seed"] == seed])

    def test_sentences_hold_the_evidence_s_figures(self):
        rows = evidence_json("cache-budget", "results.json")
        totals = evidence_json("cache-budget", "audit.json")
        sizes = {len(event["prefix"]): event["bytes"] for row in rows
                 for event in row["events"]}
        request, = {row["full_projected_rows"] for row in rows}
        total = {(row["budget"], row["trace"]): row for row in totals}
        small, middle = total[4096, "alternating-branches"], \
            total[8192, "alternating-branches"]
        hot = total[8192, "hot-prefix"]
        for sentence, values in (
                ("{:,} bytes at 4 tokens and {:,} at 8", (sizes[4], sizes[8])),
                ("of one branch take {:,} bytes", (sizes[4] + sizes[8],)),
                ("those of two branches {:,}", (2 * (sizes[4] + sizes[8]),)),
                ("a request in full costs 6 x 12 = {}", (request,)),
                ("{} + 11 x 24 = {}", (request, hot["projected_rows"])),
                ("recomputing everything costs 12 x {} = {}",
                 (request, hot["full_projected_rows"])),
                ("72 + 11 x 48 = {}", (total[4096, "hot-prefix"]["projected_rows"],)),
                ("8 KiB evicts {} times and 4 KiB {} times, and neither",
                 (middle["evictions"], small["evictions"])),
                ("11 changes, {} evictions", (middle["evictions"],)),
                ("x 12 requests = {}, each trace", (len(rows),)),
                ("The archive holds {} arrays", (2 * len(rows),)),
                ("the largest difference is {}, the published figure",
                 (max(row["max_abs_error"] for row in rows),))):
            with self.subTest(sentence=sentence):
                self.assertIn(sentence.format(*values), PROSE)
        self.assertEqual(middle["projected_rows"], small["projected_rows"])


if __name__ == "__main__":
    unittest.main()
