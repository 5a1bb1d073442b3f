"""The account of bytes in docs/gpu.md is that of the code and of what was measured."""

from __future__ import annotations

from evidence.bench.gpu import training_bytes
from evidence.pages import bytes_moved, speed


def test_the_page_is_what_code_and_record_say() -> None:
    text = bytes_moved.PAGE.read_text()
    assert text == bytes_moved.page(text, speed.read()), "run: python -m evidence.pages.bytes_moved"


def test_shares_follow_from_rate_and_bandwidth() -> None:
    """At half of the floor, 60 % of it is a sixth less time."""
    bandwidth = 4000.0
    best = bandwidth * 1e9 / training_bytes(512)
    measured = {
        "memory bandwidth": bandwidth,
        "training at 512 px, batch 64": best / 2,
        "bfloat16 matrix product": 800.0,
    }
    rows = [{"device": "a GPU", "item": item, "ours": str(value)} for item, value in measured.items()]
    rows.append({"device": "CPU", "item": "memory bandwidth", "ours": "1"})
    profile = [{"kind": "scale_and_average", "milliseconds": "0.25"}, {"kind": "other", "milliseconds": "2"}]
    profile += [{"kind": "take_largest", "milliseconds": "1.25"}, {"kind": "finish_sums", "milliseconds": "0.5"}]
    text = " ".join(bytes_moved.section(rows, profile).split())
    assert "its floor is 50% of that" in text
    assert "| 2 of columns | 3.04 | " in text  # 2 passes x 64 images x 47.5 million numbers x 2 bytes / 4000 GB/s
    # 1.25 passes x 64 images x (256 x 128² + 512 x 64² + 1024 x 32²) numbers x 2 bytes / 4000 GB/s
    assert (
        "| other | 2.00 | | | take largest | 1.25 | 0.18 | | finish sums | 0.50 | | | scale and average | 0.25 | 0.29 |"
        in text
    )
    assert "4.0 ms in all" in text
    # 1.25 less twice 1.375 passes x 64 images x 64 x 256² numbers x 2 bytes / 4000 GB/s
    assert "pooling takes 0.9 ms more than its bytes, and the small kernels 0.5 ms" in text
    assert "60% of the floor would be 42.1 ms, 8.4 ms less than now" in text
