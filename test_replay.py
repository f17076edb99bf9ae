"""Tests of replay.py against the list models of oracle.py."""

import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("replay.py needs NumPy") from None

import oracle
import records
import replay
from test_support import call

HERE = os.path.dirname(os.path.abspath(__file__))
RULES = {"inclusive": oracle.ListTiers, "mirror": oracle.ListMirror,
         "exclusive": oracle.ListExclusive}
TOUCHES = ("tail", "head")


def block_row(ids, tokens=None, block_tokens=512):
    return {"input_length": len(ids) * block_tokens if tokens is None else tokens,
            "hash_ids": list(ids)}


def document_row(name, tokens):
    return {"doc": name, "doc_tokens": tokens}


def random_requests(rng):
    """Return a few requests over few blocks, in any order."""
    blocks = rng.randint(1, 12)
    return [rng.sample(range(blocks), rng.randint(1, blocks))
            for _ in range(rng.randint(1, 12))]


def conversations(rng):
    """Return requests in which every block stands for all before it too."""
    names, talks, requests = {}, [()], []
    for _ in range(rng.randint(2, 14)):
        talk = rng.choice(talks)
        talk += tuple(rng.randint(0, 2) for _ in range(rng.randint(1, 4)))
        talks.append(talk)
        requests.append([names.setdefault(talk[:end], len(names))
                         for end in range(1, len(talk) + 1)])
    return requests


