"""The attention step and the decode paths, against scalar loops.

What the tests of attention.py share is here too; test_heads.py has the rest.
Axes: B sequences, H heads, T tokens, D width.
"""

import math
import unittest

import oracle

try:
    import numpy as np
except ImportError:             # without NumPy
    raise unittest.SkipTest("attention.py needs NumPy") from None

import attention
from attention import (attend, attention_step, batched_cached_attention,
                       cached_attention, cached_attention_preallocated,
                       decode_fused, decode_without_cache,
                       sequential_cached_attention)

TOLERANCE = 1e-12       # float64: what another order of summation may change
JUNK = (np.nan, np.inf, -np.inf, 1e300)       # what padding may hold

# Every path that decodes one sequence, as a function that returns its output alone.
SINGLE_PATHS = {
    "no cache": decode_without_cache,
    "cached": lambda *arrays: cached_attention(*arrays)[0],
    "preallocated": lambda *arrays: cached_attention_preallocated(*arrays)[0],
    "fused": decode_fused,
}
BATCH_PATHS = {
    "sequential": sequential_cached_attention,
    "batched": lambda *arrays: batched_cached_attention(*arrays)[0],
}


def random_arrays(*shapes, seed=0, dtype=np.float64):
    """Read-only, so that every test sees also that no argument is changed."""
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    for array in arrays:
        array.flags.writeable = False
    return arrays


def decode_arrays(*lead, d_model=4, d_k=3, d_v=5, seed=0, dtype=np.float64):
    """x [..., T, D_model] and wq, wk [D_model, D_k], wv [D_model, D_v]; no two
    widths are equal."""
    return random_arrays((*lead, d_model), (d_model, d_k), (d_model, d_k),
                         (d_model, d_v), seed=seed, dtype=dtype)


def fill_padding(array, lengths, axis):
    """A copy of array [B, ...] whose tokens (on `axis`) from lengths[b] on are junk."""
    filled = np.array(array)
    for b, length in enumerate(lengths):
        tokens = np.moveaxis(filled[b], axis - 1, 0)
        tokens[length:] = np.resize(JUNK, tokens[length:].shape)
    return filled


class AttentionTestCase(unittest.TestCase):

    def assertClose(self, actual, expected, tolerance=TOLERANCE):
        expected = np.asarray(expected)
        self.assertEqual(actual.shape, expected.shape)
        self.assertTrue(np.isfinite(actual).all(), "not finite")
        error = np.abs(actual.astype(float) - expected).max(initial=0)
        self.assertLessEqual(error, tolerance)

    def assertSameBits(self, actual, expected):
        self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape))
        self.assertEqual(actual.tobytes(), expected.tobytes())

    def assertZero(self, actual):
        self.assertEqual(np.count_nonzero(actual), 0)   # NaN counts as nonzero

    def assertRefused(self, words, function, *args, **kwargs):
        """ValueError with every one of the words (a string: one)."""
        with self.assertRaises(ValueError) as caught:
            function(*args, **kwargs)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, str(caught.exception))


