"""Tests of needs.py against brute force: sets, whole numbers, a list cache."""

import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("needs.py needs NumPy") from None

import needs
from needs import (NEVER, last_touches, lru_needs, sizes_touched_since,
                   sort_with_positions, weight_before_and_below)


def brute_since(keys, sizes, now):
    seen, result = {}, []
    for i, key in enumerate(keys):
        first = seen.get(key, now[i]) + 1
        result.append(sum(dict(zip(keys[first:now[i]], sizes[first:now[i]])).values()))
        seen[key] = i
    return result


def brute_needs(keys, sizes):
    largest, seen, result = max(sizes, default=0), set(), []
    touched = brute_since(keys, sizes, range(len(keys)))
    for key, size, since in zip(keys, sizes, touched):
        result.append(max(largest, size + since) if key in seen else NEVER)
        seen.add(key)
    return result


def simulated_hits(keys, sizes, capacity):
    cache, hits = [], []
    for key, size in zip(keys, sizes):
        hits.append((key, size) in cache)
        if hits[-1]:
            cache.remove((key, size))
        cache.append((key, size))
        while sum(size for _, size in cache) > capacity:
            cache.pop(0)
    return hits


def random_trace(rng, longest=60):
    length, distinct = int(rng.integers(0, longest)), int(rng.integers(1, 30))
    names = np.arange(distinct) - rng.integers(0, 9)
    if rng.random() < 0.3:
        names = rng.integers(-2**63, 2**63 - 1, distinct)
    key_sizes = rng.integers(0, int(rng.choice([1, 2, 50, 10**9])), distinct)
    chosen = rng.integers(0, distinct, length)
    if rng.random() < 0.1:
        chosen = rng.permutation(distinct)[:length]
    return names[chosen], key_sizes[chosen]


def random_requests(rng):
    """Keys of requests that repeat none, where each one's request begins, sizes."""
    keys, now, distinct = [], [], int(rng.integers(1, 25))
    for _ in range(int(rng.integers(0, 12))):
        length = int(rng.integers(1, distinct + 1))
        now += [len(keys)] * length
        keys += rng.permutation(distinct)[:length].tolist()
    keys = np.array(keys, np.int64)
    return keys, np.array(now, np.int64), rng.integers(0, 50, distinct)[keys]


def in_small_pieces(piece=64, block=4):
    return mock.patch.multiple(needs, PIECE=piece, BLOCK=block)


