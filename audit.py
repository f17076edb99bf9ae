"""Check evidence by deriving every claim anew, with code of its own.

    python3 audit.py evidence               the whole folder
    python3 audit.py evidence/kvlab         one run folder

The raw records are replayed by the models of oracle.py and by what is
written here; nothing is imported that made the evidence.  One JSON report
goes to stdout: for each folder what was counted and every fault, with file,
record, the value found and the value expected.  Exit status 0 says that all
holds, 1 that something does not.

A complete `evidence` has the folders and files listed below, no more and no
less.  A folder by another name is audited by what it holds.  Where all holds
of a cache run, its totals are written beside it as audit.json, if there is
none; one that is there must agree.

The audit can tell what follows from the protocol from what does not.  It
cannot tell whether a clock, a machine or a version was as declared; the
report says so under "limits".
"""

import argparse
import contextlib
import errno
import hashlib
import json
import math
import os
import re
import stat
import sys
from functools import partial
from typing import Callable, NamedTuple

import audit_bench
import audit_costs
import oracle
from audit_cache import ADMISSION, PUBLISHED, audit_cache_run, chart_names
from audit_charts import Bars, Lines, chart_faults
from audit_offload import SHORT, STANDARD, audit_offload, ttft_summary
from audit_replay import audit_replay
from audit_samples import RECORDS as SAMPLES

__all__ = ["Folder", "audit_tree", "main"]

HOME = os.path.dirname(os.path.abspath(__file__))
LARGEST_FILE = 32 << 20     # bytes; what forged evidence may make us read

LIMITS = [
    "environment strings and timings are declarations: summaries are bound "
    "to raw records and raw records to their hash, no more",
    "the figures of public traces are bound to the auditor's own record of a "
    "replay, because the traces are not here",
    "array differences under 1e-12 cannot be told from another BLAS: they are "
    "counted (bit_exact), not judged",
    "of charts it is not judged whether texts overlap and whether colours can "
    "be told apart",
]


# -- Reading strictly ---------------------------------------------------------

class Fault(Exception):
    """What is wrong with a file `name` so that no more can be said of it."""

    def __init__(self, name, found, record="", expected="a file of this experiment"):
        super().__init__(found)
        self.name, self.record, self.expected = name, record, expected


def strict_json(text):
    """Return the value of `text`; refuse duplicate keys, NaN and Infinity."""
    def pairs(items):
        members = dict(items)
        if len(members) < len(items):
            seen = set()        # add() returns None
            twice = next(name for name, _ in items
                         if name in seen or seen.add(name))
            raise ValueError(f"key {twice!r} stands twice")
        return members

    def constant(name):
        raise ValueError(f"{name} is not a JSON number")

    def finite(digits):
        if not math.isfinite(float(digits)):
            raise ValueError(f"{digits} is beyond the range of floats")
        return float(digits)

    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant,
                      parse_float=finite)


