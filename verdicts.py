"""Judge timed samples: statistics, summaries, rules of verdict, analyses.

    summary_csv(samples, Facts(...))            medians and their ratios
    analysis(samples, Facts(...))               verdicts, intervals, limits

What do the samples of bench.py say about predictions that were published
before them?  The samples are those of timings.py; statistics and rules serve
costs.py too, which judges the later experiments.  Everything here is a pure
function of the rows of raw.csv and of a few declared facts (environment.json);
nothing is timed, read or written.

A ratio is taken within each round: sample i of one path over sample i of the
other, so that what disturbs a round disturbs both.  Its median has a
distribution-free 95 % interval, and the rules below judge that interval.
They were fixed before the first run.

An interval covers what varies from round to round in one run.  It says
nothing about another run, machine or library.
"""

import math
import statistics
from fractions import Fraction
from typing import NamedTuple, Optional

from timings import SCANS, Samples

__all__ = ["Facts", "Ratio", "percentile", "median_interval", "ratio", "drift",
           "side", "beats", "narrows", "levels_off", "agrees",
           "throughput_gains", "knee", "summary_csv", "csv_text", "verdicts",
           "analysis", "headline"]

SUPPORTED, REFUTED, INCONCLUSIVE = "Supported", "Refuted", "Inconclusive"
PREDICTIONS = {
    "H1": "the paths agree",
    "H2": "preallocated beats dynamic at every length",
    "H3": "batched beats sequential at B = 2 at every length",
    "H4": "the speed-up stays under 2 and narrows",
    "H5": "throughput rises, then gains little"}

# Of float comparisons that decide a verdict, so that the dust of binary
# fractions decides nothing.
DECIMALS = 9
MOST_MOVED, MOST_REGAINED = 0.10, 0.02


# -- Statistics ---------------------------------------------------------------

def percentile(values, share: float) -> float:
    """Return the value at `share` (0 to 1) of the sorted values.

    Linear interpolation between the two nearest ranks, as `numpy.percentile`
    does by default (Hyndman and Fan 1996, type 7); exact, rounded once.
    """
    ordered = sorted(values)
    place = Fraction(str(share)) * (len(ordered) - 1)
    below = math.floor(place)
    low = Fraction(ordered[below])
    high = Fraction(ordered[min(below + 1, len(ordered) - 1)])
    return float(low + (place - below) * (high - low))


def median_interval(values) -> Optional[tuple]:
    """Return the distribution-free 95 % interval of the median, or None.

    Of n sorted values it is (x[k], x[n + 1 - k]), ranks from 1, with the
    largest k for which a binomial variable of n fair coins lies below k with
    a probability of at most 2.5 %.  It holds the median with at least 95 %,
    whatever the distribution.  Fewer than six values have none.
    Source: W. J. Conover, Practical Nonparametric Statistics, section 3.2.
    """
    ordered, count = sorted(values), len(values)
    rank, below, ways = 0, 1, 1         # ways = C(n, rank), below their sum
    while 40 * below <= 2 ** count:     # below / 2^n <= 0.025
        rank += 1
        ways = ways * (count - rank + 1) // rank
        below += ways
    return (ordered[rank - 1], ordered[count - rank]) if rank else None


class Ratio(NamedTuple):
    """Ratios within each round: their median, its interval, both halves."""
    median: float
    interval: Optional[tuple]
    first_half: float
    second_half: float


def ratio(over, under) -> Ratio:
    """Return the Ratio of samples over samples, round by round."""
    ratios = [one / other for one, other in zip(over, under)]
    half = len(ratios) // 2
    return Ratio(statistics.median(ratios), median_interval(ratios),
                 statistics.median(ratios[:half] or ratios),
                 statistics.median(ratios[half:]))


def drift(elapsed_ms) -> float:
    """Return by how much the last five samples exceed the first five."""
    return (statistics.median(elapsed_ms[-5:])
            / statistics.median(elapsed_ms[:5]) - 1)


# -- Rules of verdict ---------------------------------------------------------

def side(found: Ratio, bound: float = 1) -> str:
    """Say on which side of `bound` the interval of a ratio lies.

    "few" samples have no interval.  A ratio has "moved" when its second half
    of rounds differs from the first by more than 10 % at the median; it says
    nothing then.  Else it is "above", "below" or "undecided".
    """
    if found.interval is None:
        return "few"
    change = round(found.second_half / found.first_half - 1, DECIMALS)
    if abs(change) > MOST_MOVED:
        return "moved"
    low, high = found.interval
    return "above" if low > bound else "below" if high < bound else "undecided"


def beats(ratios) -> str:
    """Judge H2 and H3: the slower over the faster is above 1 at every length."""
    sides = [side(found) for found in ratios]
    if "below" in sides:
        return REFUTED
    return SUPPORTED if set(sides) == {"above"} else INCONCLUSIVE


