"""The dual linear program of the paper, in its order: features, constraints, sampling, problem,
solvers, proofs.
"""