def regular_bytes(path, name):
    """Return the bytes of a regular file; raise Fault for anything else."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise Fault(name, "is no regular file")
        if status.st_size > LARGEST_FILE:
            raise Fault(name, f"has {status.st_size} bytes, above {LARGEST_FILE}")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Fault(name, error.strerror) from None


def differences(found, expected, where=""):
    """Yield (where, found, expected) for all that differs, types included.

    `where` is a path such as `passes[1].misses`.  The order of an object's
    keys counts; 48, 48.0 and true are three different values.
    """
    if type(found) is not type(expected):
        yield where, found, expected
    elif isinstance(expected, dict):
        if list(found) != list(expected):
            yield f"{where} keys".strip(), list(found), list(expected)
        for key in expected:
            if key in found:
                place = f"{where}.{key}" if where else key
                yield from differences(found[key], expected[key], place)
    elif isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{where} length".strip(), len(found), len(expected)
        for index, (one, other) in enumerate(zip(found, expected)):
            yield from differences(one, other, f"{where}[{index}]")
    elif repr(found) != repr(expected):     # 0.0 is not -0.0
        yield where, found, expected


def is_kept(name):
    """Tell what is there to stay from what a killed run or audit left behind."""
    return not re.fullmatch(r"\..*-[0-9a-f]{8}", name)


class Folder:
    """One run folder under audit: strict readers, and the faults found.

    `known` says that the folder is one of the evidence's own, so that every
    file of its experiment must be there and no other may be.
    """

    def __init__(self, path, known):
        self.path, self.known = path, known
        self.faults, self.totals, self.audited = [], {}, set()

    def fault(self, file, record, found, expected):
        place = os.path.join(os.path.basename(os.path.abspath(self.path)), file)
        self.faults.append({"file": place, "record": record, "found": found,
                            "expected": expected})

    def unreadable(self, fault):
        self.fault(fault.name, fault.record, str(fault), fault.expected)

    def same(self, file, found, expected, where=""):
        """Compare strictly; record every difference as a fault."""
        for fault in differences(found, expected, where):
            self.fault(file, *fault)

    def names(self):
        return sorted(filter(is_kept, os.listdir(self.path)))

    def has(self, name):
        return os.path.lexists(os.path.join(self.path, name))

    def bytes(self, name):
        self.audited.add(name)
        return regular_bytes(os.path.join(self.path, name), name)

    def text(self, name):
        try:
            return self.bytes(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Fault(name, f"is not UTF-8: {error}") from None

    def json(self, name):
        try:
            return strict_json(self.text(name))
        except (ValueError, RecursionError) as error:
            raise Fault(name, f"is not strict JSON: {error}") from None

    def sha256(self, name):
        return hashlib.sha256(self.bytes(name)).hexdigest()

    def json_lines(self, name):
        """Return the values of a file with one strict JSON value a line."""
        *lines, rest = self.text(name).split("\n")
        if rest:
            raise Fault(name, "has no final newline")
        rows = []
        for number, line in enumerate(lines, 1):
            try:
                rows.append(strict_json(line))
            except (ValueError, RecursionError) as error:
                raise Fault(name, f"line {number} is not strict JSON: {error}") \
                    from None
        return rows

    def source_sha256(self, name):
        """Return the hash of a script beside this one, its line ends made LF."""
        text = regular_bytes(os.path.join(HOME, name), os.path.join("..", "..", name))
        return hashlib.sha256(text.replace(b"\r\n", b"\n")).hexdigest()

    def fixture(self, name, sha256):
        """Return the bytes of a fixture; raise Fault unless it is the pinned one."""
        place = os.path.join("..", "..", "fixtures", name)
        data = regular_bytes(os.path.join(HOME, "fixtures", name), place)
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise Fault(place, found, "sha256", sha256)
        return data

    def changed_sources(self, recorded):
        """Return which of {script: hash} are no longer what made the evidence."""
        def is_now(name):
            try:
                return self.source_sha256(name)
            except Fault:
                return None

        return [name for name in recorded if is_now(name) != recorded[name]]

    def compare_json(self, name, expected):
        """Check that the file `name` holds exactly `expected`."""
        try:
            self.same(name, self.json(name), expected)
        except Fault as fault:
            self.unreadable(fault)

    def write(self, name, text):
        """Write a file of the audit's own; say on stderr where it may not."""
        path = os.path.join(self.path, name)
        part = os.path.join(self.path, f".{name}-{os.urandom(4).hex()}")
        try:
            with open(part, "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.replace(part, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            print(f"audit.py: {path}: not written: {error.strerror}",
                  file=sys.stderr)

    def compare_json_lines(self, name, expected):
        """Check that the lines of the file `name` hold exactly `expected`."""
        try:
            self.same(name, self.json_lines(name), expected)
        except Fault as fault:
            self.unreadable(fault)

    def compare_text(self, name, expected):
        """Check that the file `name` is `expected`, line by line."""
        try:
            self.same(name, self.text(name).split("\n"), expected.split("\n"))
        except Fault as fault:
            self.unreadable(fault)

    def compare_chart(self, name, expected):
        """Check that a chart shows `expected`, Lines or Bars of audit_charts."""
        try:
            for fault in chart_faults(self.text(name), expected):
                self.fault(name, *fault)
        except Fault as fault:
            self.unreadable(fault)