def narrows(ratios) -> str:
    """Judge H4 from the speed-ups in the order of T.

    Supported when every median is under 2, the peak is not at the largest T
    and after the peak none exceeds its predecessor by more than 2 %.  Refuted
    when an interval lies wholly at or above 2 or the peak is at the largest
    T.  A single length has no peak, and one that has moved may hide it.
    """
    sides = [side(found) for found in ratios]
    if any(found.interval[0] >= 2 for found, where in zip(ratios, sides)
           if where not in ("few", "moved")):
        return REFUTED
    if len(ratios) < 2 or "few" in sides or "moved" in sides:
        return INCONCLUSIVE
    medians = [found.median for found in ratios]
    peak = medians.index(max(medians))
    if peak == len(medians) - 1:
        return REFUTED
    regained = [round(after / before - 1, DECIMALS)
                for before, after in zip(medians[peak:], medians[peak + 1:])]
    narrowing = max(medians) < 2 and max(regained) <= MOST_REGAINED
    return SUPPORTED if narrowing else INCONCLUSIVE


def levels_off(gains, threshold: float, rounds: int) -> str:
    """Judge H5 from the gains of each batch size over the next smaller one.

    Supported when a gain at or above the threshold is followed by one below
    it, Refuted when the first gain is below it, Inconclusive when none is.
    It is a point estimate; fewer than six samples decide nothing here either.
    """
    below = [gain < threshold for gain in gains]
    if rounds < 6 or True not in below:
        return INCONCLUSIVE
    return REFUTED if below[0] else SUPPORTED


def agrees(errors: dict, groups, tolerance) -> str:
    """Judge H1 from the largest error recorded for each group."""
    if tolerance is None or not set(groups) <= set(errors):
        return INCONCLUSIVE
    within = all(errors[group] <= tolerance for group in groups)
    return SUPPORTED if within else REFUTED


# -- Summaries ----------------------------------------------------------------

def median_ms(samples, *group):
    return statistics.median(samples.elapsed_ms[group])


def throughput_gains(samples: Samples) -> list:
    """Return the gain in positions per second over the next smaller B."""
    tokens, = samples.values("sequence_length")
    per_ms = [batch / median_ms(samples, "batched", batch, tokens)
              for batch in samples.values("batch_size")]
    return [round(after / before - 1, DECIMALS)
            for before, after in zip(per_ms, per_ms[1:])]


def knee(samples: Samples, threshold: float) -> Optional[int]:
    """Return the first batch size whose gain is below the threshold."""
    for batch, gain in zip(samples.values("batch_size")[1:],
                           throughput_gains(samples)):
        if gain < threshold:
            return batch
    return None


def cache_summary(samples):
    for tokens in samples.values("sequence_length"):
        none, dynamic, preallocated = (
            median_ms(samples, path, 1, tokens)
            for path in SCANS["cache_strategy"].columns["path"])
        yield {"sequence_length": tokens, "no_cache_ms": none,
               "dynamic_ms": dynamic, "preallocated_ms": preallocated,
               "no_cache_over_preallocated": none / preallocated,
               "dynamic_over_preallocated": dynamic / preallocated}


def length_summary(samples):
    for tokens in samples.values("sequence_length"):
        sequential = median_ms(samples, "sequential", 2, tokens)
        batched = median_ms(samples, "batched", 2, tokens)
        yield {"sequence_length": tokens, "sequential_ms": sequential,
               "batched_ms": batched, "speedup": sequential / batched,
               "positions_per_second": 2000 * tokens / batched}


def size_summary(samples):
    tokens, = samples.values("sequence_length")
    gains = [None, *throughput_gains(samples)]
    for batch, gain in zip(samples.values("batch_size"), gains):
        p50 = median_ms(samples, "batched", batch, tokens)
        sequential = median_ms(samples, "sequential", batch, tokens)
        yield {"batch_size": batch, "batch_p50_ms": p50,
               "batch_p95_ms": percentile(
                   samples.elapsed_ms["batched", batch, tokens], 0.95),
               "p50_per_sequence_ms": p50 / batch,
               "positions_per_second": 1000 * batch * tokens / p50,
               "sequential_over_batch": sequential / p50,
               "throughput_gain": gain}


SUMMARIES = {"cache_strategy": cache_summary, "batch_length_scan": length_summary,
             "batch_size_scan": size_summary}


class Facts(NamedTuple):
    """What is declared about a run; None or {} for what nobody recorded.

    `errors` is {group: largest absolute error}, `malloc` {variable: value},
    `projected_rows` {group: rows counted in one run of it}.
    """
    dtype: Optional[str] = None
    blas_threads: Optional[int] = None
    errors: dict = {}
    tolerance: Optional[float] = None
    malloc: Optional[dict] = None
    gain_threshold: float = 0.10
    projected_rows: dict = {}


