"""Tests of timings.py: which rows each experiment holds, and what is refused."""

import itertools
import os
import unittest

import timings

HOME = os.path.dirname(os.path.abspath(__file__))
HEADER = "experiment,path,batch_size,sequence_length,sample,elapsed_ms"


def csv_text(experiment, groups, header=HEADER):
    """Return a CSV of {(path, B, T): [elapsed_ms, ...]}."""
    lines = [header]
    for (path, batch, tokens), values in groups.items():
        lines += [f"{experiment},{path},{batch},{tokens},{sample},{elapsed}"
                  for sample, elapsed in enumerate(values, 1)]
    return "\n".join(lines) + "\n"


class TestReadSamples(unittest.TestCase):
    GOOD = csv_text("batch_size_scan", {("sequential", 1, 8): [1, 2],
                                        ("batched", 1, 8): [3, 4]})

    def test_samples_come_in_the_order_of_rounds(self):
        lines = self.GOOD.split("\n")
        lines[1:5] = [lines[2], lines[4], lines[1], lines[3]]
        found = timings.read_samples("\n".join(lines), "x")
        self.assertEqual(found.elapsed_ms, {("sequential", 1, 8): [1.0, 2.0],
                                            ("batched", 1, 8): [3.0, 4.0]})
        self.assertEqual((found.experiment, found.rounds, found.minor_faults),
                         ("batch_size_scan", 2, {}))

    def test_form_of_the_file_does_not_matter(self):
        expected = timings.read_samples(self.GOOD, "x")
        reordered = "\n".join(",".join(reversed(line.split(",")))
                              for line in self.GOOD.strip().split("\n"))
        more = "\n".join(line + (",note" if line.startswith("exp") else ",1")
                         for line in self.GOOD.strip().split("\n"))
        for name, text in (("BOM", "\ufeff" + self.GOOD),
                           ("CRLF", self.GOOD.replace("\n", "\r\n")),
                           ("blank lines", self.GOOD.replace("\n", "\n\n")),
                           ("no final newline", self.GOOD.strip()),
                           ("other order of columns", reordered),
                           ("a column more", more)):
            with self.subTest(name):
                self.assertEqual(timings.read_samples(text, "x"), expected)

    def test_page_faults_are_kept_when_every_sample_has_them(self):
        lines = self.GOOD.strip().split("\n")
        lines = [lines[0] + ",minor_faults",
                 *(f"{line},{7 + place}" for place, line in enumerate(lines[1:]))]
        found = timings.read_samples("\n".join(lines), "x")
        self.assertEqual(found.minor_faults, {("sequential", 1, 8): [7, 8],
                                              ("batched", 1, 8): [9, 10]})
        lines[-1] = lines[-1].replace(",10", ",")
        found = timings.read_samples("\n".join(lines), "x")
        self.assertEqual(found.minor_faults, {})

    def test_refused_rows_name_the_line_and_what_came(self):
        row = "batch_size_scan,batched,1,8,2,4"
        for replaced, message in (
                ("other,batched,1,8,2,4", "x:5: experiment must be one of "
                 "cache_strategy, batch_length_scan, batch_size_scan, admission, "
                 "break_even, limit, got 'other'"),
                ("cache_strategy,no_cache,1,8,2,4", "x:5: one file holds one "
                 "experiment, got cache_strategy after batch_size_scan"),
                (row.replace("batched", "no_cache"), "x:5: path must be one of "
                 "sequential, batched, got 'no_cache'"),
                (row.replace(",1,", ",0,"), "x:5: batch_size must be a whole "
                 "number >= 1, got '0'"),
                (row.replace(",8,", ",8.0,"), "x:5: sequence_length must be a "
                 "whole number >= 1, got '8.0'"),
                (row.replace(",2,", ",-2,"), "x:5: sample must be a whole number "
                 ">= 1, got '-2'"),
                (row.replace(",2,", ",٢,"), "x:5: sample must be a whole number "
                 ">= 1, got '٢'"),
                (row.replace(",2,", ",1,"), "x:5: sample 1 of batched/1/8 is "
                 "repeated"),
                (row.replace(",2,", ",3,"), "x: sample 2 of batched/1/8 is "
                 "missing, every group needs 1 to 2"),
                (row + ",1", "x:5: a row needs 6 cells, got 7"),
                ("1,2", "x:5: a row needs 6 cells, got 2"),
                ("", "x: sample 2 of batched/1/8 is missing, every group needs "
                 "1 to 2"),
                *((row[:-1] + bad, "x:5: elapsed_ms must be a finite number of "
                   f"milliseconds > 0 (1e-12 to 1e12), got {bad!r}")
                  for bad in ("nan", "inf", "-inf", "0", "-1", "", "1e999",
                              "1e-300", "fast"))):
            with self.subTest(replaced):
                self.refuse(self.GOOD.replace(row, replaced), message)

    def refuse(self, text, message):
        with self.assertRaises(ValueError) as caught:
            timings.read_samples(text, "x")
        self.assertEqual(str(caught.exception), message)

    def test_refused_files(self):
        for name, text, message in (
                ("empty", "", "x: no samples, at least one is needed"),
                ("a header alone", HEADER, "x: no samples, at least one is needed"),
                ("no such column", self.GOOD.replace("elapsed_ms", "elapsed"),
                 "x:2: column elapsed_ms is missing, got experiment, path, "
                 "batch_size, sequence_length, sample, elapsed"),
                ("a column twice", self.GOOD.replace("sample", "path"),
                 "x:1: column 'path' stands twice"),
                ("no experiment", self.GOOD.replace("experiment", "e"),
                 "x:2: column experiment is missing, got e, path, batch_size, "
                 "sequence_length, sample, elapsed_ms"),
                ("a path missing", csv_text("batch_size_scan", {
                    ("sequential", 1, 8): [1]}), "x: no samples of batched/1/8"),
                ("a size missing in one path", csv_text("batch_size_scan", {
                    ("sequential", 1, 8): [1], ("batched", 1, 8): [1],
                    ("batched", 2, 8): [1]}), "x: no samples of sequential/2/8"),
                ("two lengths", csv_text("batch_size_scan", {
                    (path, 1, tokens): [1] for path in ("sequential", "batched")
                    for tokens in (8, 16)}), "x: sequence_length must be one value "
                 "in this experiment, got 8, 16"),
                ("a batch of three", csv_text("batch_length_scan", {
                    (path, 3, 8): [1] for path in ("sequential", "batched")}),
                 "x: batch_size must be 2 in this experiment, got 3"),
                ("a batch in the cache scan", csv_text("cache_strategy", {
                    (path, batch, 8): [1] for batch in (1, 2) for path in
                    ("no_cache", "dynamic_cache", "preallocated_cache")}),
                 "x: batch_size must be 1 in this experiment, got 1, 2"),
                ("page faults", self.GOOD.replace("elapsed_ms", "elapsed_ms,"
                                                  "minor_faults").replace(
                    "1\n", "1,-1\n", 1), "x:2: minor_faults must be a whole "
                 "number >= 0, got '-1'")):
            with self.subTest(name):
                self.refuse(text, message)

    def test_samples_are_counted_from_one(self):
        text = csv_text("batch_size_scan", {("sequential", 1, 8): [1, 2, 3],
                                            ("batched", 1, 8): [1, 2, 3]})
        lines = [line for line in text.split("\n") if ",1,8,1," not in line]
        with self.assertRaisesRegex(ValueError, "sample 1 of .* is missing"):
            timings.read_samples("\n".join(lines), "x")

    def test_odd_bytes_are_refused_in_one_line(self):
        for text in ("\0", "a,b\n\0,1\n", '"', 'experiment\n"x', "\r\r\n,,\n",
                     HEADER + "\n" + "9" * 200_000):
            with self.subTest(text[:20]), self.assertRaises(ValueError) as caught:
                timings.read_samples(text, "x")
            self.assertNotIn("\n", str(caught.exception))


