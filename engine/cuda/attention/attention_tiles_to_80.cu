// SPDX-License-Identifier: Apache-2.0
// Tensor-core attention of heads of 32 columns.

#include "engine/cuda/attention/attention_tiles.cuh"

template struct baton::cuda::TileLaunches<32>;

// Tensor-core attention of heads of 64 columns.

template struct baton::cuda::TileLaunches<64>;

// Tensor-core attention of heads of 80 columns.

template struct baton::cuda::TileLaunches<80>;
