"""Audit the replayed traces: `audit_replay(folder)`, for audit.py.

The made traces are read and replayed here by dictionaries in the order of
their use and by the models of oracle.py: every count, rate, capacity and
curve, and the points of every chart.  The traces themselves are pinned by
their SHA-256.

The public traces are not here.  Their figures are compared with what a
replay gave when this file was written, and can be re-derived only with the
files that the SHA-256 in `public.sha256` name.
"""

import json
from typing import NamedTuple

import oracle
from audit_charts import Lines, stairs

__all__ = ["audit_replay"]

FIXTURES_SHA256 = {
    "trace.jsonl":
        "f90f4ffa9cb39497cec70e7af0a41260a56183695c12b55f3eb51d0d224ee245",
    "documents.jsonl":
        "ab5a9d2070c5f7bdeb489d83068c6fe124bc48a6afc711bf7433c55ad7075c23",
    "document-blocks.jsonl":
        "8b324be940e989c7cb5f3df9369ad608d37d1aaf4738beb0de04322338c35c01",
    "cycle.jsonl":
        "b368ed65e854b90953234d94eae615de3028e40538476b364197eb64f356d5cc"}

BLOCK, BYTES_PER_TOKEN = 512, 28672
ONE_TIER_BLOCKS = [2 ** power for power in range(11)]
TWO_TIER_BLOCKS = ONE_TIER_BLOCKS[:-1]
GPU_TOKENS, CPU_SWEEP = 21520, (30065, 30066, 50109, 50110)
RAMP_END = 56000

# With a bound or not, GPU and CPU tokens, tiers and touch order.
PUBLIC_RUNS = (
    (True, 5120000, 0, "inclusive", "tail"), (False, 5120000, 0, "inclusive", "head"),
    *((False, 2560000, 2560000, tiers, "tail")
      for tiers in ("inclusive", "mirror", "exclusive")))

# Rows, blocks, distinct blocks, tokens; hit without bounds: blocks, tokens,
# requests, full requests; capacities for 50, 90 and 99 per cent by touch order;
# each run's hits: GPU blocks, CPU blocks, tokens, requests, full requests; and
# the bound.
PUBLIC = {
    "conversation_trace.jsonl": (
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        (12031, 288500, 182790, 144793823), (105710, 54098411, 12030, 118),
        {"tail": (4247552, 16094720, 43632640),
         "head": (4285440, 16173568, 43657216)},
        ((61046, 0, 31238981, 12030, 74), (60921, 0, 31174981, 12030, 74),
         (32260, 1782, 17418172, 12030, 54), (32260, 0, 16505817, 12030, 53),
         (32260, 28786, 31238981, 12030, 74)), 105710),
    "synthetic_trace.jsonl": (
        "bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
        (3993, 121877, 43924, 61194628), (77953, 39852661, 1782, 213),
        {"tail": (3177984, 10427392, 17364480),
         "head": (3208192, 10436608, 17378304)},
        ((51669, 0, 26421660, 1203, 118), (51614, 0, 26393500, 1202, 118),
         (34043, 2140, 18503639, 872, 81), (34043, 0, 17411123, 818, 69),
         (34043, 17626, 26421660, 1203, 118)), 75316)}


# -- Replaying ----------------------------------------------------------------

class Recent:
    """An LRU of `room` blocks: a dictionary in the order of use."""

    def __init__(self, room):
        self.room, self.blocks = room, {}

    def put(self, block):
        """Make a block the most recent; return the block that has to go."""
        self.blocks.pop(block, None)
        self.blocks[block] = True
        if len(self.blocks) <= self.room:
            return None
        oldest = next(iter(self.blocks))
        del self.blocks[oldest]
        return oldest


class Tiers:
    """A GPU and a CPU tier under one of the three rules."""

    def __init__(self, gpu_blocks, cpu_blocks, rule):
        self.gpu, self.cpu, self.rule = Recent(gpu_blocks), Recent(cpu_blocks), rule

    def find(self, block):
        if block in self.gpu.blocks:
            return "gpu"
        return "cpu" if block in self.cpu.blocks else "miss"

    def access(self, block, _):
        in_gpu = block in self.gpu.blocks
        if self.rule == "exclusive":
            self.cpu.blocks.pop(block, None)
            down = self.gpu.put(block)
            if down is not None:
                self.cpu.put(down)
            return
        if self.rule == "mirror" or not in_gpu:
            self.cpu.put(block)
        self.gpu.put(block)


