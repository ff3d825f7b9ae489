# SPDX-License-Identifier: Apache-2.0
"""Mistakes seeded into the kernels of the CUDA backend, each of which a named test must find on the emulator.

    python3 tests/engine/cuda/emulated/mutants.py [--only N,...] [--build DIR] [--jobs N]

tests/support/seeded_mistakes.py says how. Each test runs a second time without the shadow memory, which says what it
alone finds: missing barriers that change no result in the three orders in which the emulator runs threads, and what the
emulator cannot show at all, because one thread runs at a time.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
import seeded_mistakes  # noqa: E402

ALIGN = "align: pairs of texts of any length come out as on the host, ties too"
CHOOSE = "a token is chosen as defined, by every backend"
ENTROPY = "the entropy of a choice, on every backend"
NORMS = "norms, store and rotation in one pass leave the bits of the three"
INSERT = "insert_kv adds weighted offsets before it rounds, row by row"
DEVIATION = "value_deviation agrees with double, equal values give exactly zero"
ATTENTION = "attention of scattered rows agrees with double"
RECEIVED = "attention received agrees with double, for the sequences that record"
ROWS = "row operations agree with double"
GATHER = "gather and scatter move whole rows"
MATMUL = "matmul agrees with a dense product in double"
STEP = "a step on the emulated kernels has the same bits in every order of threads"

TILES = "attention/attention_tiles.cuh"
SLOW = "attention/attention.cu"

# What goes wrong, the file, the text and what stands in its place, the test that finds it.
MUTANTS = [
    # Barriers of blocks.
    ("a sketch is used before it is loaded", "kernels/align.cu", "load_sketch(1);\n  sync_block();",
     "load_sketch(1);", ALIGN),
    ("a row of costs is used before it is complete", "kernels/align.cu",
     "= inside ? best : kFar;\n    sync_block();", "= inside ? best : kFar;", ALIGN),
    ("cells are loaded while the path is traced through them", "kernels/align.cu",
     "    sync_block();\n    for (int row = begin;", "    for (int row = begin;", ALIGN),
    ("bins are counted in while they are cleared", "kernels/choose.cu",
     "shared.bins[bin] = {0, 0};\n    sync_block();", "shared.bins[bin] = {0, 0};", CHOOSE),
    ("bins are added up while they are counted in", "kernels/choose.cu",
     ".add(amount);\n    }\n    sync_block();", ".add(amount);\n    }", CHOOSE),
    ("bins are cleared while they are added up", "kernels/choose.cu",
     "shift -= 8) {\n    sync_block();", "shift -= 8) {", CHOOSE),
    ("sums of warps are read before they are there", "kernels/choose.cu",
     "shared.second[threadIdx.x / kWarp] = weighted;\n  }\n  sync_block();",
     "shared.second[threadIdx.x / kWarp] = weighted;\n  }", ENTROPY),
    ("keys are rotated before all are corrected", "kernels/kv.cu",
     "first % width, value);\n  }\n  sync_block();", "first % width, value);\n  }", INSERT),
    ("a sum is taken before its parts are there", "kernels/kv.cu",
     "shared.of_warp[warp] = parts;\n  sync_block();", "shared.of_warp[warp] = parts;", DEVIATION),
    ("a norm is taken before its parts are there", "kernels/norm.cu",
     "= value;\n  sync_block();", "= value;", ROWS),
    ("weights are overwritten while they are read", SLOW,
     "sync_block();  // the queries are loaded; the last chunk's weights have been read",
     "if (chunk == begin) sync_block();", ATTENTION),
    ("weights are read before they are there", SLOW,
     "expf(score - now);\n    sync_block();", "expf(score - now);", ATTENTION),
    ("results of warps replace keys that are still read", TILES,
     "sync_block();  // the keys and values in the same memory have been read", "", ATTENTION),
    ("results of warps are merged before they are there", TILES,
     "      merge.sum[warp][row] = sum[r];\n    }\n  }\n  sync_block();",
     "      merge.sum[warp][row] = sum[r];\n    }\n  }", ATTENTION),
    ("a block of keys is used before all warps have it", TILES,
     "sync_block();  // all warps have this block, and none reads the other stage any more", "", ATTENTION),
    # Barriers of warps.
    ("a head is rotated before its lanes have written it", "kernels/kv.cu", "  sync_warp();\n", "", NORMS),
    ("a shuffle stands for a barrier", "kernels/kv.cu", "  sync_warp();\n", "  shuffle_xor(0.0f, 1);\n", NORMS),
    # Asynchronous copies.
    ("the newest group of copies is not waited for", TILES,
     "    copy_async_wait<0>();\n    sync_block();  // all warps",
     "    copy_async_wait<1>();\n    sync_block();  // all warps",
     ATTENTION),
    ("the keys of a pass over received attention are not waited for", TILES,
     "    copy_async_wait<0>();\n    sync_block();\n", "    copy_async_wait<1>();\n    sync_block();\n", RECEIVED),
    ("copies are waited for behind the barrier", TILES,
     "    copy_async_wait<0>();\n    sync_block();\n", "    sync_block();\n    copy_async_wait<0>();\n", RECEIVED),
    ("keys are copied into the stage that is read", TILES,
     "load_stage<D>(shared.keys[stage ^ 1], keys,", "load_stage<D>(shared.keys[stage], keys,", RECEIVED),
    ("the next keys are copied before the barrier", TILES,
     "    copy_async_wait<0>();\n    sync_block();\n    if (block + kTileKeys < tile.key_end) {\n"
     "      load_stage<D>(shared.keys[stage ^ 1], keys, block + kTileKeys, tile);\n      copy_async_commit();\n    }\n",
     "    copy_async_wait<0>();\n    if (block + kTileKeys < tile.key_end) {\n"
     "      load_stage<D>(shared.keys[stage ^ 1], keys, block + kTileKeys, tile);\n      copy_async_commit();\n"
     "      copy_async_wait<1>();\n    }\n    sync_block();\n", RECEIVED),
    # Memory that nothing wrote.
    ("the last column of a head is not written", "kernels/kv.cu",
     "  for (int c = lane; c < width; c += static_cast<int>(kWarp)) {\n    const float value = norm",
     "  for (int c = lane; c < width - 1; c += static_cast<int>(kWarp)) {\n    const float value = norm", NORMS),
    ("one warp's sum more is added than there are", "kernels/norm.cu",
     "warp < blockDim.x / kWarp; ++warp)", "warp < blockDim.x / kWarp + 1; ++warp)", ROWS),
    ("matrix loads read the padding of rows", TILES,
     "[(lane >> 4) * 8];\n#pragma unroll\n  for (int step = 0; step < Shape::kScoreTiles / 2",
     "[(lane >> 4) * 8 + 8];\n#pragma unroll\n  for (int step = 0; step < Shape::kScoreTiles / 2", ATTENTION),
    ("keys are read that no row attends to", TILES,
     "const bool valid = block + key >= tile.key_begin && block + key < tile.key_end;", "const bool valid = true;",
     STEP),
    # Blocks of one launch, and atomic operations.
    ("two lanes write the same output", "kernels/few_rows.cu",
     "if (lane == 0 && first + o < n)", "if (lane <= 1 && first + o < n)", MATMUL),
    ("a sum over blocks is not atomic", "attention/attention.cu",
     "if (units != 0) atomic_add(received + key, std::uint64_t{units});", "if (units != 0) received[key] += units;",
     RECEIVED),
    ("a carry is not atomic", "kernels/choose.cu",
     "if (more != 0) fetch_add(&high, more);", "if (more != 0) high += more;", CHOOSE),
    ("all threads write the sum of a row", "attention/attention.cu",
     "if (threadIdx.x == 0 && call.logsum != nullptr) {", "if (call.logsum != nullptr) {", RECEIVED),
    ("a row is copied with one column too many", "kernels/rows.cu",
     "for (int i = 0; i < kVector && c + i < out_cols; ++i)\n    to[i]",
     "for (int i = 0; i <= kVector && c + i < out_cols; ++i)\n    to[i]", GATHER),
]

if __name__ == "__main__":
    seeded_mistakes.main(__doc__, "baton_test_simt", "engine/cuda", MUTANTS,
                         without=("the shadow memory", {"BATON_TEST_SHADOW": "off"}))
