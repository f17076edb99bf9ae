"""README.md: its commands do what it says, its figures are the evidence's."""

import csv
import json
import os
import re
import shutil
import statistics
import tempfile
import unittest

import costs
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


def columns(folder, name="summary.csv"):
    with open(os.path.join(EVIDENCE, folder, name), encoding="utf-8") as file:
        return list(csv.DictReader(file))


def paired(one, other):
    """Return zip(one, other), which must be of one length."""
    one, other = list(one), list(other)
    if len(one) != len(other):
        raise AssertionError(f"{one} and {other} differ in length")
    return zip(one, other)


def decimals(value, places):
    return f"{float(value):,.{places}f}"


class TestBenchChapter(unittest.TestCase):

    FOLDERS = ("cache-strategy", "m0-length-scan", "m1-batch-size-scan",
               "m1-batch-size-scan-kept-memory")

    def analysis(self, folder):
        name = "knee-analysis.md" if "batch-size" in folder else "analysis.md"
        return read(os.path.join(EVIDENCE, folder, name)).decode("utf-8")

    def test_table_of_verdicts_is_the_evidence_s(self):
        for name, *cells in table("|  | `cache-strategy`")[:-1]:
            for folder, cell in paired(self.FOLDERS, cells):
                found = re.search(rf"^- {name} .*: (\w+)$", self.analysis(folder), re.M)
                with self.subTest(name=name, folder=folder):
                    self.assertEqual(cell, found[1] if found else "")

    def test_largest_errors_are_the_evidence_s(self):
        *_, (_, *cells) = table("|  | `cache-strategy`")
        for folder, cell in paired(self.FOLDERS, cells):
            errors = evidence_json(folder, "environment.json")["errors"]
            self.assertEqual(cell, f"{max(row['max_abs_error'] for row in errors):.2e}")

    def test_tables_by_length_are_the_evidence_s(self):
        for header, folder in (("| T | no cache", "cache-strategy"),
                               ("| T | sequential", "m0-length-scan")):
            for cells, row in paired(table(header), columns(folder)):
                length, *values = row.values()
                self.assertEqual(cells, [length, *(
                    decimals(value, 0 if name == "positions_per_second" else 3)
                    for name, value in list(row.items())[1:])])

    def test_tables_by_batch_size_are_the_evidence_s(self):
        parts = README.split("| B | p50 ms |")[1:]
        self.assertEqual(len(parts), 2)
        for part, folder in paired(parts, self.FOLDERS[2:]):
            lines = part.split("\n\n")[0].splitlines()[2:]
            for line, row in paired(lines, columns(folder)):
                gain = row["throughput_gain"]
                cells = [cell.strip() for cell in line.strip("|").split("|")]
                self.assertEqual(cells, [
                    row["batch_size"], *(decimals(row[name], 3) for name in (
                        "batch_p50_ms", "batch_p95_ms", "p50_per_sequence_ms")),
                    decimals(row["positions_per_second"], 0),
                    decimals(row["sequential_over_batch"], 3),
                    f"{100 * float(gain):+.2f} %" if gain else ""])
            knee = re.search("^Knee: .*$", self.analysis(folder), re.M)[0]
            self.assertTrue(part.split("\n\n")[1].startswith(knee), knee)

    def test_table_of_page_faults_is_the_evidence_s(self):
        for (_, *cells), folder in paired(table("|  | B = 1 |"), self.FOLDERS[2:]):
            faults = {}
            for row in columns(folder, "raw.csv"):
                if row["path"] == "batched":
                    faults.setdefault(int(row["batch_size"]), []).append(
                        int(row["minor_faults"]))
            self.assertEqual(cells, [f"{statistics.median(faults[size]):g}"
                                     for size in sorted(faults)])

    def test_bytes_are_the_evidence_s(self):
        rows = columns("kv-capacity", "capacity.csv")
        last = {row["tokens"]: int(row["nbytes"]) for row in rows
                if row["model"] == "two-tier 28 layers"}
        self.assertIn(f"{last['4864'] // 4864:,} bytes a token, {last['4864']:,} bytes "
                      "for 4,864", PROSE)
        by_model = {row["kv_heads"]: int(row["nbytes"]) for row in rows
                    if row["tokens"] == "4096"}
        self.assertEqual([by_model[heads] // by_model["1"] for heads in "821"],
                         [8, 2, 1])


class TestReplayChapter(unittest.TestCase):

    def answers(self, name):
        text = read(os.path.join(EVIDENCE, "replay", name)).decode("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def curve(self, name):
        return [tuple(map(int, row.values())) for row in
                columns("replay", name)]

    def test_table_of_the_cliff_is_the_evidence_s(self):
        for (_, first, full), name in paired(table("| ten documents | first hit"), (
                "documents.csv", "document-blocks-head.csv",
                "document-blocks-tail.csv")):
            curve = self.curve(name)
            most = curve[-1][1]
            self.assertEqual([first, full], [
                f"{min(row[0] for row in curve if row[1]):,}",
                f"{min(row[0] for row in curve if row[1] == most):,}"])

    def test_table_of_tiers_is_the_evidence_s(self):
        made = {(row["tiers"], row["gpu_tokens"]): row["hit_rate"]["block"]
                for row in self.answers("two-tiers.jsonl")}
        expected = [[made[tiers, 64 * 512] for tiers in
                     ("inclusive", "mirror", "exclusive")]]
        for name in ("conversation", "synthetic"):
            runs = self.answers(f"public-{name}.jsonl")
            expected.append([row["hit_rate"]["block"] for row in runs[2:]])
        for (_, *cells), rates in paired(table("| share of blocks hit |"), expected):
            self.assertEqual(cells, [decimals(rate, 4) for rate in rates])

    def test_table_of_rates_is_the_evidence_s(self):
        run = self.answers("public-conversation.jsonl")[0]
        for cells, name in paired(table("| Mooncake conversation, 10,000"),
                               run["hit_rate"]):
            self.assertTrue(cells[0].startswith(name))
            self.assertEqual(cells[1:], [decimals(run[rates][name], 4) for rates in
                                         ("hit_rate", "unbounded_hit_rate")])

    def test_sentences_hold_the_evidence_s_figures(self):
        tail, head = (next(row for row in self.answers("one-tier.jsonl")
                           if (row["gpu_tokens"], row["touch"]) == (32768, touch))
                      for touch in ("tail", "head"))
        cycle = {touch: dict((row[0], row[1]) for row in self.curve(
            f"cycle-{touch}.csv")) for touch in ("tail", "head")}
        needs = evidence_json("replay", "curve-tail.json")["capacity_for"]
        sweeps = [evidence_json("replay", f"cpu-{tiers}.json")
                  for tiers in ("inclusive", "exclusive")]
        self.assertEqual([sweep[key] for sweep in sweeps for key in
                          ("30065", "30066", "50109", "50110")],
                         [10, 10, 10, 0, 10, 0, 0, 0])
        for sentence, values in (
                ("LRU hits {:.4f} of the blocks tail first and {:.4f} head first, and "
                 "no policy more than {:.4f}; with no bound on the capacity it is {:.4f}",
                 (tail["hit_rate"]["block"], head["hit_rate"]["block"],
                  tail["bound_block_hit_rate"], tail["unbounded_hit_rate"]["block"])),
                ("tail first, {:,} tokens reach half of the tokens that can hit, {:,} "
                 "reach 90 and {:,} reach 99 per cent",
                 [needs[share]["tokens"] for share in ("50", "90", "99")]),
                ("{} rows for the made trace touched tail first, {} head first",
                 [len(self.curve(f"curve-{touch}.csv")) for touch in ("tail", "head")]),
                ("that is {} hits of {} possible",
                 (cycle["tail"][31 * 512], max(cycle["tail"].values())))):
            with self.subTest(sentence=sentence):
                self.assertIn(sentence.format(*values), PROSE)
        self.assertEqual(min(room for room, hits in cycle["head"].items() if hits),
                         32 * 512)


class TestOffloadChapter(unittest.TestCase):

    def test_table_of_tiers_and_times_is_the_evidence_s(self):
        expected = []
        for name, docs in (("offload", "11"), ("offload-short", "9")):
            measured = evidence_json(name, "measured.json")
            text = read(os.path.join(EVIDENCE, name, "ttft.jsonl")).decode("utf-8")
            rows = [json.loads(line) for line in text.splitlines()]
            for pass_name, ratio in measured["ratio"].items():
                tiers = [row["tier"] for row in rows
                         if (row["config"], row["pass"]) == ("lmcache", pass_name)]
                expected.append([docs, pass_name, ", ".join(
                    str(tiers.count(tier)) for tier in ("gpu", "cpu", "miss")),
                    *(str(measured[config][pass_name]["p50_ms"])
                      for config in ("baseline", "lmcache")),
                    str(ratio["p50"]), str(ratio["mean"])])
        self.assertEqual(table("| CPU tier (documents) | pass"), expected)

    def test_verdicts_are_what_the_evidence_says(self):
        long = evidence_json("offload", "measured.json")["ratio"]
        short = evidence_json("offload-short", "measured.json")["ratio"]
        self.assertLess(long["pass1-cold"]["p50"], 1.05)
        self.assertGreater(long["pass2-replay"]["p50"], 5)
        self.assertLess(short["pass2-replay"]["p50"], 1.05)


class TestKeepAndCostChapter(unittest.TestCase):

    def verdicts(self, folder):
        text = read(os.path.join(EVIDENCE, folder, "analysis.md")).decode("utf-8")
        return re.findall(r"^- (H\d+) .*: (\w+)$", text, re.M)

    def test_table_of_counts_is_the_evidence_s(self):
        rows = evidence_json("cache-admission", "audit.json")
        for seed in (7, 11, 23):
            counted = {(f"{row['budget'] // 1024} KiB", row["trace"], row["policy"]):
                       [str(row["hits"]), str(row["projected_rows"]),
                        str(row["evictions"]), f"{row['copied_bytes']:,}"]
                       for row in rows if row["seed"] == seed}
            for budget, trace, policy, *cells in table(
                    "| budget | trace | policy | hits"):
                self.assertEqual(cells, counted[budget, trace, policy])

    def test_table_of_admission_times_is_the_evidence_s(self):
        measured = {(f"{int(row['budget']) // 1024} KiB", row["trace"], row["policy"]):
                    [decimals(row["trace_ms"], 3), decimals(row["time_over_none"], 2),
                     decimals(row["rows_over_none"], 2)]
                    for row in columns("admission")}
        for budget, trace, policy, *cells in table("| budget | trace | policy | trace"):
            self.assertEqual(cells, measured[budget, trace, policy])

    def test_table_of_break_even_is_the_evidence_s(self):
        for cells, row in paired(table("| hidden | prefix |"), columns("break-even")):
            self.assertEqual(cells, [
                row["hidden"], row["prefix_tokens"], decimals(row["none_ms"], 3),
                decimals(row["longest_ms"], 3), *(
                    decimals(row[f"{policy}_over_none"], 2)
                    for policy in ("all", "longest", "shared"))])

    def test_table_of_first_lengths_is_the_evidence_s(self):
        text = read(os.path.join(EVIDENCE, "break-even", "analysis.md")).decode()
        for policy, *cells in table("| policy | hidden 16 |"):
            self.assertEqual(cells, re.findall(
                rf"^\| {policy} \| \d+ \| (\d+|none of these) \|$", text, re.M))

    def test_table_of_the_limit_is_the_evidence_s(self):
        names = {"no_cache_ms": 3, "preallocated_ms": 3, "fused_ms": 3, "bare_ms": 3,
                 "no_cache_over_fused": 2, "fused_over_preallocated": 2,
                 "fused_over_bare": 2}
        for cells, row in paired(table("| T | no cache (ms) |"), columns("limit")):
            self.assertEqual(cells, [row["sequence_length"], *(
                decimals(row[name], places) if row[name] else ""
                for name, places in names.items())])

    def test_verdicts_are_the_evidence_s(self):
        found = re.findall(r"^Verdicts: (.*)\.$", README, re.M)
        self.assertEqual(found, [
            ", ".join(f"{name} {verdict}" for name, verdict in self.verdicts(folder))
            for folder in ("admission", "break-even", "limit")])

    def test_table_of_parts_is_the_evidence_s(self):
        measured = {(row["trace"], row["policy"]): [
            decimals(row[f"{part}_ms"], 3) for part in
            ("lookup", "gather", "compute", "save", "other")]
            for row in columns("admission") if row["budget"] == "8192"}
        for trace, policy, *cells in table("| trace, 8 KiB | policy |"):
            self.assertEqual(cells, measured[trace, policy])

    def test_tables_leave_out_no_row(self):
        policies = ["all", "longest", "shared"]
        for header, keys in (
                ("| budget | trace | policy | hits", [
                    [budget, trace, policy] for budget, traces in (
                        ("8 KiB", 3), ("12 KiB", 3), ("16 KiB", 2))
                    for trace in ["alternating-branches", "three-scopes",
                                  "hot-and-cold"][-traces:] for policy in policies]),
                ("| budget | trace | policy | trace", [
                    [budget, trace, policy] for budget, trace in (
                        ("8 KiB", "hot-prefix"), ("8 KiB", "alternating-branches"),
                        ("12 KiB", "alternating-branches"), ("16 KiB", "three-scopes"))
                    for policy in policies]),
                ("| trace, 8 KiB | policy |", [
                    [trace, policy] for trace in ("alternating-branches", "hot-prefix")
                    for policy in ["none", *policies]]),
                ("| policy | hidden 16 |", [[policy] for policy in policies])):
            found = [row[:len(keys[0])] for row in table(header)]
            self.assertEqual(found, keys)

    def test_sentences_hold_the_evidence_s_figures(self):
        rows = {(row["budget"], row["trace"], row["policy"]): row
                for row in evidence_json("cache-admission", "audit.json")
                if row["seed"] == 7}
        branches = rows[8192, "alternating-branches", "shared"]
        scopes = rows[12288, "three-scopes", "shared"]
        results = evidence_json("cache-admission", "results.json")
        block = next(event["bytes"] for row in results for event in row["events"]
                     if row["policy"] == "shared")
        rounds = {name: evidence_json(name, "environment.json")["arguments"]["repeats"]
                  for name in ("admission", "break-even")}
        numbers = {2: "two", 9: "nine", 10: "ten"}
        for sentence, values in (
                ("blocks serve {} of twelve requests", (numbers[branches["hits"]],)),
                ("want 4 x {:,} = {:,} bytes, {} more than there are",
                 (block, 4 * block, 4 * block - 8192)),
                ("2 x 72 + 10 x 48 = {} rows", (branches["projected_rows"],)),
                ("wants 2 x {:,} = {:,} bytes too", (2 * block, 4 * block)),
                ("Their six blocks want {:,} bytes", (6 * block,)),
                ("repeats: {} half hits", (numbers[scopes["hits"]],)),
                ("`none` always projects {} rows",
                 (rows[8192, "hot-prefix", "none"]["projected_rows"],)),
                ("{} rounds (break-even: {})",
                 (rounds["admission"], rounds["break-even"])),
                ("by an interval wholly above {}", (costs.LEAST_LONGER,)),
                ("{:,} requests under four policies", (len(results),)),
                ("at most {:g}, {:g}, {:g} and {:g} of a full one",
                 [bound.bound for bound in costs.HOT_BOUNDS])):
            with self.subTest(sentence=sentence):
                self.assertIn(sentence.format(*values), PROSE)
        self.assertEqual({row["projected_rows"] for key, row in rows.items()
                          if key[2] == "none"}, {864})

    def test_numbers_of_samples_are_the_evidence_s(self):
        for folder in ("cache-strategy", "m0-length-scan", "m1-batch-size-scan",
                       "admission", "break-even", "limit"):
            samples = f"{len(columns(folder, 'raw.csv')):,} samples"
            self.assertIn(f"| `evidence/{folder}/` | {samples}", README)


if __name__ == "__main__":
    unittest.main()
