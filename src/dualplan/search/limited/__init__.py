"""Limits on measures at any size: a program over measured policies, whose prices ask for more."""
