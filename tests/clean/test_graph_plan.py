from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bomd.clean.plan import plan
from bomd.errors import InputError


def test_nih_on_paper():
    """83,672 images: 83,672² x 9 products of 1,032 numbers, 2 operations each; vectors take 3 x 1,024 x 4 bytes."""
    sizes = plan(83_672, 3, 1024, 10, memory=100)
    assert sizes.operations == pytest.approx(1.3005e14, rel=1e-4)
    assert sizes.given_bytes == 83_672 * 12_288
    assert sizes.encoded_bytes == 83_672 * 3 * 1032 * 2
    assert sizes.passes == 1
    assert sizes.proposals == 64
    # .167 s of products, 83,672² x 4 x 21 bytes in .137 s, 1.03 GB over the link in .021 s
    assert sizes.seconds() == pytest.approx(0.167 + 0.137 + 0.021, abs=2e-3)
    half = plan(83_672, 3, 1024, 10, memory=100, rows=41_836)
    assert half.operations == pytest.approx(sizes.operations / 2)


def test_a_million_images():
    """A large GPU holds all encoded vectors, 6.2 GB; a small one takes them in blocks, and pays for it."""
    large, small = (plan(1_000_000, 3, 1024, 10, memory) for memory in (80, 4))
    assert large.encoded_bytes == 6_192_000_000
    assert large.passes == 1
    assert small.encoded_bytes <= 2e9
    assert small.passes > 4
    assert large.seconds() < small.seconds() < 2 * large.seconds()
    assert large.seconds() == pytest.approx(1.8576e16 / 7.8e14 + 8.4e13 / 4.3e12 + 12.288e9 / 5e10, rel=1e-6)
    assert "1,000,000 images of 3 x 1024" in str(small)


@given(
    images=st.integers(2, 10**7),
    bag=st.integers(1, 8),
    width=st.integers(1, 4096),
    k=st.integers(1, 200),
    memory=st.floats(1e-6, 200),
    device=st.sampled_from(["cpu", "cuda"]),
    number_bytes=st.sampled_from([2, 4]),
)
def test_blocks_fit_their_share(images, bag, width, k, memory, device, number_bytes):
    """Whatever is not down to a single image or row keeps to its share of the memory."""
    sizes = plan(images, bag, width, k, memory, device=device, number_bytes=number_bytes)
    assert sizes.block == 1 or sizes.encoded_bytes <= memory * 1e9 / 2
    assert sizes.block in (images, 1) or sizes.block % sizes.tile == 0
    assert sizes.batch == 1 or sizes.batch * 40 * sizes.proposals <= memory * 1e9 / 4
    if min(sizes.strip, sizes.block, sizes.batch) > 1:
        assert sizes.working_bytes <= memory * 1e9 * (1 if sizes.mirrored else 1 / 2)
    assert not (sizes.mirrored and device == "cuda")


def test_bad_numbers_are_refused():
    with pytest.raises(InputError, match="above 0"):
        plan(0, 3, 1024, 10, 1)
