"""What the test files share: running a command, in this process or its own."""

import contextlib
import copy
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HOME = os.path.dirname(os.path.abspath(__file__))
EVIDENCE = os.path.join(HOME, "evidence")


class TemporaryFolder(unittest.TestCase):
    """A test with a folder of its own, which is gone afterwards."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)


def call(main, *argv, terminal=False):
    """Call `main` as a command; return (exit status, stdout, stderr).

    With `terminal` stderr says that it is one.
    """
    out, err = io.StringIO(), io.StringIO()
    err.isatty = lambda: terminal
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([str(word) for word in argv])
        except SystemExit as stop:
            status = stop.code
    return status, out.getvalue(), err.getvalue()


def run(*argv, folder=HOME, python=(sys.executable,), **options):
    """Run a script in a process of its own; return the finished process."""
    return subprocess.run([*python, *map(str, argv)], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, **options)


def copy_scripts(folder, *names):
    for name in names:
        shutil.copy(os.path.join(HOME, name), folder)


def write(folder, name, text):
    """Write a file; return its path."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def places(value, where=()):
    """Yield the place, a tuple of keys, of everything in nested lists and dicts."""
    members = (value.items() if isinstance(value, dict) else
               enumerate(value) if isinstance(value, list) else ())
    for key, member in list(members):
        yield where + (key,)
        yield from places(member, where + (key,))


def at(value, where):
    for key in where:
        value = value[key]
    return value


def replaced(value, where, new):
    """Return a copy of `value` with `new` at the place `where`."""
    value = copy.deepcopy(value)
    at(value, where[:-1])[where[-1]] = new
    return value


def removed(value, where):
    """Return a copy of `value` without what is at the place `where`."""
    value = copy.deepcopy(value)
    del at(value, where[:-1])[where[-1]]
    return value


def readme_block(name):
    """Return the commands of the README's block `name`."""
    text = read(os.path.join(HOME, "README.md")).decode("utf-8")
    return text.split("<!-- block: {} -->\n```\n".format(name))[1].split("```")[0]


def run_block(commands, folder):
    """Run shell commands in `folder`, with `python3` being this Python."""
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    return subprocess.run(["sh", "-e"], input=commands, cwd=folder,
                          env=dict(os.environ, PATH=path), universal_newlines=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
