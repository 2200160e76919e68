"""Functions of states: bases, interpolants, partitions, tables."""