class TestAttend(AttentionTestCase):

    def test_equals_scalar_loops(self):
        rng = np.random.default_rng(1)
        for tq, tk, d, d_v in [(1, 1, 1, 1), (1, 4, 3, 5), (4, 1, 3, 5),
                               (2, 6, 3, 5), (6, 2, 5, 3)]:
            q, k, v = random_arrays((tq, d), (tk, d), (tk, d_v))
            for visible in (None, rng.random((tq, tk)) < 0.5, np.zeros((tq, tk), bool)):
                with self.subTest(tq=tq, tk=tk, d=d, d_v=d_v, visible=visible):
                    output, weights = attend(q, k, v, visible)
                    expected = oracle.attention(q, k, v, visible)
                    self.assertClose(output, expected[0])
                    self.assertClose(weights, expected[1])

    def test_hand_worked_weights(self):
        # Scores 2 * ln 3 / sqrt(4) = ln 3 and 0: weights 3/4 and 1/4.
        q, k = [[1.0, 0, 0, 0]], [[2 * math.log(3), 7, 7, 7], [0, 8, 8, 8]]
        output, weights = attend(q, k, [[0.0, 4], [8, 4]])
        self.assertClose(weights, [[0.75, 0.25]])
        self.assertClose(output, [[2, 4]])

    def test_bits_are_those_of_the_published_order_of_operations(self):
        for dtype in (np.float32, np.float64):
            for tq, tk, d, d_v in [(1, 40, 16, 16), (12, 12, 16, 16), (5, 33, 7, 9),
                                   (64, 64, 64, 64)]:
                with self.subTest(dtype=dtype, tq=tq, tk=tk):
                    q, k, v = random_arrays((tq, d), (tk, d), (tk, d_v), dtype=dtype)
                    visible = np.arange(tk) <= np.arange(tk - tq, tk)[:, None]
                    scores = np.where(visible, q @ k.T / math.sqrt(d), -np.inf)
                    scores = scores - scores.max(-1, keepdims=True)
                    weights = np.exp(scores)
                    weights = weights / weights.sum(-1, keepdims=True)
                    output, actual_weights = attend(q, k, v, visible)
                    self.assertSameBits(actual_weights, weights.astype(dtype))
                    self.assertSameBits(output, (weights @ v).astype(dtype))

    def test_every_leading_index_is_attended_alone(self):
        q, k, v = random_arrays((2, 3, 4, 3), (2, 1, 6, 3), (1, 3, 6, 5))
        visible = np.random.default_rng(2).random((2, 1, 4, 6)) < 0.5
        visible[1, 0, 2] = False
        for mask in (None, visible, visible[1, 0]):
            output, weights = attend(q, k, v, mask)
            for b, h in np.ndindex(2, 3):
                with self.subTest(mask=np.shape(mask), b=b, h=h):
                    own = mask if mask is None or mask.ndim == 2 else mask[b, 0]
                    expected = oracle.attention(q[b, h], k[b, 0], v[0, h], own)
                    self.assertClose(output[b, h], expected[0])
                    self.assertClose(weights[b, h], expected[1])

    def test_huge_scores_do_not_overflow(self):
        q, k, v = random_arrays((4, 3), (6, 3), (6, 5))
        with np.errstate(all="raise"):
            output, weights = attend(q * 1e3, k * 1e3, v)
        expected_output, expected_weights = oracle.attention(q * 1e3, k * 1e3, v)
        self.assertClose(output, expected_output)
        self.assertClose(weights, expected_weights)

    def test_padding_reaches_nothing_and_warns_of_nothing(self):
        # Query 1 sees nothing, key 2 is seen by none.
        q, k, v = random_arrays((3, 3), (4, 3), (4, 5))
        visible = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]], bool)
        expected = attend(q, k, v, visible)
        for junk in JUNK:
            for places in ("q", "k", "v", "qkv"):
                with self.subTest(junk=junk, places=places), np.errstate(all="raise"):
                    arrays = {"q": q.copy(), "k": k.copy(), "v": v.copy()}
                    for name in places:
                        arrays[name][1 if name == "q" else 2] = junk
                    output, weights = attend(**arrays, visible=visible)
                    self.assertSameBits(output, expected[0])
                    self.assertSameBits(weights, expected[1])
                    self.assertZero(output[1])
                    self.assertZero(weights[1])
                    self.assertZero(weights[:, 2])

    def test_unseen_key_is_padding_also_where_every_query_sees_something(self):
        q, k, v = random_arrays((2, 3), (3, 3), (3, 5))
        visible = np.array([[1, 0, 0], [1, 1, 0]], bool)
        k, v = np.array(k), np.array(v)
        k[2] = v[2] = np.nan
        with np.errstate(all="raise"):
            output, _ = attend(q, k, v, visible)
        self.assertClose(output, oracle.attention(q, k[:2], v[:2], visible[:, :2])[0])

    def test_row_that_sees_nothing_leaves_the_others_unchanged(self):
        q, k, v = random_arrays((3, 3), (4, 3), (4, 5))
        visible = np.array([[1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]], bool)
        before = attend(q, k, v, visible)
        visible[1] = False
        with np.errstate(all="raise"):
            after = attend(q, k, v, visible)
        for old, new in zip(before, after):
            self.assertSameBits(new[[0, 2]], old[[0, 2]])
            self.assertZero(new[1])

    def test_the_result_has_the_widest_float_dtype(self):
        q, k, v = random_arrays((2, 3), (4, 3), (4, 5))
        visible = np.array([[1, 0, 1, 0], [1, 1, 1, 1]], bool)
        blank = np.array([[1, 0, 1, 0], [0, 0, 0, 0]], bool)
        cases = [("float64",) * 4, ("float32",) * 4, ("float16",) * 4,
                 ("float16", "float32", "float16", "float32"),
                 ("float32", "float64", "float16", "float64"),
                 ("int64", "float32", "float32", "float64"),
                 ("int8", "int32", "uint8", "float64")]
        for *dtypes, expected in cases:
            for mask in (None, visible, blank):
                with self.subTest(dtypes=dtypes, mask=mask):
                    given = [np.abs(10 * array).astype(dtype)
                             for array, dtype in zip((q, k, v), dtypes)]
                    output, weights = attend(*given, mask)
                    self.assertEqual(output.dtype, expected)
                    self.assertEqual(weights.dtype, expected)
                    lists = [array.tolist() for array in given]
                    self.assertClose(output, oracle.attention(*lists, mask)[0],
                                     np.finfo(expected).eps * 50)

    def test_float16_does_not_overflow_inside(self):
        # The first score is 3 * 400 * 400 / sqrt(3) = 277128: more than float16
        # holds (65504).
        q = np.full((1, 3), 400, np.float16)
        k = np.array([[400] * 3, [399] * 3], np.float16)
        v = np.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]], np.float16)
        with np.errstate(all="raise"):
            output, weights = attend(q, k, v)
        self.assertEqual((output.dtype, weights.dtype), (np.float16, np.float16))
        self.assertEqual(output.tolist(), [[1, 2, 3, 4, 5]])
        self.assertEqual(weights.tolist(), [[1, 0]])

    def test_bad_shapes_are_refused_by_the_words_of_the_contract(self):
        q, k, v = random_arrays((2, 4, 3), (2, 6, 3), (2, 6, 5))
        see = np.ones((4, 6), bool)
        cases = [
            (["q must be", "2D", "(3,)"], (q[0, 0], k, v)),
            (["k must be", "2D"], (q, k[0, 0], v)),
            (["v must be", "2D"], (q, k, v[0, 0])),
            (["axis of q", "positive", "(2, 0, 3)"], (q[:, :0], k, v)),
            # Rows that could see nothing.
            (["axis of k", "positive"], (q, k[:, :0], v[:, :0])),
            (["axis of q", "positive"], (q[..., :0], k[..., :0], v)),
            (["axis of v", "positive"], (q, k, v[..., :0])),
            (["same width", "(2, 4, 3)", "(2, 6, 2)"], (q, k[..., :2], v)),
            (["same tokens", "(2, 6, 3)", "(2, 5, 5)"], (q, k, v[:, :5])),
            (["leading", "q and k", "(2,)", "(3,)"], (q, np.ones((3, 6, 3)), v)),
            (["leading", "q, k and v", "(2,)", "(3,)"], (q, k, np.ones((3, 6, 5)))),
            (["visible", "boolean", "float64"], (q, k, v, np.ones((4, 6)))),
            (["visible", "(2, 4, 6)", "(4, 5)"], (q, k, v, see[:, :5])),
            (["visible", "(2, 4, 6)", "(1, 6)"], (q, k, v, see[:1])),
            (["visible", "(2, 4, 6)", "(6,)"], (q, k, v, see[0])),
            (["visible", "leading", "(3,)"], (q, k, v, np.ones((3, 4, 6), bool))),
            (["visible", "(2, 4, 6)", "(5, 2, 4, 6)"],
             (q, k, v, np.ones((5, 2, 4, 6), bool))),
            (["q must hold real numbers", "bool"], (q > 0, k, v)),
            (["k must hold real numbers", "complex"], (q, k + 0j, v)),
            (["v must hold real numbers", "object"], (q, k, v.astype(object))),
        ]
        for words, args in cases:
            with self.subTest(words=words):
                self.assertRefused(words, attend, *args)

    def test_lead_of_one_broadcasts_in_the_mask(self):
        q, k, v = random_arrays((2, 4, 3), (2, 6, 3), (2, 6, 5))
        see = np.tri(4, 6, dtype=bool)
        for got, expected in zip(attend(q, k, v, see[None]), attend(q, k, v, see)):
            self.assertSameBits(got, expected)

    def test_step_is_attend_with_the_mask_the_other_way_round(self):
        q, k, v = random_arrays((2, 4, 3), (2, 6, 3), (2, 6, 5))
        visible = np.tri(4, 6, 2, dtype=bool)
        for step, whole in ((attention_step(q, k, v), attend(q, k, v)),
                            (attention_step(q, k, v, ~visible),
                             attend(q, k, v, visible))):
            for got, expected in zip(step, whole):
                self.assertSameBits(got, expected)


