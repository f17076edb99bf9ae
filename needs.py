"""Find for each access the smallest LRU cache in which it hits.

    lru_needs(keys, sizes)                        the number of every access
    sizes_touched_since(last, now, sizes)         its core, for requests too
    last_touches(keys)                            the access before, same key

An LRU cache sized in tokens holds a key exactly when the key's own size and
the sizes of the distinct keys touched since its last access fit together.
So one number an access answers every capacity, and

    distinct since = all that was touched since, less what was touched twice.

"All" is a difference of prefix sums.  For an access last touched at p,
"twice" are the accesses before it whose own last touch is after p.  List the
accesses by last touch, the latest first, and number them by time: "twice" is
what stands earlier in the list with a smaller number, a weighted count of
inversions.  That count is a radix sort that keeps accounts: the list is
parted, in order, into the smaller and the larger half of the numbers; each
of the larger learns what smaller ones stood before it; each half is parted
again.  All halves are equally long, so that whole-array steps part them.

Time grows as N log N; memory stays under 150 bytes an access.  Capacities
below the largest size are not answered: hits need not grow with them.
"""

from typing import Callable

import numpy as np

__all__ = ["NEVER", "lru_needs", "sizes_touched_since", "last_touches",
           "sort_with_positions"]

NEVER = int(np.iinfo(np.int64).max)

# N accesses, M of them repeats, n = M padded, G groups of S numbers each.
# Accounts [n, 2] hold a weight and the sum found so far side by side, so that
# one `take` moves both.
WEIGHT, FOUND = 0, 1

# Elements worked on at once: they stay in the L2 cache and fit uint16.
PIECE = 1 << 16
# Up to this length, at most 255, comparing all pairs beats further levels.
BLOCK = 16