def summary_csv(samples: Samples, facts: Facts = Facts()) -> str:
    """Return summary.csv: medians and their ratios, six decimals.

    Ratios here are those of the medians; the analysis has the ratios within
    each round beside them.  Nothing here follows from the facts.
    """
    return csv_text(SUMMARIES[samples.experiment](samples))


def csv_text(rows) -> str:
    """Return rows, {column: number or None}, as CSV with six decimals."""
    rows = list(rows)
    lines = [",".join(rows[0])]
    for row in rows:
        lines.append(",".join("" if value is None else str(value)
                              if isinstance(value, (int, str)) else f"{value:.6f}"
                              for value in row.values()))
    return "\n".join(lines) + "\n"


# -- Analyses -----------------------------------------------------------------

def round_ratios(samples: Samples) -> dict:
    """Return {(over, under): {size: Ratio}} of the pairs that are judged."""
    pairs = {"cache_strategy": (("no_cache", "preallocated_cache"),
                                ("dynamic_cache", "preallocated_cache")),
             }.get(samples.experiment, (("sequential", "batched"),))
    sizes = sorted({group[1:] for group in samples.elapsed_ms})
    return {(over, under): {size: ratio(samples.elapsed_ms[(over, *size)],
                                        samples.elapsed_ms[(under, *size)])
                            for size in sizes}
            for over, under in pairs}


def verdicts(samples: Samples, facts: Facts) -> dict:
    """Return {prediction: verdict} for those that the experiment bears on."""
    *_, ratios = round_ratios(samples).values()     # the pair that is judged
    ratios = list(ratios.values())
    found = {"H1": agrees(facts.errors, samples.elapsed_ms, facts.tolerance)}
    if samples.experiment == "cache_strategy":
        found["H2"] = beats(ratios)
    elif samples.experiment == "batch_length_scan":
        found.update(H3=beats(ratios), H4=narrows(ratios))
    else:
        found["H5"] = levels_off(throughput_gains(samples),
                                 facts.gain_threshold, samples.rounds)
    return found


def analysis(samples: Samples, facts: Facts) -> str:
    """Return the analysis as Markdown: facts, verdicts, tables, limits."""
    title, shows = PROSE[samples.experiment]
    parts = [[f"# {title}"], knee_line(samples, facts),
             fact_lines(samples, facts), ["## Verdicts"],
             verdict_lines(samples, facts), [RULES],
             ["## Medians"], median_table(samples),
             ["## Ratios within each round"], ratio_table(samples), [RATIOS],
             ["## Samples"], sample_table(samples), [SAMPLES],
             ["## What this shows, and what it does not"], [shows]]
    return document(parts)


def document(parts):
    """Return parts, lists of lines, as Markdown; an empty part is left out."""
    texts = ("\n".join(lines) for lines in parts)
    return "\n\n".join(filter(None, texts)) + "\n"


def headline(samples: Samples, facts: Facts) -> str:
    """Return the experiment, the knee, the facts and the verdicts as lines."""
    lines = [f"{samples.experiment}", *knee_line(samples, facts),
             *fact_lines(samples, facts), *verdict_lines(samples, facts)]
    return "\n".join(lines) + "\n"


def verdict_lines(samples, facts):
    return told(verdicts(samples, facts), PREDICTIONS)


def told(found, predictions):
    return [f"- {name} {predictions[name]}: {verdict}"
            for name, verdict in found.items()]


def knee_line(samples, facts):
    if samples.experiment != "batch_size_scan":
        return []
    found = knee(samples, facts.gain_threshold)
    largest = samples.values("batch_size")[-1]
    return [f"Knee: B={found}" if found else f"Knee: Not reached in B <= {largest}"]


SIZES = {"batch_size": "Batch sizes", "sequence_length": "Sequence lengths",
         "seed": "Seeds of the model", "budget": "Budgets in bytes",
         "hidden": "Hidden sizes", "prefix_tokens": "Prefix lengths"}


def fact_lines(samples, facts):
    """Yield what the run was; what nobody recorded is said to be so."""
    unknown = "not recorded"
    for column, name in SIZES.items():
        if column in SCANS[samples.experiment].columns:
            yield f"- {name}: {', '.join(map(str, samples.values(column)))}"
    yield f"- Samples in each group: {samples.rounds}"
    yield f"- dtype: {facts.dtype or unknown}"
    yield f"- BLAS threads: {facts.blas_threads or unknown}"
    if samples.experiment == "batch_size_scan":
        yield f"- Gain threshold: {facts.gain_threshold}"
    largest = (f"{max(facts.errors.values()):.2e}, allowed {facts.tolerance:.0e}"
               if facts.errors else unknown)
    yield f"- Largest error against the oracle: {largest}"
    malloc = unknown if facts.malloc is None else ", ".join(
        f"{name}={value}" for name, value in sorted(facts.malloc.items()))
    yield f"- Allocator variables: {malloc or 'none set'}"


