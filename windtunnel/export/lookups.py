"""Raw texts and numbers to ids, in TorchScript."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import numpy as np
import torch
from torch import Tensor, nn

from windtunnel.encode import CategoryColumn, category_text
from windtunnel.encode.cityhash import city_hash_of_bytes
from windtunnel.export.md5 import bucket_of_bytes


class TextLookup(nn.Module):
    """Texts to ids: 0 unknown, 1 missing, 2 + i the i-th category, and buckets or hashes of texts after these.

    Attributes
    ----------
    place : int
        Which list of ``strings`` it reads.
    slot : int
        Which column of ids it gives.
    """

    index: dict[str, int]
    further: dict[int, int]

    def __init__(self, place: int, slot: int, name: str, category: CategoryColumn) -> None:
        super().__init__()
        vocabulary = category.vocabulary
        self.place, self.slot, self.name = place, slot, name
        self.by_hash, self.further, self.first_beyond = _hashes(category)
        written = category_text if self.by_hash else str
        self.index = {written(value): 2 + position for position, value in enumerate(vocabulary.values)}
        self.first_bucket = 2 + len(vocabulary.values)
        self.buckets = vocabulary.buckets
        self.rejects_unknown = bool(category.rejects_unknown)
        self.rejects_missing = bool(category.rejects_missing)

    def forward(self, texts: list[str | None]) -> Tensor:
        """B texts -> int64 ``[B]``."""
        index = self.index
        found = [index.get(text, 0) if text is not None else 1 for text in texts]
        if self.buckets > 0:
            for row, text in enumerate(texts):
                if text is not None and found[row] == 0:
                    found[row] = self.first_bucket + bucket_of_bytes([ord(byte) for byte in text], self.buckets)
        for row, text in enumerate(texts):
            if text is not None and found[row] == 0 and "\0" in text:
                raise ValueError(f"column {self.name} holds a text with a NUL in it, at which some runtimes cut a text")
        if self.by_hash:
            for row, text in enumerate(texts):
                if text is not None and found[row] == 0:
                    hashed = city_hash_of_bytes([ord(byte) for byte in text])
                    found[row] = self.further.get(hashed, self.first_beyond + hashed)
        if self.rejects_unknown and 0 in found:
            raise ValueError(f"column {self.name}: its encoder rejects the category {texts[found.index(0)]}")
        if self.rejects_missing and 1 in found:
            raise ValueError(f"column {self.name}: its encoder rejects missing values")
        return torch.tensor(found, dtype=torch.int64)


class NumberLookup(nn.Module):
    """Numbers to ids, by equality in float64; as ``TextLookup`` otherwise."""

    values: Tensor
    ids: Tensor
    further: dict[int, int]

    def __init__(self, place: int, slot: int, name: str, category: CategoryColumn) -> None:
        super().__init__()
        self.place, self.slot, self.name = place, slot, name
        self.by_hash, self.further, self.first_beyond = _hashes(category)
        known = np.array(category.vocabulary.values, dtype=np.float64)
        order = np.argsort(known)
        # A vocabulary without values: one number, under the id of an unknown one.
        self.register_buffer("values", torch.from_numpy(known[order] if len(known) else np.zeros(1)))
        self.register_buffer("ids", torch.from_numpy(order + 2 if len(known) else np.zeros(1, np.int64)))
        self.hashes = category.vocabulary.buckets > 0
        self.rejects_unknown = bool(category.rejects_unknown)
        self.rejects_missing = bool(category.rejects_missing)
        self.rejects_infinite = bool(category.rejects_infinite)
        self.rejects_fractions = bool(category.rejects_fractions)

    def forward(self, numbers: Tensor) -> Tensor:
        """float64 ``[B]`` -> int64 ``[B]``."""
        found = self.found(numbers)
        missing = torch.isnan(numbers)
        if self.by_hash:
            whole = numbers.to(torch.int64)
            for row in torch.nonzero(found == 0).flatten():
                hashed = city_hash_of_bytes([ord(digit) for digit in str(int(whole[row]))])
                found[row] = self.further.get(hashed, self.first_beyond + hashed)
        unknown = found == 0
        if self.rejects_infinite and bool(torch.isinf(numbers).any()):
            raise ValueError(f"column {self.name}: its encoder rejects infinite values")
        if self.rejects_fractions and bool((~missing & (numbers.to(torch.int64).to(torch.float64) != numbers)).any()):
            raise ValueError(f"column {self.name}: its encoder takes no numbers that are not whole for labels")
        if self.rejects_unknown and bool(unknown.any()):
            raise ValueError(f"column {self.name}: its encoder rejects the category {numbers[unknown][0].item()}")
        if self.hashes and bool(unknown.any()):
            raise ValueError(
                f"column {self.name}: {numbers[unknown][0].item()} is a new category, which its encoder hashes by the "
                "text that Python writes for it; TorchScript cannot"
            )
        if self.rejects_missing and bool(missing.any()):
            raise ValueError(f"column {self.name}: its encoder rejects missing values")
        return found

    def found(self, numbers: Tensor) -> Tensor:
        """Ids of float64 ``[B]`` without a check of what the source rejects."""
        at = torch.searchsorted(self.values, numbers.contiguous()).clamp_max(self.values.shape[0] - 1)
        known = self.values[at] == numbers
        return torch.where(known, self.ids[at], torch.isnan(numbers).to(torch.int64))


def _hashes(category: CategoryColumn) -> tuple[bool, dict[int, int], int]:
    """Whether categories are told by their hash, the ids of those without a text, and the first after these."""
    known = category.vocabulary
    first = 2 + len(known.values)
    return known.hashes is not None, {one: first + at for at, one in enumerate(known.hashes or ())}, len(known) - 1
