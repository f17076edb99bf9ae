"""Judge what a prefix cache costs in time, and how near the limit decoding is.

    summary_csv(samples, Facts(...))            medians and their ratios
    analysis(samples, Facts(...))               verdicts, bounds, limits
    headline(samples, Facts(...))               the same in a few lines

Do fewer projected rows take less time, from which prefix length on does reuse
pay, and what is left to gain on a decode step?  Statistics and the form of an
analysis are those of verdicts.py.  This is a room of its own because these
experiments have other columns, ratios against bounds, and rules of their own.

Everything is a pure function of the rows of raw.csv and a few declared facts.
The bounds and rules were fixed before the runs in the evidence; they hold for one
machine, one library and models that nobody would serve.
"""

import math
import statistics
from typing import Callable, NamedTuple, Optional

from timings import FIRST_SEED, PARTS, POLICIES, Samples
from verdicts import (INCONCLUSIVE, RATIO_HEADS, REFUTED, SAMPLE_HEADS,
                      SUPPORTED, Facts, agrees, csv_text, document, fact_lines,
                      ratio, ratio_cells, sample_cells, side, table, told)

__all__ = ["STUDIES", "Bound", "ratios", "verdicts", "within", "takes_longer",
           "pays_sooner", "summary_csv", "analysis", "headline"]

PREDICTIONS = {
    "H1": "the results agree",
    "H6": "fewer projected rows need not mean less time",
    "H7": "a hot query under longest costs a part of a full one, as bounded below",
    "H8": "reuse under longest pays at some prefix length, in a wider model no later",
    "H9": "fused takes at most 0.72 of preallocated up to 256 tokens",
    "H10": "fused takes at most 3.5, 2.5 and 2 times the bare products",
    "H11": "no cache takes at least 20 times as long as fused at 256 tokens"}

# A trace that takes longer than `none` by less than this is no example of H6.
LEAST_LONGER = 1.02
SAVING = POLICIES[1:]           # the others are compared with `none`


class Bound(NamedTuple):
    """A ratio to reach: `label` names it as in the table of ratios."""
    prediction: str
    label: tuple
    bound: float
    wanted: str = "below"       # or "above"


# -- Admission ----------------------------------------------------------------

def trace_sums(samples: Samples) -> dict:
    """Return {(seed, budget, trace, policy, part): [ms, ...]} of whole traces.

    Each is the sum of the requests of one trace in one round.
    """
    requests = {}
    for (*key, _), elapsed in samples.elapsed_ms.items():
        requests.setdefault(tuple(key), []).append(elapsed)
    return {key: [math.fsum(values) for values in zip(*rows)]
            for key, rows in requests.items()}


def trace_series(samples):
    """Return {(budget, trace, policy): [ms, ...]}, all seeds of a round in turn."""
    by_seed = {}
    for (_, *label, part), sums in sorted(trace_sums(samples).items()):
        if part == "query":
            by_seed.setdefault(tuple(label), []).append(sums)
    return {label: [value for values in zip(*rows) for value in values]
            for label, rows in by_seed.items()}


def trace_ratios(samples):
    series = trace_series(samples)
    return {label: ratio(elapsed, series[(*label[:2], "none")])
            for label, elapsed in series.items() if label[2] != "none"}


def projected_rows(samples, facts, label) -> Optional[int]:
    """Return the rows of one trace; None unless all seeds have the same."""
    counted = {facts.projected_rows.get((seed, *label, "query"))
               for seed in samples.values("seed")}
    return counted.pop() if len(counted) == 1 else None


def admission_summary(samples, facts):
    series, sums = trace_series(samples), trace_sums(samples)
    for (budget, trace, policy), elapsed in series.items():
        none = budget, trace, "none"
        rows = projected_rows(samples, facts, (budget, trace, policy))
        most = projected_rows(samples, facts, none)
        yield {"budget": budget, "trace": trace, "policy": policy,
               "projected_rows": rows,
               "rows_over_none": rows / most if rows and most else None,
               "trace_ms": statistics.median(elapsed),
               "time_over_none": (statistics.median(elapsed)
                                  / statistics.median(series[none])),
               **{f"{part}_ms": median_of(
                   sums.get((FIRST_SEED, budget, trace, policy, part)))
                  for part in PARTS}}


def median_of(values):
    return statistics.median(values) if values else None