def table(columns, rows):
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def median_table(samples):
    rows = list(SUMMARIES[samples.experiment](samples))
    return table(rows[0], [[median_cell(*item) for item in row.items()]
                           for row in rows])


def median_cell(column, value):
    if value is None:
        return ""
    if column == "throughput_gain":
        return percent(value, 2)
    if column == "positions_per_second":
        return f"{value:.0f}"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def ratio_table(samples):
    def rows():
        for (over, under), ratios in round_ratios(samples).items():
            for (batch, tokens), found in ratios.items():
                yield (f"{over} / {under}", str(batch), str(tokens),
                       *ratio_cells(found))
    return table(("ratio", "B", "T", *RATIO_HEADS), rows())


RATIO_HEADS = ("median", "low", "high", "first half", "second half", "side of 1")


def ratio_cells(found):
    low, high = (("", "") if found.interval is None else
                 (f"{bound:.3f}" for bound in found.interval))
    return (f"{found.median:.3f}", low, high, f"{found.first_half:.3f}",
            f"{found.second_half:.3f}", side(found))


def sample_table(samples):
    def rows():
        for (path, batch, tokens), elapsed in samples.elapsed_ms.items():
            faults = samples.minor_faults.get((path, batch, tokens))
            yield path, str(batch), str(tokens), *sample_cells(elapsed, faults)
    return table(("path", "B", "T", *SAMPLE_HEADS), rows())


SAMPLE_HEADS = ("minimum ms", "median ms", "p95 ms", "maximum ms", "drift",
                "page faults")


def sample_cells(elapsed, faults, digits=3):
    found = (min(elapsed), statistics.median(elapsed), percentile(elapsed, 0.95),
             max(elapsed))
    return (*(f"{value:.{digits}f}" for value in found), percent(drift(elapsed), 1),
            f"{statistics.median(faults):g}" if faults else "not recorded")


def percent(value, decimals):
    return f"{100 * value:+.{decimals}f} %"


RULES = """\
The rules were fixed before the run. A ratio is taken within each round, and
its interval is the distribution-free 95 % interval of the median. Supported:
the interval lies on the predicted side at every length. Refuted: it lies
wholly on the other side at any. Else Inconclusive; so are fewer than six
samples, and a ratio that moved by more than 10 % between the halves of the
run. H1 is judged from the errors recorded before the timing. H4 wants every
median under 2, a peak before the largest T, and after it no gain over the
predecessor of more than 2 %; an interval wholly at or above 2, or a peak at
the largest T, refutes it. H5 wants a gain at or above the threshold, then one
below it; a first gain below it refutes it."""

RATIOS = """\
These are medians of ratios; the table above has ratios of medians, which can
differ a little. The intervals are not corrected for being several, so one in
twenty may miss by chance alone. The knee and H5 rest on medians without an
interval: they are point estimates."""

SAMPLES = """\
Drift compares the median of the last five samples with that of the first
five. Page faults are minor faults, the median of the samples."""

PROSE = {
    "cache_strategy": ("What a KV cache and preallocation are worth", """\
Without a cache every step computes all of its prefix again, so the distance
grows with the length. The preallocated path differs from the dynamic one only
in where K and V are put: what separates them is the growing of arrays.

One attention step in NumPy on one thread, D = 64, is no language model: there
are no layers, no sampling, no requests that wait. The ratios hold for this
machine and this library."""),
    "batch_length_scan": ("What it is worth to decode two sequences at once", """\
Both paths grow their caches by concatenation and do the same arithmetic. The
batched one makes half as many calls, so it saves overhead for each call, and
that weighs less as sequences grow and arithmetic and copying take over.

Positions per second count rows of output of a toy step. That is not a
server's token throughput: nothing waits, nothing is scheduled, and no GPU
shares weights among sequences."""),
    "batch_size_scan": ("At which batch size the gain levels off", """\
Throughput gains as long as a larger batch spreads the overhead of a call over
more sequences. The knee is where the next batch size adds less than the
threshold; all sequences wait for the whole batch meanwhile.

A timing cannot say what makes a knee. The page faults give a hint: where they
jump with the batch size, the allocator hands memory back and asks for it
again. The scan is therefore run a second time with MALLOC_MMAP_THRESHOLD_ and
MALLOC_TRIM_THRESHOLD_ raised, so that memory is kept. If the faults go and the
gain returns there, then memory that is not kept costs that gain. Both
variables are set together, so the two runs cannot tell mmap from trim: the
claim is "the allocator", and no more. If the gain stays away without faults,
the knee has another cause, and these runs do not name it.

It is neither a server's latency nor its throughput: no queue, no scheduler, no
GPU."""),
}
