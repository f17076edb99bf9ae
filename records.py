"""Write results whole or not at all, and say what they are made of.

    write_file(path, data)              a file appears complete or stays as it was
    with run_folder(path) as folder:    a folder appears complete or not at all
        ...
    emit(text)                          data to stdout, quiet when it is closed

A file is written beside its target and renamed over it.  A run folder is
built beside its target as `.NAME-...` and renamed when all of it is there;
an exception, an interrupt or SIGTERM removes the half-built one.  What a
`kill -9` leaves behind has a name of its own and hinders no later run.

Renaming is atomic on one file system; nothing here survives a power cut.
"""

import argparse
import contextlib
import errno
import gc
import hashlib
import json
import os
import platform
import shutil
import signal
import sys
import threading
from typing import Callable, Iterator

__all__ = ["write_file", "written_directly", "run_folder", "refuse_input_as_output",
           "emit", "note", "json_text", "json_rows", "sha256", "source_sha256",
           "manifest", "one_blas_thread", "garbage_collection_off", "cpu_model",
           "kernel_variables", "fill_run", "whole_number", "list_of", "note_unpinned",
           "Progress", "WrongUsage", "run_main"]


# -- Files and folders --------------------------------------------------------

def write_file(path: str, data) -> None:
    """Replace the file `path` by `data`, text or bytes, in one step.

    What is no regular file, such as /dev/null or a pipe, is written directly,
    and so is a standard stream (/dev/stdout), whatever it leads to.
    """
    if isinstance(data, str):
        data = data.encode("utf-8")
    try:
        if written_directly(path):
            stream = standard_stream(path)
            place = path if stream is None else os.dup(stream)
            # A reader that has gone (`/dev/stdout | head`) is no error.
            with contextlib.suppress(BrokenPipeError), open(place, "wb") as file:
                file.write(data)
        else:
            replace_file(end_of_links(path), data)
    except OSError as error:                # name the file that was asked for
        raise OSError(error.errno, error.strerror, path) from None


def written_directly(path: str) -> bool:
    """Return whether write_file writes into `path` instead of replacing it."""
    return os.path.exists(path) and (not os.path.isfile(path)
                                     or standard_stream(path) is not None)


def standard_stream(path):
    """Return the descriptor of stdout or stderr if `path` is what it leads to.

    To replace that file would lose what the stream wrote and will write.
    """
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(stream)):
                return stream
    return None


def end_of_links(path):
    """Return the file that `path` leads to; a path that is no link stays as it
    is, so that `name/` fails."""
    target = os.path.realpath(path) if os.path.islink(path) else path
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def replace_file(target, data):
    part = unfinished_name(target)
    try:
        with open(part, "xb") as file:
            file.write(data)
        if os.path.exists(target):
            shutil.copymode(target, part)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


@contextlib.contextmanager
def run_folder(path: str) -> Iterator[str]:
    """Yield a new folder to fill; rename it to `path` when the block ends.

    Raise FileExistsError, before anything is made, when `path` exists.
    """
    path = path.rstrip(os.sep) or path
    refuse_existing(path)
    part = unfinished_name(path)
    with sigterm_as_exit():
        try:
            make_folder(part, path)
            yield part
            refuse_existing(path)
            os.rename(part, path)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def refuse_existing(path):
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST,
                              "exists already, a new folder is needed", path)


def make_folder(part, path):
    try:
        os.mkdir(part)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def unfinished_name(path):
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:60]}-{os.urandom(4).hex()}")


@contextlib.contextmanager
def sigterm_as_exit():
    """Let SIGTERM raise SystemExit, so that clean-up runs."""
    if threading.current_thread() is not threading.main_thread():
        yield                               # only the main thread gets signals
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def refuse_input_as_output(source: str, target: str) -> None:
    """Raise WrongUsage when `target` is the file `source`, by any name."""
    # By realpath too: `file/` and `no/../file` do not exist and name a file.
    for name in (target, os.path.realpath(target)):
        if os.path.exists(name) and os.path.samefile(source, name):
            raise WrongUsage(f"{target}: the output is also the input {source}")


# -- Texts --------------------------------------------------------------------

def json_text(value) -> str:
    """Return `value` as JSON with a final newline; refuse NaN and Infinity."""
    return json.dumps(value, allow_nan=False, indent=1) + "\n"


def json_rows(rows) -> str:
    """Return a list as JSON, one element a line."""
    lines = (json.dumps(row, allow_nan=False) for row in rows)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def emit(text: str) -> None:
    """Write `text` to stdout; a reader that has gone (`| head`) is no error."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "is closed")
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered must not fail once more at exit.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, "stdout") from None


# -- Hashes and manifests -----------------------------------------------------

def sha256(path: str) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def source_sha256(path: str) -> str:
    """Return the SHA-256 of a source file with its line ends made LF."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read().replace(b"\r\n", b"\n")).hexdigest()