class TestDecode(AttentionTestCase):

    def test_every_path_equals_scalar_loops(self):
        for tokens in (1, 2, 7):
            arrays = decode_arrays(tokens)
            expected = oracle.decode(*arrays)
            for name, path in SINGLE_PATHS.items():
                with self.subTest(path=name, tokens=tokens):
                    self.assertClose(path(*arrays), expected)

    def test_every_batch_path_equals_scalar_loops(self):
        x, *weights = decode_arrays(2, 6)
        expected = [oracle.decode(sequence, *weights) for sequence in x]
        for name, path in BATCH_PATHS.items():
            with self.subTest(path=name):
                self.assertClose(path(x, *weights), expected)

    def test_fused_equals_preallocated_at_every_length(self):
        for dtype, tolerance in ((np.float64, TOLERANCE), (np.float32, 2e-6)):
            for tokens in range(1, 41):
                with self.subTest(dtype=dtype, tokens=tokens):
                    x, *weights = decode_arrays(tokens, d_model=16, d_k=12, d_v=20,
                                                seed=tokens, dtype=dtype)
                    # Keeps the scores near 1, so that rounding stays near eps.
                    x = x / 16
                    expected = SINGLE_PATHS["preallocated"](x, *weights)
                    self.assertClose(decode_fused(x, *weights), expected, tolerance)

    def test_caches_are_the_projections(self):
        x, wq, wk, wv = decode_arrays(3, 6)
        batched = batched_cached_attention(x, wq, wk, wv)
        self.assertClose(batched[1], x @ wk)
        self.assertClose(batched[2], x @ wv)
        for path in (cached_attention, cached_attention_preallocated):
            with self.subTest(path=path.__name__):
                output, k_cache, v_cache = path(x[0], wq, wk, wv)
                self.assertEqual(output.shape, (6, 5))
                self.assertClose(k_cache, x[0] @ wk)
                self.assertClose(v_cache, x[0] @ wv)

    def test_sequential_is_each_sequence_alone(self):
        x, *weights = decode_arrays(3, 6)
        outputs = [cached_attention(sequence, *weights)[0] for sequence in x]
        self.assertSameBits(sequential_cached_attention(x, *weights), np.stack(outputs))

    def test_later_token_changes_no_earlier_row(self):
        x, *weights = decode_arrays(6)
        changed = np.array(x)
        changed[3:] += 1
        for name, path in SINGLE_PATHS.items():
            with self.subTest(path=name):
                before, after = path(x, *weights), path(changed, *weights)
                self.assertSameBits(after[:3], before[:3])
                self.assertTrue((after[3:] != before[3:]).all())

    def test_sequences_never_mix(self):
        x, *weights = decode_arrays(3, 6)
        changed = np.array(x)
        changed[1] += 1
        for name, path in BATCH_PATHS.items():
            with self.subTest(path=name):
                before, after = path(x, *weights), path(changed, *weights)
                self.assertSameBits(after[[0, 2]], before[[0, 2]])
                self.assertTrue((after[1] != before[1]).all())

    def test_padding_is_zero_and_the_real_rows_are_the_sequence_alone(self):
        x, *weights = decode_arrays(4, 6)
        for lengths in ([6, 4, 1, 0], (0, 0, 0, 0),
                        np.array([6, 6, 6, 5], np.uint8), [np.int64(3)] * 4):
            with self.subTest(lengths=lengths), np.errstate(all="raise"):
                filled = fill_padding(x, lengths, axis=1)
                results = batched_cached_attention(filled, *weights, lengths=lengths)
                self.assertEqual([result.shape for result in results],
                                 [(4, 6, 5), (4, 6, 3), (4, 6, 5)])
                for b, length in enumerate(lengths):
                    for result in results:
                        self.assertZero(result[b, length:])
                    if length:
                        real = x[b, :length]
                        alone = cached_attention(real, *weights)
                        self.assertClose(results[0][b, :length],
                                         oracle.decode(real, *weights))
                        for result, expected in zip(results, alone):
                            self.assertClose(result[b, :length], expected)

    def test_full_lengths_change_no_bit(self):
        arrays = decode_arrays(2, 6)
        for got, expected in zip(batched_cached_attention(*arrays, lengths=[6, 6]),
                                 batched_cached_attention(*arrays)):
            self.assertSameBits(got, expected)

    def test_dtypes_are_kept(self):
        for dtype, tolerance in ((np.float64, TOLERANCE), (np.float32, 2e-6),
                                 (np.float16, 4e-3)):
            x, *weights = decode_arrays(2, 6, dtype=dtype)
            lists = [weight.tolist() for weight in weights]
            expected = [oracle.decode(sequence.tolist(), *lists) for sequence in x]
            for name, path in SINGLE_PATHS.items():
                with self.subTest(path=name, dtype=dtype):
                    output = path(x[0], *weights)
                    self.assertEqual(output.dtype, dtype)
                    self.assertClose(output, expected[0], tolerance)
            for name, path in BATCH_PATHS.items():
                with self.subTest(path=name, dtype=dtype):
                    output = path(x, *weights)
                    self.assertEqual(output.dtype, dtype)
                    self.assertClose(output, expected, tolerance)
            for result in (*cached_attention(x[0], *weights),
                           *cached_attention_preallocated(x[0], *weights),
                           *batched_cached_attention(x, *weights),
                           *batched_cached_attention(x, *weights, [6, 3])):
                self.assertEqual(result.dtype, dtype)

    def test_whole_numbers_are_computed_as_float64(self):
        x, wv = [[1, 2], [3, 4]], [[3], [5]]
        wq, wk = [[1, 0, 2], [0, 1, 2]], [[1, 0, 0], [0, 1, 1]]
        for name, path in SINGLE_PATHS.items():
            with self.subTest(path=name):
                output = path(x, wq, wk, wv)
                self.assertEqual(output.dtype, np.float64)
                self.assertClose(output, oracle.decode(x, wq, wk, wv))

    def test_float16_does_not_overflow_inside(self):
        # The last query and key are 320 a column: their score is
        # 3 * 320 * 320 / sqrt(3) = 177362.
        x = np.array([[160, 0], [0, 160], [160, 160]], np.float16)
        wq = wk = np.ones((2, 3), np.float16)
        wv = np.array([[0.25] * 5, [0.5] * 5], np.float16)
        expected = oracle.decode(x.tolist(), wq.tolist(), wk.tolist(), wv.tolist())
        with np.errstate(all="raise"):
            for name, path in SINGLE_PATHS.items():
                with self.subTest(path=name):
                    self.assertClose(path(x, wq, wk, wv), expected, 1e-3)
            for name, path in BATCH_PATHS.items():
                with self.subTest(path=name):
                    self.assertClose(path(x[None], wq, wk, wv), [expected], 1e-3)

    def test_huge_scores_do_not_overflow(self):
        x, *weights = decode_arrays(2, 6)
        expected = [oracle.decode(1e3 * sequence, *weights) for sequence in x]
        with np.errstate(all="raise"):
            for name, path in SINGLE_PATHS.items():
                with self.subTest(path=name):
                    self.assertClose(path(1e3 * x[0], *weights), expected[0], 1e-9)
            for name, path in BATCH_PATHS.items():
                with self.subTest(path=name):
                    self.assertClose(path(1e3 * x, *weights), expected, 1e-9)

    def test_shapes_that_do_not_fit_are_refused(self):
        x, wq, wk, wv = decode_arrays(6)
        cases = [
            (["x must be", "D_model"], (x[:, 0], wq, wk, wv)),
            (["x must be", "1, 1, 6, 4)"], (x[None, None], wq, wk, wv)),
            (["axis of x", "positive", "0"], (x[:0], wq, wk, wv)),
            (["axis of x", "positive"], (x[:, :0], wq[:0], wk[:0], wv[:0])),
            (["wq", "2D", "(4,)"], (x, wq[:, 0], wk, wv)),
            (["wk", "2D"], (x, wq, wk[None], wv)),
            (["wv", "2D"], (x, wq, wk, wv[0])),
            (["wq", "input width", "4", "(3, 3)"], (x, wq[:3], wk, wv)),
            (["wk", "input width"], (x, wq, wk[:3], wv)),
            (["wv", "input width"], (x, wq, wk, wv[:3])),
            (["wq and wk", "same D_k", "(4, 3)", "(4, 2)"], (x, wq, wk[:, :2], wv)),
            (["axis of wq", "positive"], (x, wq[:, :0], wk[:, :0], wv)),
            (["axis of wv", "positive"], (x, wq, wk, wv[:, :0])),
            (["x must hold real numbers", "complex"], (x + 0j, wq, wk, wv)),
            (["wv must hold real numbers", "bool"], (x, wq, wk, wv > 0)),
        ]
        single = (decode_without_cache, cached_attention,
                  cached_attention_preallocated, decode_fused)
        batch = (sequential_cached_attention, batched_cached_attention)
        for words, (x_given, *weights) in cases:
            for path in single + batch:
                with self.subTest(path=path.__name__, words=words):
                    own = x_given[None] if path in batch else x_given
                    self.assertRefused(words, path, own, *weights)
        for path in single:
            with self.subTest(path=path.__name__):
                self.assertRefused(["2D", "[T, D_model]", "(1, 6, 4)"],
                                   path, x[None], wq, wk, wv)
        for path in batch:
            with self.subTest(path=path.__name__):
                self.assertRefused(["3D", "[B, T, D_model]", "(6, 4)"],
                                   path, x, wq, wk, wv)
                self.assertRefused(["positive", "(0, 6, 4)"],
                                   path, x[None][:0], wq, wk, wv)


