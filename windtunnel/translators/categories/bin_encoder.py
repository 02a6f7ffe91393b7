"""Converter of BinEncoder: numbers in bins, and the bins encoded."""

from __future__ import annotations

import numpy as np
import torch

from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.bin_encoder import MISSING, BinEncoder
from windtunnel.modules.tables.bin_tables import BinTables
from windtunnel.translators.categories.probe import probe
from windtunnel.translators.conversions import CategoryEncoding
from windtunnel.translators.registry import convert, translates


@translates(BinEncoder, trainable="one row of a table per bin", notes="any encoder of single columns inside")
def bin_encoder(fitted: BinEncoder) -> BinTables:
    """Number -> bin -> row of a table. Reads bin_edges_ and encoder_, which is asked about every bin."""
    encoding = convert(fitted.encoder_)
    if not isinstance(encoding, CategoryEncoding) or encoding.buckets:
        raise UnsupportedEstimator(
            f"BinEncoder has the encoder {type(fitted.encoder_).__name__}; what can be translated are encoders that "
            "list the categories of each column, such as TwoHotEncoder, OneHotEncoder or TargetEncoder"
        )
    width = len(fitted.bin_edges_)
    probed = probe(fitted.encoder_, encoding, [[*fitted.categories(column), MISSING] for column in range(width)])
    if probed.additive:
        raise UnsupportedEstimator(
            f"BinEncoder has the encoder {type(fitted.encoder_).__name__}, whose columns share outputs; one whose "
            "columns each have their own can be translated"
        )
    most = max(map(len, fitted.bin_edges_), default=0)
    widest = max(map(len, probed.positions), default=0)
    edges, rows = np.full((width, most), np.inf), np.zeros((width, most + 2, widest))
    kept = np.zeros(probed.width, dtype=np.int64)
    for column, (inner, table, positions) in enumerate(
        zip(fitted.bin_edges_, probed.tables, probed.positions, strict=True)
    ):
        assert table is not None  # every column has bins
        bins, at = len(inner) + 1, np.array(positions, dtype=np.int64)
        edges[column, : bins - 1] = inner
        rows[column, :bins, : len(at)] = table[:bins].numpy()
        rows[column, -1, : len(at)] = table[bins].numpy()
        kept[at] = column * widest + np.arange(len(at))
    closed = [len(inner) + 1 in rejected for inner, rejected in zip(fitted.bin_edges_, probed.rejected, strict=True)]
    tensors = (torch.from_numpy(array) for array in (rows, edges, kept, np.array(closed, dtype=bool)))
    return BinTables(*tensors)
