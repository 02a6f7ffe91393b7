"""The fitted pipelines that translations were made of, as long as somebody else holds them."""

from __future__ import annotations

from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from windtunnel.api.translation import Translation
from windtunnel.pipeline.class_weight_parameters import class_weight_parameters

_SOURCES: WeakKeyDictionary[Translation, ReferenceType[Any]] = WeakKeyDictionary()


def remember_source(net: Translation, pipeline: Any) -> Translation:
    """Record which class weights a pipeline has, and keep a weak reference to it; returns its translation."""
    net.record(class_weight_parameters=tuple(class_weight_parameters(pipeline)))
    if hasattr(pipeline, "__weakref__"):
        _SOURCES[net] = ref(pipeline)
    return net


def source_of(net: Translation) -> Any:
    """The pipeline that a translation was made of; None if it is gone, or the translation comes from a file."""
    return _SOURCES[net]() if net in _SOURCES else None
