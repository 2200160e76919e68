"""Readings of the eight-queue network, none of which gives the published 21.78, 22.47, 22.98 (see
docs/measurements/figures.md).

A second program beside the library: `one event, by rates` is what `dualplan evaluate eight-queue`
simulates.
"""

import numba
import numpy as np

MU = np.array([4, 2, 3, 3.1, 3, 2.2, 3, 2.5]) / 7.5
NEXT = np.array([1, 2, -1, 4, 5, 6, 7, -1])
SERVERS = (np.array([0, 2, 7]), np.array([1, 5]), np.array([3, 4, 6]))
PEAKS = np.array([4.0, 2.2, 3.1]) / 7.5
LAM = 0.1
POLICIES = ((0.8, 0.5, 0.5), (0.5, 0.8, 0.5), (0.5, 0.5, 0.8))
DYNAMICS = (
    "one event, by rates",
    "independent events",
    "an arrival or else all services",
    "one event among those possible",
    "independent arrivals, one service",
)
RULES = (
    "as published",
    "a lone queue always served",
    "the rest over all other queues, empty or not",
)


@numba.njit
def choose(x, queues, p, rule):
    """The queue served, or -1."""
    best, waiting = -1, 0
    for q in queues:
        if x[q] > 0:
            waiting += 1
            if best < 0 or x[q] > x[best]:
                best = q
    if waiting == 0:
        return -1
    u = np.random.random()
    if u < p or (rule == 1 and waiting == 1):
        return best
    others = len(queues) - 1 if rule == 2 else waiting - 1
    if others == 0:
        return -1
    k = int((u - p) / (1 - p) * others)
    for q in queues:
        if q != best and (rule == 2 or x[q] > 0):
            if k == 0:
                return q if x[q] > 0 else -1
            k -= 1
    return -1


@numba.njit
def complete(x, q):
    if q >= 0:
        x[q] -= 1
        if NEXT[q] >= 0:
            x[NEXT[q]] += 1


@numba.njit
def one_of(x, chosen, u, thinned):
    """Let the service at u happen; `thinned` gives each server its fastest rate as its share."""
    for s in range(3):
        q = chosen[s]
        share = PEAKS[s] if thinned else (MU[q] if q >= 0 else 0.0)
        if u < share:
            if q >= 0 and u < MU[q]:
                complete(x, q)
            return
        u -= share


@numba.njit
def average(steps, seed, dynamics, rule, p):
    np.random.seed(seed)
    x, total = np.zeros(8, np.int64), 0.0
    chosen = np.empty(3, np.int64)
    for _ in range(steps):
        total += x.sum()
        for s in range(3):
            chosen[s] = choose(
                x, SERVERS[0] if s == 0 else SERVERS[1] if s == 1 else SERVERS[2], p[s], rule
            )
        u = np.random.random()
        if dynamics in (0, 3):
            rates = PEAKS.sum()
            if dynamics == 3:
                rates = 0.0
                for q in chosen:
                    rates += MU[q] if q >= 0 else 0.0
            u *= 2 * LAM + rates
            if u < 2 * LAM:
                x[0 if u < LAM else 3] += 1
            else:
                one_of(x, chosen, u - 2 * LAM, dynamics == 0)
        elif dynamics == 2 and u < 2 * LAM:
            x[0 if u < LAM else 3] += 1
        else:
            if dynamics != 2:
                x[0] += np.random.random() < LAM
                x[3] += np.random.random() < LAM
            if dynamics == 4:
                one_of(x, chosen, np.random.random() * PEAKS.sum(), True)
            else:
                for q in chosen:
                    if q >= 0 and np.random.random() < MU[q]:
                        complete(x, q)
    return total / steps


def main() -> None:
    print(f"{'dynamics':<36}{'rule':<46}costs of {POLICIES}")
    for d, dynamics in enumerate(DYNAMICS):
        for r, rule in enumerate(RULES):
            costs = [average(4_000_000, 1, d, r, p) for p in POLICIES]
            print(f"{dynamics:<36}{rule:<46}" + "".join(f"{c:8.2f}" for c in costs), flush=True)


if __name__ == "__main__":
    main()
