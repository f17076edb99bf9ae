"""The house rules that can be read off the sources: who imports what."""

import ast
import inspect
import os
import re
import sys
import unittest

from test_support import HOME, read, run

# room -> what it may import beside the standard library
ROOMS = {
    "kvsim.py": set(),
    "scenario.py": {"kvsim"},
    "summarize.py": set(),
    "attention.py": {"numpy"},
    "records.py": set(),
    "decoder.py": {"numpy", "attention", "records"},
    "timings.py": set(),
    "verdicts.py": {"timings"},
    "costs.py": {"timings", "verdicts"},
    "experiments.py": {"numpy", "attention", "decoder", "timings"},
    "bench.py": {"numpy", "attention", "costs", "experiments", "figures", "records",
                 "timings", "verdicts"},
    "needs.py": {"numpy"},
    "replay.py": {"numpy", "kvsim", "needs", "records"},
    "offload.py": {"numpy", "decoder", "kvsim", "records"},
    "charts.py": set(),
    "figures.py": {"charts", "records"},
    "oracle.py": set(),
    "audit.py": {"oracle", "audit_bench", "audit_cache", "audit_charts",
                 "audit_costs", "audit_offload", "audit_replay", "audit_samples"},
    "audit_bench.py": {"oracle", "audit_charts", "audit_samples"},
    "audit_costs.py": {"oracle", "audit_cache", "audit_charts", "audit_samples"},
    "audit_samples.py": {"oracle"},
    "audit_cache.py": {"numpy", "oracle", "audit_charts"},
    "audit_charts.py": set(),
    "audit_offload.py": {"numpy", "oracle", "audit_cache", "audit_charts"},
    "audit_replay.py": {"oracle", "audit_charts"},
    os.path.join("fixtures", "make_cycle.py"): set(),
    os.path.join("fixtures", "make_trace.py"): set(),
    os.path.join("fixtures", "make_ttft.py"): set()}
# Those that another script may import.
MODULES = [name[:-3] for name in ROOMS if os.sep not in name]


def sources():
    """Return every script, by its path from the root."""
    return [name for folder in ("", "fixtures") for name in
            (os.path.join(folder, name)
             for name in sorted(os.listdir(os.path.join(HOME, folder))))
            if name.endswith(".py")]


def imported(name):
    tree = ast.parse(read(os.path.join(HOME, name)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


class TestRooms(unittest.TestCase):

    def test_every_script_has_a_room(self):
        scripts = [name for name in sources() if not name.startswith("test_")]
        self.assertEqual(sorted(ROOMS), sorted(scripts))

    @unittest.skipUnless(hasattr(sys, "stdlib_module_names"), "needs Python 3.10")
    def test_rooms_import_only_what_they_may(self):
        for name, allowed in ROOMS.items():
            with self.subTest(name=name):
                self.assertLessEqual(set(imported(name)) - sys.stdlib_module_names,
                                     allowed)

    def test_the_three_stand_alone_scripts_are_python_3_8(self):
        for name in ("kvsim.py", "scenario.py", "summarize.py"):
            ast.parse(read(os.path.join(HOME, name)), feature_version=(3, 8))
            self.assertNotIn("dataclasses", set(imported(name)))

    def test_importing_a_script_prints_nothing(self):
        done = run("-c", "import " + ", ".join(MODULES))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_public_names_exist_and_are_documented_and_hinted(self):
        # `__all__` is the boundary: other names of a module are its own, and an
        # underscore marks methods and attributes only.
        for name in MODULES:
            module = __import__(name)
            for public in module.__all__:
                with self.subTest(name=name, public=public):
                    value = getattr(module, public)
                    if callable(value) and public != "main":
                        self.assertTrue(value.__doc__)
                    if inspect.isfunction(value):
                        self.assertIn("return", value.__annotations__)

    def test_no_file_knows_the_machine_that_it_was_written_on(self):
        # The exercise's own two paths are facts of the exercise.
        allowed = re.compile(r"/root/kvlab|/opt/fixtures/kvoffload/ttft\.jsonl|"
                             r"/dev/\w+|^#!/usr/bin/env")
        for name in sources() + ["README.md", "fixtures/README.md", ".ci/run"]:
            text = allowed.sub("", read(os.path.join(HOME, *name.split("/"))).decode())
            found = re.search(r"/(?:root|opt|home|tmp|work|usr|Users)/[a-z]", text)
            if name != "test_rooms.py":
                self.assertIsNone(found, name)

    def test_lines_fit_a_narrow_window(self):
        for name in sources():
            for number, line in enumerate(read(os.path.join(HOME, name)).decode()
                                          .splitlines(), 1):
                self.assertLessEqual(len(line), 90, f"{name}:{number}")


try:
    import numpy    # noqa: F401
except ImportError:
    TestRooms = unittest.skip("the other scripts need NumPy")(TestRooms)


if __name__ == "__main__":
    unittest.main()