def rows_of(label, **numbers):
    """Return the rows of one sample a group, {group: line}."""
    scan = timings.SCANS[label]
    values = [numbers.get(column, allowed) for column, allowed in scan.columns.items()]
    return {group: f"{label},{','.join(map(str, group))},1,2.5"
            for group in itertools.product(*values) if not scan.absent(*group)}


def text_of(label, rows):
    header = ",".join(("experiment", *timings.SCANS[label].columns, "sample",
                       "elapsed_ms"))
    return "\n".join([header, *rows.values()])


class TestOtherColumns(unittest.TestCase):
    LIMIT = rows_of("limit", sequence_length=(256, 257))
    ADMISSION = rows_of("admission", seed=(0, 7), budget=(0,), index=(0, 1))

    def refuse(self, label, rows, message):
        with self.assertRaises(ValueError) as caught:
            timings.read_samples(text_of(label, rows), "x")
        self.assertEqual(str(caught.exception), f"x: {message}")

    def test_a_group_has_the_columns_of_its_experiment(self):
        found = timings.read_samples(text_of("limit", self.LIMIT), "x")
        self.assertEqual(set(found.elapsed_ms), {
            ("no_cache", 256), ("preallocated_cache", 256), ("fused", 256),
            ("bare_products", 256), ("preallocated_cache", 257), ("fused", 257),
            ("bare_products", 257)})
        self.assertEqual(found.values("sequence_length"), [256, 257])
        self.assertEqual(found.values("batch_size"), [])

    def test_parts_belong_to_the_first_seed_and_0_is_an_index(self):
        found = timings.read_samples(text_of("admission", self.ADMISSION), "x")
        # 4 traces x 4 policies x 2 requests, of 6 parts and of 1
        self.assertEqual(len(found.elapsed_ms), 32 * 6 + 32)
        self.assertIn((7, 0, "hot-prefix", "all", "save", 0), found.elapsed_ms)
        self.assertIn((0, 0, "hot-prefix", "all", "query", 1), found.elapsed_ms)

    def test_missing_and_needless_groups_are_named(self):
        for label, rows in (("limit", self.LIMIT), ("admission", self.ADMISSION),
                            ("break_even", rows_of("break_even", hidden=(2, 4),
                                                   prefix_tokens=(4, 8)))):
            for group in list(rows)[::7]:
                less = {key: line for key, line in rows.items() if key != group}
                with self.subTest(group=group):
                    self.refuse(label, less, f"no samples of {timings.shown(group)}")
        for label, rows, group in (
                ("limit", self.LIMIT, ("no_cache", 257)),
                ("admission", self.ADMISSION, (0, 0, "hot-prefix", "all", "save", 0))):
            line = f"{label},{','.join(map(str, group))},1,2.5"
            self.refuse(label, {**rows, group: line},
                        f"needless samples of {timings.shown(group)}")

    def test_the_first_sample_may_be_missing_too(self):
        text = text_of("limit", self.LIMIT)
        text = text.replace("limit,fused,256,1,", "limit,fused,256,2,")
        with self.assertRaisesRegex(ValueError, "^x: sample [12] of "):
            timings.read_samples(text, "x")
        text = text_of("limit", self.LIMIT).replace(",1,2.5", ",2,2.5")
        with self.assertRaisesRegex(ValueError, "sample 1 of no_cache/256 is missing"):
            timings.read_samples(text, "x")

    def test_numbers_below_the_least_are_refused(self):
        for label, row in (("limit", "limit,fused,0,1,2.5"),
                           ("break_even", "break_even,all,0,4,1,2.5"),
                           ("break_even", "break_even,all,2,-4,1,2.5"),
                           ("admission", "admission,7,0,hot-prefix,all,query,-1,1,2.5"),
                           ("admission", "admission,7,0,hot,all,query,0,1,2.5")):
            with self.subTest(row), self.assertRaisesRegex(ValueError, "^x:2: .* must"):
                timings.read_samples(text_of(label, {0: row}), "x")


if __name__ == "__main__":
    unittest.main()