# -- The two-tier exercise ----------------------------------------------------

DOCS, DOC_TOKENS, GPU_TOKENS, CPU_TOKENS = 10, 5011, 21520, 56000
GPU_SWEEP = (21520, 30000, 40000, 45000, 50109, 50110)
CPU_SWEEP = (0, 20000, 30000, 40000, 50109, 50110, 56000)
TTFT_SHA256 = "c59378b02a263aebc77f70d21cf3aec6955a1b73e34f15b32604010bae0a3eba"


def read_documents(gpu, cpu, orders, sizes=(DOC_TOKENS,) * DOCS):
    """Return the passes that reading the documents gives, by the list model."""
    tiers, passes = oracle.ListTiers(gpu, cpu), []
    for order in orders:
        docs = list(range(len(sizes)))
        if order == "rev":
            docs.reverse()
        found = [(doc, tiers.access(doc, sizes[doc])) for doc in docs]
        counts = [tier for _, tier in found]
        passes.append({"order": order, "gpu_hits": counts.count("gpu"),
                       "cpu_hits": counts.count("cpu"),
                       "misses": counts.count("miss"),
                       "hit_docs": [doc for doc, tier in found if tier != "miss"]})
    return passes


def expected_kvlab():
    """Return {file name: content} of the simulated files."""
    forward, three = ["fwd", "fwd"], ["fwd", "fwd", "rev"]
    hits = {str(gpu): len(read_documents(gpu, 0, forward)[-1]["hit_docs"])
            for gpu in GPU_SWEEP}
    misses = {str(cpu): read_documents(GPU_TOKENS, cpu, forward)[-1]["misses"]
              for cpu in CPU_SWEEP}
    return {"cyclic.json": {"passes": read_documents(GPU_TOKENS, 0, forward)},
            "baseline.json": {"passes": read_documents(GPU_TOKENS, 0, three)},
            "cliff.json": hits,
            "offload.json": {"passes": read_documents(GPU_TOKENS, CPU_TOKENS, three)},
            "cpu_cliff.json": misses,
            # Five documents on which a break of any rule of the tiers shows.
            "rules.json": {"passes": read_documents(
                4, 7, ["fwd", "rev", "fwd", "fwd"], (5, 4, 1, 8, 1))}}


def audit_kvlab(folder):
    expected = expected_kvlab()
    fixture = folder.fixture("ttft.jsonl", TTFT_SHA256)
    expected["measured.json"] = ttft_summary(
        map(strict_json, fixture.decode("utf-8").splitlines()))
    for name, content in expected.items():
        folder.compare_json(name, content)
    charts = kvlab_charts(expected)
    for name in filter(folder.has, charts):
        folder.compare_chart(name, charts[name])
    folder.totals = {"files": len(expected), "passes": sum(
        len(content.get("passes", ())) for content in expected.values())}


def kvlab_charts(expected):
    """Return {file name: what it must show}."""
    hits, misses = ([(int(capacity), count) for capacity, count
                     in expected[name].items()]
                    for name in ("cliff.json", "cpu_cliff.json"))
    measured = expected["measured.json"]
    passes = list(measured["ratio"])
    return {"cliff.svg": Lines(
                "Hits of the second pass (simulated, one tier)",
                "GPU capacity (tokens)", "documents of 10", {"hits": hits}, step=True),
            "cpu-cliff.svg": Lines(
                "Misses of the second pass (simulated, GPU 21,520 tokens)",
                "CPU capacity (tokens)", "documents of 10", {"misses": misses},
                step=True),
            "ttft.svg": Bars(
                "Median time to first token by pass (made data)", "p50 TTFT (ms)",
                passes, {config: [measured[config][name]["p50_ms"] for name in passes]
                         for config in ("baseline", "lmcache")})}


