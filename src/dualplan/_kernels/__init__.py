"""Compiled loops: arrays in, arrays out; seeded generators are passed in.

Every kernel has an explicit signature, so that functions of a model can be handed to a loop as
values (``types.FunctionType``) and the machine code of both is cached on disk between processes.
Compilation is put off to the first use, so that importing the package stays cheap on a cold cache.
"""
