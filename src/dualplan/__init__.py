"""dualplan."""