def takes_longer(samples: Samples, facts: Facts) -> str:
    """Judge H6 from all combinations with fewer projected rows than `none`.

    One example is enough: an interval wholly above LEAST_LONGER supports it.
    It is refuted when every such interval lies below 1.
    """
    fewer = []
    for label, found in trace_ratios(samples).items():
        rows, most = (projected_rows(samples, facts, place)
                      for place in (label, (*label[:2], "none")))
        if rows is None or most is None:
            return INCONCLUSIVE
        if rows < most:
            fewer.append(found)
    if any(side(found, LEAST_LONGER) == "above" for found in fewer):
        return SUPPORTED
    faster = fewer and all(side(found) == "below" for found in fewer)
    return REFUTED if faster else INCONCLUSIVE


# -- Break-even ---------------------------------------------------------------

HOT_BOUNDS = (Bound("H7", ("longest", 16, 8), 1.25),
              Bound("H7", ("longest", 16, 32), 0.95),
              Bound("H7", ("longest", 64, 64), 0.5),
              Bound("H7", ("longest", 256, 128), 0.25))


def hot_ratios(samples):
    elapsed = samples.elapsed_ms
    return {label: ratio(elapsed[label], elapsed[("none", *label[1:])])
            for policy in SAVING for hidden in samples.values("hidden")
            for label in lengths_of(samples, policy, hidden)}


def lengths_of(samples, policy, hidden):
    return [(policy, hidden, length) for length in samples.values("prefix_tokens")]


def break_even_summary(samples, facts):
    for hidden in samples.values("hidden"):
        for length in samples.values("prefix_tokens"):
            medians = {policy: statistics.median(
                samples.elapsed_ms[policy, hidden, length]) for policy in POLICIES}
            yield {"hidden": hidden, "prefix_tokens": length,
                   **{f"{policy}_ms": medians[policy] for policy in POLICIES},
                   **{f"{policy}_over_none": medians[policy] / medians["none"]
                      for policy in SAVING}}


def first_below(samples, policy, hidden) -> Optional[int]:
    """Return the first prefix length at which the interval lies below 1."""
    found = hot_ratios(samples)
    return next((label[2] for label in lengths_of(samples, policy, hidden)
                 if side(found[label]) == "below"), None)


def pays_sooner(samples: Samples) -> str:
    """Judge H8 from the first prefix lengths at which `longest` pays.

    Supported when each hidden size has one and none is longer than that of
    the next smaller size; refuted when one is longer or a size has none.
    """
    if any(side(found) in ("few", "moved")
           for (policy, *_), found in hot_ratios(samples).items()
           if policy == "longest"):
        return INCONCLUSIVE
    firsts = [first_below(samples, "longest", hidden)
              for hidden in samples.values("hidden")]
    if None in firsts or firsts != sorted(firsts, reverse=True):
        return REFUTED
    return SUPPORTED


def break_even_table(samples):
    rows = [(policy, str(hidden),
             str(first_below(samples, policy, hidden) or "none of these"))
            for policy in SAVING for hidden in samples.values("hidden")]
    return table(("policy", "hidden", "first prefix length below 1"), rows)


# -- The limit ----------------------------------------------------------------

PREALLOCATED, BARE, NO_CACHE = ("fused / preallocated_cache",
                                "fused / bare_products", "no_cache / fused")
LIMIT_BOUNDS = (*(Bound("H9", (PREALLOCATED, tokens), 0.72)
                  for tokens in (16, 64, 256)),
                Bound("H10", (BARE, 256), 3.5), Bound("H10", (BARE, 1024), 2.5),
                Bound("H10", (BARE, 4096), 2.0),
                Bound("H11", (NO_CACHE, 256), 20, "above"))


def limit_ratios(samples):
    elapsed, found = samples.elapsed_ms, {}
    for pair in (PREALLOCATED, BARE, NO_CACHE):
        over, under = pair.split(" / ")
        for tokens in samples.values("sequence_length"):
            if (over, tokens) in elapsed:
                found[pair, tokens] = ratio(elapsed[over, tokens],
                                            elapsed[under, tokens])
    return found


def limit_summary(samples, facts):
    for tokens in samples.values("sequence_length"):
        none, kept, fused, bare = (
            median_of(samples.elapsed_ms.get((path, tokens))) for path in
            ("no_cache", "preallocated_cache", "fused", "bare_products"))
        yield {"sequence_length": tokens, "no_cache_ms": none,
               "preallocated_ms": kept, "fused_ms": fused, "bare_ms": bare,
               "no_cache_over_fused": none / fused if none else None,
               "fused_over_preallocated": fused / kept,
               "preallocated_over_bare": kept / bare,
               "fused_over_bare": fused / bare}


# -- Rules --------------------------------------------------------------------

