"""Causal attention in NumPy: one step, and what a KV cache changes around it.

What changes when K and V are kept: which arithmetic stays, what is left out?

    output = decode_without_cache(x, wq, wk, wv)      each step anew
    output, k, v = cached_attention(x, wq, wk, wv)    one new token a step
    q, k, v = project_qkv(x, w_q, w_k, w_v, 8, 2)     8 heads on 2 of K, V
    output, weights = grouped_query_attention(q, k, v, lengths=[5, 3])

All paths rest on `attention_step`, so that they differ in what is kept and
computed, never in the arithmetic; `decode_fused` alone spells its step out.
float32 and float64 keep their dtype, float16 is computed in float32 and
returned as float16, whole numbers are computed as float64.  No argument is
ever changed.  Refusals are ValueErrors, raised before anything is computed.

Limit: K and V of a key that any query sees must be finite, since a hidden key
has weight 0, and 0 * NaN is NaN.  Padding, which no query sees, may hold
anything.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

__all__ = ["attend", "attention_step", "decode_without_cache", "cached_attention",
           "cached_attention_preallocated", "decode_fused",
           "sequential_cached_attention", "batched_cached_attention",
           "split_heads", "merge_heads", "project_qkv", "project_output",
           "multi_head_causal_attention", "grouped_query_attention",
           "cached_multi_head_attention", "kv_bytes"]

# B sequences, H heads (Hq of queries, Hkv of keys and values, G = Hq / Hkv),
# T tokens (Tq of queries, Tk of keys), D width; D_model, D_k and D_v are the
# widths of tokens, of queries and keys, and of values.

Array = np.ndarray      # in a signature: an array, or what np.asarray makes one of


def underflow_is_zero(function):
    """Ignore underflow, even where the caller made NumPy raise: a weight too
    small for a float is zero."""
    @functools.wraps(function)
    def quiet(*args, **kwargs):
        with np.errstate(under="ignore"):
            return function(*args, **kwargs)
    return quiet


# -- The kernel ---------------------------------------------------------------

@underflow_is_zero
def attend(q: Array, k: Array, v: Array,
           visible: Array | None = None) -> tuple[Array, Array]:
    """Return (output [..., Tq, D_v], weights [..., Tq, Tk]) of scaled dot-product
    attention.

    q [..., Tq, D], k [..., Tk, D], v [..., Tk, D_v]; leading axes broadcast.
    `visible` is a boolean array [..., Tq, Tk] that broadcasts to the scores,
    true where a query may see a key; None lets all see all.

        output = softmax(q k^T / sqrt(D)) v     Vaswani et al. 2017, equation 1

    A query that may see nothing is padding, and so is a key that nobody may
    see: they may hold anything, and the output and weights of such a query are
    zero.  Raise ValueError for shapes that do not fit, for an axis of length 0 and
    for anything but real numbers.
    """
    (q, k, v), dtype = as_floats(q=q, k=k, v=v)
    visible = check_attend(q, k, v, visible)
    if visible is None:
        return as_dtype(dtype, *attention_step(q, k, v))
    sees = visible.any(axis=-1)[..., None]          # [..., Tq, 1]
    seen = visible.any(axis=-2)[..., None]          # [..., Tk, 1]
    if sees.all() and seen.all():
        return as_dtype(dtype, *attention_step(q, k, v, ~visible))
    q, k, v = np.where(sees, q, 0), np.where(seen, k, 0), np.where(seen, v, 0)
    # A row that sees nothing looks at every key here: its softmax stays finite,
    # and is zeroed below.
    output, weights = attention_step(q, k, v, ~visible & sees)
    return as_dtype(dtype, np.where(sees, output, 0), np.where(sees, weights, 0))


def attention_step(q: Array, k: Array, v: Array,
                   hidden: Array | None = None) -> tuple[Array, Array]:
    """Return what `attend` returns, unchecked: the step that all paths share.

    q [..., Tq, D], k [..., Tk, D] and v [..., Tk, D_v] are arrays of one float
    dtype, `hidden` is boolean [..., Tq, Tk], true where a query must not see a
    key; None hides none.  Every query must see at least one key.  Return
    (output [..., Tq, D_v], weights [..., Tq, Tk]).  The order of operations
    fixes the bits.
    """
    # Normalise before V, and divide, not multiply.  math.sqrt gives a Python
    # float; np.sqrt would promote float32 in NumPy 2.
    scores = q @ np.swapaxes(k, -1, -2)             # [..., Tq, Tk]
    scores /= math.sqrt(q.shape[-1])
    if hidden is not None:
        np.copyto(scores, -np.inf, where=hidden)
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    return weights @ v, weights


def check_attend(q, k, v, visible):
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim < 2:
            raise ValueError(f"{name} must be at least 2D [..., T, D], "
                             f"got shape {array.shape}")
        check_positive(name, array)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("q and k must have the same width D, "
                         f"got {q.shape} and {k.shape}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError("k and v must have the same tokens, "
                         f"got {k.shape} and {v.shape}")
    lead = common_lead("q and k", q.shape[:-2], k.shape[:-2])
    common_lead("q, k and v", lead, v.shape[:-2])
    if visible is None:
        return None
    return check_visible(visible, (*lead, q.shape[-2], k.shape[-2]))


def check_visible(visible, scores):
    """Return `visible` as an array that fits scores of the shape `scores`."""
    visible = np.asarray(visible)
    if visible.dtype != bool:
        raise ValueError(f"visible must be boolean, got {visible.dtype}")
    lead = scores[:-2]
    if (visible.shape[-2:] != scores[-2:]
            or common_lead("visible and q", visible.shape[:-2], lead) != lead):
        raise ValueError(f"visible must fit the scores {scores}, "
                         f"got shape {visible.shape}")
    return visible


# -- Decode paths -------------------------------------------------------------

@underflow_is_zero
def decode_without_cache(x: Array, wq: Array, wk: Array, wv: Array) -> Array:
    """Decode x [T, D_model] token by token without a cache: output [T, D_v].

    Every step projects Q, K and V of the whole prefix, computes all of its
    rows and keeps the last.  Here as in all decode paths wq and wk are
    [D_model, D_k], wv is [D_model, D_v].  Raise ValueError for shapes that do not
    fit, an axis of length 0 and anything but real numbers.
    """
    (x, wq, wk, wv), dtype = check_decode(x, wq, wk, wv, "[T, D_model]")
    tokens = len(x)
    future = ~np.tri(tokens, dtype=bool)            # [T, T], made once
    output = np.empty((tokens, wv.shape[1]), x.dtype)
    for t in range(1, tokens + 1):
        prefix = x[:t]
        rows, _ = attention_step(prefix @ wq, prefix @ wk, prefix @ wv,
                                 future[:t, :t])
        output[t - 1] = rows[-1]
    return output.astype(dtype, copy=False)


@underflow_is_zero
def cached_attention(x: Array, wq: Array, wk: Array,
                     wv: Array) -> tuple[Array, Array, Array]:
    """Decode x [T, D_model] with a cache grown by `np.concatenate`.

    Return (output [T, D_v], k_cache [T, D_k], v_cache [T, D_v]).  ValueError
    as in `decode_without_cache`.
    """
    (x, wq, wk, wv), dtype = check_decode(x, wq, wk, wv, "[T, D_model]")
    return as_dtype(dtype, *decode_growing(x, wq, wk, wv))


@underflow_is_zero
def cached_attention_preallocated(x: Array, wq: Array, wk: Array,
                                  wv: Array) -> tuple[Array, Array, Array]:
    """Decode as `cached_attention` does, but K and V have their full size from
    the start and each step writes in place."""
    (x, wq, wk, wv), dtype = check_decode(x, wq, wk, wv, "[T, D_model]")
    tokens = len(x)
    k_cache = np.empty((tokens, wk.shape[1]), x.dtype)
    v_cache = np.empty((tokens, wv.shape[1]), x.dtype)
    output = np.empty_like(v_cache)
    for t in range(tokens):
        token = x[t:t + 1]                          # [1, D_model]
        k_cache[t:t + 1] = token @ wk
        v_cache[t:t + 1] = token @ wv
        output[t:t + 1], _ = attention_step(token @ wq, k_cache[:t + 1],
                                            v_cache[:t + 1])
    return as_dtype(dtype, output, k_cache, v_cache)


@underflow_is_zero
def decode_fused(x: Array, wq: Array, wk: Array, wv: Array) -> Array:
    """Decode x [T, D_model] as fast as readable NumPy gets: output [T, D_v].

    Still one token a step.  What makes it fast: one projection for Q, K and V
    together, the scale folded into Wq, K and V each contiguous, products
    written into buffers that are kept, no mask, and one division for all rows
    at the end.  Its last bits differ from the other paths'.  Raise ValueError as in
    `decode_without_cache`.
    """
    (x, wq, wk, wv), dtype = check_decode(x, wq, wk, wv, "[T, D_model]")
    tokens, d_k, d_v = len(x), wk.shape[1], wv.shape[1]
    # [D_model, D_k + D_k + D_v]
    w_qkv = np.concatenate((wq / math.sqrt(d_k), wk, wv), axis=1)
    projected = np.empty(2 * d_k + d_v, x.dtype)
    # Views: each projection renews them.
    query, key, value = np.split(projected, (d_k, 2 * d_k))
    k_cache = np.empty((tokens, d_k), x.dtype)
    v_cache = np.empty((tokens, d_v), x.dtype)
    output = np.empty((tokens, d_v), x.dtype)
    scores = np.empty(tokens, x.dtype)
    sums = np.empty((tokens, 1), x.dtype)
    for t in range(tokens):
        np.dot(x[t], w_qkv, out=projected)
        k_cache[t] = key
        v_cache[t] = value
        row = scores[:t + 1]
        np.dot(k_cache[:t + 1], query, out=row)
        row -= np.maximum.reduce(row)
        np.exp(row, out=row)
        sums[t] = np.add.reduce(row)
        np.dot(row, v_cache[:t + 1], out=output[t])
    output /= sums
    return output.astype(dtype, copy=False)


@underflow_is_zero
def sequential_cached_attention(x: Array, wq: Array, wk: Array, wv: Array) -> Array:
    """Decode x [B, T, D_model] as `cached_attention` does, one sequence after the
    other: output [B, T, D_v].

    Raise ValueError as in `decode_without_cache`.
    """
    (x, wq, wk, wv), dtype = check_decode(x, wq, wk, wv, "[B, T, D_model]")
    output = np.empty((*x.shape[:2], wv.shape[1]), x.dtype)
    for b, sequence in enumerate(x):
        # The loop of cached_attention without its checks, which would count
        # B times against this path.
        output[b], _, _ = decode_growing(sequence, wq, wk, wv)
    return output.astype(dtype, copy=False)


@underflow_is_zero
def batched_cached_attention(
        x: Array, wq: Array, wk: Array, wv: Array,
        lengths: Sequence[int] | None = None) -> tuple[Array, Array, Array]:
    """Decode x [B, T, D_model] with one call a step for all B sequences; the
    cache is grown.

    Return (output [B, T, D_v], k_cache [B, T, D_k], v_cache [B, T, D_v]).
    Sequences never mix.  `lengths` holds B whole numbers in 0..T: sequence b is
    real up to lengths[b], and beyond it x may hold anything while output and
    caches are zero.  Raise ValueError as in `decode_without_cache`, and for other
    lengths.
    """
    (x, wq, wk, wv), dtype = check_decode(x, wq, wk, wv, "[B, T, D_model]")
    if lengths is None:
        return as_dtype(dtype, *decode_growing(x, wq, wk, wv))
    real = real_tokens(lengths, *x.shape[:2])[..., None]       # [B, T, 1]
    # Padding comes last, so no real token sees it; zeroed, it cannot disturb
    # the arithmetic either.
    output, k_cache, v_cache = decode_growing(np.where(real, x, 0), wq, wk, wv)
    return as_dtype(dtype, np.where(real, output, 0), k_cache, v_cache)


def decode_growing(x, wq, wk, wv):
    """x [..., T, D_model]; one growing cache serves one sequence and many alike."""
    *lead, tokens, _ = x.shape
    k_cache = np.empty((*lead, 0, wk.shape[1]), x.dtype)
    v_cache = np.empty((*lead, 0, wv.shape[1]), x.dtype)
    output = np.empty((*lead, tokens, wv.shape[1]), x.dtype)
    for t in range(tokens):
        token = x[..., t:t + 1, :]                  # [..., 1, D_model]
        k_cache = np.concatenate((k_cache, token @ wk), axis=-2)
        v_cache = np.concatenate((v_cache, token @ wv), axis=-2)
        output[..., t:t + 1, :], _ = attention_step(token @ wq, k_cache, v_cache)
    return output, k_cache, v_cache


def check_decode(x, wq, wk, wv, axes):
    arrays, dtype = as_floats(x=x, wq=wq, wk=wk, wv=wv)
    x, wq, wk, wv = arrays
    check_axes("x", x, axes)
    for name, weight in (("wq", wq), ("wk", wk), ("wv", wv)):
        check_weight(name, weight, "[D_model, D]", x.shape[-1])
    if wq.shape[1] != wk.shape[1]:
        raise ValueError("wq and wk must have the same D_k, "
                         f"got shapes {wq.shape} and {wk.shape}")
    return arrays, dtype


# -- Heads --------------------------------------------------------------------

def split_heads(projected: Array, num_heads: int) -> Array:
    """projected [B, T, H*D] -> [B, H, T, D], a view."""
    projected = np.asarray(projected)
    check_axes("projected", projected, "[B, T, H*D]")
    num_heads = whole("num_heads", num_heads, at_least=1)
    batch, tokens, width = projected.shape
    if width % num_heads:
        raise ValueError("the width must be divisible by "
                         f"num_heads = {num_heads}, got {width}")
    heads = projected.reshape(batch, tokens, num_heads, width // num_heads)
    return heads.swapaxes(1, 2)


def merge_heads(heads: Array) -> Array:
    """heads [B, H, T, D] -> [B, T, H*D]: the inverse of `split_heads`."""
    heads = np.asarray(heads)
    check_axes("heads", heads, "[B, H, T, D]")
    batch, num_heads, tokens, width = heads.shape
    return heads.swapaxes(1, 2).reshape(batch, tokens, num_heads * width)


@underflow_is_zero
def project_qkv(x: Array, w_q: Array, w_k: Array, w_v: Array, num_query_heads: int,
                num_kv_heads: int) -> tuple[Array, Array, Array]:
    """x [B, T, D_model] -> q [B, Hq, T, D], k and v [B, Hkv, T, D].

    w_q is [D_model, Hq*D], w_k and w_v are [D_model, Hkv*D].  Raise ValueError where
    they are not.
    """
    (x, w_q, w_k, w_v), dtype = as_floats(x=x, w_q=w_q, w_k=w_k, w_v=w_v)
    check_axes("x", x, "[B, T, D_model]")
    num_query_heads = whole("num_query_heads", num_query_heads, at_least=1)
    num_kv_heads = whole("num_kv_heads", num_kv_heads, at_least=1)
    for name, weight in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        check_weight(name, weight, "[D_model, H*D]", x.shape[2])
    check_head_widths(w_q, w_k, w_v, num_query_heads, num_kv_heads)
    q, k, v = as_dtype(dtype, x @ w_q, x @ w_k, x @ w_v)
    return (split_heads(q, num_query_heads), split_heads(k, num_kv_heads),
            split_heads(v, num_kv_heads))


def check_head_widths(w_q, w_k, w_v, num_query_heads, num_kv_heads):
    d_head, rest = divmod(w_q.shape[1], num_query_heads)
    if rest:
        raise ValueError(f"w_q must be divisible into {num_query_heads} heads of "
                         f"width D_head, got {w_q.shape[1]} columns")
    for name, weight in (("w_k", w_k), ("w_v", w_v)):
        if weight.shape[1] != num_kv_heads * d_head:
            raise ValueError(
                f"{name} must have {num_kv_heads} heads of D_head = {d_head}, "
                f"{num_kv_heads * d_head} columns, got {weight.shape[1]}")


@underflow_is_zero
def project_output(heads: Array, w_o: Array) -> Array:
    """heads [B, H, T, D], w_o [H*D, D_out] -> [B, T, D_out]: the heads side by
    side, mixed by w_o."""
    (heads, w_o), dtype = as_floats(heads=heads, w_o=w_o)
    check_axes("heads", heads, "[B, H, T, D]")
    check_weight("w_o", w_o, "[H*D, D_out]", heads.shape[1] * heads.shape[3])
    return (merge_heads(heads) @ w_o).astype(dtype, copy=False)


def multi_head_causal_attention(
        q: Array, k: Array, v: Array,
        lengths: Sequence[int] | None = None) -> tuple[Array, Array]:
    """q, k, v of one shape [B, H, T, D] -> (output [B, H, T, D],
    weights [B, H, T, T]).

    Vaswani et al. 2017, section 3.2.2, without the projections.  `lengths`
    (right padding): as in `batched_cached_attention`; output and weights of
    padding are zero.  Raise ValueError for other shapes.
    """
    q, k, v = four_axes(q=q, k=k, v=v)
    if not q.shape == k.shape == v.shape:
        raise ValueError("q, k and v must have the same shape, "
                         f"got {q.shape}, {k.shape} and {v.shape}")
    return attend(q, k, v, causal(q, lengths))


def grouped_query_attention(
        q: Array, k: Array, v: Array,
        lengths: Sequence[int] | None = None) -> tuple[Array, Array]:
    """q [B, Hq, T, D], k and v [B, Hkv, T, D] -> (output [B, Hq, T, D],
    weights [B, Hq, T, T]), causal.

    Query head h reads KV head h // (Hq // Hkv) (Ainslie et al. 2023).  Hkv = Hq
    is multi-head attention, Hkv = 1 is multi-query attention (Shazeer 2019).
    `lengths` and errors: as in `multi_head_causal_attention`.
    """
    q, k, v = four_axes(q=q, k=k, v=v)
    check_groups(q, k, v)
    if q.shape[2] != k.shape[2]:
        raise ValueError(f"q and k must have the same T, got {q.shape} and {k.shape}")
    return attend_in_groups(q, k, v, causal(q, lengths))


def cached_multi_head_attention(
        q: Array, k: Array, v: Array, k_cache: Array | None = None,
        v_cache: Array | None = None) -> tuple[Array, Array, Array, Array]:
    """Attend with one new token: q [B, Hq, 1, D], k and v [B, Hkv, 1, D], caches
    [B, Hkv, T, D] or None.

    Return (output [B, Hq, 1, D], weights [B, Hq, 1, T+1], k_cache and v_cache
    [B, Hkv, T+1, D]).  Heads are shared as in `grouped_query_attention`.  The
    caches that come back are new arrays, the old ones are not changed; they may
    be empty (T = 0).  Raise ValueError for more than one token, for one cache without
    the other and for shapes that do not fit.
    """
    q, k, v = four_axes(q=q, k=k, v=v)
    if not q.shape[2] == k.shape[2] == v.shape[2] == 1:
        raise ValueError("q, k and v must hold one token each, "
                         f"got shapes {q.shape}, {k.shape} and {v.shape}")
    check_groups(q, k, v)
    k_cache, v_cache = check_caches(k, v, k_cache, v_cache)
    # Refuse what is not real before it is concatenated.
    float_dtype(q=q, k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    k_cache = np.concatenate((k_cache, k), axis=2)
    v_cache = np.concatenate((v_cache, v), axis=2)
    return (*attend_in_groups(q, k_cache, v_cache), k_cache, v_cache)


def check_caches(k, v, k_cache, v_cache):
    """Return both caches as arrays [B, Hkv, T, D]; without any, T is 0."""
    if (k_cache is None) != (v_cache is None):
        raise ValueError("k_cache and v_cache must be given both or neither")
    if k_cache is None:
        return k[:, :, :0], v[:, :, :0]
    k_cache, v_cache = np.asarray(k_cache), np.asarray(v_cache)
    if k_cache.ndim != 4 or v_cache.ndim != 4:
        raise ValueError("k_cache and v_cache must be 4D [B, Hkv, T, D], "
                         f"got {k_cache.shape} and {v_cache.shape}")
    for cache in (k_cache, v_cache):
        if cache.shape != (*k.shape[:2], k_cache.shape[2], k.shape[3]):
            raise ValueError("k_cache and v_cache must have the same T and the same "
                             f"other axes as k {k.shape}, "
                             f"got {k_cache.shape} and {v_cache.shape}")
    return k_cache, v_cache


def kv_bytes(*, batch: int, kv_heads: int, tokens: int, head_dim: int,
             layers: int = 1, dtype: str | np.dtype = "float64") -> int:
    """Return the bytes of K and V together:
    2 x layers x batch x kv_heads x tokens x head_dim x itemsize.

    Equals the `nbytes` of arrays of that shape.  Raise ValueError unless all are
    whole numbers >= 0.
    """
    sizes = {"batch": batch, "kv_heads": kv_heads, "tokens": tokens,
             "head_dim": head_dim, "layers": layers}
    numbers = [whole(name, size, at_least=0) for name, size in sizes.items()]
    try:
        itemsize = np.dtype(dtype).itemsize
    except TypeError:
        raise ValueError("dtype must be one that NumPy knows, "
                         f"got {dtype!r}") from None
    return 2 * math.prod(numbers) * itemsize


def attend_in_groups(q, k, v, visible=None):
    """q [B, Hq, Tq, D], k and v [B, Hkv, Tk, D], visible [Tq, Tk] or
    [B, 1, Tq, Tk]."""
    batch, query_heads, tokens, width = q.shape
    kv_heads = k.shape[1]
    # Query heads that follow each other share one KV head: [B, Hkv, G, Tq, D].
    group = query_heads // kv_heads
    grouped = q.reshape(batch, kv_heads, group, tokens, width)
    if visible is not None and visible.ndim > 2:
        visible = visible[:, None]                  # [B, 1, 1, Tq, Tk]
    output, weights = attend(grouped, k[:, :, None], v[:, :, None], visible)
    return output.reshape(q.shape), weights.reshape(*q.shape[:3], k.shape[2])


def causal(q, lengths):
    """Who may see whom: [T, T], or [B, 1, T, T] with lengths, where padding sees
    nothing and is not seen."""
    batch, _, tokens, _ = q.shape
    past = np.tri(tokens, dtype=bool)
    if lengths is None:
        return past
    real = real_tokens(lengths, batch, tokens)[:, None]        # [B, 1, T]
    return past & real[..., None] & real[:, :, None]


def real_tokens(lengths, batch, tokens):
    """[B, T], true where a token is no padding."""
    listed = np.asarray(lengths, dtype=object)
    if (listed.shape != (batch,)
            or not all(is_whole(n) and 0 <= n <= tokens for n in listed)):
        raise ValueError(f"lengths must be {batch} whole numbers in 0..{tokens}, "
                         f"got {lengths!r}")
    return np.arange(tokens) < listed.astype(int)[:, None]


# -- Dtypes and checks that several share -------------------------------------

def as_floats(**arrays):
    """Return the arrays in the dtype to compute in, and the dtype to return."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    dtype = float_dtype(**arrays)
    compute = np.float32 if dtype == np.float16 else dtype
    return [array.astype(compute, copy=False) for array in arrays.values()], dtype


