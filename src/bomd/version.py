"""The version of this package, written here and nowhere else."""

VERSION = "0.1.0"
