"""The version of this package, which clients send with each call."""

__version__ = "0.1.0"
