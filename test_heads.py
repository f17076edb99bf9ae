"""Heads: splitting, projecting, grouping and caching them; the bytes of a cache.

Axes: B sequences, H heads, T tokens, D width.
"""

import unittest

import oracle

try:
    import numpy as np
except ImportError:             # without NumPy
    raise unittest.SkipTest("attention.py needs NumPy") from None

from attention import (batched_cached_attention, cached_multi_head_attention,
                       grouped_query_attention, kv_bytes, merge_heads,
                       multi_head_causal_attention, project_output, project_qkv,
                       split_heads)
from test_attention import (AttentionTestCase, decode_arrays, fill_padding,
                            random_arrays)


class TestHeads(AttentionTestCase):

    def test_split_heads_is_a_view_of_columns(self):
        projected = np.arange(2 * 3 * 8.0).reshape(2, 3, 8)
        heads = split_heads(projected, 2)
        self.assertEqual(heads.shape, (2, 2, 3, 4))
        self.assertTrue(np.shares_memory(heads, projected))
        self.assertSameBits(heads[1, 1], projected[1, :, 4:])
        projected[1, 2, 7] = -1
        self.assertEqual(heads[1, 1, 2, 3], -1)

    def test_merge_heads_is_the_inverse(self):
        projected, = random_arrays((2, 3, 8))
        for num_heads in (1, 2, 4, np.int64(8)):
            with self.subTest(num_heads=num_heads):
                heads = split_heads(projected, num_heads)
                self.assertSameBits(merge_heads(heads), projected)
        heads, = random_arrays((2, 5, 3, 4))
        self.assertSameBits(split_heads(merge_heads(heads), 5), heads)

    def test_project_qkv_gives_each_head_its_own_columns(self):
        x, w_q, w_k, w_v = random_arrays((2, 5, 7), (7, 4 * 3), (7, 2 * 3), (7, 2 * 3))
        q, k, v = project_qkv(x, w_q, w_k, w_v, 4, 2)
        for heads, weight, count in ((q, w_q, 4), (k, w_k, 2), (v, w_v, 2)):
            self.assertEqual(heads.shape, (2, count, 5, 3))
            for b, h in np.ndindex(2, count):
                own = weight[:, 3 * h:3 * h + 3]
                self.assertClose(heads[b, h], oracle.project(x[b], own))

    def test_project_output_mixes_heads_side_by_side(self):
        heads, w_o = random_arrays((2, 4, 5, 3), (12, 7))
        output = project_output(heads, w_o)
        for b in range(2):
            rows = [[value for head in heads[b] for value in head[t]] for t in range(5)]
            self.assertClose(output[b], oracle.project(rows, w_o))

    def test_projections_keep_dtypes(self):
        for dtype in (np.float64, np.float32, np.float16):
            x, weight, w_o = random_arrays((2, 5, 6), (6, 6), (6, 4), dtype=dtype)
            q, k, v = project_qkv(x, weight, weight, weight, 2, 2)
            for result in (q, k, v, project_output(q, w_o)):
                self.assertEqual(result.dtype, dtype)

    def test_float16_products_are_summed_in_float32(self):
        # In float16, 2048 + 1 is 2048.
        ones = np.ones((1, 1, 4096), np.float16)
        q, k, v = project_qkv(ones, *[np.ones((4096, 1), np.float16)] * 3, 1, 1)
        self.assertEqual([q.item(), k.item(), v.item()], [4096] * 3)
        self.assertEqual(project_output(ones[None], ones[0].T).item(), 4096)

    def test_underflow_is_zero(self):
        tiny = np.full((1, 1, 1), 1e-200)
        with np.errstate(all="raise"):
            q, _, _ = project_qkv(tiny, tiny[0], tiny[0], tiny[0], 1, 1)
            self.assertEqual(q.item(), 0)
            self.assertEqual(project_output(tiny[None], tiny[0]).item(), 0)

    def test_multi_head_equals_scalar_loops(self):
        for lengths in (None, [5, 2], [0, 1]):
            with self.subTest(lengths=lengths):
                q, k, v = random_arrays(*[(2, 4, 5, 3)] * 3)
                output, weights = multi_head_causal_attention(q, k, v, lengths)
                expected = oracle.grouped_heads(q, k, v, lengths)
                self.assertClose(output, expected[0])
                self.assertClose(weights, expected[1])

    def test_grouped_query_equals_scalar_loops(self):
        for query_heads, kv_heads in [(1, 1), (4, 4), (4, 1), (6, 2), (6, 3)]:
            for lengths in (None, [5, 2, 0]):
                with self.subTest(query_heads=query_heads, kv_heads=kv_heads,
                                  lengths=lengths):
                    q, k, v = random_arrays((3, query_heads, 5, 7),
                                            *[(3, kv_heads, 5, 7)] * 2)
                    output, weights = grouped_query_attention(q, k, v, lengths)
                    expected = oracle.grouped_heads(q, k, v, lengths)
                    self.assertClose(output, expected[0])
                    self.assertClose(weights, expected[1])

    def test_grouped_query_with_as_many_kv_heads_is_multi_head(self):
        q, k, v = random_arrays(*[(2, 4, 5, 3)] * 3)
        for lengths in (None, [5, 2]):
            for got, expected in zip(grouped_query_attention(q, k, v, lengths),
                                     multi_head_causal_attention(q, k, v, lengths)):
                self.assertSameBits(got, expected)

    def test_query_heads_read_kv_heads_in_order(self):
        # V of KV head h holds h; one key, so that its weight is 1.
        q, k = random_arrays((1, 4, 1, 3), (1, 2, 1, 3))
        v = np.broadcast_to(np.arange(2.0)[:, None, None], (1, 2, 1, 3))
        for function in (grouped_query_attention, cached_multi_head_attention):
            with self.subTest(function=function.__name__):
                output, *_ = function(q, k, v)
                self.assertEqual(output[0, :, 0, 0].tolist(), [0, 0, 1, 1])

    def test_sequences_and_heads_never_mix(self):
        # Change KV head 1 of sequence 0: query heads 2 and 3 read it, and nothing
        # else moves.
        q, k, v = random_arrays((2, 4, 5, 3), (2, 2, 5, 3), (2, 2, 5, 3))
        others = np.ones((2, 4), bool)
        others[0, 2:] = False
        changed_k, changed_v = np.array(k), np.array(v)
        changed_k[0, 1] *= -1
        changed_v[0, 1] *= -1

        def whole(k, v):
            return grouped_query_attention(q, k, v)

        def cached(k, v):
            new = [array[:, :, 4:] for array in (q, k, v)]
            return cached_multi_head_attention(*new, k[:, :, :4], v[:, :, :4])[:2]

        for function in (whole, cached):
            with self.subTest(function.__name__):
                before, old_weights = function(k, v)
                after, new_weights = function(changed_k, changed_v)
                self.assertSameBits(after[others], before[others])
                self.assertSameBits(new_weights[others], old_weights[others])
                self.assertTrue((after[~others] != before[~others]).all())

    def test_changed_query_head_moves_that_head_alone(self):
        q, k, v = random_arrays(*[(2, 4, 5, 3)] * 3)
        changed = np.array(q)
        changed[1, 2] *= -1
        others = np.ones((2, 4), bool)
        others[1, 2] = False
        before, _ = multi_head_causal_attention(q, k, v)
        after, _ = multi_head_causal_attention(changed, k, v)
        self.assertSameBits(after[others], before[others])
        # From the second token on: the first sees but itself.
        self.assertTrue((after[1, 2, 1:] != before[1, 2, 1:]).all())

    def test_padding_reaches_nothing_and_warns_of_nothing(self):
        lengths = [5, 3, 0]
        for kv_heads, function in ((4, multi_head_causal_attention),
                                   (4, grouped_query_attention),
                                   (2, grouped_query_attention)):
            given = random_arrays((3, 4, 5, 3), *[(3, kv_heads, 5, 3)] * 2)
            filled = [fill_padding(array, lengths, axis=2) for array in given]
            with self.subTest(kv_heads=kv_heads, function=function.__name__), \
                    np.errstate(all="raise"):
                output, weights = function(*filled, lengths=lengths)
                for b, length in enumerate(lengths):
                    self.assertZero(output[b, :, length:])
                    self.assertZero(weights[b, :, length:])
                    self.assertZero(weights[b, :, :, length:])
                    if length:
                        alone = function(*(array[b:b + 1, :, :length]
                                           for array in given))
                        self.assertClose(output[b:b + 1, :, :length], alone[0])
                        self.assertClose(weights[b:b + 1, :, :length, :length],
                                         alone[1])

    def test_heads_keep_dtypes(self):
        for dtype in (np.float64, np.float32, np.float16):
            q, k, v = random_arrays(*[(2, 4, 5, 3)] * 3, dtype=dtype)
            token = [a[:, :, :1] for a in (q, k, v)]
            for lengths in (None, [5, 2]):
                for result in (*multi_head_causal_attention(q, k, v, lengths),
                               *grouped_query_attention(q, k[:, :2], v[:, :2], lengths),
                               *cached_multi_head_attention(*token),
                               *cached_multi_head_attention(*token, k, v)):
                    self.assertEqual(result.dtype, dtype)

    def test_float16_heads_do_not_overflow_inside(self):
        q = k = np.full((1, 2, 2, 3), 400, np.float16)
        v = np.ones((1, 2, 2, 3), np.float16)
        token = [array[:, :, :1] for array in (q, k, v)]
        with np.errstate(all="raise"):
            for output, *_ in (multi_head_causal_attention(q, k, v),
                               grouped_query_attention(q, k[:, :1], v[:, :1]),
                               cached_multi_head_attention(*token, k, v)):
                self.assertTrue((output == 1).all())

    def test_bad_shapes_are_refused_by_the_words_of_the_contract(self):
        q, = random_arrays((2, 4, 5, 3))
        k = v = q[:, :2]
        x, w_q, w_k = random_arrays((2, 5, 7), (7, 12), (7, 6))
        cases = [
            (["3D", "(2, 5)"], split_heads, (x[:, :, 0], 1)),
            (["positive", "(2, 0, 7)"], split_heads, (x[:, :0], 1)),
            (["positive", "num_heads", "0"], split_heads, (x, 0)),
            (["positive", "-1"], split_heads, (x, -1)),
            (["positive", "True"], split_heads, (x, True)),
            (["positive", "7.0"], split_heads, (x, 7.0)),
            (["divisible", "2", "7"], split_heads, (x, 2)),
            (["4D", "(2, 5, 7)"], merge_heads, (x,)),
            (["positive"], merge_heads, (q[:, :0],)),
            (["3D", "(5, 7)"], project_qkv, (x[0], w_q, w_k, w_k, 4, 2)),
            (["input width", "w_q", "7", "(6, 12)"],
             project_qkv, (x, w_q[:6], w_k, w_k, 4, 2)),
            (["input width", "w_k"], project_qkv, (x, w_q, w_k[:6], w_k, 4, 2)),
            (["input width", "w_v"], project_qkv, (x, w_q, w_k, w_k[:6], 4, 2)),
            (["2D", "w_q"], project_qkv, (x, w_q[0], w_k, w_k, 4, 2)),
            (["positive", "num_query_heads"], project_qkv, (x, w_q, w_k, w_k, 0, 2)),
            (["positive", "num_kv_heads"], project_qkv, (x, w_q, w_k, w_k, 4, 0)),
            (["D_head", "divisible", "5", "12"], project_qkv, (x, w_q, w_k, w_k, 5, 2)),
            (["w_k must have 3 heads of D_head = 3, 9 columns, got 6"],
             project_qkv, (x, w_q, w_k, w_k, 4, 3)),
            (["w_v must have 2 heads of D_head = 3, 6 columns, got 5"],
             project_qkv, (x, w_q, w_k, w_k[:, :5], 4, 2)),
            (["real numbers", "complex"], project_qkv, (x, w_q + 0j, w_k, w_k, 4, 2)),
            (["4D"], project_output, (x, w_q)),
            (["input width", "12", "(7, 12)"], project_output, (q, w_q)),
            (["2D"], project_output, (q, w_q[0])),
            (["real numbers"], project_output, (q, np.ones((12, 2), bool))),
            (["4D", "q", "(4, 5, 3)"], multi_head_causal_attention, (q[0], q, q)),
            (["4D", "k"], multi_head_causal_attention, (q, q[0], q)),
            (["4D", "v"], multi_head_causal_attention, (q, q, q[0])),
            (["same", "(2, 4, 5, 3), (2, 2, 5, 3) and (2, 2, 5, 3)"],
             multi_head_causal_attention, (q, k, v)),
            (["same", "(2, 4, 5, 3), (2, 4, 5, 3) and (2, 2, 5, 3)"],
             multi_head_causal_attention, (q, q, v)),
            (["same"], multi_head_causal_attention, (q[:, :2], q, v)),
            (["positive"], multi_head_causal_attention, (q[:, :, :0],) * 3),
            (["positive"], multi_head_causal_attention, (q[:, :0],) * 3),
            (["real numbers"], multi_head_causal_attention, (q, q, q + 0j)),
            (["4D"], grouped_query_attention, (q, k[0], v)),
            (["same", "k and v", "(2, 2, 5, 3) and (2, 1, 5, 3)"],
             grouped_query_attention, (q, k, v[:, :1])),
            (["same", "k and v"], grouped_query_attention, (q, k, v[..., :2])),
            (["same", "B and D", "(2, 4, 5, 3) and (1, 2, 5, 3)"],
             grouped_query_attention, (q, k[:1], v[:1])),
            (["same", "B and D"], grouped_query_attention, (q, k[..., :2], v[..., :2])),
            (["same T", "(2, 4, 5, 3) and (2, 2, 4, 3)"],
             grouped_query_attention, (q, k[:, :, :4], v[:, :, :4])),
            (["same T"], grouped_query_attention, (q[:, :, :4], k, v)),
            (["positive"], grouped_query_attention, (q, k[:, :0], v[:, :0])),
            (["divisible", "4", "3"], grouped_query_attention, (q, q[:, :3], q[:, :3])),
            (["divisible", "2", "4"], grouped_query_attention, (k, q, q)),
        ]
        for words, function, args in cases:
            with self.subTest(function=function.__name__, words=words):
                self.assertRefused(words, function, *args)

    def test_lengths_that_are_no_lengths_are_refused(self):
        q, = random_arrays((2, 4, 5, 3))
        x, *weights = decode_arrays(2, 5)
        calls = {
            "multi-head": lambda lengths: multi_head_causal_attention(q, q, q, lengths),
            "grouped": lambda lengths: grouped_query_attention(q, q, q, lengths),
            "batched": lambda lengths: batched_cached_attention(x, *weights, lengths),
        }
        for lengths in ([5], [5, 5, 5], 5, [[5, 5]], [], [6, 5], [-1, 5], [5.0, 5],
                        np.array([5.0, 5]), [True, 5], np.array([True, False]),
                        ["5", "5"], "55", [None, 5]):
            for name, call in calls.items():
                with self.subTest(path=name, lengths=lengths):
                    self.assertRefused(["2 whole numbers in 0..5", repr(lengths)],
                                       call, lengths)