# -- Which folder holds what --------------------------------------------------

class Experiment(NamedTuple):
    """How to audit one kind of run folder.

    The records are what a run writes and tell its kind; what is derived from
    them, such as charts, must stand beside them in the evidence.
    """
    audit: Callable
    records: tuple
    derived: tuple = ()
    optional: tuple = ()


KVLAB = Experiment(
    audit_kvlab,
    ("cyclic.json", "baseline.json", "cliff.json", "offload.json",
     "cpu_cliff.json", "measured.json", "rules.json"),
    ("cliff.svg", "cpu-cliff.svg", "ttft.svg"))

CACHE_RUN = Experiment(
    audit_cache_run, ("results.json", "arrays.npz", "manifest.json"),
    optional=("audit.json",))


def fixed_run(protocol):
    """Return the Experiment of a folder whose run is fixed beforehand."""
    return CACHE_RUN._replace(audit=partial(audit_cache_run, fixed=protocol),
                              derived=chart_names(*protocol))


def scan(experiment, **expected):
    """Return the Experiment of one scan of bench.py at its full settings."""
    return Experiment(
        partial(audit_bench.audit_scan, experiment=experiment, **expected),
        SAMPLES, audit_bench.DERIVED[experiment])


def cost(experiment):
    """Return the Experiment of one later measurement of bench.py, likewise."""
    return Experiment(partial(audit_costs.audit_costs, experiment=experiment),
                      SAMPLES, audit_costs.DERIVED[experiment])


def audit_any_samples(folder):
    """Audit the samples of whichever experiment the first row names."""
    label = folder.text("raw.csv").partition("\n")[2].partition(",")[0]
    known = label in audit_costs.DERIVED
    (audit_costs.audit_costs if known else audit_bench.audit_scan)(folder)
    its = (audit_costs if known else audit_bench).DERIVED.get(label, ())
    for name in filter(folder.has, set(ANY_SAMPLES.optional) - set(its)):
        folder.fault(name, "", "a file of another experiment", list(its))


ANY_SAMPLES = Experiment(
    audit_any_samples, SAMPLES,
    optional=tuple(sorted({name for names in (*audit_bench.DERIVED.values(),
                                              *audit_costs.DERIVED.values())
                           for name in names})))
CAPACITY = Experiment(audit_bench.audit_capacity, ("capacity.csv",))

REPLAY = Experiment(
    audit_replay,
    ("one-tier.jsonl", "two-tiers.jsonl", "curve-tail.csv", "curve-tail.json",
     "curve-head.csv", "curve-head.json", "documents.csv",
     "document-blocks-tail.csv", "document-blocks-head.csv", "cycle-tail.csv",
     "cycle-head.csv", "cpu-inclusive.json", "cpu-exclusive.json"),
    ("public-conversation.jsonl", "public-synthetic.jsonl", "public.sha256",
     "curve.svg", "tiers.svg", "ramp.svg"))

OFFLOAD = Experiment(
    audit_offload, ("ttft.jsonl", "states.npz", "manifest.json"),
    ("measured.json", "ttft.svg", "reads.svg"))

EVIDENCE = {
    "kvlab": KVLAB,
    "cache-budget": fixed_run(PUBLISHED),
    "cache-admission": fixed_run(ADMISSION),
    "cache-strategy": scan("cache_strategy"),
    "m0-length-scan": scan("batch_length_scan"),
    "m1-batch-size-scan": scan("batch_size_scan"),
    "m1-batch-size-scan-kept-memory": scan("batch_size_scan",
                                           malloc=audit_bench.KEPT_MEMORY),
    "admission": cost("admission"),
    "break-even": cost("break_even"),
    "limit": cost("limit"),
    "kv-capacity": CAPACITY,
    "replay": REPLAY,
    "offload": OFFLOAD._replace(audit=partial(audit_offload, fixed=STANDARD)),
    "offload-short": OFFLOAD._replace(audit=partial(audit_offload, fixed=SHORT))}