class TraceCase(unittest.TestCase):
    """A temporary folder with traces in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "trace.jsonl")
        self.csv = os.path.join(folder.name, "curve.csv")

    def write(self, rows):
        with open(self.path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def write_bytes(self, data):
        with open(self.path, "wb") as file:
            file.write(data)

    def command(self, *options, status=0, terminal=False):
        """Run replay.py on the trace; return what it wrote to both streams."""
        found, out, err = call(replay.main, self.path, *options, terminal=terminal)
        self.assertEqual(found, status, err)
        return out, err

    def replay(self, *options):
        out, err = self.command(*options)
        self.assertEqual(err, "")
        return json.loads(out)

    def curve(self, *options):
        answer = self.replay("--curve", self.csv, *options)
        with open(self.csv, encoding="utf-8") as file:
            header, *lines = file.read().splitlines()
        self.assertEqual(header, "capacity_tokens,hit_blocks,hit_tokens")
        return answer, [tuple(map(int, line.split(","))) for line in lines]


def curve_at(rows, capacity):
    """Return hit blocks and hit tokens, as a reader of the CSV finds them."""
    return [row[1:] for row in rows if row[0] <= capacity][-1]


# -- Reading ------------------------------------------------------------------

class TestReading(TraceCase):
    def test_broken_rows_are_refused_with_file_and_line(self):
        good = b'{"input_length": 600, "hash_ids": [1, 2]}\n'
        document = b'{"doc": "a", "doc_tokens": 5}\n'
        for bad, message in (
                (b"{", "Expecting property name"),
                (b"[1]", "a row must be a JSON object, got [1]"),
                (b"null", "a row must be a JSON object, got nothing"),
                (good.strip() + b" 1", "Extra data"),
                (b"\xff", "invalid start byte"),
                (b"[" * 100_000, "recursion"),
                (b'{"input_length": 600, "hash_ids": [1, 2], "x": NaN}',
                 "NaN is not a JSON number"),
                (b'{"hash_ids": [1]}', '"input_length" must be a whole number of '
                 "tokens >= 1, got nothing"),
                (b'{"input_length": 0, "hash_ids": []}', ">= 1, got 0"),
                (b'{"input_length": true, "hash_ids": [1]}', ">= 1, got true"),
                (b'{"input_length": 5.0, "hash_ids": [1]}', ">= 1, got 5.0"),
                (b'{"input_length": 1e400, "hash_ids": [1]}', "got Infinity"),
                (b'{"input_length": 5, "hash_ids": 1}', "a list of whole numbers, "
                 "got 1"),
                (b'{"input_length": 5, "hash_ids": [true]}', "got [true]"),
                (b'{"input_length": 5, "hash_ids": [1.0]}', "got [1.0]"),
                (b'{"input_length": 5, "hash_ids": ["1"]}', 'got ["1"]'),
                (b'{"input_length": 5, "hash_ids": [-1]}',
                 '"hash_ids" must be 0 to 18446744073709551615, got -1 to -1'),
                (b'{"input_length": 5, "hash_ids": [18446744073709551616]}',
                 "got 18446744073709551616 to"),
                (b'{"input_length": 512, "hash_ids": [1, 2]}', '"hash_ids" must be '
                 "1 for 512 tokens in blocks of 512, got 2"),
                (b'{"input_length": 513, "hash_ids": [1]}', "must be 2 for 513"),
                (b'{"input_length": 1025, "hash_ids": [2, 1, 1]}',
                 "must not repeat in a row, got 1 twice"),
                (b'{"input_length": 9223372036854775806, "hash_ids": [1]}',
                 "the tokens of all rows must be fewer than 9223372036854775807"),
                (document.strip(), 'a row after one with "hash_ids" must have')):
            with self.subTest(bad=bad[:60]):
                self.write_bytes(good + b"\n" + bad + b"\n")
                out, err = self.command("--gpu-tokens", 512, status=1)
                self.assertEqual(out, "")
                self.assertRegex(err, r"\Areplay\.py: .*trace\.jsonl:3: .*\n\Z")
                self.assertIn(message, err)

    def test_broken_documents_are_refused_with_file_and_line(self):
        for bad, message in (
                ({"doc": "a"}, '"doc_tokens" must be a whole number of tokens '
                 ">= 0, got nothing"),
                ({"doc_tokens": 5}, '"doc" must be a string or a whole number, '
                 "got nothing"),
                (document_row(True, 5), "got true"),
                (document_row(1.0, 5), "got 1.0"),
                (document_row(["a"], 5), 'got ["a"]'),
                (document_row("b", -1), ">= 0, got -1"),
                (document_row("b", "5"), '>= 0, got "5"'),
                (document_row("a", 6), 'document "a" must keep its 5 tokens, got 6'),
                (document_row("b", 2**63 - 6), "must be fewer than"),
                (block_row([1]), 'a row after one without "hash_ids" must have')):
            with self.subTest(bad=bad):
                self.write([document_row("a", 5), bad])
                out, err = self.command("--gpu-tokens", 512, status=1)
                self.assertEqual(out, "")
                self.assertIn("trace.jsonl:2: ", err)
                self.assertIn(message, err)

    def test_largest_sums_that_fit_are_read(self):
        self.write([document_row("a", 5), document_row("b", 2**63 - 7)])
        self.assertEqual(self.replay("--gpu-tokens", 0)["input_tokens"], 2**63 - 2)

    def test_files_without_rows_or_absent_are_refused(self):
        for data in (b"", b"\n \r\n", b"\xef\xbb\xbf\n"):
            with self.subTest(data=data):
                self.write_bytes(data)
                _, err = self.command("--gpu-tokens", 1, status=1)
                self.assertIn("no rows, at least one is needed", err)
        os.unlink(self.path)
        for options in (("--gpu-tokens", 1), ("--curve", self.folder)):
            with self.subTest(options=options):
                _, err = self.command(*options, status=1)
                self.assertIn("trace.jsonl", err)
                self.assertIn("No such file", err)

    def test_mark_carriage_returns_blank_lines_and_missing_end_are_accepted(self):
        row = json.dumps(block_row([1])).encode()
        self.write_bytes(b"\xef\xbb\xbf" + row + b"\r\n  \r\n\n" + row)
        self.assertEqual(self.replay("--gpu-tokens", 512)["gpu_hit_blocks"], 1)

    def test_trace_holds_blocks_in_walking_order(self):
        self.write([block_row([3, 1], 600), block_row([2**64 - 1], 512),
                    block_row([3, 1, 7], 1025)])
        trace = replay.read_trace(self.path)
        self.assertEqual(trace.tokens.tolist(), [512, 88, 512, 512, 512, 1])
        self.assertEqual(trace.starts.tolist(), [0, 2, 3])
        self.assertEqual(trace.keys.tolist(), [3, 1, -1, 3, 1, 7])
        self.assertEqual(trace.block_tokens, 512)

    def test_block_tokens_say_how_many_ids_a_row_has(self):
        self.write([block_row([1, 2, 3], 33, 16)])
        trace = replay.read_trace(self.path, 16)
        self.assertEqual(trace.tokens.tolist(), [16, 16, 1])
        for size in (10, 33, 10**30):
            with self.subTest(size=size), self.assertRaises(ValueError):
                replay.read_trace(self.path, size)
        self.write([block_row([1], 7)] * 2)
        answer, rows = self.curve("--block-tokens", 10**30, "--gpu-tokens", 10**30)
        self.assertEqual((answer["hit_tokens"], rows), (7, [(10**30, 1, 7)]))

    def test_rows_beyond_those_asked_for_are_not_read(self):
        self.write([block_row([1])] * 5 + [{"hash_ids": "broken"}])
        for rows in (1, 5):
            with self.subTest(rows=rows):
                answer = self.replay("--rows", rows, "--gpu-tokens", 512)
                self.assertEqual(answer["requests"], rows)
        self.command("--rows", 6, "--gpu-tokens", 512, status=1)

    def test_blank_lines_are_no_rows(self):
        row = json.dumps(block_row([1]))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(f"\n{row}\n \n{row}\n{row}")
        for rows in (1, 2):
            answer = self.replay("--rows", rows, "--gpu-tokens", 512)
            self.assertEqual(answer["requests"], rows)

    def test_names_of_documents_are_told_apart_by_type(self):
        self.write([document_row(1, 5), document_row("1", 6), document_row(1, 5)])
        answer = self.replay("--gpu-tokens", 11)
        self.assertEqual((answer["distinct_blocks"], answer["gpu_hit_blocks"]),
                         (2, 1))

    def test_rows_with_both_kinds_of_keys_are_blocks(self):
        self.write([{**block_row([1]), **document_row("a", 7)}])
        self.assertEqual(self.replay("--gpu-tokens", 0)["input_tokens"], 512)


# -- Blocks -------------------------------------------------------------------

class TestBlockReplay(TraceCase):
    def traces(self, count, seed):
        rng = random.Random(seed)
        for trial in range(count):
            make = conversations if trial % 2 else random_requests
            yield trial, make(rng)

    def trace(self, requests, rng):
        """Return the trace of `requests`, with last blocks of 1 to 4 tokens."""
        lengths = [4 * len(blocks) - rng.randrange(4) for blocks in requests]
        self.write([block_row(blocks, tokens)
                    for blocks, tokens in zip(requests, lengths)])
        return replay.read_trace(self.path, 4)

    def test_curve_is_what_an_lru_of_blocks_does_at_every_capacity(self):
        rng = random.Random(1)
        for trial, requests in self.traces(60, 2):
            trace = self.trace(requests, rng)
            for touch in TOUCHES:
                rows = replay.curve(trace, replay.block_needs(
                    trace, replay.held_needs(trace, touch)))
                for blocks in range(1, 2 + len(set(trace.keys.tolist()))):
                    found = oracle.read_requests(
                        requests, oracle.ListTiers(blocks, 0), touch)
                    hits = np.array([tier == "gpu" for row in found for tier in row])
                    with self.subTest(trial=trial, touch=touch, blocks=blocks):
                        for tokens in (4 * blocks, 4 * blocks + 3):
                            self.assertEqual(
                                curve_at(rows, tokens),
                                (hits.sum(), trace.tokens[hits].sum()))

    def test_curve_has_a_row_for_each_change_and_no_other(self):
        rng = random.Random(3)
        for trial, requests in self.traces(60, 4):
            trace = self.trace(requests, rng)
            rows = replay.curve(trace, replay.block_needs(
                trace, replay.held_needs(trace, "tail")))
            with self.subTest(trial=trial):
                self.assertEqual(rows[0][0], 4)
                self.assertTrue(all(one[0] < other[0] and one[1] < other[1]
                                    for one, other in zip(rows, rows[1:])))

    def test_needs_are_those_of_the_stack(self):
        rng = random.Random(5)
        for trial, requests in self.traces(60, 6):
            trace = self.trace(requests, rng)
            for touch in TOUCHES:
                needs = replay.block_needs(trace, replay.held_needs(trace, touch))
                model = [replay.NEVER if need is None else need for row
                         in oracle.stack_needs(requests, touch) for need in row]
                with self.subTest(trial=trial, touch=touch):
                    self.assertEqual(needs.tolist(), model)

    def test_three_tier_rules_at_many_capacities(self):
        rng = random.Random(7)
        codes = {"gpu": replay.GPU, "cpu": replay.CPU, "miss": replay.MISS}
        for trial, requests in self.traces(40, 8):
            trace = self.trace(requests, rng)
            for touch in TOUCHES:
                held = replay.held_needs(trace, touch)
                for rule, model in RULES.items():
                    for gpu, cpu in ((0, 0), (0, 3), (1, 2), (2, 1), (3, 3), (2, 7),
                                     (6, 0), (5, 4), (20, 20)):
                        expected = oracle.read_requests(requests, model(gpu, cpu),
                                                        touch)
                        found = replay.found_blocks(trace, held, 4 * gpu + 3,
                                                    4 * cpu + 1, rule, touch)
                        with self.subTest(trial=trial, touch=touch, rule=rule,
                                          gpu=gpu, cpu=cpu):
                            self.assertEqual(found.tolist(),
                                             [codes[tier] for row in expected
                                              for tier in row])

    def test_mirror_hits_as_the_larger_tier_and_exclusive_as_the_sum(self):
        rng = random.Random(9)
        for trial, requests in self.traces(20, 10):
            self.trace(requests, rng)

            def hits(gpu, cpu, tiers):
                answer = self.replay("--block-tokens", 4, "--gpu-tokens", 4 * gpu,
                                     "--cpu-tokens", 4 * cpu, "--tiers", tiers)
                return (answer["gpu_hit_blocks"] + answer["cpu_hit_blocks"],
                        answer["cpu_hit_blocks"])

            for gpu, cpu in ((2, 5), (5, 2), (3, 3)):
                with self.subTest(trial=trial, gpu=gpu, cpu=cpu):
                    larger = hits(max(gpu, cpu), 0, "inclusive")[0]
                    mirror = hits(gpu, cpu, "mirror")
                    self.assertEqual(mirror[0], larger)
                    if gpu >= cpu:
                        self.assertEqual(mirror[1], 0)
                    self.assertEqual(hits(gpu, cpu, "exclusive")[0],
                                     hits(gpu + cpu, 0, "inclusive")[0])

    def test_cycle_is_a_cliff_head_first_and_a_ramp_tail_first(self):
        for requests, blocks, passes in ((4, 8, 6), (1, 5, 3), (3, 1, 2), (2, 7, 4),
                                         (5, 3, 3)):
            cycle = [list(range(blocks * k, blocks * (k + 1)))
                     for k in range(requests)] * passes
            self.write([block_row(ids) for ids in cycle])
            whole = requests * blocks
            for touch in TOUCHES:
                _, rows = self.curve("--touch", touch)
                for capacity in range(1, whole + 3):
                    ramp = max(0, min(blocks, capacity - (requests - 1) * blocks))
                    if touch == "head":
                        ramp = blocks if capacity >= whole else 0
                    with self.subTest(requests=requests, blocks=blocks,
                                      passes=passes, touch=touch, capacity=capacity):
                        self.assertEqual(curve_at(rows, 512 * capacity)[0],
                                         (passes - 1) * requests * ramp)

    def test_worked_cycle_of_four_requests(self):
        self.write([block_row(range(8 * k, 8 * k + 8)) for k in range(4)] * 6)
        for touch, hits in (("head", 0), ("tail", 140)):
            with self.subTest(touch=touch):
                answer = self.replay("--gpu-tokens", 31 * 512, "--touch", touch)
                self.assertEqual(answer["gpu_hit_blocks"], hits)

    def test_request_larger_than_the_cache_keeps_its_head_when_touched_tail_first(
            self):
        self.write([block_row(range(6))] * 2)
        for touch, hits in (("tail", 4), ("head", 0)):
            with self.subTest(touch=touch):
                answer = self.replay("--gpu-tokens", 4 * 512, "--touch", touch)
                self.assertEqual(answer["gpu_hit_blocks"], hits)

    def test_walk_ends_at_the_first_block_that_is_not_there(self):
        self.write([block_row([1, 2, 3]), block_row([9, 2, 3]), block_row([1, 8, 3])])
        answer = self.replay("--gpu-tokens", 9999)
        self.assertEqual((answer["gpu_hit_blocks"], answer["miss_blocks"]), (1, 8))
        self.assertEqual(answer["hit_rate"], {"block": 0.111111, "token": 0.111111,
                                              "request": 0.333333,
                                              "full_request": 0.0})

    def test_tail_is_touched_first_unless_said_otherwise(self):
        self.write([block_row(range(6))] * 2)
        trace = replay.read_trace(self.path)
        held = replay.held_needs(trace, "tail")
        self.assertEqual(self.replay("--gpu-tokens", 512)["touch"], "tail")
        self.assertEqual(
            replay.found_blocks(trace, held, 512, 1024, "inclusive").tolist(),
            replay.found_blocks(trace, held, 512, 1024, "inclusive",
                                "tail").tolist())
        self.assertNotEqual(
            replay.found_blocks(trace, held, 512, 2048, "inclusive").tolist(),
            replay.found_blocks(trace, held, 512, 2048, "inclusive",
                                "head").tolist())

    def test_walked_hits_are_those_of_before_the_request(self):
        # Touching 2, 1 in one block of cache evicts what the walk found.
        self.write([block_row([1]), block_row([1, 2]), block_row([1])])
        answer = self.replay("--gpu-tokens", 512)
        self.assertEqual(answer["gpu_hit_blocks"], 2)

    def test_partial_last_block_takes_a_whole_room_and_counts_its_tokens(self):
        self.write([block_row([1, 2], 600)] * 2)
        for tokens, hit_tokens in ((511, 0), (512, 512), (600, 512), (1023, 512),
                                   (1024, 600)):
            with self.subTest(tokens=tokens):
                self.assertEqual(self.replay("--gpu-tokens", tokens)["hit_tokens"],
                                 hit_tokens)

    def test_tokens_count_as_each_request_has_them(self):
        self.write([block_row([1], 500), block_row([1], 7)])
        answer, rows = self.curve("--gpu-tokens", 512)
        self.assertEqual((answer["hit_tokens"], rows), (7, [(512, 1, 7)]))

    def test_trace_of_one_row_has_a_curve_of_one_row(self):
        self.write([block_row([1, 2])])
        answer, rows = self.curve("--bytes-per-token", 1)
        self.assertEqual(rows, [(512, 0, 0)])
        self.assertEqual(answer["capacity_for"], {})

    def test_sizes_beyond_int64_are_capacities_too(self):
        self.write([block_row([1])] * 2)
        for tiers in RULES:
            with self.subTest(tiers=tiers):
                answer = self.replay("--gpu-tokens", 10**40, "--cpu-tokens", 10**40,
                                     "--tiers", tiers)
                self.assertEqual(answer["gpu_hit_blocks"], 1)
        self.assertEqual(self.replay("--gpu-tokens", 0, "--cpu-tokens", 10**40)[
            "cpu_hit_blocks"], 1)


# -- Documents ----------------------------------------------------------------

class TestDocumentReplay(TraceCase):
    def random_reads(self, rng):
        sizes = [rng.randrange(8) for _ in range(rng.randint(1, 9))]
        reads = [rng.randrange(len(sizes)) for _ in range(rng.randint(1, 30))]
        self.write([document_row(f"d{doc}", sizes[doc]) for doc in reads])
        return [(doc, sizes[doc]) for doc in reads]

    def test_three_tier_rules_with_documents_of_different_sizes(self):
        rng = random.Random(11)
        codes = {"gpu": replay.GPU, "cpu": replay.CPU, "miss": replay.MISS}
        for trial in range(60):
            reads = self.random_reads(rng)
            trace = replay.read_trace(self.path)
            held = replay.held_needs(trace, "tail")
            for rule, model in RULES.items():
                for gpu, cpu in ((0, 0), (3, 9), (9, 3), (5, 0), (0, 8), (12, 20)):
                    tiers = model(gpu, cpu)
                    with self.subTest(trial=trial, rule=rule, gpu=gpu, cpu=cpu):
                        self.assertEqual(
                            replay.found_blocks(trace, held, gpu, cpu,
                                                rule).tolist(),
                            [codes[tiers.access(*read)] for read in reads])

    def test_curve_is_the_replay_from_the_largest_size_on(self):
        rng = random.Random(12)
        for trial in range(60):
            reads = self.random_reads(rng)
            trace = replay.read_trace(self.path)
            rows = replay.curve(trace, replay.held_needs(trace, "tail"))
            largest = max(size for _, size in reads)
            self.assertEqual(rows[0][0], largest)
            for capacity in range(largest, 60):
                cache = oracle.ListLRU(capacity)
                hits = [size for key, size in reads if cache.access(key, size)]
                with self.subTest(trial=trial, capacity=capacity):
                    self.assertEqual(curve_at(rows, capacity),
                                     (len(hits), sum(hits)))

    def test_hits_need_not_grow_below_the_largest_size(self):
        self.write([document_row("a", 1), document_row("b", 10),
                    document_row("a", 1)])
        for capacity, hits in ((0, 0), (1, 1), (9, 1), (10, 0), (11, 1)):
            with self.subTest(capacity=capacity):
                answer, rows = self.curve("--gpu-tokens", capacity)
                self.assertEqual(answer["gpu_hit_blocks"], hits)
                self.assertEqual(rows, [(10, 0, 0), (11, 1, 1)])

    def test_ten_documents_stand_before_a_cliff(self):
        self.write([document_row(doc, 5011) for doc in range(10)] * 2)
        _, rows = self.curve()
        self.assertEqual(rows, [(5011, 0, 0), (50110, 10, 50110)])

    def test_block_tokens_of_documents_are_null(self):
        self.write([document_row("a", 5)])
        self.assertIsNone(self.replay("--gpu-tokens", 5)["block_tokens"])

    def test_documents_without_tokens_leave_the_token_rate_out(self):
        self.write([document_row("a", 0)] * 2)
        answer, rows = self.curve("--gpu-tokens", 0, "--bound", "--points", 2)
        self.assertEqual(answer["hit_rate"], {"block": 0.5, "request": 0.5,
                                              "full_request": 0.5})
        self.assertEqual((answer["bound_block_hit_rate"], answer["capacity_for"],
                          rows), (0.5, {}, [(0, 1, 0)]))


# -- The bound ----------------------------------------------------------------

class TestBound(TraceCase):
    def test_belady_hits_as_the_best_of_all_choices(self):
        rng = random.Random(13)
        for trial in range(80):
            requests = [rng.sample(range(5), rng.randint(1, 3))
                        for _ in range(rng.randint(1, 5))]
            self.write([block_row(blocks) for blocks in requests])
            trace = replay.read_trace(self.path)
            for capacity in range(6):
                with self.subTest(requests=requests, capacity=capacity):
                    best = oracle.most_hits(requests, capacity)
                    self.assertEqual(replay.belady_hits(trace, capacity), best)
                    self.assertEqual(oracle.belady_hits(requests, capacity), best)

    def test_no_rule_hits_more_than_the_bound(self):
        rng = random.Random(14)
        for trial in range(30):
            requests = (conversations if trial % 2 else random_requests)(rng)
            self.write([block_row(blocks) for blocks in requests])
            trace = replay.read_trace(self.path)
            self.assertEqual(replay.belady_hits(trace, 4),
                             oracle.belady_hits(requests, 4))
            for touch in TOUCHES:
                for rule in RULES:
                    held = replay.held_needs(trace, touch)
                    found = replay.found_blocks(trace, held, 1024, 1024, rule, touch)
                    with self.subTest(trial=trial, touch=touch, rule=rule):
                        self.assertLessEqual(np.count_nonzero(found),
                                             replay.belady_hits(trace, 4))

    def test_bound_has_the_whole_blocks_of_both_tiers(self):
        self.write([block_row([1]), block_row([2]), block_row([1]), block_row([2])])
        for gpu, cpu, bound in ((512, 0, 0.25), (512, 511, 0.25), (512, 512, 0.5),
                                (511, 511, 0.0)):
            with self.subTest(gpu=gpu, cpu=cpu):
                answer = self.replay("--gpu-tokens", gpu, "--cpu-tokens", cpu,
                                     "--bound")
                self.assertEqual(answer["bound_block_hit_rate"], bound)

    def test_bound_takes_documents_of_one_size_only(self):
        self.write([document_row("a", 5), document_row("b", 5)] * 2)
        answer = self.replay("--gpu-tokens", 9, "--bound")
        self.assertEqual(answer["bound_block_hit_rate"], 0.25)
        self.write([document_row("a", 5), document_row("b", 6)])
        out, err = self.command("--gpu-tokens", 9, "--bound", status=2)
        self.assertEqual(out, "")
        self.assertIn("--bound: the documents must be of one size, "
                      "got 5 to 6 tokens", err)


# -- The command --------------------------------------------------------------

class TestCommand(TraceCase):
    ROWS = [block_row([1, 2], 1000), block_row([1, 3], 600), block_row([1, 2], 1000)]

    def test_whole_answer(self):
        self.write(self.ROWS)
        answer = self.replay("--gpu-tokens", 1024, "--cpu-tokens", 600, "--tiers",
                             "exclusive", "--touch", "head", "--bytes-per-token",
                             2**20, "--bound")
        self.assertEqual(list(answer.items()), [
            ("requests", 3), ("blocks", 6), ("distinct_blocks", 3),
            ("input_tokens", 2600), ("gpu_tokens", 1024), ("cpu_tokens", 600),
            ("tiers", "exclusive"), ("touch", "head"), ("block_tokens", 512),
            ("gpu_hit_blocks", 2), ("cpu_hit_blocks", 1), ("miss_blocks", 3),
            ("hit_tokens", 1512),
            ("hit_rate", {"block": 0.5, "token": 0.581538, "request": 0.666667,
                          "full_request": 0.333333}),
            ("unbounded_hit_rate", {"block": 0.5, "token": 0.581538,
                                    "request": 0.666667, "full_request": 0.333333}),
            ("bound_block_hit_rate", 0.5),
            ("capacity_for", {"50": {"tokens": 1024, "gib": 1.0},
                              "90": {"tokens": 1536, "gib": 1.5},
                              "99": {"tokens": 1536, "gib": 1.5}})])

    def test_output_is_one_line(self):
        self.write(self.ROWS)
        out, _ = self.command("--gpu-tokens", 1024)
        self.assertEqual(out.count("\n"), 1)
        self.assertTrue(out.endswith("}\n"))

    def test_without_gpu_tokens_what_depends_on_them_is_null(self):
        self.write(self.ROWS)
        answer, rows = self.curve("--bound")
        self.assertEqual([name for name, value in answer.items() if value is None],
                         ["gpu_tokens", "gpu_hit_blocks", "cpu_hit_blocks",
                          "miss_blocks", "hit_tokens", "hit_rate",
                          "bound_block_hit_rate"])
        self.assertEqual(rows, [(512, 2, 1024), (1536, 3, 1512)])

    def test_curve_does_not_depend_on_the_tiers(self):
        self.write(self.ROWS)
        _, rows = self.curve("--touch", "head")
        for tiers in RULES:
            with self.subTest(tiers=tiers):
                self.assertEqual(rows, self.curve(
                    "--touch", "head", "--tiers", tiers, "--gpu-tokens", 512,
                    "--cpu-tokens", 1024)[1])

    def test_capacity_for_is_the_smallest_that_reaches_the_share(self):
        rng = random.Random(15)
        for trial in range(40):
            requests = conversations(rng)
            self.write([block_row(blocks) for blocks in requests])
            answer, rows = self.curve()
            for share, place in answer["capacity_for"].items():
                with self.subTest(trial=trial, share=share):
                    enough = int(share) * rows[-1][2]
                    self.assertEqual(place, {"tokens": min(
                        row[0] for row in rows if 100 * row[2] >= enough)})

    def test_capacity_for_reaches_a_share_that_is_met_exactly(self):
        rows = [(1, 0, 0), (2, 1, 50), (3, 2, 90), (4, 3, 99), (5, 4, 100)]
        self.assertEqual([place["tokens"] for place
                          in replay.capacity_for(rows).values()], [2, 3, 4])

    def test_thinned_curves_keep_first_and_last_and_have_the_rows_asked_for(self):
        rows = [(capacity, capacity, 0) for capacity in
                (*range(1, 50), 1000, 2000, 3000, 10**30)]
        for points in (2, 3, 10, 30, len(rows), len(rows) + 1):
            with self.subTest(points=points):
                thin = replay.thinned(rows, points)
                self.assertEqual(len(thin), min(points, len(rows)))
                self.assertEqual((thin[0], thin[-1]), (rows[0], rows[-1]))
                self.assertEqual(thin, sorted(set(thin) & set(rows)))

    def test_thinned_curve_is_spaced_by_logarithms(self):
        rows = [(capacity, 0, 0) for capacity in range(1, 10001)]
        self.assertEqual([row[0] for row in replay.thinned(rows, 5)],
                         [1, 10, 100, 1000, 10000])

    def test_points_thin_the_written_curve(self):
        self.write([block_row(range(20))] * 2)
        answer, rows = self.curve("--points", 3)
        self.assertEqual((rows[0][0], rows[-1][0], len(rows)), (512, 10240, 3))
        self.assertEqual(answer["capacity_for"]["50"]["tokens"], 5120)

    def test_wrong_usage_is_refused(self):
        self.write(self.ROWS)
        for options, message in (
                ((), "--gpu-tokens is needed without --curve"),
                (("--gpu-tokens", "-1"), "--gpu-tokens"),
                (("--gpu-tokens", "1.5"), "--gpu-tokens"),
                (("--gpu-tokens", "1_0"), "--gpu-tokens"),
                (("--gpu-tokens", "²"), "--gpu-tokens"),
                (("--gpu-tokens", "1", "--cpu-tokens", "x"), "--cpu-tokens"),
                (("--gpu-tokens", "1", "--tiers", "both"), "--tiers"),
                (("--gpu-tokens", "1", "--touch", "middle"), "--touch"),
                (("--gpu-tokens", "1", "--block-tokens", "0"), "--block-tokens"),
                (("--gpu-tokens", "1", "--rows", "0"), "--rows"),
                (("--gpu-tokens", "1", "--bytes-per-token", "0"),
                 "--bytes-per-token"),
                (("--curve", self.csv, "--points", "1"), "--points"),
                (("--gpu-tokens", "1", "--points", "9"), "--points is for --curve"),
                (("--gpu", "1"), "--gpu"),
                (("--curve", self.path + "/"), "the output is also the input"),
                (("--curve", os.path.join(self.folder, ".", "trace.jsonl")),
                 "the output is also the input")):
            with self.subTest(options=options):
                out, err = self.command(*options, status=2)
                self.assertEqual(out, "")
                self.assertIn(message, err)
        self.assertEqual(os.listdir(self.folder), ["trace.jsonl"])

    def test_refused_trace_leaves_the_curve_as_it_was(self):
        self.write(self.ROWS)
        self.curve()
        with open(self.csv, "rb") as file:
            before = file.read()
        self.write([*self.ROWS, {}])
        self.command("--curve", self.csv, status=1)
        with open(self.csv, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_curve_that_cannot_be_written_is_named(self):
        self.write(self.ROWS)
        out, err = self.command("--curve", os.path.join(self.folder, "no", "c.csv"),
                                status=1)
        self.assertEqual(out, "")
        self.assertIn("c.csv: No such file or directory", err)

    def test_head_ends_quietly(self):
        self.write([block_row(range(400))] * 2)
        command = [sys.executable, os.path.join(HERE, "replay.py"), self.path]
        for options in (["--gpu-tokens", "512"],
                        ["--curve", "/dev/stdout", "--gpu-tokens", "512"]):
            with self.subTest(options=options):
                run = subprocess.Popen(command + options, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
                run.stdout.close()
                self.assertEqual((run.stderr.read(), run.wait()), (b"", 0))
                run.stderr.close()


class TestProgress(TraceCase):
    def test_terminal_sees_how_far_reading_and_counting_are(self):
        self.write([block_row(range(40))] * 20)
        _, err = self.command("--gpu-tokens", 512, "--bound", terminal=True)
        for label in ("reading", "counting", "bounding"):
            self.assertIn(f"\r{label}: 100 %\n", err)

    def test_terminal_sees_how_far_documents_are(self):
        self.write([document_row("a", 5)] * 20)
        _, err = self.command("--gpu-tokens", 512, terminal=True)
        self.assertIn("\rreplaying:  50 %", err)
        self.assertIn("\rreplaying: 100 %\n", err)

    def test_line_ends_before_an_error(self):
        self.write([block_row([1])] * 20 + [{}] * 9)
        _, err = self.command("--gpu-tokens", 512, status=1, terminal=True)
        self.assertRegex(err.replace("\r", ""), r" %\nreplay\.py: [^\n]*:21: ")

    def test_line_ends_when_only_some_rows_are_asked_for(self):
        self.write([block_row([1])] * 20)
        _, err = self.command("--rows", 10, "--gpu-tokens", 512, terminal=True)
        self.assertRegex(err.replace("\r", ""), r"reading:  \d\d %\n")

    def test_unknown_total_shows_nothing(self):
        stream = io.StringIO()
        stream.isatty = lambda: True
        with records.Progress("reading", 0, stream) as progress:
            progress.step(5)
        self.assertEqual((stream.getvalue(), progress.done), ("", 5))


if __name__ == "__main__":
    unittest.main()