class TestCachedHeads(AttentionTestCase):

    def test_steps_equal_the_whole(self):
        for query_heads, kv_heads in [(4, 4), (4, 2), (4, 1)]:
            q, k, v = random_arrays((2, query_heads, 5, 3), *[(2, kv_heads, 5, 3)] * 2)
            expected_output, expected_weights = map(
                np.array, oracle.grouped_heads(q, k, v))
            k_cache = v_cache = None
            for t in range(5):
                with self.subTest(query_heads=query_heads, kv_heads=kv_heads, t=t):
                    new = slice(t, t + 1)
                    output, weights, k_cache, v_cache = cached_multi_head_attention(
                        q[:, :, new], k[:, :, new], v[:, :, new], k_cache, v_cache)
                    self.assertClose(output, expected_output[:, :, new])
                    self.assertClose(weights, expected_weights[:, :, new, :t + 1])
                    self.assertSameBits(k_cache, k[:, :, :t + 1])
                    self.assertSameBits(v_cache, v[:, :, :t + 1])

    def test_old_caches_are_never_changed_nor_shared(self):
        q, k, v, k_cache, v_cache = random_arrays(*[(2, 4, 1, 3)] * 3,
                                                  *[(2, 4, 5, 3)] * 2)
        before = k_cache.copy(), v_cache.copy()
        for old in ((), (k_cache[:, :, :0], v_cache[:, :, :0]), (k_cache, v_cache)):
            with self.subTest(tokens=len(old) and old[0].shape[2]):
                _, _, new_k, new_v = cached_multi_head_attention(q, k, v, *old)
                new_k[:] = new_v[:] = 0
        self.assertSameBits(k_cache, before[0])
        self.assertSameBits(v_cache, before[1])
        self.assertTrue(k.all() and v.all())

    def test_whole_numbers_are_computed_as_float64(self):
        one = np.ones((1, 1, 1, 2), int)
        output, weights, _, _ = cached_multi_head_attention(one, one, 3 * one, one, one)
        self.assertEqual((output.dtype, weights.dtype), (np.float64, np.float64))
        self.assertEqual(output.tolist(), [[[[2, 2]]]])

    def test_bad_shapes_are_refused_by_the_words_of_the_contract(self):
        q, caches = random_arrays((2, 4, 1, 3), (2, 4, 5, 3))
        k = v = q[:, :2]
        cache = caches[:, :2]
        cases = [
            (["4D", "q"], (q[0], k, v)),
            (["4D", "k"], (q, k[0], v)),
            (["4D", "v"], (q, k, v[0])),
            (["one token", "(2, 4, 5, 3)"], (caches, k, v)),
            (["one token", "(2, 4, 1, 3), (2, 2, 5, 3) and (2, 2, 1, 3)"],
             (q, cache, v)),
            (["one token"], (q, k, cache)),
            (["one token"], (caches, cache, cache)),
            (["positive"], (q[:, :0], k, v)),
            (["both"], (q, k, v, cache)),
            (["both"], (q, k, v, None, cache)),
            (["same", "k and v"], (q, k, v[:, :1])),
            (["same", "B and D"], (q[:1], k, v)),
            (["same", "B and D"], (q[..., :2], k, v)),
            (["divisible", "4", "3"], (q, q[:, :3], q[:, :3])),
            (["4D", "(2, 5, 3)"], (q, k, v, cache[:, 0], cache)),
            (["4D", "(2, 5, 3)"], (q, k, v, cache, cache[:, 0])),
            (["same", "T", "(2, 2, 5, 3)", "(2, 2, 4, 3)"],
             (q, k, v, cache, cache[:, :, :4])),
            (["same", "(2, 1, 5, 3)", "k (2, 2, 1, 3)"],
             (q, k, v, cache[:, :1], cache[:, :1])),
            (["same"], (q, k, v, cache, cache[:, :1])),
            (["same"], (q, k, v, cache[:1], cache[:1])),
            (["same"], (q, k, v, cache[..., :2], cache[..., :2])),
            (["same"], (q, k, v, cache[..., :2], cache)),
            (["real numbers", "k_cache"], (q, k, v, cache + 0j, cache)),
            (["real numbers", "v_cache"], (q, k, v, cache, cache > 0)),
        ]
        for words, args in cases:
            with self.subTest(words=words, shapes=[np.shape(a) for a in args]):
                self.assertRefused(words, cached_multi_head_attention, *args)