def float_dtype(**arrays):
    """The widest float dtype among the arrays; float64 for whole numbers."""
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{name} must hold real numbers (float or whole), "
                             f"got dtype {array.dtype}")
    dtype = np.result_type(*arrays.values())
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def as_dtype(dtype, *arrays):
    return tuple(array.astype(dtype, copy=False) for array in arrays)


def check_axes(name, array, axes):
    """Refuse an array that has other axes than `axes` names, such as
    "[B, T, D]", or an empty one."""
    if array.ndim != axes.count(",") + 1:
        raise ValueError(f"{name} must be {axes.count(',') + 1}D {axes}, "
                         f"got shape {array.shape}")
    check_positive(name, array)


def check_weight(name, weight, axes, input_width):
    check_axes(name, weight, axes)
    if weight.shape[0] != input_width:
        raise ValueError(f"{name} must have the input width {input_width} as its "
                         f"rows, got shape {weight.shape}")


def check_positive(name, array):
    if 0 in array.shape:
        raise ValueError(f"every axis of {name} must be positive, "
                         f"got shape {array.shape}")


def common_lead(names, *leads):
    try:
        return np.broadcast_shapes(*leads)
    except ValueError:
        raise ValueError(f"the leading axes of {names} must be the same or 1, "
                         f"got {leads}") from None


def four_axes(**arrays):
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        check_axes(name, array, "[B, H, T, D]")
    return list(arrays.values())


def check_groups(q, k, v):
    if k.shape != v.shape:
        raise ValueError("k and v must have the same shape, "
                         f"got {k.shape} and {v.shape}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError("q and k must have the same B and D, "
                         f"got {q.shape} and {k.shape}")
    if q.shape[1] % k.shape[1]:
        raise ValueError("query heads must be divisible by KV heads, "
                         f"got {q.shape[1]} and {k.shape[1]}")


def is_whole(number):
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def whole(name, number, at_least):
    if not is_whole(number) or number < at_least:
        kind = "a positive whole number" if at_least else "a whole number >= 0"
        raise ValueError(f"{name} must be {kind}, got {number!r}")
    return int(number)
