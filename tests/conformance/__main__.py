"""``python -m tests.conformance [--vllm VERSION | --wheel FILE]``: prints what was compared and where it differs."""

import argparse
import os
import random
import sys
from pathlib import Path

from .compare import Tally, compare, compare_flash_attention, compare_lora_counts, compare_resolution, server, servers
from .real import PINNED, Real, Unreadable, fetch_wheel

SHOWN = 20


def random_servers(count, seed=0):
    """Yield servers with random lists, limits and speculation, the same ones every time."""
    draw = random.Random(seed)
    for _ in range(count):
        yield server(
            max_num_seqs=draw.randint(1, 300),
            max_num_batched_tokens=draw.choice((64, 512, 2048, 8192)),
            cudagraph_capture_sizes=tuple(draw.randint(1, 400) for _ in range(draw.randint(1, 25))),
            num_speculative_tokens=draw.randint(0, 7),
        )


def main():
    """Run the comparison; 1 where the pinned version differs, 3 where no wheel can be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--vllm", default=os.environ.get("VLLM") or PINNED, help=f"version (default {PINNED})")
    parser.add_argument("--wheel", type=Path, help="a wheel file, instead of a download")
    args = parser.parse_args()
    version = args.wheel.name.split("-")[1] if args.wheel and "-" in args.wheel.name else args.vllm
    pinned = version == PINNED
    tally = Tally()
    if args.wheel and not args.wheel.is_file():
        print(f"error: --wheel {args.wheel}: no such file", file=sys.stderr)
        return 2
    try:
        wheel = args.wheel or fetch_wheel(args.vllm)
    except Unreadable as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    try:
        real = Real(wheel)
        compare_lora_counts(tally, real.lora_counts)
        compare_flash_attention(real, tally)
        compare_resolution(real, tally)
        for settings in (*servers(), *random_servers(150)):
            compare(real, tally, settings)
    except Unreadable as error:
        tally.differences.append(str(error))
    print(
        f"vLLM {version}: {tally.dispatches:,} dispatches and {tally.resolutions:,} resolutions compared, "
        f"{len(tally.differences):,} differences; {tally.stricter} bad lists refused by us alone"
    )
    for line in tally.differences[:SHOWN]:
        print(f"  {line}")
    if not pinned and tally.differences:
        print(f"drift from {PINNED}: the answers of explain and the simulator hold for {PINNED} alone")
    return 1 if pinned and tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