class TestLruNeeds(unittest.TestCase):
    def test_hand_worked_traces(self):
        for case, keys, sizes, expected in [
            ("nothing", [], [], []),
            ("one", [5], [3], [NEVER]),
            ("one key", [5, 5, 5], [3, 3, 3], [NEVER, 3, 3]),
            ("all distinct", [1, 2, 3], [4, 4, 4], [NEVER] * 3),
            ("largest is the floor", [1, 2, 1, 1], [1, 10, 1, 1],
             [NEVER, NEVER, 11, 10]),
            ("a repeat counts once", [1, 2, 2, 3, 1], [1, 2, 2, 4, 1],
             [NEVER, NEVER, 4, NEVER, 7]),
            ("size 0", [1, 2, 1, 2], [0, 0, 0, 0], [NEVER, NEVER, 0, 0]),
            ("extreme keys", [-2**63, 2**63 - 1, -2**63], [1, 1, 1], [NEVER, NEVER, 2]),
        ]:
            with self.subTest(case=case):
                self.assertEqual(lru_needs(keys, sizes).tolist(), expected)

    def test_equals_brute_force_on_small_traces(self):
        rng = np.random.default_rng(1)
        for trial in range(4000):
            keys, sizes = random_trace(rng)
            expected = brute_needs(keys.tolist(), sizes.tolist())
            with self.subTest(trial=trial):
                self.assertEqual(lru_needs(keys, sizes).tolist(), expected)

    def test_equals_brute_force_through_all_levels(self):
        rng = np.random.default_rng(2)
        for trial in range(200):
            keys, sizes = random_trace(rng, longest=700)
            expected = brute_needs(keys.tolist(), sizes.tolist())
            piece, block = int(rng.integers(20, 200)), int(rng.integers(1, 20))
            with self.subTest(trial=trial, piece=piece, block=block):
                with in_small_pieces(piece, block):
                    self.assertEqual(lru_needs(keys, sizes).tolist(), expected)

    def test_says_at_every_capacity_what_a_cache_does(self):
        rng = np.random.default_rng(3)
        for trial in range(60):
            keys, sizes = random_trace(rng, longest=30)
            sizes %= 7
            found = lru_needs(keys, sizes)
            for capacity in range(sizes.max(initial=0), sizes.sum() + 2):
                hits = simulated_hits(keys.tolist(), sizes.tolist(), capacity)
                with self.subTest(trial=trial, capacity=capacity):
                    self.assertEqual((found <= capacity).tolist(), hits)

    def test_a_long_cycle_needs_all_of_it(self):
        keys = np.arange(300_000) % 70_000
        found = lru_needs(keys, keys)
        self.assertTrue((found[:70_000] == NEVER).all())
        self.assertTrue((found[70_000:] == 70_000 * 69_999 // 2).all())

    def test_a_long_walk_to_and_fro_needs_what_lies_between(self):
        there = np.arange(200_000)
        found = lru_needs(np.concatenate((there, there[::-1])), np.full(400_000, 3))
        self.assertTrue((found[200_000:] == 3 * (there + 1)).all())

    def test_sums_over_all_accesses_may_wrap_around(self):
        rng = np.random.default_rng(4)
        key_sizes = np.array([2**61, 2**60, 2**60 - 5, 2**59, 7])
        for piece in (16, 64, 1 << 16):
            chosen = rng.integers(0, 5, 600)
            expected = brute_needs(chosen.tolist(), key_sizes[chosen].tolist())
            with self.subTest(piece=piece), in_small_pieces(piece):
                with np.errstate(all="raise"):
                    found = lru_needs(chosen, key_sizes[chosen])
                self.assertEqual(found.tolist(), expected)

    def test_refuses_what_does_not_fit(self):
        half = 2**62
        self.assertEqual(lru_needs([1, 2, 1], [half, half - 2, half])[2], NEVER - 1)
        with self.assertRaisesRegex(ValueError, f"less than {NEVER}, got {NEVER}$"):
            lru_needs([1, 2, 1], [half, half - 1, half])
        message = f"sizes must be at most {NEVER}, got {2**63} at access 0"
        with self.assertRaisesRegex(ValueError, message):
            lru_needs([1], np.array([2**63], np.uint64))

    def test_refuses_bad_input(self):
        for error, message, keys, sizes in [
            (ValueError, "key 8 has 2 at access 1, 3 at access 3", [7, 8, 7, 8],
             [1, 2, 1, 3]),
            (ValueError, "sizes must be >= 0, got -1 at access 1", [1, 2], [0, -1]),
            (ValueError, "equally many, got 2 and 1", [1, 2], [1]),
            (ValueError, r"one axis, got shape \(1, 1\)", [[1]], [1]),
            (TypeError, "keys must be whole numbers, got float64", [1.0], [1]),
            (TypeError, "sizes must be whole numbers, got float64", [1], [1.0]),
            (TypeError, "sizes must be whole numbers, got bool", [1], [True]),
        ]:
            with self.subTest(message), self.assertRaisesRegex(error, message):
                lru_needs(np.array(keys), np.array(sizes))

    def test_takes_every_integer_type_and_changes_no_input(self):
        for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
            keys = np.array([9, 2, 2, 9], dtype)
            sizes = np.array([100, 50, 50, 100], dtype)
            keys.flags.writeable = sizes.flags.writeable = False
            with self.subTest(dtype=dtype.__name__):
                found = lru_needs(keys, sizes)
                self.assertEqual(found.tolist(), [NEVER, NEVER, 100, 150])
                self.assertEqual(found.dtype, np.int64)
        extremes = np.array([127, -128, 127], np.int8)
        self.assertEqual(lru_needs(extremes, [1, 1, 1]).tolist(), [NEVER, NEVER, 2])


class TestSizesTouchedSince(unittest.TestCase):
    def test_hand_worked_requests(self):
        # Requests a b c | c b d | b a, of sizes 1 10 100 1000.  In the second, c
        # was touched last and b before it; in the third, d has come since b, and
        # b c d since a.
        keys = np.array([1, 2, 3, 3, 2, 4, 2, 1])
        now = np.array([0, 0, 0, 3, 3, 3, 6, 6])
        sizes = np.array([0, 1, 10, 100, 1000])[keys]
        found = sizes_touched_since(last_touches(keys), now, sizes)
        self.assertEqual(found.tolist(), [0, 0, 0, 0, 100, 0, 1000, 1110])

    def test_equals_brute_force_on_requests(self):
        rng = np.random.default_rng(5)
        for trial in range(2000):
            keys, now, sizes = random_requests(rng)
            expected = brute_since(keys.tolist(), sizes.tolist(), now.tolist())
            piece, block = [(64, 4), (7, 2), (1 << 16, 16)][trial % 3]
            with self.subTest(trial=trial), in_small_pieces(piece, block):
                found = sizes_touched_since(last_touches(keys), now, sizes)
                self.assertEqual(found.tolist(), expected)

    def test_progress_counts_all_the_work_and_no_more(self):
        keys = np.arange(3000) % 700
        for piece, block in ((1 << 16, 16), (64, 4)):
            totals, counts = [], []

            def progress(total):
                totals.append(total)
                return counts.append

            with self.subTest(piece=piece), in_small_pieces(piece, block):
                sizes_touched_since(last_touches(keys), np.arange(3000), keys,
                                    progress)
                self.assertEqual([sum(counts)], totals)
                self.assertGreater(len(counts), 3)

    def test_refuses_sizes_below_zero(self):
        last = needs.last_touches(np.array([1, 2, 1]))
        with self.assertRaisesRegex(ValueError, "-1"):
            needs.sizes_touched_since(last, np.arange(3), np.array([1, -1, 1]))

    def test_refuses_positions_that_are_no_requests(self):
        for message, last, now in [
            ("-1 <= last < now <= 1 at access 1, got last 0, now 0", [-1, 0], [0, 0]),
            ("-1 <= last < now <= 0 at access 0, got last -1, now 1", [-1, -1], [1, 1]),
            ("got last -2, now 0", [-2], [0]),
            ("now must be where requests begin", [-1, -1, -1], [0, 0, 1]),
            ("now must be where requests begin", [-1, -1, -1], [0, 1, 0]),
            ("equally many, got 1, 2 and 1", [-1], [0, 0]),
        ]:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                sizes_touched_since(last, now, [1] * len(last))


class TestParts(unittest.TestCase):
    def test_weight_before_and_below_equals_all_pairs(self):
        rng = np.random.default_rng(6)
        for count in [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 257, 1000]:
            numbers, weights = rng.permutation(count), rng.integers(-5, 100, count)
            pairs = np.tril(numbers[:, None] > numbers, -1)
            expected = np.empty(count, np.int64)
            expected[numbers] = pairs @ weights
            for piece, block in [(64, 4), (10, 1), (1 << 16, 16)]:
                with self.subTest(count=count, piece=piece, block=block):
                    with in_small_pieces(piece, block):
                        found = weight_before_and_below(numbers, weights)
                    self.assertEqual(found.tolist(), expected.tolist())

    def test_sort_with_positions_of_narrow_and_wide_values(self):
        rng = np.random.default_rng(8)
        for span in (1, 3, 2**40, 2**56, 2**56 + 1, 2**63 - 1):
            for low in (-2**63, -1, 0):
                keys = rng.integers(low, low + span, 100, endpoint=low + span < 2**63)
                keys[rng.integers(0, 100, 40)] = keys[0]
                keys[[3, 5]] = low, low + span - 1
                with self.subTest(span=span, low=low):
                    in_order, positions = sort_with_positions(keys)
                    self.assertEqual(in_order.tolist(), sorted(keys.tolist()))
                    stable = sorted(range(100), key=keys.tolist().__getitem__)
                    self.assertEqual(positions.tolist(), stable)

    def test_last_touches(self):
        found = last_touches(np.array([5, -1, 5, 5, 2**62]))
        self.assertEqual(found.tolist(), [-1, -1, 0, 2, -1])


if __name__ == "__main__":
    unittest.main()
