"""The audit of cache runs: every forgery is named, every planted bug found."""

import copy
import hashlib
import io
import json
import os
import shutil
import tempfile
import unittest
import warnings
import zipfile

try:
    import numpy as np
    import audit
    import audit_cache
except ImportError:
    raise unittest.SkipTest("audit.py needs NumPy") from None

import decoder
from test_audit import EvidenceCopy
from test_support import (EVIDENCE, at, call, copy_scripts, places, read, removed,
                          replaced, run, write)

TRUE = os.path.join(EVIDENCE, "cache-budget")
# One value of each JSON type; what a field holds is replaced by all the others.
OTHERS = (None, True, False, 0, -1, 7, 0.0, 48.5, "", "owner", [], [1], {}, {"a": 1})


class RecordsOnly:
    """A stand-in for the audit's folder that takes faults and nothing else."""

    def __init__(self):
        self.faults = []

    def fault(self, file, record, found, expected):
        self.faults.append((file, record, found, expected))

    same = audit.Folder.same


class TestEveryField(unittest.TestCase):
    """Walk every field of every record, with the archive as it is."""

    @classmethod
    def setUpClass(cls):
        cls.rows = json.loads(read(os.path.join(TRUE, "results.json")))
        cls.expected = audit_cache.expected_records(*audit_cache.PUBLISHED)
        cls.arrays, _ = audit_cache.read_archive(
            read(os.path.join(TRUE, "arrays.npz")),
            audit_cache.member_names(cls.expected))

    def faults(self, forged, place):
        """Return the faults of the record `at` when it reads `forged`."""
        folder = RecordsOnly()
        audit_cache.check_results(folder, [forged], [self.expected[place]], self.arrays)
        return folder.faults

    def assert_named(self, forged, place):
        faults = self.faults(forged, place)
        key = self.rows[place]["key"]
        self.assertTrue(faults, (key, forged))
        for file, record, _, _ in faults:
            self.assertEqual(file, "results.json")
            self.assertTrue(record.startswith(key), record)

    def test_true_records_have_no_fault(self):
        for place, row in enumerate(self.rows):
            self.assertEqual(self.faults(row, place), [])

    def test_every_place_of_every_record_is_named(self):
        walked = 0
        for index, row in enumerate(self.rows):
            for where in places(row):
                true = at(row, where)
                # All types in some records, one type in every record.
                for other in (OTHERS if index % 36 == 5 else OTHERS[index % 14:][:1]):
                    if type(other) is not type(true) or other != true:
                        self.assert_named(replaced(row, where, other), index)
                        walked += 1
                self.assert_named(removed(row, where), index)
        self.assertGreater(walked, 10000)

    def test_added_members_are_named(self):
        for place in range(0, 324, 17):
            row = self.rows[place]
            self.assert_named({**row, "note": 1}, place)
            self.assert_named({**row, "tokens": row["tokens"] + [1]}, place)
            self.assert_named({**row, "events": row["events"] * 2 or [{}]}, place)
            self.assert_named(dict(reversed(row.items())), place)
            self.assert_named([row], place)

    def test_every_kind_of_event_is_named(self):
        seen = set()
        for place, row in enumerate(self.rows):
            for index, event in enumerate(row["events"]):
                seen.add(event["type"])
                for kind in ("admit", "evict", "skip", "hit"):
                    if kind != event["type"]:
                        forged = copy.deepcopy(row)
                        forged["events"][index]["type"] = kind
                        self.assert_named(forged, place)
                for change in ({"bytes": event["bytes"] + 1}, {"scope": "other"},
                               {"prefix": event["prefix"][:-1]}):
                    forged = copy.deepcopy(row)
                    forged["events"][index].update(change)
                    self.assert_named(forged, place)
            if len(row["events"]) > 1:
                self.assert_named({**row, "events": row["events"][::-1]}, place)
        self.assertEqual(seen, {"admit", "evict", "skip"})


