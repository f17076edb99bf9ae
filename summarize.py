"""Summarize measured times to first token; print JSON.

What was a CPU tier worth, by the clock?

    python3 summarize.py ttft.jsonl                  print the summary
    python3 summarize.py ttft.jsonl measured.json    and write it there too

The input holds one JSON object a line, one for each document read, with at
least `config` ("baseline" or "lmcache"), `pass` (a name) and `ttft_ms`.
The output holds the number of reads, the median and the mean of `ttft_ms`
for each config and pass, and for each pass that both configs have the
ratio, baseline over lmcache.  A ratio above 1 says that offloading was
faster, one below 1 that it was slower.

The summary is no better than its rows: it cannot see how they were measured.
"""

import argparse
import contextlib
import errno
import json
import math
import os
import shutil
import statistics
import sys
from typing import Dict, Iterable, List, Optional

__all__ = ["read_samples", "summarize", "main"]

CONFIGS = ("baseline", "lmcache")
LARGEST_MS = sys.float_info.max / 2     # a median adds two


class BadInput(ValueError):
    """What is wrong with the input, and in which line of which file."""


def read_samples(lines: Iterable[bytes], name: str) -> Dict[str, dict]:
    """Return {config: {pass: [ttft_ms, ...]}} from lines of JSON.

    `lines` yields bytes, as a binary file does; `name` is what an error
    calls the file.  Blank lines, a byte order mark and carriage returns are
    skipped.  Raise BadInput for the first row that is not as it should be.
    """
    samples = {config: {} for config in CONFIGS}
    parse = json.JSONDecoder(parse_constant=refuse_constant).raw_decode
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        line = line.strip(b" \t\r\n")
        if not line:
            continue
        try:
            text = line.decode()
            row, end = parse(text)
            if end != len(text):
                raise ValueError("extra data after the row")
            config, pass_name, ttft_ms = read_row(row)
        except json.JSONDecodeError as error:
            raise BadInput("{}:{}: {} at column {}".format(
                name, number, error.msg, error.colno)) from None
        except (ValueError, RecursionError) as error:
            raise BadInput("{}:{}: {}".format(name, number, error)) from None
        samples[config].setdefault(pass_name, []).append(ttft_ms)
    if not any(samples.values()):
        raise BadInput("{}: no rows, at least one is needed".format(name))
    return samples


def refuse_constant(text):
    raise ValueError("{} is not a JSON number".format(text))


def read_row(row):
    """Return config, pass and ttft_ms of one row, or raise ValueError."""
    if type(row) is not dict:
        raise ValueError("a row must be a JSON object, got {}".format(
            shown(row)))
    config, pass_name = row.get("config"), row.get("pass")
    if config not in CONFIGS:
        raise ValueError('"config" must be "baseline" or "lmcache", '
                         "got {}".format(member(row, "config")))
    if type(pass_name) is not str or not pass_name:
        raise ValueError('"pass" must be a non-empty string, got {}'.format(
            member(row, "pass")))
    ttft_ms = row.get("ttft_ms")
    if not (type(ttft_ms) in (float, int) and 0 < ttft_ms <= LARGEST_MS):
        raise ValueError('"ttft_ms" must be a finite number of milliseconds '
                         "> 0, got {}".format(member(row, "ttft_ms")))
    return config, pass_name, float(ttft_ms)


def member(row, key):
    return shown(row[key]) if key in row else "nothing"


def shown(value):
    """Return `value` as JSON, cut to what fits into an error message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def summarize(samples: Dict[str, dict]) -> Dict[str, dict]:
    """Return the summary of `samples`, as read_samples returns them.

    p50 is `statistics.median`, mean is `statistics.mean`.  Milliseconds are
    rounded to 1 decimal, ratios to 2, each once, from unrounded values; a
    ratio beyond the range of floats is left out.
    """
    exact = {config: {name: {"p50": statistics.median(ttft_ms),
                             "mean": statistics.mean(ttft_ms)}
                      for name, ttft_ms in passes.items()}
             for config, passes in samples.items()}
    summary = {config: {name: {"n": len(samples[config][name]),
                               "p50_ms": round(row["p50"], 1),
                               "mean_ms": round(row["mean"], 1)}
                        for name, row in passes.items()}
               for config, passes in exact.items()}
    baseline, lmcache = exact["baseline"], exact["lmcache"]
    summary["ratio"] = {name: ratios(baseline[name], lmcache[name])
                        for name in baseline if name in lmcache}
    return summary


def ratios(over, under):
    return {key: round(over[key] / under[key], 2) for key in over
            if math.isfinite(over[key] / under[key])}


def write_whole(path, text):
    """Replace the file `path` by `text`, or leave it as it was."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as file:     # a pipe, a device
                file.write(text)
        elif is_stdout(path):       # emit writes there; to replace it loses that
            return
        else:
            replace_file(end_of_links(path), text)
    except OSError as error:                # name the file that was asked for
        raise OSError(error.errno, error.strerror, path) from None


def is_stdout(path):
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def end_of_links(path):
    """Return the file that `path` leads to; a path that is no link stays as it
    is, so that `name/` fails."""
    target = os.path.realpath(path) if os.path.islink(path) else path
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def replace_file(target, text):
    folder, name = os.path.split(target)
    part = os.path.join(folder, ".{}-{}".format(name[:60], os.urandom(4).hex()))
    try:
        with open(part, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        if os.path.exists(target):
            shutil.copymode(target, part)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def emit(text):
    """Write `text` to stdout; a reader that has gone is no error."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "is closed")
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered must not fail once more at exit.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):      # as in `... | head`
            raise OSError(error.errno, error.strerror, "stdout") from None


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description="Summarize measured times to first token.",
        allow_abbrev=False)
    parser.add_argument("input", help="JSON lines, one for each read")
    parser.add_argument("output", nargs="?", help="also write the JSON here")
    args = parser.parse_args(argv)
    try:
        with open(args.input, "rb") as lines:
            if args.output is not None and same_file(args.input, args.output):
                parser.error("output {} is the input".format(args.output))
            samples = read_samples(lines, args.input)
        text = json.dumps(summarize(samples), allow_nan=False) + "\n"
        if args.output is not None:
            write_whole(args.output, text)
        emit(text)
    except OSError as error:
        return fail("{}: {}".format(error.filename, error.strerror))
    except ValueError as error:
        return fail(error)
    return 0


def same_file(path, other):
    # By realpath too: `file/` and `no/../file` do not exist and name a file.
    return any(os.path.exists(name) and os.path.samefile(path, name)
               for name in (other, os.path.realpath(other)))


def fail(message):
    if sys.stderr is not None:
        print("summarize.py: {}".format(message), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