class Replay:
    """A trace of blocks with all that is derived from it."""

    def __init__(self, rows):
        self.requests = [row["hash_ids"] for row in rows]
        self.lengths = [row["input_length"] for row in rows]
        self.tokens = [[min(BLOCK, length - start)
                        for start in range(0, length, BLOCK)]
                       for length in self.lengths]
        self.curves = {touch: self.curve(touch) for touch in ("tail", "head")}

    def size(self):
        blocks = [block for blocks in self.requests for block in blocks]
        return (len(self.requests), len(blocks), len(set(blocks)),
                sum(self.lengths))

    def curve(self, touch):
        """Return [(capacity, hit blocks, hit tokens)] from the stack of uses."""
        needs = oracle.stack_needs(self.requests, touch)
        found = sorted((need, tokens) for row, sizes in zip(needs, self.tokens)
                       for need, tokens in zip(row, sizes) if need is not None)
        totals, blocks, hit = {1: (0, 0)}, 0, 0
        for need, tokens in found:
            blocks, hit = blocks + 1, hit + tokens
            totals[need] = (blocks, hit)
        return [(need * BLOCK, *total) for need, total in totals.items()]

    def hits(self, gpu_tokens, cpu_tokens, tiers, touch):
        """Return hit GPU blocks, CPU blocks, tokens, requests, full requests."""
        cache = Tiers(gpu_tokens // BLOCK, cpu_tokens // BLOCK, tiers)
        found = oracle.read_requests(self.requests, cache, touch)
        tokens = sum(size for row, sizes in zip(found, self.tokens)
                     for tier, size in zip(row, sizes) if tier != "miss")
        return (sum(row.count("gpu") for row in found),
                sum(row.count("cpu") for row in found), tokens,
                sum(row[0] != "miss" for row in found),
                sum("miss" not in row for row in found))

    def unbounded(self):
        """Return hit blocks, tokens, requests and full requests."""
        room = BLOCK * self.size()[1]
        gpu, _, *others = self.hits(room, 0, "inclusive", "tail")
        return gpu, *others

    def bound(self, blocks):
        return oracle.belady_hits(self.requests, blocks)

    def answer(self, gpu_tokens, cpu_tokens, tiers, touch, bound=None):
        """Return the JSON object of one run; see `answer`."""
        hits = (None if gpu_tokens is None
                else self.hits(gpu_tokens, cpu_tokens, tiers, touch))
        return answer(self.size(), (gpu_tokens, cpu_tokens, tiers, touch), hits,
                      self.unbounded(), self.capacities(touch), bound)

    def capacities(self, touch):
        curve = self.curves[touch]
        return [min(capacity for capacity, _, tokens in curve
                    if tokens * 100 >= share * curve[-1][2])
                for share in (50, 90, 99)]


def answer(size, setting, hits, unbounded, capacities, bound=None):
    """Return the JSON object of a run from its counts."""
    requests, blocks, distinct, tokens = size
    row = dict(zip(("requests", "blocks", "distinct_blocks", "input_tokens"), size))
    row.update(zip(("gpu_tokens", "cpu_tokens", "tiers", "touch"), setting))
    row["block_tokens"] = BLOCK
    names = ("gpu_hit_blocks", "cpu_hit_blocks", "miss_blocks", "hit_tokens",
             "hit_rate")
    if hits is None:
        row.update(dict.fromkeys(names))
    else:
        gpu, cpu, *others = hits
        row.update(zip(names, (gpu, cpu, blocks - gpu - cpu, others[0],
                               rates((gpu + cpu, *others), size))))
    row["unbounded_hit_rate"] = rates(unbounded, size)
    if bound is not None:
        row["bound_block_hit_rate"] = round(bound / blocks, 6)
    row["capacity_for"] = {share: {"tokens": capacity} for share, capacity
                           in zip(("50", "90", "99"), capacities)}
    return row


def rates(hits, size):
    requests, blocks, _, tokens = size
    return {name: round(hit / whole, 6) for name, hit, whole
            in zip(("block", "token", "request", "full_request"), hits,
                   (blocks, tokens, requests, requests))}


# -- What the files must hold -------------------------------------------------

def csv(rows):
    return "".join(f"{a},{b},{c}\n" for a, b, c
                   in [("capacity_tokens", "hit_blocks", "hit_tokens"), *rows])


def document_curve(rows):
    """Return the curve of documents of one size, from that size on."""
    size, curve = rows[0]["doc_tokens"], []
    for capacity in range(size, size * (len(rows) + 1), size):
        cache = oracle.ListLRU(capacity)
        hits = sum(cache.access(row["doc"], size) for row in rows)
        if not curve or hits != curve[-1][1]:
            curve.append((capacity, hits, hits * size))
    return curve


def cpu_sweep(rows, model):
    """Return the misses of the second half of the reads, by CPU capacity."""
    sweep = {}
    for cpu in CPU_SWEEP:
        tiers = model(GPU_TOKENS, cpu)
        found = [tiers.access(row["doc"], row["doc_tokens"]) for row in rows]
        sweep[str(cpu)] = found[len(rows) // 2:].count("miss")
    return sweep


def expected_public():
    """Return {file name: answers} of the public traces, one line a run."""
    return {f"public-{name.split('_')[0]}.jsonl": [
                answer(size, setting, hits, unbounded, capacities[setting[-1]],
                       bound if bounded else None)
                for (bounded, *setting), hits in zip(PUBLIC_RUNS, runs)]
            for name, (_, size, unbounded, capacities, runs, bound)
            in PUBLIC.items()}


def with_gib(row):
    for place in row["capacity_for"].values():
        place["gib"] = round(place["tokens"] * BYTES_PER_TOKEN / 2 ** 30, 6)
    return row


def read_fixtures(folder):
    """Return {name: rows} of the made traces."""
    return {name: [json.loads(line) for line in folder.fixture(name, digest)
                   .splitlines()]
            for name, digest in FIXTURES_SHA256.items()}


class Expected(NamedTuple):
    """What the files must hold, each by file name."""

    objects: dict       # JSON values
    lines: dict         # lists of JSON values, one a line
    curves: dict        # lists of rows
    charts: dict        # Lines of audit_charts


def derive(fixtures):
    """Return the Expected content of all files from the made traces."""
    made = Replay(fixtures["trace.jsonl"])
    replays = {"curve": made, "cycle": Replay(fixtures["cycle.jsonl"]),
               "document-blocks": Replay(fixtures["document-blocks.jsonl"])}
    curves = {f"{name}-{touch}.csv": replay.curves[touch]
              for name, replay in replays.items() for touch in replay.curves}
    documents = fixtures["documents.jsonl"]
    curves["documents.csv"] = document_curve(documents)
    one_tier = [made.answer(BLOCK * blocks, 0, "inclusive", touch,
                            made.bound(blocks))
                for touch in ("tail", "head") for blocks in ONE_TIER_BLOCKS]
    two_tiers = [made.answer(BLOCK * blocks, BLOCK * blocks, tiers, "tail")
                 for tiers in ("inclusive", "mirror", "exclusive")
                 for blocks in TWO_TIER_BLOCKS]
    objects = {f"curve-{touch}.json": with_gib(
                   made.answer(None, 0, "inclusive", touch))
               for touch in ("tail", "head")}
    objects["cpu-inclusive.json"] = cpu_sweep(documents, oracle.ListTiers)
    objects["cpu-exclusive.json"] = cpu_sweep(documents, oracle.ListExclusive)
    lines = {"one-tier.jsonl": one_tier, "two-tiers.jsonl": two_tiers,
             **expected_public()}
    return Expected(objects, lines,
                    curves, expected_charts(one_tier, two_tiers, curves))


def audit_replay(folder) -> None:
    """Compare every file of `folder`, audit.py's Folder, with a replay."""
    expected = derive(read_fixtures(folder))
    for name, value in expected.objects.items():
        folder.compare_json(name, value)
    for name, rows in expected.lines.items():
        if folder.has(name):
            folder.compare_json_lines(name, rows)
    for name, rows in expected.curves.items():
        folder.compare_text(name, csv(rows))
    if folder.has("public.sha256"):
        folder.compare_text("public.sha256", "".join(
            f"{digest}  {name}\n" for name, (digest, *_) in PUBLIC.items()))
    for name in filter(folder.has, expected.charts):
        folder.compare_chart(name, expected.charts[name])
    public_runs = len(PUBLIC) * len(PUBLIC_RUNS)
    folder.totals = {"runs": sum(map(len, expected.lines.values())) - public_runs,
                     "curve_rows": sum(map(len, expected.curves.values())),
                     "public_runs": public_runs}


# -- Charts -------------------------------------------------------------------

def expected_charts(one_tier, two_tiers, curves):
    """Return {file name: Lines}."""
    blocks = one_tier[0]["blocks"]
    hits = {f"touched {touch} first": stairs(
                [(row[0], row[1] / blocks) for row in curves[f"curve-{touch}.csv"]])
            for touch in ("tail", "head")}
    hits["bound for every policy"] = [
        (run["gpu_tokens"], run["bound_block_hit_rate"])
        for run in one_tier[:len(ONE_TIER_BLOCKS)]]
    tiers = {rule: [(2 * run["gpu_tokens"], run["hit_rate"]["block"])
                    for run in two_tiers if run["tiers"] == rule]
             for rule in ("inclusive", "mirror", "exclusive")}
    ramp = {}
    for name, file in (("by document", "documents"),
                       ("by block, tail first", "document-blocks-tail"),
                       ("by block, head first", "document-blocks-head")):
        points = [(row[0], row[2]) for row in curves[file + ".csv"]]
        ramp[name] = [*points, (RAMP_END, points[-1][1])]
    return {"curve.svg": Lines(
                "Hits at every capacity (made trace, one tier)", "capacity (tokens)",
                "share of blocks hit", hits, log_x=True,
                markers=("bound for every policy",)),
            "tiers.svg": Lines(
                "Hits of two equal tiers (made trace)",
                "capacity of both tiers (tokens)", "share of blocks hit", tiers,
                log_x=True),
            "ramp.svg": Lines(
                "Hits of the second pass over ten documents (one tier)",
                "capacity (tokens)", "tokens hit, of 50,110", ramp, step=True,
                markers=False)}