class TestEveryArray(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.expected = audit_cache.expected_records(*audit_cache.PUBLISHED)
        cls.arrays, _ = audit_cache.read_archive(
            read(os.path.join(TRUE, "arrays.npz")),
            audit_cache.member_names(cls.expected))

    def test_every_array_forged_in_some_way(self):
        forgeries = (
            lambda array: array + np.eye(*array.shape) * 1e-9,
            lambda array: np.where(np.eye(*array.shape), np.nan, array),
            lambda array: np.where(np.eye(*array.shape), np.inf, array),
            lambda array: array.astype(np.float32), lambda array: array.astype(">f8"),
            lambda array: array.astype(np.longdouble), lambda array: array + 0j,
            lambda array: array[:-1], lambda array: array[:, :-1],
            lambda array: array.T, lambda array: array[None], lambda array: array * 0,
            lambda array: array[::-1], lambda array: np.zeros(array.shape, int),
            lambda array: "is no array: forged")
        names = [name.removesuffix(".npy") for name in self.arrays]
        self.assertEqual(len(names), 648)
        exact = {f"{row['key']}_{kind}": array for row in self.expected
                 for kind, array in audit_cache.expected_arrays(row).items()}
        for place, name in enumerate(names):
            array = self.arrays[name + ".npy"]
            self.assertIsNone(audit_cache.array_fault(array, exact[name]), name)
            for forge in forgeries[place % 5::5]:
                self.assertIsNotNone(audit_cache.array_fault(forge(array), exact[name]))


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


class TestForgedRun(EvidenceCopy):

    NAME = "cache-budget"

    def rehash(self):
        """Bring the manifest up to date with the forged files."""
        manifest = json.loads(read(self.path("manifest.json")))
        for name in manifest["files"]:
            manifest["files"][name] = hashlib.sha256(read(self.path(name))).hexdigest()
        write(self.folder, "manifest.json", json.dumps(manifest))

    def change_rows(self, change):
        rows = json.loads(read(self.path("results.json")))
        changed = change(rows)
        rows = rows if changed is None else changed
        write(self.folder, "results.json", json.dumps(rows))
        self.rehash()

    def members(self):
        with zipfile.ZipFile(self.path("arrays.npz")) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def pack(self, members, method=zipfile.ZIP_STORED, comment=b"", **attributes):
        """Write the archive as np.savez does, but for what is asked for."""
        with zipfile.ZipFile(self.path("arrays.npz"), "w", method) as archive:
            for name, data in members:
                info = zipfile.ZipInfo(name)
                info.external_attr, info.compress_type = 0o600 << 16, method
                for attribute, value in attributes.items():
                    setattr(info, attribute, value)
                archive.writestr(info, data, method)
            archive.comment = comment

    def test_a_packed_copy_of_the_archive_has_no_fault_but_its_hash(self):
        self.pack(self.members().items())
        self.assertEqual({fault["record"] for fault in self.audit()},
                         {"sha256", "files.arrays.npz"})

    def pack_twice(self, pairs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # zipfile's, of the duplicate
            self.pack(pairs + pairs[-1:])

    def test_the_evidence_passes(self):
        self.assertEqual(self.audit(), [])

    def test_a_changed_number_fails_its_record_and_the_hash(self):
        text = read(self.path("results.json")).decode()
        write(self.folder, "results.json", text.replace('"copied_bytes": 2112',
                                                        '"copied_bytes": 2113', 1))
        self.assert_named("results.json", "copied_bytes", 2113)
        self.assert_named("manifest.json", "files.results.json")

    def test_consistent_forgeries_with_new_hashes(self):
        def a_hit_more(rows):
            row = next(row for row in rows if row["hit_tokens"] == 0)
            row.update(hit_tokens=8, projected_rows=24)

        def fewer_evictions(rows):
            for row in rows:
                row["events"] = [event for event in row["events"]
                                 if event["type"] != "evict"]

        def another_scope(rows):
            for row in rows:
                row["scope"] = "me"
                for event in row["events"]:
                    event["scope"] = "me"

        for change in (a_hit_more, fewer_evictions, another_scope,
                       lambda rows: rows[:-12], lambda rows: rows + rows[-1:],
                       lambda rows: rows[::-1], lambda rows: [], lambda rows: {"a": 1},
                       lambda rows: [None] * 324,
                       lambda rows: [{**row, "max_abs_error": 0.0} for row in rows],
                       lambda rows: [{**row, "seed": 8} for row in rows]):
            self.change_rows(change)
            self.assert_named("results.json")
            shutil.copy(os.path.join(TRUE, "results.json"), self.folder)

    def test_forged_arrays_with_new_errors_and_hashes(self):
        members = self.members()
        for kind in ("full", "cached"):
            name = f"11_8192_hot-prefix_3_{kind}.npy"
            members[name] = saved(np.load(io.BytesIO(members[name])) + 1e-9)
        self.pack(members.items())
        self.rehash()
        self.assert_named("arrays.npz", "11_8192_hot-prefix_3_full")
        self.assert_named("arrays.npz", "11_8192_hot-prefix_3_cached")

    def test_another_container_of_equal_arrays_is_told_apart(self):
        members = self.members()
        for options in ({"comment": b"hello"}, {"method": zipfile.ZIP_DEFLATED}):
            self.pack(members.items(), **options)
            self.assert_named("arrays.npz", "sha256",
                              "the arrays are equal, their container differs")
        changed = dict(members)
        first = next(iter(changed))
        changed[first] = changed[first][:-8] + bytes(8)
        self.pack(changed.items())
        self.assert_named("arrays.npz", "sha256", "the arrays differ")

    def test_last_bits_are_counted_and_not_judged(self):
        members = self.members()
        name = "11_8192_hot-prefix_3_cached.npy"
        members[name] = saved(np.load(io.BytesIO(members[name])) + 1e-15)
        self.pack(members.items())
        folder = RecordsOnly()
        expected = audit_cache.expected_records(*audit_cache.PUBLISHED)
        arrays, _ = audit_cache.read_archive(read(self.path("arrays.npz")),
                                             audit_cache.member_names(expected))
        exact = {f"{row['key']}_{kind}.npy": states for row in expected
                 for kind, states in audit_cache.expected_arrays(row).items()}
        equal = {key: arrays[key] if key == name else exact[key] for key in arrays}
        self.assertEqual(audit_cache.check_arrays(folder, equal, expected), (647, True))
        self.assertEqual(folder.faults, [])

    def test_missing_and_linked_files_are_named(self):
        for name in ("results.json", "arrays.npz", "manifest.json", "evictions.svg"):
            os.rename(self.path(name), self.folder + "-aside")
            self.assert_named(name)
            os.symlink(self.folder + "-aside", self.path(name))
            self.assert_named(name, "", "is no regular file")
            os.remove(self.path(name))
            os.rename(self.folder + "-aside", self.path(name))

    def test_odd_containers_are_named_whatever_the_hash(self):
        members = self.members()
        pairs, names = list(members.items()), list(members)
        exact = np.load(io.BytesIO(pairs[0][1]))
        pickled = saved(np.array([{}], dtype=object))
        for case, change in {
                "another order": lambda: self.pack(reversed(pairs)),
                "a duplicate": lambda: self.pack_twice(pairs),
                "one missing": lambda: self.pack(pairs[1:]),
                "one more": lambda: self.pack(pairs + [("x.npy", pairs[0][1])]),
                "a path": lambda: self.pack([("../" + names[0], pairs[0][1])] +
                                            pairs[1:]),
                "compressed": lambda: self.pack(pairs, zipfile.ZIP_DEFLATED),
                "a comment": lambda: self.pack(pairs, comment=b"hello"),
                "a date": lambda: self.pack(pairs, date_time=(1999, 1, 1, 0, 0, 0)),
                "attributes": lambda: self.pack(pairs, external_attr=0o120777 << 16),
                "extra": lambda: self.pack(pairs, extra=b"xx\x02\x00hi"),
                "bytes before": lambda: self.prepend(b"junk"),
                "a hidden member": self.hide_a_member,
                "Fortran order": lambda: self.pack(
                    [(names[0], saved(np.asfortranarray(exact)))] + pairs[1:]),
                "another header": lambda: self.pack(
                    [(names[0], pairs[0][1].replace(b"}   ", b"} #x"))] + pairs[1:]),
                "a pickle": lambda: self.pack([(names[0], pickled)] + pairs[1:]),
                "bytes after": lambda: self.pack([(names[0], pairs[0][1] + b"x")] +
                                                 pairs[1:]),
                "no array": lambda: self.pack([(names[0], b"x")] + pairs[1:]),
                "no archive": lambda: write(self.folder, "arrays.npz", "x"),
                "empty": lambda: write(self.folder, "arrays.npz", "")}.items():
            with self.subTest(case=case):
                shutil.copy(os.path.join(TRUE, "arrays.npz"), self.folder)
                change()
                self.rehash()
                self.assert_named("arrays.npz")

    def prepend(self, junk):
        data = read(self.path("arrays.npz"))
        with open(self.path("arrays.npz"), "wb") as file:
            file.write(junk + data)

    def hide_a_member(self):
        """Leave a member in the archive that its directory does not name."""
        path = self.path("arrays.npz")
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("forged.npy", b"x" * 100)
            del archive.filelist[-1]
            archive.NameToInfo.pop("forged.npy")

    def test_odd_headers_are_named(self):
        members = list(self.members().items())
        name, data = members[0]
        for header in (b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,)}"
                       % 2 ** 70, b"{'descr': (", b"{[]:1}", b"{1:1,'a':2}",
                       b"{'descr': ('<f8',), 'fortran_order': False, 'shape': (4, 16)}",
                       b"{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}",
                       b"{'descr': '<f8', 'fortran_order': False, 'shape': (4L,)}"):
            header = header.ljust(117) + b"\n"
            self.pack([(name, data[:8] + bytes([118, 0]) + header + data[128:])]
                      + members[1:])
            with self.subTest(header=header):
                self.assert_named("arrays.npz")

    def test_arrays_that_would_broadcast_are_not_subtracted(self):
        members = self.members()
        for kind, shape in (("full", (9000, 1)), ("cached", (1, 9000))):
            members[f"7_4096_hot-prefix_0_{kind}.npy"] = saved(np.zeros(shape))
        self.pack(members.items())
        self.assert_named("arrays.npz", "7_4096_hot-prefix_0_full")

    def test_infinite_arrays_leave_a_strict_report(self):
        members = self.members()
        for kind in ("full", "cached"):
            members[f"7_4096_hot-prefix_0_{kind}.npy"] = saved(np.full((12, 16), np.inf))
        self.pack(members.items())
        self.assert_named("arrays.npz", "7_4096_hot-prefix_0_full")

    def manifest_faults(self, forged):
        folder = audit.Folder(self.folder, known=True)
        audit_cache.check_manifest(folder, forged,
                                   audit_cache.protocol(*audit_cache.PUBLISHED))
        return [fault for fault in folder.faults
                if fault["file"] == f"{self.NAME}/manifest.json"]

    def test_every_field_of_the_manifest(self):
        true = json.loads(read(self.path("manifest.json")))
        self.assertEqual(self.manifest_faults(true), [])
        declared = {("environment", name) for name in true["environment"]}
        for where in places(true):
            if where[:2] in declared:
                continue
            for other in OTHERS:
                if repr(at(true, where)) != repr(other):
                    faults = self.manifest_faults(replaced(true, where, other))
                    self.assertTrue(faults, (where, other))
                    self.assertIn(str(where[0]), faults[0]["record"])
            self.assertTrue(self.manifest_faults(removed(true, where)), where)
        for forged in ([], None, {}, {**true, "note": 1}, {**true, "environment": {}}):
            self.assertTrue(self.manifest_faults(forged), forged)

    def test_a_manifest_that_is_no_strict_json_is_named(self):
        true = read(self.path("manifest.json")).decode()
        for text in ("", "[]", true.replace("{", '{"protocol": {},', 1)):
            write(self.folder, "manifest.json", text)
            self.assert_named("manifest.json")

    def test_evidence_of_another_source_is_named(self):
        manifest = json.loads(read(self.path("manifest.json")))
        manifest["sources"]["decoder.py"] = "0" * 64
        write(self.folder, "manifest.json", json.dumps(manifest))
        self.assert_named("manifest.json", "sources.decoder.py", "0" * 64)

    def test_totals_are_written_once_and_must_agree(self):
        true = read(self.path("audit.json"))
        os.remove(self.path("audit.json"))
        self.assertEqual(self.audit(), [])
        self.assertEqual(read(self.path("audit.json")), true)
        self.assertEqual(len(json.loads(true)), 27)
        write(self.folder, "audit.json", true.decode().replace('"hits": 11',
                                                               '"hits": 12', 1))
        self.assert_named("audit.json", "hits", 12)

    def test_no_totals_are_written_for_forged_evidence(self):
        os.remove(self.path("audit.json"))
        self.change_rows(lambda rows: rows[1:])
        self.audit()
        self.assertFalse(os.path.exists(self.path("audit.json")))

    def test_forged_charts_are_named(self):
        for name, old, new in (("evictions.svg", ">22<", ">21<"),
                               ("projected-rows.svg", ">336<", ">335<")):
            true = read(self.path(name)).decode()
            self.assertIn(old, true)
            write(self.folder, name, true.replace(old, new, 1))
            self.assert_named(name)

    def test_a_protocol_that_no_run_can_have_is_named(self):
        mine = os.path.join(os.path.dirname(self.folder), "mine")
        shutil.copytree(self.folder, mine)
        true = json.loads(read(self.path("manifest.json")))
        for budgets in ([4096.0], [True], [-1], [], "4096", None, [10 ** 12],
                        list(range(257)), [1, 1]):
            write(mine, "manifest.json", json.dumps(
                replaced(true, ("protocol", "budgets"), budgets)))
            status, out, _ = call(audit.main, mine)
            fault, = json.loads(out)["folders"]["mine"]["faults"]
            with self.subTest(budgets=budgets):
                self.assertEqual((status, fault["record"]), (1, "protocol"))

    def test_a_run_of_another_name_says_its_own_protocol(self):
        mine = os.path.join(os.path.dirname(self.folder), "mine")
        self.assertEqual(call(decoder.main, "--out", mine, "--budgets", "5000",
                              "--policies", "shared,none")[0], 0)
        self.assertEqual(call(audit.main, mine)[0], 0)
        published = os.path.join(os.path.dirname(self.folder), "other", self.NAME)
        os.makedirs(os.path.dirname(published))
        shutil.copytree(mine, published)
        self.assertEqual(call(audit.main, published)[0], 1)