KINDS = (KVLAB, CACHE_RUN, ANY_SAMPLES, CAPACITY, REPLAY, OFFLOAD)


def audit_folder(path):
    """Audit one run folder; return its Folder."""
    name = os.path.basename(os.path.abspath(path))
    folder = Folder(path, known=name in EVIDENCE)
    try:
        kinds = [EVIDENCE[name]] if folder.known else kinds_of(folder)
        if len(kinds) != 1:
            folder.fault("", "files", folder.names(), "the records of one experiment")
        elif check_names(folder, kinds[0]):
            kinds[0].audit(folder)
    except Fault as fault:
        folder.unreadable(fault)
    except OSError as error:
        folder.fault("", "", error.strerror, "a folder that can be read")
    except MemoryError:
        folder.fault("", "", "too large for memory", "evidence of this experiment")
    return folder


def kinds_of(folder):
    """Return the kinds of experiment whose records are there, the likeliest first.

    A name that several kinds share makes no second experiment.
    """
    def found(kind):
        return {name for name in kind.records if folder.has(name)}

    likeliest = max(KINDS, key=lambda kind: len(found(kind)))
    its = set(likeliest.records + likeliest.derived + likeliest.optional)
    return [kind for kind in KINDS
            if found(kind) - its or kind is likeliest and found(kind)]


def check_names(folder, experiment):
    """Record missing and unknown files; return whether all records are there."""
    wanted = experiment.records + (experiment.derived if folder.known else ())
    allowed = wanted + experiment.derived + experiment.optional
    for name in wanted:
        if not folder.has(name):
            folder.fault(name, "", "missing", "a file of this experiment")
    for name in folder.names():
        if folder.known and name not in allowed:
            folder.fault(name, "", "unknown file", "only files of this experiment")
        elif os.path.isdir(os.path.join(folder.path, name)):
            folder.fault(name, "", "a folder", "only files")
    return all(map(folder.has, experiment.records))


def audit_tree(path: str) -> dict:
    """Audit `path`, a run folder or a tree of them; return {name: Folder}."""
    names = set(filter(is_kept, os.listdir(path)))
    if os.path.basename(os.path.abspath(path)) in EVIDENCE or (
            not names & set(EVIDENCE) and kinds_of(Folder(path, known=False))):
        return {os.path.basename(os.path.abspath(path)): audit_folder(path)}
    folders = {}
    for name in sorted(names | set(EVIDENCE)):
        place = os.path.join(path, name)
        if os.path.isdir(place) and not os.path.islink(place):
            folders[name] = audit_folder(place)
        else:
            folders[name] = Folder(place, known=True)
            found = "no folder" if name in names else "missing"
            folders[name].fault("", "", found, "a run folder")
    return folders


def report(folders):
    """Return the report as JSON text."""
    rows = {}
    for name, folder in folders.items():
        rows[name] = {"ok": not folder.faults, **folder.totals}
        if not folder.known:
            rows[name]["not_audited"] = sorted(set(folder.names()) - folder.audited)
        rows[name]["faults"] = folder.faults
    whole = {"ok": not any(folder.faults for folder in folders.values()),
             "folders": rows, "limits": LIMITS}
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(
        description="Check evidence by deriving every claim anew.",
        allow_abbrev=False)
    parser.add_argument("path", help="evidence, or one run folder in it")
    args = parser.parse_args(argv)
    try:
        if os.path.islink(args.path.rstrip(os.sep)):
            raise OSError(errno.ELOOP, "is a symbolic link", args.path)
        folders = audit_tree(args.path)
    except OSError as error:
        print(f"audit.py: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    holds = not any(folder.faults for folder in folders.values())
    return emit(report(folders)) or (0 if holds else 1)


def emit(text):
    """Write `text` to stdout; return the exit status."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "is closed")
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    except OSError as error:
        # What is still buffered must not fail once more at exit.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):      # as in `... | head`
            return 0
        print(f"audit.py: stdout: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
