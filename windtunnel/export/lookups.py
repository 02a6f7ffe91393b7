"""Raw texts and numbers to ids, in TorchScript."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor, nn

from windtunnel.encode import CategoryColumn, category_text
from windtunnel.encode.cityhash import city_hash_of_bytes
from windtunnel.export.md5 import bucket_of_bytes


class TextLookup(nn.Module):
    """Texts to ids: 0 unknown, 1 missing, 2 + i the i-th category, and buckets or hashes of texts after these."""

    index: dict[str, int]
    further: dict[int, int]

    def __init__(self, place: int, slot: int, name: str, category: CategoryColumn) -> None:
        super().__init__()
        vocabulary = category.vocabulary
        # The list of ``strings`` that it reads, and the column of ids that it gives.
        self.place, self.slot, self.name = place, slot, name
        self.by_hash, self.further, self.first_beyond = _hashes(category)
        as_text = category_text if self.by_hash else str
        self.index = {as_text(value): 2 + position for position, value in enumerate(vocabulary.values)}
        self.first_bucket = 2 + len(vocabulary.values)
        self.buckets = vocabulary.buckets
        self.rejects_unknown = category.rejects_unknown
        self.rejects_missing = category.rejects_missing

    def forward(self, texts: list[str | None]) -> Tensor:
        """B texts -> int64 ``[B]``."""
        index = self.index
        ids = [index.get(text, 0) if text is not None else 1 for text in texts]
        for row, text in enumerate(texts):
            if text is not None and ids[row] == 0:
                if self.buckets > 0:
                    ids[row] = self.first_bucket + bucket_of_bytes([ord(byte) for byte in text], self.buckets)
                elif "\0" in text:
                    raise ValueError(
                        f"column {self.name} holds a text with a NUL in it, at which some runtimes cut a text"
                    )
                elif self.by_hash:
                    hashed = city_hash_of_bytes([ord(byte) for byte in text])
                    ids[row] = self.further.get(hashed, self.first_beyond + hashed)
        if self.rejects_unknown and 0 in ids:
            raise ValueError(f"column {self.name}: its encoder rejects the category {texts[ids.index(0)]}")
        if self.rejects_missing and 1 in ids:
            raise ValueError(f"column {self.name}: its encoder rejects missing values")
        return torch.tensor(ids, dtype=torch.int64)


class NumberLookup(nn.Module):
    """Numbers to ids, by equality in float64; as ``TextLookup`` otherwise."""

    values: Tensor
    ids: Tensor
    further: dict[int, int]

    def __init__(self, place: int, slot: int, name: str, category: CategoryColumn) -> None:
        super().__init__()
        self.place, self.slot, self.name = place, slot, name
        self.by_hash, self.further, self.first_beyond = _hashes(category)
        self.unknown = category.vocabulary.unknown_id
        # An empty vocabulary gets one number with the id of an unknown one.
        id_of = dict(sorted(_ids_of_numbers(category).items())) or {0.0: self.unknown}
        self.register_buffer("values", torch.tensor([*id_of], dtype=torch.float64))
        self.register_buffer("ids", torch.tensor([*id_of.values()]))
        self.has_buckets = category.vocabulary.buckets > 0
        self.rejects_unknown = category.files_reject_unknown
        self.rejects_missing = category.rejects_missing
        self.rejects_infinite = category.rejects_infinite
        self.rejects_fractions = category.rejects_fractions

    def forward(self, numbers: Tensor) -> Tensor:
        """float64 ``[B]`` -> int64 ``[B]``."""
        ids = self.ids_of(numbers)
        missing = torch.isnan(numbers)
        if self.by_hash:
            whole = numbers.to(torch.int64)
            for row in torch.nonzero(ids == self.unknown).flatten():
                hashed = city_hash_of_bytes([ord(digit) for digit in str(int(whole[row]))])
                ids[row] = self.further.get(hashed, self.first_beyond + hashed)
        unknown = ids == self.unknown
        if self.rejects_infinite and bool(torch.isinf(numbers).any()):
            raise ValueError(f"column {self.name}: its encoder rejects infinite values")
        if self.rejects_fractions and bool((~missing & (numbers.to(torch.int64).to(torch.float64) != numbers)).any()):
            raise ValueError(f"column {self.name}: its encoder takes no numbers that are not whole for labels")
        if self.rejects_unknown and bool(unknown.any()):
            raise ValueError(f"column {self.name}: its encoder rejects the category {numbers[unknown][0].item()}")
        if self.has_buckets and bool(unknown.any()):
            raise ValueError(
                f"column {self.name}: {numbers[unknown][0].item()} is a new category, which its encoder hashes by the "
                "text that Python writes for it; TorchScript cannot"
            )
        if self.rejects_missing and bool(missing.any()):
            raise ValueError(f"column {self.name}: its encoder rejects missing values")
        return ids

    def ids_of(self, numbers: Tensor) -> Tensor:
        """Ids of float64 ``[B]``, without a check for numbers that the source rejects."""
        position = torch.searchsorted(self.values, numbers.contiguous()).clamp_max(self.values.shape[0] - 1)
        equal = self.values[position] == numbers
        missing = torch.isnan(numbers).to(torch.int64)
        return torch.where(equal, self.ids[position], missing + (1 - missing) * self.unknown)


def _ids_of_numbers(category: CategoryColumn) -> dict[float, int]:
    """The id of each number; of hashed categories, also of whole numbers whose texts are known."""
    known = category.vocabulary.id_by_value
    if category.vocabulary.hashes is not None:
        known = {text: id_ for text, id_ in known.items() if text.removeprefix("-").isdecimal()}
        known = {number: id_ for text, id_ in known.items() if text == str(number := int(text))}
    return {float(number): id_ for number, id_ in known.items()}


def _hashes(category: CategoryColumn) -> tuple[bool, dict[int, int], int]:
    """Whether categories have hashes, the id of each hash without a text, and the first id after these."""
    vocabulary = category.vocabulary
    first = 2 + len(vocabulary.values)
    ids = {hashed: first + place for place, hashed in enumerate(vocabulary.hashes or ())}
    return vocabulary.hashes is not None, ids, len(vocabulary) - 1
