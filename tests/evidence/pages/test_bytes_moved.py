"""The account of bytes in docs/gpu.md is that of the code and of what was measured."""

from __future__ import annotations

from evidence.bench import against
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
    on_gpu = {"device": "a GPU", "date": "2026-11-02"}
    rows = [{**on_gpu, "item": item, "ours": str(value)} for item, value in measured.items()]
    rows.append({"device": "CPU", "date": "2026-11-04", "item": "memory bandwidth", "ours": "1"})
    compared = {**on_gpu, "item": against.item(512, 64), "ours": str(best / 4)}
    rows.append({**compared, "date": "2026-11-01"})
    profile = [{"kind": "scale_and_average", "milliseconds": "0.25"}, {"kind": "other", "milliseconds": "2"}]
    profile += [{"kind": "take_largest", "milliseconds": "1.25"}, {"kind": "convolutions", "milliseconds": "0.5"}]
    text = " ".join(bytes_moved.section(rows, profile).split())
    assert "its floor is 50% of that" in text
    assert "| 2 of columns | 3.04 | " in text  # 2 passes x 64 images x 47.5 million numbers x 2 bytes / 4000 GB/s
    # 1.25 passes x 64 images x (256 x 128² + 512 x 64² + 1024 x 32²) numbers x 2 bytes / 4000 GB/s
    assert "| scale and average | 0.25 | 0.29 |" in text
    # 64 images x 2 bytes / 4000 GB/s x numbers: three passes over 128 + 32 columns of 6 x 128² + 12 x 64² + 24 x 32² +
    # 16 x 16² pixels, and in the stem two over 48 columns of 259 x 256 squares and over 64 of 256²
    assert "| other | 2.00 | | | take largest | 1.25 | 0.18 | | convolutions | 0.50 | 3.18 |" in text
    assert "4.0 ms in all, in a step of 50.5 ms" in text
    # 1.25 less 1.375 passes x 64 images x 64 x 256² numbers x 2 bytes / 4000 GB/s
    assert "Farthest from their bytes are take largest, by 1.1 ms" in text
    assert "60% of the floor would be 42.1 ms, 8.4 ms less than now" in text
    newer = " ".join(bytes_moved.section([*rows[:-1], {**compared, "date": "2026-11-03"}], profile).split())
    assert "its floor is 25% of that" in newer
