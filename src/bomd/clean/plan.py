"""What a search over so many images takes, on paper: block sizes, memory, operations, seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bomd.errors import InputError

TILE = {"cpu": 1024, "cuda": 2**17}  # targets multiplied at a time: what a cache holds, what fills a GPU
STRIP = 1024  # rows multiplied at a time
PROPOSALS = 4  # candidates per neighbour that the fast search keeps ...
SPARE_PROPOSALS = 24  # ... and in addition
ENCODED_EXTRA = 6  # numbers that an encoded vector carries besides its own
ALIGNMENT = 8  # numbers; matrix units want rows that start at multiples of 16 bytes
LIST_BYTES = 40  # per candidate kept: approximate and exact distance, row, sorting key, masks
STRIP_BYTES = 12  # per pair of bags: distance, mask, copy made for the top k
OPERATIONS_PER_SECOND = 7.8e14  # bfloat16 products of large matrices on an H200
BYTES_PER_SECOND = 4.3e12  # memory of an H200
LINK_BYTES_PER_SECOND = 5e10  # between host and GPU, PCI Express 5


@dataclass(frozen=True)
class Plan:
    """Sizes of one search by `Sieve`; the same object directs the search, so that paper and deed agree.

    Attributes:
        images: targets.
        rows: images to search for.
        bag: vectors per target.
        query_bag: vectors per image to search for.
        width: numbers per vector.
        proposals: candidates kept per row.
        number_bytes: of one encoded number.
        tile: targets multiplied at a time.
        strip: rows multiplied at a time.
        block: targets encoded at a time; fewer than `images` means that they are streamed.
        batch: rows whose candidates are kept at a time; each batch passes over all targets.
        mirrored: whether each pair of images is multiplied only once, all distances being kept.
    """

    images: int
    rows: int
    bag: int
    query_bag: int
    width: int
    proposals: int
    number_bytes: int
    tile: int
    strip: int
    block: int
    batch: int
    mirrored: bool

    @property
    def encoded_width(self) -> int:
        return encoded_width(self.width)

    @property
    def given_bytes(self) -> int:
        """Of all vectors in float32."""
        return 4 * self.images * self.bag * self.width

    @property
    def encoded_bytes(self) -> int:
        """Of the encoded vectors that are held at a time."""
        return self.number_bytes * self.block * self.bag * self.encoded_width

    @property
    def working_bytes(self) -> int:
        """Of products, distances and candidates."""
        rows = self.images if self.mirrored else self.strip
        products = 4 * self.strip * self.tile * self.bag * self.query_bag
        return products + (4 if self.mirrored else STRIP_BYTES) * rows * self.block + self.batch * self._list_bytes

    @property
    def passes(self) -> int:
        """Blocks of targets that have to be brought in and encoded."""
        blocks = math.ceil(self.images / self.block)
        return blocks if blocks == 1 else blocks * math.ceil(self.rows / self.batch)

    @property
    def operations(self) -> float:
        """Multiplications and additions of all products."""
        pairs = self.rows * self.images * self.bag * self.query_bag
        return 2.0 * pairs * self.encoded_width / (2 if self.mirrored else 1)

    @property
    def _list_bytes(self) -> int:
        return LIST_BYTES * self.proposals

    def seconds(
        self,
        operations_per_second: float = OPERATIONS_PER_SECOND,
        bytes_per_second: float = BYTES_PER_SECOND,
        link_bytes_per_second: float = LINK_BYTES_PER_SECOND,
    ) -> float:
        """Lower bound at stated rates: products, then their way through memory, then streaming over the link.

        Products are written and read once, distances written once and read twice. Vectors cross the link once,
        and where targets are streamed, targets and rows once more for every block.
        """
        pairs = self.rows * self.images
        memory = 4.0 * pairs * (2 * self.bag * self.query_bag + 3)
        streamed = self.given_bytes
        if self.block < self.images:
            blocks = math.ceil(self.images / self.block)
            rows = 4 * self.rows * self.query_bag * self.width
            streamed += blocks * rows + math.ceil(self.rows / self.batch) * self.given_bytes
        return self.operations / operations_per_second + memory / bytes_per_second + streamed / link_bytes_per_second

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows against {self.images:,} images of {self.bag} x {self.width}: "
            f"{self.operations:.2g} operations; descriptors {self.given_bytes / 1e9:.1f} GB, "
            f"encoded {self.encoded_bytes / 1e9:.1f} GB at a time in {self.passes} pass(es), "
            f"working memory {self.working_bytes / 1e9:.1f} GB; at least {self.seconds():.2g} s on an H200"
        )


def plan(
    images: int,
    bag: int,
    width: int,
    k: int,
    memory: float,
    *,
    rows: int | None = None,
    query_bag: int | None = None,
    device: str = "cuda",
    number_bytes: int = 2,
    proposals: int | None = None,
) -> Plan:
    """Choose block sizes for a search.

    Half of the memory holds encoded targets, a quarter products and distances, a quarter candidates.

    Args:
        images: how many there are.
        bag: descriptors per image.
        width: numbers per descriptor.
        k: neighbours per image.
        memory: gigabytes that the search may take besides the descriptors as given.
        rows: how many images to search for; all of them by default.
        query_bag: descriptors of an image to search for; `bag` by default.
        device: cpu or cuda.
        number_bytes: of an encoded number, 2 for bfloat16.
        proposals: candidates kept per row; by default a few per neighbour.
    """
    if min(images, bag, width, k, memory) <= 0:
        raise InputError("A plan needs numbers above 0 for images, bag, width, k and memory.")
    rows, query_bag = images if rows is None else rows, query_bag or bag
    space = memory * 1e9
    proposals = min(images, proposals or PROPOSALS * k + SPARE_PROPOSALS)
    block = _fit(space / 2, number_bytes * bag * encoded_width(width), images)
    tile = min(TILE[device], block)
    if block < images:
        block -= block % tile
    strip = _fit(space / 4, 4 * bag * query_bag * tile + STRIP_BYTES * block, STRIP)
    # One multiplication serves both images of a pair; on a GPU products are not what takes longest.
    whole = rows == images == block and bag == query_bag and device == "cpu"
    return Plan(
        images=images,
        rows=rows,
        bag=bag,
        query_bag=query_bag,
        width=width,
        proposals=proposals,
        number_bytes=number_bytes,
        tile=tile,
        strip=strip,
        block=block,
        batch=_fit(space / 4, LIST_BYTES * proposals, max(rows, 1)),
        mirrored=whole and 4.0 * images**2 <= space / 2,
    )


def encoded_width(width: int) -> int:
    """Numbers of an encoded vector."""
    return ALIGNMENT * math.ceil((width + ENCODED_EXTRA) / ALIGNMENT)


def _fit(space: float, each: float, most: int) -> int:
    return max(1, min(int(space / each), most))
