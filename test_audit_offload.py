"""audit_offload.py: a true run passes, every forgery of it is named."""

import io
import json
import os
import unittest
import zipfile

try:
    import numpy as np
    import audit
    import audit_offload
    from offload import Protocol
    from test_offload import SMALL, InFolder
except ImportError:             # without NumPy
    raise unittest.SkipTest("audit_offload.py needs NumPy") from None

import figures
import records
import summarize
from test_support import call, read, write


class TestAudit(InFolder):
    """A run with all that is derived from it, as it stands in the evidence."""

    def setUp(self):
        super().setUp()
        self.call(*SMALL)
        call(summarize.main, self.path("ttft.jsonl"), self.path("measured.json"))
        self.assertEqual(call(figures.main, self.folder)[0], 0)
        self.manifest = json.loads(read(self.path("manifest.json")))

    def faults(self):
        status, out, err = call(audit.main, self.folder)
        self.assertEqual(err, "")
        faults = json.loads(out)["folders"][os.path.basename(self.folder)]["faults"]
        self.assertEqual(status, 1 if faults else 0)
        return faults

    def assert_named(self, file, record="", found=None):
        self.assertTrue([fault for fault in self.faults()
                         if fault["file"] == f"{os.path.basename(self.folder)}/{file}"
                         and record in fault["record"]
                         and (found is None or fault["found"] == found)],
                        (file, record, found, self.faults()))

    def reseal(self):
        """Write the manifest anew, with the hashes of what is there."""
        for name in self.manifest["files"]:
            self.manifest["files"][name] = records.sha256(self.path(name))
        write(self.folder, "manifest.json", json.dumps(self.manifest))

    def forge_rows(self, rows):
        write(self.folder, "ttft.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.reseal()

    def forge_arrays(self, **changed):
        with np.load(self.path("states.npz")) as arrays:
            arrays = {**arrays, **changed}
        stream = io.BytesIO()
        np.savez(stream, **{name: array for name, array in arrays.items()
                            if array is not None})
        with open(self.path("states.npz"), "wb") as file:
            file.write(stream.getvalue())
        self.reseal()

    def test_a_true_run_passes(self):
        self.assertEqual(self.faults(), [])
        self.reseal()
        self.assertEqual(self.faults(), [])

    def test_true_runs_by_other_protocols_pass(self):
        for passes in ("rev", "rev,rev,fwd,fwd"):
            self.folder += "-again"
            self.call("--docs", 1, "--tokens", 1, "--hidden", 2, "--cpu-docs", 0,
                      "--passes", passes)
            self.assertEqual(self.faults(), [])

    def test_every_changed_value_of_a_row_is_named(self):
        true = self.rows()
        for index in (0, 7, 17):
            for key, forged in (
                    ("config", "other"), ("pass", "pass2-fwd"), ("doc", 9),
                    ("doc", float(true[index]["doc"])), ("doc_tokens", 7),
                    ("doc_tokens", 6.0), ("tier", "disk"), ("tier", None),
                    ("ttft_ms", 0.0), ("ttft_ms", -1.0), ("ttft_ms", 1),
                    ("ttft_ms", True), ("ttft_ms", "1"), ("ttft_ms", 1e300),
                    ("ttft_ms", 1e-9),
                    ("ttft_ms", true[index]["total_ms"] + 1.0), ("total_ms", None),
                    ("total_ms", 10 ** 400), ("more", 1)):
                rows = [dict(row) for row in true]
                rows[index][key] = forged
                self.forge_rows(rows)
                with self.subTest(index=index, key=key, forged=forged):
                    self.assert_named("ttft.jsonl", f"line {index + 1}")
            for key in true[0]:
                rows = [dict(row) for row in true]
                del rows[index][key]
                self.forge_rows(rows)
                self.assert_named("ttft.jsonl", f"line {index + 1}")

    def test_missing_added_and_reordered_rows_are_named(self):
        true = self.rows()
        for rows in (true[:-1], true + true[:1], true[1:] + true[:1], [], [1], [[]] * 18,
                     [None] * 18, [{}] * 18, true[:2] + [true[3], true[2]] + true[4:]):
            self.forge_rows(rows)
            with self.subTest(rows=len(rows)):
                self.assert_named("ttft.jsonl")

    def test_rows_that_are_no_strict_json_are_named(self):
        true = read(self.path("ttft.jsonl")).decode()
        for text in ("", "{", true[:-1], true + "{}", true + "\n",
                     true.replace('"doc":', '"doc": 1, "doc":'),
                     "\ufeff" + true, true.replace(": 6,", ": NaN,")):
            write(self.folder, "ttft.jsonl", text)
            self.reseal()
            with self.subTest(text=text[-30:]):
                self.assert_named("ttft.jsonl")
        with open(self.path("ttft.jsonl"), "wb") as file:
            file.write(b"\xff" + true.encode())
        self.assert_named("ttft.jsonl")

    def test_times_changed_without_their_summary_are_named(self):
        rows = self.rows()
        for row in rows:
            row["ttft_ms"], row["total_ms"] = 1000.0, 2000.0
        self.forge_rows(rows)
        for name in ("measured.json", "ttft.svg", "reads.svg"):
            self.assert_named(name)
        write(self.folder, "ttft.jsonl", "")
        self.assert_named("manifest.json", "files.ttft.jsonl")

    def test_a_changed_summary_is_named(self):
        true = json.loads(read(self.path("measured.json")))
        for forged in ({}, None, {**true, "more": 1}, {**true, "ratio": {}},
                       {**true, "baseline": {**true["baseline"], "pass1-cold": {
                           **true["baseline"]["pass1-cold"], "n": 3.0}}}):
            write(self.folder, "measured.json", json.dumps(forged))
            self.assert_named("measured.json")

    def test_changed_charts_are_named(self):
        for name, old, new in (
                ("reads.svg", '">\n<polyline points="', '">\n<polyline points="1,1 '),
                ("reads.svg", "lmcache, cpu: 8, ", "lmcache, cpu: 9, "),
                ("reads.svg", 'data-series="lmcache, cpu"', 'data-series="x"'),
                ("reads.svg", '"/>\n<circle cx="', '"/>\n<circle cx="1'),
                ("reads.svg", '"/>\n<polygon points="', '"/>\n<polygon points="9'),
                ("reads.svg", "</g>", '<circle cx="1" cy="1"/></g>'),
                ("ttft.svg", '<rect x="', '<rect height="9" x="'),
                ("ttft.svg", 'class="value">', 'class="value">1')):
            true = read(self.path(name)).decode()
            head, group, rest = true.partition("<g data" if "reads" in name else "<rect")
            self.assertIn(old, group + rest)
            write(self.folder, name, head + (group + rest).replace(old, new, 1))
            with self.subTest(name=name, new=new):
                self.assert_named(name)
            write(self.folder, name, true)
        self.assertEqual(self.faults(), [])

    def test_changed_states_and_tokens_are_named(self):
        with np.load(self.path("states.npz")) as arrays:
            states, tokens = arrays["states"], arrays["tokens"]
        moved, wrong, last, outside = (array.copy() for array in
                                       (states, tokens, tokens, tokens))
        moved[17, 3, 2] += 3e-12
        self.assertTrue(wrong[5, 0])
        wrong[5, 0] = 0                         # an id, but another one
        last[17, 8] = (last[17, 8] + 1) % 32
        outside[0, 0] = 32
        infinite = np.full_like(states, np.inf)
        for record, changed in (
                ("states", {"states": moved}), ("states", {"states": infinite}),
                ("states", {"states": states * np.nan}),
                ("states", {"states": states[:-1]}),
                ("states", {"states": states.astype("f4")}),
                ("tokens[5]", {"tokens": wrong}), ("tokens[17]", {"tokens": last}),
                ("tokens", {"tokens": outside}), ("tokens", {"tokens": -tokens - 1}),
                ("tokens", {"tokens": tokens[1:]}),
                ("tokens", {"tokens": tokens * 1.0}),
                ("tokens", {"tokens": np.array("x")}),
                ("arrays", {"more": tokens}), ("arrays", {"tokens": None}),
                ("arrays", {"states": None, "tokens": None})):
            true = read(self.path("states.npz"))
            self.forge_arrays(**changed)
            with self.subTest(record=record, changed=list(changed)):
                self.assert_named("states.npz", record)
            with open(self.path("states.npz"), "wb") as file:
                file.write(true)
        self.reseal()
        self.assertEqual(self.faults(), [])

    def test_states_within_the_tolerance_pass(self):
        with np.load(self.path("states.npz")) as arrays:
            states = arrays["states"]
        self.forge_arrays(states=states + 5e-13)
        self.assertEqual(self.faults(), [])

    def test_another_container_of_the_same_arrays_is_named(self):
        with np.load(self.path("states.npz")) as arrays:
            np.savez_compressed(self.path("states.npz"), **arrays)
        self.reseal()
        self.assert_named("states.npz", "states.npy")
        with zipfile.ZipFile(self.path("states.npz"), "a") as archive:
            archive.comment = b"more"
        self.reseal()
        self.assert_named("states.npz", "container", "has a comment")

    def test_the_report_tells_what_was_counted(self):
        with np.load(self.path("states.npz")) as arrays:
            states = arrays["states"]
        self.forge_arrays(states=states + 5e-13)
        report = json.loads(call(audit.main, self.folder)[1])["folders"]["my-run"]
        self.assertEqual(report["reads"], 18)
        self.assertAlmostEqual(report["max_abs_error"], 5e-13, delta=1e-14)

    def test_what_is_no_archive_is_named(self):
        for data in ("", "PK", "x" * 999):
            write(self.folder, "states.npz", data)
            self.reseal()
            self.assert_named("states.npz")

    def test_a_changed_manifest_is_named(self):
        true = self.manifest
        protocol = true["protocol"]
        for forged in (
                None, [], {}, {**true, "more": 1}, {**true, "protocol": None},
                {**true, "protocol": {}}, {**true, "environment": {}},
                {**true, "environment": {**true["environment"], "cpu": 1}},
                {**true, "sources": {**true["sources"], "offload.py": "0"}},
                {**true, "files": {}}, {**true, "files": None},
                *({**true, "protocol": {**protocol, key: value}} for key, value in (
                    ("docs", 65), ("docs", 3.0), ("docs", True), ("docs", None),
                    ("tokens", 10 ** 9), ("hidden", 9), ("gpu_docs", 0),
                    ("cpu_docs", -1), ("passes", []), ("passes", "fwd"),
                    ("passes", ["up"]), ("passes", [[]]), ("passes", ["fwd"] * 99),
                    ("seed", -1), ("question_tokens", 5), ("decoded_tokens", 7)))):
            write(self.folder, "manifest.json", json.dumps(forged))
            with self.subTest(forged=str(forged)[:200]):
                self.assert_named("manifest.json")

    def test_another_protocol_contradicts_the_records(self):
        for key, value in (("cpu_docs", 3), ("gpu_docs", 2), ("docs", 4), ("tokens", 7),
                           ("hidden", 10), ("seed", 8),
                           ("passes", ["fwd", "fwd", "fwd"])):
            protocol = {**self.manifest["protocol"], key: value}
            write(self.folder, "manifest.json",
                  json.dumps({**self.manifest, "protocol": protocol}))
            with self.subTest(key=key):
                self.assertTrue(self.faults())

    def test_missing_and_linked_records_are_named(self):
        for name in ("ttft.jsonl", "states.npz", "manifest.json"):
            aside = self.folder + "-aside"
            os.rename(self.path(name), aside)
            self.assert_named(name, found="missing")
            os.symlink(aside, self.path(name))
            self.assert_named(name, found="is no regular file")
            os.remove(self.path(name))
            os.rename(aside, self.path(name))

    def test_the_evidence_has_a_fixed_protocol(self):
        self.assertEqual(audit_offload.STANDARD, Protocol().description())
        self.assertEqual(audit_offload.SHORT, Protocol(cpu_docs=9).description())
        for name in ("offload", "offload-short"):
            renamed = os.path.join(os.path.dirname(self.folder), name)
            os.rename(self.folder, renamed)
            self.folder = renamed
            self.assert_named("manifest.json", "protocol.docs", 3)
            self.assert_named("ttft.jsonl", "length", 18)

    def test_the_evidence_must_hold_summary_and_charts(self):
        for name in ("measured.json", "ttft.svg", "reads.svg"):
            os.remove(self.path(name))
        self.assertEqual(self.faults(), [])
        os.rename(self.folder, os.path.join(os.path.dirname(self.folder), "offload"))
        self.folder = os.path.join(os.path.dirname(self.folder), "offload")
        for name in ("measured.json", "ttft.svg", "reads.svg"):
            self.assert_named(name, found="missing")


if __name__ == "__main__":
    unittest.main()