def within(found: dict, bounds) -> str:
    """Judge a prediction by the ratios {label: Ratio} that it bounds.

    Supported when every interval lies on the wanted side of its bound,
    refuted when any lies wholly on the other; a ratio that was not measured
    decides nothing.
    """
    sides = [(side(found[bound.label], bound.bound), bound.wanted)
             for bound in bounds if bound.label in found]
    if any(where in ("above", "below") and where != wanted for where, wanted in sides):
        return REFUTED
    reached = [where == wanted for where, wanted in sides]
    return SUPPORTED if sum(reached) == len(bounds) else INCONCLUSIVE


def bound_table(found, bounds, heads):
    def rows():
        for prediction, label, bound, wanted in bounds:
            if label in found:
                where = side(found[label], bound)
                yield (prediction, *map(str, label),
                       f"{'at most' if wanted == 'below' else 'at least'} {bound:g}",
                       *ratio_cells(found[label])[:3],
                       {wanted: "reached"}.get(where, {"above": "missed",
                                                       "below": "missed"}
                                               .get(where, where)))
    return table(("prediction", *heads, "to reach", *RATIO_HEADS[:3], "verdict"),
                 rows())


# -- Studies ------------------------------------------------------------------

class Study(NamedTuple):
    """What is made of one experiment's samples.

    `heads` name a label of a ratio; `series(samples)` are the samples that
    are shown, by the values that `series_heads` name.
    """
    title: str
    heads: tuple
    series_heads: tuple
    summary: Callable
    ratios: Callable
    series: Callable
    bounds: tuple
    rules: str
    shows: str


def ratios(samples: Samples) -> dict:
    """Return {label: Ratio}, taken within each round, of one experiment."""
    return STUDIES[samples.experiment].ratios(samples)


def verdicts(samples: Samples, facts: Facts) -> dict:
    """Return {prediction: verdict} for those that the experiment bears on."""
    judged = {"H1": agrees(facts.errors, checked_groups(samples), facts.tolerance)}
    if samples.experiment == "admission":
        judged["H6"] = takes_longer(samples, facts)
    found, bounds = ratios(samples), STUDIES[samples.experiment].bounds
    for name in dict.fromkeys(bound.prediction for bound in bounds):
        judged[name] = within(found, [bound for bound in bounds
                                      if bound.prediction == name])
    if samples.experiment == "break_even":
        judged["H8"] = pays_sooner(samples)
    return judged


def checked_groups(samples):
    """Return the groups whose errors are recorded: a trace is checked whole."""
    if samples.experiment != "admission":
        return samples.elapsed_ms
    return {group[:5] if group[4] == "query" else group[:4]
            for group in samples.elapsed_ms}


def summary_csv(samples: Samples, facts: Facts = Facts()) -> str:
    """Return summary.csv: medians, their ratios and what was counted."""
    return csv_text(STUDIES[samples.experiment].summary(samples, facts))


def analysis(samples: Samples, facts: Facts) -> str:
    """Return the analysis as Markdown: facts, verdicts, tables, limits."""
    study = STUDIES[samples.experiment]
    parts = [[f"# {study.title}"], fact_lines(samples, facts), ["## Verdicts"],
             verdict_lines(samples, facts), [study.rules]]
    if study.bounds:
        parts += [["## Ratios to reach"],
                  bound_table(ratios(samples), study.bounds, study.heads)]
    if samples.experiment == "break_even":
        parts += [["## Where reuse starts to pay"], break_even_table(samples)]
    return document(parts + [
        ["## Medians"], median_table(study.summary(samples, facts)),
        ["## Ratios within each round"], ratio_table(study, samples), [RATIOS],
        ["## Samples"], sample_table(study, samples), [SAMPLES],
        ["## What this shows, and what it does not"], [study.shows]])


def headline(samples: Samples, facts: Facts) -> str:
    """Return the experiment, the facts and the verdicts as lines."""
    return "\n".join([samples.experiment, *fact_lines(samples, facts),
                      *verdict_lines(samples, facts)]) + "\n"


def verdict_lines(samples, facts):
    return told(verdicts(samples, facts), PREDICTIONS)


def median_table(summary):
    rows = list(summary)
    return table(rows[0], [[median_cell(*item) for item in row.items()]
                           for row in rows])


def median_cell(column, value):
    if value is None:
        return ""
    if isinstance(value, (int, str)):
        return str(value)
    return f"{value:.{4 if column.endswith('_ms') else 3}f}"


def ratio_table(study, samples):
    return table((*study.heads, *RATIO_HEADS),
                 [(*map(str, label), *ratio_cells(found))
                  for label, found in study.ratios(samples).items()])


