"""records.py: files and folders that appear whole or not at all."""

import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import unittest

import records
from test_support import HOME, TemporaryFolder, read, run, write


class TestWriteFile(TemporaryFolder):

    def test_text_is_written_as_utf_8_and_bytes_as_they_are(self):
        for data, written in (("\u00e9\n", b"\xc3\xa9\n"), (b"\x00\r\n", b"\x00\r\n")):
            records.write_file(self.path("a"), data)
            self.assertEqual(read(self.path("a")), written)
        self.assertEqual(os.listdir(self.folder), ["a"])

    def test_replacing_keeps_the_mode_and_the_link(self):
        write(self.folder, "a", "old")
        os.chmod(self.path("a"), 0o604)
        os.symlink("a", self.path("link"))
        records.write_file(self.path("link"), "new")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(read(self.path("a")), b"new")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("a")).st_mode), 0o604)

    def test_a_device_is_written_directly(self):
        records.write_file(os.devnull, "text")
        self.assertFalse(os.path.isfile(os.devnull))

    @unittest.skipUnless(hasattr(os, "mkfifo"), "needs named pipes")
    def test_a_named_pipe_is_written_and_stays(self):
        os.mkfifo(self.path("pipe"))
        reader = os.open(self.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        records.write_file(self.path("pipe"), "text")
        self.assertEqual(os.read(reader, 100), b"text")
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    def test_a_redirected_stdout_is_written_and_not_replaced(self):
        log = write(self.folder, "log", "before\n")
        with open(log, "a", encoding="utf-8") as stream:
            subprocess.run([sys.executable, "-c", "import records\n"
                            "records.write_file('/dev/stdout', 'data\\n')\n"
                            "records.emit('after\\n')"],
                           cwd=HOME, stdout=stream, check=True)
        self.assertEqual(read(log), b"before\ndata\nafter\n")

    def test_a_failure_names_the_target_and_leaves_nothing(self):
        for name in ("no/file", ".", "new/", "no/../file"):
            with self.subTest(name=name), self.assertRaises(OSError) as caught:
                records.write_file(self.path(name), "text")
            self.assertEqual(caught.exception.filename, self.path(name))
        self.assertEqual(os.listdir(self.folder), [])


class TestRunFolder(TemporaryFolder):

    def test_appears_only_when_the_block_ends(self):
        target = self.path("run")
        with records.run_folder(target) as folder:
            write(folder, "a", "text")
            self.assertFalse(os.path.exists(target))
            self.assertTrue(os.path.basename(folder).startswith(".run-"))
        self.assertEqual(os.listdir(self.folder), ["run"])
        self.assertEqual(os.listdir(target), ["a"])

    def test_an_exception_leaves_nothing(self):
        for error in (ValueError, KeyboardInterrupt, SystemExit):
            with self.assertRaises(error):
                with records.run_folder(self.path("run")) as folder:
                    write(folder, "a", "text")
                    raise error
            self.assertEqual(os.listdir(self.folder), [])

    def test_an_existing_target_is_refused_and_untouched(self):
        os.mkdir(self.path("empty"))
        write(self.folder, "file", "text")
        os.symlink("nowhere", self.path("dangling"))
        for name in ("empty", "file", "dangling", "empty/"):
            with self.subTest(name=name), self.assertRaises(FileExistsError) as caught:
                with records.run_folder(self.path(name)):
                    self.fail("the block ran")
            self.assertIn("a new folder is needed", str(caught.exception))
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["dangling", "empty", "file"])
        self.assertEqual(read(self.path("file")), b"text")

    def test_a_target_that_appears_meanwhile_is_untouched(self):
        with self.assertRaises(FileExistsError):
            with records.run_folder(self.path("run")):
                os.mkdir(self.path("run"))
        self.assertEqual(os.listdir(self.folder), ["run"])

    def test_a_missing_parent_names_the_target(self):
        with self.assertRaises(FileNotFoundError) as caught:
            with records.run_folder(self.path("no", "run")):
                self.fail("the block ran")
        self.assertEqual(caught.exception.filename, self.path("no", "run"))

    def started_run(self):
        """Start a run that waits inside its folder; return the process."""
        process = subprocess.Popen(
            [sys.executable, "-c", "import records, sys, time\n"
             "with records.run_folder(sys.argv[1]):\n"
             "    print('inside', flush=True)\n"
             "    time.sleep(60)\n", self.path("run")],
            cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"inside\n")
        return process

    def test_sigterm_removes_the_half_built_folder(self):
        process = self.started_run()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_sigkill_leaves_hinders_no_later_run(self):
        process = self.started_run()
        process.kill()
        process.wait()
        self.assertEqual(len(os.listdir(self.folder)), 1)
        with records.run_folder(self.path("run")):
            pass
        self.assertIn("run", os.listdir(self.folder))

    def test_the_signal_handler_is_put_back(self):
        before = signal.getsignal(signal.SIGTERM)
        with records.run_folder(self.path("run")):
            self.assertNotEqual(signal.getsignal(signal.SIGTERM), before)
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)


