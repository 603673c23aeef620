"""Workflows with faults, written before `any_story` was: each must be found, and without its fault nothing may be."""