class TestModule(AttentionTestCase):

    def test_nested_lists_are_taken_like_arrays(self):
        def listed(argument):
            return argument.tolist() if isinstance(argument, np.ndarray) else argument

        x, wq, wk, wv = decode_arrays(2, 6)
        q, k, v, k_cache, v_cache = random_arrays(*[(2, 4, 1, 3)] * 3,
                                                  *[(2, 4, 5, 3)] * 2)
        w_o, = random_arrays((12, 2))
        calls = [(attend, q, k_cache, v_cache, np.array([[1, 0, 1, 0, 1]], bool)),
                 *((path, x[0], wq, wk, wv) for path in SINGLE_PATHS.values()),
                 (sequential_cached_attention, x, wq, wk, wv),
                 (batched_cached_attention, x, wq, wk, wv, [6, 2]),
                 (attention.split_heads, x, 2), (attention.merge_heads, q),
                 (attention.project_qkv, x, wq, wk, wk, 3, 3),
                 (attention.project_output, q, w_o),
                 (attention.multi_head_causal_attention, q, k, v),
                 (attention.grouped_query_attention, q, k, v),
                 (attention.cached_multi_head_attention, q, k, v, k_cache, v_cache)]
        for function, *args in calls:
            with self.subTest(function=function.__name__):
                expected, got = function(*args), function(*map(listed, args))
                if not isinstance(expected, tuple):
                    expected, got = (expected,), (got,)
                for left, right in zip(expected, got):
                    self.assertClose(right, left)

    def test_layout_in_memory_changes_no_value(self):
        arrays = decode_arrays(6)
        layouts = {"columns first": np.asfortranarray,
                   "every second": lambda a: np.repeat(a, 2, 0)[::2],
                   "other byte order": lambda a: a.astype(a.dtype.newbyteorder())}
        for name, path in SINGLE_PATHS.items():
            for layout, lay in layouts.items():
                with self.subTest(path=name, layout=layout):
                    self.assertClose(path(*map(lay, arrays)), path(*arrays))

    def test_public_functions_are_documented_and_hinted(self):
        self.assertEqual(len(set(attention.__all__)), 16)
        for name in attention.__all__:
            with self.subTest(name):
                function = getattr(attention, name)
                self.assertTrue(function.__doc__)
                self.assertIn("return", function.__annotations__)


if __name__ == "__main__":
    unittest.main()