class TestKvBytes(AttentionTestCase):

    def test_equals_the_arrays(self):
        for layers, batch, heads, tokens, width, dtype in [
                (1, 2, 3, 4, 5, "float64"), (2, 1, 2, 7, 3, np.float32),
                (3, 2, 1, 5, 4, np.dtype("float16")), (1, 0, 3, 4, 5, "float64"),
                (28, 1, 8, 16, 128, "float16"), (1, 2, 3, 0, 5, "int8")]:
            sizes = {"layers": layers, "batch": batch, "kv_heads": heads,
                     "tokens": tokens, "head_dim": width}
            with self.subTest(**sizes, dtype=dtype):
                caches = np.zeros((2, layers, batch, heads, tokens, width), dtype)
                self.assertEqual(kv_bytes(**sizes, dtype=dtype), caches.nbytes)

    def test_defaults_are_one_layer_of_float64(self):
        self.assertEqual(kv_bytes(batch=1, kv_heads=1, tokens=256, head_dim=64),
                         256 * 1024)

    def test_large_sizes_do_not_wrap(self):
        size = np.int32(2 ** 20)
        self.assertEqual(kv_bytes(batch=size, kv_heads=size, tokens=2 ** 20,
                                  head_dim=2 ** 20), 2 ** 84)

    def test_bad_shapes_are_refused_by_the_words_of_the_contract(self):
        good = {"batch": 1, "kv_heads": 2, "tokens": 3, "head_dim": 4, "layers": 5}
        for name in good:
            for bad in (-1, 1.0, True, np.True_, "1", None):
                with self.subTest(name=name, bad=bad):
                    self.assertRefused([name, "whole number >= 0", repr(bad)],
                                       kv_bytes, **{**good, name: bad})
        self.assertRefused(["dtype", "'float63'"], kv_bytes, **good, dtype="float63")
        with self.assertRaises(TypeError):
            kv_bytes(1, 2, 3, 4)     # the order is nobody's to guess


if __name__ == "__main__":
    unittest.main()