def manifest(protocol, environment: dict, sources, folder: str, files) -> dict:
    """Return what a run folder's `manifest.json` holds.

    `sources` are the names of scripts beside this one, `files` names in
    `folder`; both are recorded with their hashes.
    """
    home = os.path.dirname(os.path.abspath(__file__))
    return {"protocol": protocol,
            "environment": {"python": platform.python_version(),
                            "platform": platform.platform(), **environment},
            "sources": {name: source_sha256(os.path.join(home, name))
                        for name in sorted(sources)},
            "files": {name: sha256(os.path.join(folder, name))
                      for name in sorted(files)}}


def fill_run(folder: str, files: dict, protocol, environment: dict,
             sources) -> None:
    """Write {name: data} into a run folder, and its manifest.json beside them."""
    for name, data in files.items():
        write_file(os.path.join(folder, name), data)
    made_of = manifest(protocol, environment, sources, folder, files)
    write_file(os.path.join(folder, "manifest.json"), json_text(made_of))


# -- Measuring ----------------------------------------------------------------

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
                    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS")


def one_blas_thread() -> bool:
    """Pin BLAS to one thread; return False, and do nothing, if it is too late.

    BLAS reads its threads when NumPy is first imported.  Unpinned, a path can
    look many times faster than another that does the same work.
    """
    if "numpy" in sys.modules:
        return False
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    return True


@contextlib.contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Collect garbage now, and not within the block."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def kernel_variables() -> dict:
    """Return the variables that choose the kernels of NumPy and its BLAS."""
    return {name: value for name, value in sorted(os.environ.items())
            if name.startswith(("NPY_", "OPENBLAS_"))
            and name not in THREAD_VARIABLES}


def cpu_model() -> str:
    """Return what the machine calls its processor."""
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


# -- Commands -----------------------------------------------------------------

class Progress:
    """A counter on stderr when that is a terminal, nothing when it is not.

    As a context manager it ends its line even when it stops half-way.  A
    `total` of 0, as of a pipe, is not known and shows nothing.
    """

    def __init__(self, label: str, total: int, stream=None):
        self.label, self.total, self.done = label, total, 0
        self.stream = sys.stderr if stream is None else stream
        self.shown = (total > 0 and self.stream is not None
                      and self.stream.isatty())
        self.open = False                   # whether a line was begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.open:
            self.stream.write("\n")
            self.stream.flush()
            self.open = False

    def step(self, count: int = 1) -> None:
        """Count `count` more; draw only when the percentage changes."""
        before, self.done = self.done, self.done + count
        if not self.shown:
            return
        percent = 100 * self.done // self.total
        if percent != 100 * before // self.total:
            self.open = self.done < self.total
            end = "" if self.open else "\n"
            self.stream.write(f"\r{self.label}: {percent:3d} %{end}")
            self.stream.flush()


def whole_number(least: int = 0, most: int = 10 ** 15) -> Callable:
    """Return the argparse type of a whole number from `least` to `most`."""
    def parse(text):
        digits = text.isascii() and text.isdigit() and len(text) < 60
        if not digits or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} to {most}, got {text[:60]!r}")
        return int(text)
    return parse


def list_of(parse: Callable) -> Callable:
    """Return the argparse type of different values joined by commas."""
    def parse_all(text):
        values = tuple(map(parse, text.split(",")))
        if len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(
                f"must name each but once, got {text[:60]!r}")
        return values
    return parse_all


def note(script: str, text) -> None:
    """Say one line on stderr, as far as there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"{script}: {text}", file=sys.stderr)


def note_unpinned(script: str, pinned: bool) -> None:
    """Say on stderr when it was too late for one_blas_thread."""
    if not pinned:
        note(script, "NumPy was imported before BLAS threads could be pinned; "
                     "their number is not known")


class WrongUsage(ValueError):
    """The command asks for what cannot be meant."""


def run_main(script: str, work) -> int:
    """Call `work()`; return the exit status of the command `script`.

    Errors of files, values and memory become one line on stderr and status 1,
    WrongUsage status 2; an interrupt becomes status 130.
    """
    try:
        work()
        return 0
    except WrongUsage as error:
        return fail(script, error, 2)
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename or repr('')}: "
        return fail(script, f"{place}{error.strerror or error}", 1)
    except (ValueError, OverflowError) as error:
        return fail(script, error, 1)
    except MemoryError as error:
        return fail(script, f"out of memory: {error}", 1)
    except KeyboardInterrupt:
        return fail(script, "interrupted", 130)


def fail(script, message, status):
    note(script, message)
    return status