class TestTexts(TemporaryFolder):

    def test_json_ends_with_a_line_and_has_one_row_a_line(self):
        self.assertEqual(records.json_text({"a": [1]}), '{\n "a": [\n  1\n ]\n}\n')
        self.assertEqual(records.json_rows([{"a": 1}, {"b": None}]),
                         '[\n{"a": 1},\n{"b": null}\n]\n')

    def test_nan_is_refused(self):
        for make in (records.json_text, records.json_rows):
            with self.assertRaises(ValueError):
                make([float("nan")])

    def test_input_as_output_is_refused_by_any_name(self):
        source = write(self.folder, "a", "text")
        os.symlink("a", self.path("link"))
        os.link(source, self.path("hard"))
        for name in ("a", "./a", "link", "hard", "a/", "a/.", "no/../a"):
            with self.subTest(name=name), self.assertRaises(records.WrongUsage) as caught:
                records.refuse_input_as_output(source, self.path(name))
            self.assertIn("is also the input", str(caught.exception))
        records.refuse_input_as_output(source, self.path("other"))

    def test_emit_is_quiet_when_the_reader_has_gone(self):
        done = run("-c", "import os, records; r, w = os.pipe(); os.close(r); "
                         "os.dup2(w, 1); records.emit('text')")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_emit_on_a_full_disk_is_an_error(self):
        done = run("-c", "import os, records, sys\n"
                         "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
                         "sys.exit(records.run_main('x.py', "
                         "lambda: records.emit('text')))")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "x.py: stdout: No space left on device\n"))


class TestManifest(TemporaryFolder):

    def test_hashes_of_files_and_sources(self):
        write(self.folder, "b", "text")
        made = records.manifest("rule", {"numpy": "9"}, ["records.py"],
                                self.folder, ["b"])
        self.assertEqual(list(made), ["protocol", "environment", "sources", "files"])
        self.assertEqual(made["protocol"], "rule")
        self.assertEqual(list(made["environment"]), ["python", "platform", "numpy"])
        self.assertEqual(made["files"], {"b": hashlib.sha256(b"text").hexdigest()})
        source = read(os.path.join(HOME, "records.py"))
        self.assertEqual(made["sources"],
                         {"records.py": hashlib.sha256(source).hexdigest()})

    def test_line_ends_of_a_source_do_not_matter(self):
        one = write(self.folder, "a.py", "a\r\nb\n")
        other = write(self.folder, "b.py", "a\nb\n")
        self.assertEqual(records.source_sha256(one), records.source_sha256(other))


class Terminal(io.StringIO):
    def isatty(self):
        return True


class TestProgress(unittest.TestCase):

    def test_a_terminal_sees_each_per_cent_once(self):
        stream = Terminal()
        progress = records.Progress("reading", 400, stream)
        for _ in range(400):
            progress.step()
        text = stream.getvalue()
        self.assertEqual(text.count("\r"), 100)
        self.assertTrue(text.startswith("\rreading:   1 %"))
        self.assertTrue(text.endswith("\rreading: 100 %\n"))

    def test_large_steps_count(self):
        stream = Terminal()
        progress = records.Progress("x", 3, stream)
        progress.step(2)
        progress.step(1)
        self.assertEqual(stream.getvalue(), "\rx:  66 %\rx: 100 %\n")

    def test_no_stderr_sees_nothing(self):
        script = "import sys; sys.stderr = None; import records; " \
                 "records.Progress('x', 1).step(); " \
                 "sys.exit(records.run_main('x.py', lambda: int('x')))"
        done = run("-c", script)
        self.assertEqual((done.returncode, done.stdout), (1, ""))

    def test_a_file_sees_nothing(self):
        stream = io.StringIO()
        records.Progress("reading", 2, stream).step(2)
        self.assertEqual(stream.getvalue(), "")


class TestRunMain(unittest.TestCase):

    def status(self, error):
        def work():
            if error is not None:
                raise error
        from contextlib import redirect_stderr
        stream = io.StringIO()
        with redirect_stderr(stream):
            return records.run_main("x.py", work), stream.getvalue()

    def test_errors_become_one_line_and_a_status(self):
        for error, answer in (
                (None, (0, "")),
                (ValueError("bad value"), (1, "x.py: bad value\n")),
                (records.WrongUsage("bad wish"), (2, "x.py: bad wish\n")),
                (FileNotFoundError(2, "No such file", "a"),
                 (1, "x.py: a: No such file\n")),
                (OSError("odd"), (1, "x.py: odd\n")),
                (KeyboardInterrupt(), (130, "x.py: interrupted\n"))):
            with self.subTest(error=error):
                self.assertEqual(self.status(error), answer)


if __name__ == "__main__":
    unittest.main()