class TestPlantedBugs(unittest.TestCase):
    """With a bug planted in the code, evidence made again fails the audit."""

    BUGS = {
        "FIFO in place of LRU": [
            ("            self._entries.move_to_end(prefixes.key(part))\n",
             "            pass\n")],
        "the scope is left out of the key": [
            ("return self.signature, self.scope, self.tokens[:end]",
             'return self.signature, "owner", self.tokens[:end]')],
        "a hit that is not strictly shorter": [
            ("return range(start + self.stride, stop, self.stride)",
             "return range(start + self.stride, stop + 1, self.stride)"),
            ("        decoder, ids, _, start = request\n",
             "        decoder, ids, _, start = request\n"
             "        start = min(start, len(ids) - 1)\n"),
            ("for end in ends + [len(ids)]:", "for end in sorted({*ends, len(ids)}):"),
            ('[0][record["hit_tokens"]:]', '[0][-len(states):]')],
        "a budget overrun by one checkpoint": [
            ("while self.resident_bytes + size > self.budget_bytes:",
             "while self.resident_bytes > self.budget_bytes:")],
        "a full budget counts as overrun": [
            ("while self.resident_bytes + size > self.budget_bytes:",
             "while self._entries and self.resident_bytes + size >= "
             "self.budget_bytes:")],
        "a wrong position on resume": [
            ("new = np.arange(start, stop)",
             "new = np.arange(start, stop) - (start > 0)")],
        "a checkpoint that is not a true copy": [
            ("array[start:stop].copy() for array in layer",
             "array[start:stop] + array.dtype.type(1e-9) for array in layer")],
        "a skip that evicts first": [
            ("        if end * token_bytes(checkpoint) > self.budget_bytes:\n",
             "        while (self._entries\n"
             "               and end * token_bytes(checkpoint) > self.budget_bytes):\n"
             "            self._evict_oldest()\n"
             "        if end * token_bytes(checkpoint) > self.budget_bytes:\n")]}

    def run_and_audit(self, changes):
        """Run a changed copy of the code and audit it there; return the report."""
        with tempfile.TemporaryDirectory() as folder:
            copy_scripts(folder, "attention.py", "decoder.py", "records.py", "audit.py",
                         "audit_bench.py", "audit_cache.py", "audit_charts.py",
                         "audit_costs.py", "audit_offload.py", "audit_replay.py",
                         "audit_samples.py", "oracle.py")
            text = read(os.path.join(folder, "decoder.py")).decode()
            for old, new in changes:
                self.assertEqual(text.count(old), 1, old)
                text = text.replace(old, new)
            write(folder, "decoder.py", text)
            # hot-and-cold tells LRU from FIFO; 3,000 bytes give skips; in 6,336
            # bytes the two checkpoints of a prefix fit exactly.
            run("decoder.py", "--out", "mine", "--budgets", "3000,6336,12288",
                "--policies", "all,longest", folder=folder)
            done = run("audit.py", "mine", folder=folder)
            self.assertEqual(done.stderr, "")
            return done.returncode, json.loads(done.stdout)

    def test_each_bug_is_found(self):
        for bug, changes in self.BUGS.items():
            with self.subTest(bug=bug):
                status, report = self.run_and_audit(changes)
                self.assertEqual(status, 1)
                files = {fault["file"] for fault in report["folders"]["mine"]["faults"]}
                self.assertTrue(files & {"mine/results.json", "mine/arrays.npz"}, files)

    def test_without_a_bug_the_same_run_passes(self):
        status, report = self.run_and_audit([])
        self.assertEqual((status, report["ok"]), (0, True))


if __name__ == "__main__":
    unittest.main()