def lru_needs(keys: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return int64 [N]: the smallest capacity, not below the largest size, at
    which access i of an LRU cache hits; `NEVER` for a first access.

    `keys` [N] are whole numbers, `sizes` [N] numbers of tokens >= 0.  Raise
    TypeError for what is no whole number, ValueError for unequal lengths, a
    negative size, a key whose size changes and sums beyond int64.

    >>> lru_needs([7, 8, 7, 7], [2, 5, 2, 2])[2:].tolist()
    [7, 5]
    """
    keys, sizes = whole_numbers("keys", keys), checked_sizes(sizes)
    if len(keys) != len(sizes):
        raise ValueError("keys and sizes must be equally many, "
                         f"got {len(keys)} and {len(sizes)}")
    last = last_touches(keys)
    check_constant(keys, sizes, last)
    needs = sizes_touched_since(last, np.arange(len(last)), sizes)
    needs += sizes
    np.maximum(needs, sizes.max(initial=0), out=needs)
    needs[last < 0] = NEVER
    return needs


def last_touches(keys: np.ndarray) -> np.ndarray:
    """Return int64 [N]: the position of the access before to the same key, -1
    for a first access."""
    in_order, order = sort_with_positions(whole_numbers("keys", keys))
    same = in_order[1:] == in_order[:-1]
    last = np.full(len(order), -1, np.int64)
    last[order[1:]] = np.where(same, order[:-1], -1)
    return last


def no_progress(total):
    return lambda count: None


def sizes_touched_since(last: np.ndarray, now: np.ndarray, sizes: np.ndarray,
                        progress: Callable = no_progress) -> np.ndarray:
    """Return int64 [N]: the summed sizes of the distinct keys touched at the
    positions last[i] + 1 to now[i] - 1.

    `last` [N] is what last_touches returns; a first access gets 0.  `now` [N]
    is the position from which access i is seen: i itself or, for all accesses
    of a request, the position at which it begins.  No key repeats within a
    request, so that last[i] < now[i].  `sizes` [N] are constant per key.
    `progress(total)` returns what is then called with each count of steps
    done.  Raise ValueError for positions and sizes that are not like this.
    """
    last, now = whole_numbers("last", last), whole_numbers("now", now)
    sizes = checked_sizes(sizes)
    check_positions(last, now, sizes)
    check_total(sizes[last < 0])

    repeats = repeats_by_now(last, now)
    twice = touched_twice(last[repeats], sizes, progress)
    # Sums over all accesses may wrap around; their differences are exact,
    # because the distinct sizes fit int64.
    touched = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=touched[1:])
    since = np.zeros(len(last), np.int64)
    since[repeats] = touched[now[repeats]] - touched[last[repeats] + 1] - twice
    return since


def repeats_by_now(last, now):
    """Return the accesses that are no first ones, int64 [M], by `now`.

    Within a request they stand by last touch, so that none of them counts
    another as touched twice.
    """
    repeats = np.flatnonzero(last >= 0)
    if np.any(now[1:] == now[:-1]):
        repeats = repeats[np.argsort(now[repeats] * len(now) + last[repeats])]
    return repeats


def touched_twice(last, sizes, progress):
    """Return int64 [M]: for repeats by time, last touched at `last` [M], the
    sizes of the repeats before that were last touched later."""
    number_at = np.full(len(sizes), -1, np.int64)
    number_at[last] = np.arange(len(last))
    latest_first = np.flatnonzero(number_at >= 0)[::-1]
    return weight_before_and_below(number_at[latest_first],
                                   sizes[latest_first], progress)


# -- Weighted inversions ------------------------------------------------------

def weight_before_and_below(numbers, weights, progress=no_progress):
    """Return int64 [M]: at k, the weights of what stands before number k in
    the list and is smaller than k, modulo 2**64.

    `numbers` [M] is a permutation of 0..M-1, `weights` [M] int64 in the same
    order.  Groups larger than a piece are parted level by level; then each
    piece by itself, down to blocks that are compared pair by pair.

    >>> weight_before_and_below(np.array([1, 2, 0]), np.array([10, 20, 30]))
    array([ 0,  0, 10])
    """
    count = len(numbers)
    levels = max(0, -(-count // BLOCK) - 1).bit_length()
    block = -(-count // (1 << levels))
    size = block << levels              # of a group; at first there is one
    numbers, accounts = padded(numbers, weights, size)
    found = np.empty(len(numbers), np.int64)
    step = progress(len(numbers) * levels)
    # Two sets in turn: fresh memory would cost as much as the parting.
    spare = np.empty_like(numbers), np.empty_like(accounts)
    while size > PIECE:
        part_in_pieces(numbers, accounts, size, *spare, step)
        (numbers, accounts), spare = spare, (numbers, accounts)
        size //= 2
    for start in range(0, len(numbers), max(size, 1)):
        piece = slice(start, start + size)
        found[piece] = found_in_piece(numbers[piece].astype(np.uint16),
                                      accounts[piece], block, step)
    return found[:count]


def padded(numbers, weights, length):
    # What is appended stands last, is largest and weighs nothing: no sum
    # changes.
    padding = np.arange(len(numbers), length)
    accounts = np.zeros((length, 2), np.int64)
    accounts[:len(weights), WEIGHT] = weights
    return np.concatenate((numbers, padding)), accounts


def part(numbers, accounts, half, groups=1):
    """Part each group into its numbers below `half` and the others, and tell
    the others what of the former stood before them.

    numbers [G * S], accounts [G * S, 2] -> numbers [G, S], accounts [G, S, 2]
    and how many of each S are small: equally many, where there are several
    groups.  The larger ones count from 0 again.
    """
    is_large = numbers >= half
    small, large = np.flatnonzero(~is_large), np.flatnonzero(is_large)
    order = np.concatenate((small.reshape(groups, -1),
                            large.reshape(groups, -1)), axis=1)
    numbers, accounts = numbers.take(order), accounts.take(order, axis=0)
    smalls = len(small) // groups
    numbers[:, smalls:] -= half

    weight = np.zeros(len(small) + 1, np.int64)
    np.cumsum(accounts[:, :smalls, WEIGHT], out=weight[1:])
    # A position, less the larger ones before it, counts the smaller ones.
    large -= np.arange(len(large))
    before = weight.take(large).reshape(groups, -1)
    before -= weight[np.arange(groups) * smalls, None]
    accounts[:, smalls:, FOUND] += before
    return numbers, accounts, smalls


def part_in_pieces(numbers, accounts, size, parted, parted_accounts, step):
    """Part groups that are larger than a piece, one level, piece by piece.

    The result goes into `parted` and `parted_accounts`.
    """
    half = size // 2
    for group in range(0, len(numbers), size):
        low, high = group, group + half
        carry = np.zeros(1, np.int64)       # an array, as it may wrap around
        for start in range(group, group + size, PIECE):
            piece = slice(start, min(start + PIECE, group + size))
            [members], [account], smalls = part(numbers[piece],
                                                accounts[piece], half)
            account[smalls:, FOUND] += carry
            carry += account[:smalls, WEIGHT].sum()
            next_low, next_high = low + smalls, high + len(members) - smalls
            parted[low:next_low] = members[:smalls]
            parted[high:next_high] = members[smalls:]
            parted_accounts[low:next_low] = account[:smalls]
            parted_accounts[high:next_high] = account[smalls:]
            low, high = next_low, next_high
            step(len(members))


def found_in_piece(numbers, accounts, block, step):
    """Do all remaining levels of one group.

    numbers [S], accounts [S, 2] -> sums [S], in the order of the numbers.
    """
    groups, size = 1, len(numbers)
    while size > block:
        numbers, accounts, _ = part(numbers, accounts, size // 2, groups)
        numbers, accounts = numbers.reshape(-1), accounts.reshape(-1, 2)
        groups, size = groups * 2, size // 2
        step(len(numbers))
    found = accounts[:, FOUND] + found_in_blocks(numbers, accounts[:, WEIGHT],
                                                 block)
    in_order = np.empty_like(found)
    in_order[numbers + np.arange(len(numbers)) // block * block] = found
    return in_order


def found_in_blocks(numbers, weights, block):
    """Compare all pairs of each block.

    numbers [G * block], weights [G * block] -> sums [G * block]
    """
    # [block, G], so that one operation compares a place in all blocks.
    numbers = np.ascontiguousarray(numbers.astype(np.uint8).reshape(-1, block).T)
    weights = np.ascontiguousarray(weights.reshape(-1, block).T)
    found = np.zeros_like(weights)
    for place in range(1, block):
        smaller = numbers[:place] < numbers[place]
        np.sum(smaller * weights[:place], axis=0, out=found[place])
    return found.T.reshape(-1)


def sort_with_positions(values) -> tuple:
    """Return the values [N] sorted, and int64 [N] where each of them stood.

    Equal values stay in order.  Where value and position fit one int64 they
    are sorted as one number, several times faster than a stable argsort.
    """
    bits = len(values).bit_length()
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if (high - low) >> (63 - bits):
        order = np.argsort(values, kind="stable")
        return values[order], order
    packed = (values - low) << bits
    packed |= np.arange(len(values))
    packed.sort()
    return (packed >> bits) + low, packed & ((1 << bits) - 1)


# -- Checks -------------------------------------------------------------------

def whole_numbers(name, values):
    values = np.asarray(values)
    if values.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {values.shape}")
    if len(values) and values.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, got {values.dtype}")
    if len(values) and int(values.max()) > NEVER:
        raise ValueError(f"{name} must be at most {NEVER}, got {values.max()} "
                         f"at access {values.argmax()}")
    return values.astype(np.int64, copy=False)


def checked_sizes(sizes):
    sizes = whole_numbers("sizes", sizes)
    if len(sizes) and sizes.min() < 0:
        raise ValueError(f"sizes must be >= 0, got {sizes.min()} "
                         f"at access {sizes.argmin()}")
    return sizes


def check_constant(keys, sizes, last):
    repeats = np.flatnonzero(last >= 0)
    changed = repeats[sizes[repeats] != sizes[last[repeats]]]
    if len(changed):
        now, before = changed[0], last[changed[0]]
        raise ValueError(f"a key's size must not change: key {keys[now]} has "
                         f"{sizes[before]} at access {before}, {sizes[now]} "
                         f"at access {now}")


def check_total(distinct_sizes):
    if len(distinct_sizes) * int(distinct_sizes.max(initial=0)) < NEVER:
        return
    total = sum(distinct_sizes.tolist())
    if total >= NEVER:
        raise ValueError("the sizes of the distinct keys must sum to less than "
                         f"{NEVER}, got {total}")


def check_positions(last, now, sizes):
    if not len(last) == len(now) == len(sizes):
        raise ValueError("last, now and sizes must be equally many, got "
                         f"{len(last)}, {len(now)} and {len(sizes)}")
    wrong = (last < -1) | (last >= now) | (now > np.arange(len(now)))
    if wrong.any():
        i = wrong.argmax()
        raise ValueError(f"positions must satisfy -1 <= last < now <= {i} at "
                         f"access {i}, got last {last[i]}, now {now[i]}")
    if np.any(now[now] != now) or np.any(now[1:] < now[:-1]):
        raise ValueError("now must be where requests begin: never falling, "
                         "and its own position at each beginning")
