"""What is an array: `is_array` tells one of any library by its type."""

from __future__ import annotations

from array_api_compat import is_array_api_obj

__all__ = ["is_array"]


def is_array(value: object) -> bool:
    """Tell an array of any library by its type; an object may answer to every name that it is asked for."""
    return is_array_api_obj(value) and (
        hasattr(type(value), "__array_namespace__") or not hasattr(value, "__array_namespace__")
    )