def sample_table(study, samples):
    return table((*study.series_heads, *SAMPLE_HEADS[:-1]),
                 [(*map(str, label), *sample_cells(elapsed, None, digits=4)[:-1])
                  for label, elapsed in study.series(samples).items()])


def group_series(samples):
    return samples.elapsed_ms


RULES = """\
The rules were fixed before the run. A ratio is taken within each round, and
its interval is the distribution-free 95 % interval of the median. A bound is
reached when the interval lies wholly on the wanted side of it, and missed when
it lies wholly on the other. Supported: every bound of a prediction is reached.
Refuted: any is missed. Else Inconclusive; so are fewer than six samples, a
ratio that moved by more than 10 % between the halves of the run, and a size
that was not measured. H1 is judged from the errors recorded before the timing."""

RATIOS = """\
These are medians of ratios; the table above has ratios of medians, which can
differ a little. The intervals are not corrected for being several, so one in
twenty may miss by chance alone."""

SAMPLES = """\
Drift compares the median of the last five samples with that of the first
five."""

STUDIES = {
    "admission": Study(
        "What keeping prefixes costs in time", ("budget", "trace", "policy"),
        ("budget", "trace", "policy"), admission_summary, trace_ratios,
        trace_series, (), """\
The rules were fixed before the run. The time of a trace is the sum of its
twelve requests in one round, from a cold cache. A ratio is that of a policy
over `none` with the same seed, budget and trace in the same round; the seeds
of a round count one after the other. Its interval is the distribution-free
95 % interval of the median. H6 looks at all combinations with fewer projected
rows than `none`. Supported: the interval of at least one lies wholly above
1.02, which a chance in so many does not give. Refuted: the intervals of all
lie below 1. Else Inconclusive; fewer than six samples, and a ratio that moved
by more than 10 % between the halves of the run, decide nothing. H1 is judged
from the errors recorded before the timing.""", """\
Projected rows are what reuse saves. Keys, the search, copying out and in, and
the calls for it are what it adds, and each call of NumPy has a price that does
not shrink with its rows. Where the two meet depends on the width of the model
and the length of the prefix; the break-even experiment has both.

The parts are sampled on queries of their own under the first seed, in the same
rounds, each part as a call of its own: `lookup` checks the request, makes its
keys and searches, `gather` makes room and copies the hit into it, `compute` is
the decoder, `save` stores and evicts, `other` makes the record. A call has its
price, so they add up to somewhat more than the time of a trace.

Twelve tokens and a hidden size of 16 are a toy: the clock sees Python and the
calls of NumPy, and hardly any arithmetic. It is no server: nothing waits, and
the cache lies in the memory of the process."""),
    "break_even": Study(
        "Where reuse starts to pay", ("policy over none", "hidden", "prefix"),
        ("policy", "hidden", "prefix"), break_even_summary, hot_ratios,
        group_series, HOT_BOUNDS, RULES + """
H8 looks at `longest`, at the first prefix length whose interval lies below 1.
Supported: each hidden size has one, and a wider model none that is longer.
Refuted: a size has none, or a wider model a longer one. A ratio of few samples
or one that moved leaves it Inconclusive.""", """\
A hot query finds its whole prefix and computes four new tokens; a query under
`none` computes all. What it saves grows with prefix and width, what it adds
are keys, a search and one copy. `shared` gathers a block for every four tokens,
so it gains less than one checkpoint does: it is for room, not for time.

Queries are hot in another sense too: the same one is asked again and again,
though with all other groups in between. Two untrained layers in NumPy on one
thread say nothing about a server's prefix cache, which saves a GPU's time and
pays with another machine's memory."""),
    "limit": Study(
        "How near the limit decoding is", ("ratio", "T"), ("path", "T"),
        limit_summary, limit_ratios, group_series, LIMIT_BOUNDS, RULES, """\
Each sample follows an untimed call of the same path, so that a short path is
not timed with the caches of the processor full of what a long one left there.

The bare products are three calls of np.dot a step, on the same K and V, with
every view made beforehand: no softmax, no write into the cache, no check. A
decode step in NumPy needs them at least, so the ratio to them bounds what is
left to gain without leaving NumPy. At short lengths it is the price of calls; as K
and V outgrow the caches of the processor, reading them takes over, and the
ratio falls.

Without a cache each step computes its whole prefix again, which is why that
path ends at 256 tokens. One attention step with D = 64 on one thread is no
language model, and a batch would share what a call costs."""),
}
