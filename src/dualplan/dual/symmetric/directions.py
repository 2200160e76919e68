"""Directions of w that change decisions.

A policy that is greedy for Ψw depends on w only by differences of ℓ + PΨw between the actions of a
state. With D° = D less its mean over the actions of each state, and masses r of the reference,

    C  =  Σ r(x,a) D°(x,a) D°(x,a)ᵀ

says by how much a change of w changes them: along an eigenvector e of C with eigenvalue λ the root
mean square change is √λ. The first eigenvectors, each scaled so that a unit changes differences by
as much as they are (their median), are few parameters that matter equally; the rest of the space
changes values and hardly any decision. Functions are scaled to unit root mean square first.
"""

from __future__ import annotations

import numpy as np

from dualplan.core.types import Floats
from dualplan.dual.symmetric.reference import Reference
from dualplan.values.basis import LinearValues

MOST_DIRECTIONS = 40
LEAST_EIGENVALUE_SHARE = 1e-6


def decision_directions(
    reference: Reference, values: LinearValues, most: int = MOST_DIRECTIONS
) -> Floats:
    """Directions of the weights, one a column."""
    centred = reference.centred(reference.differences)
    size = np.sqrt(reference.masses @ centred**2)
    scale = np.where(size > 0, size, np.inf)
    scaled = centred / scale
    covariance = (scaled * reference.masses[:, None]).T @ scaled
    eigenvalues, vectors = np.linalg.eigh(covariance)
    order = np.argsort(eigenvalues)[::-1][:most]
    order = order[eigenvalues[order] > LEAST_EIGENVALUE_SHARE * eigenvalues[order[0]]]
    typical = float(np.median(np.abs(reference.centred(reference.residuals(values))))) or 1.0
    return np.asarray(typical * (vectors[:, order] / np.sqrt(eigenvalues[order])) / scale[:, None])
