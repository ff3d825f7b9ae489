// SPDX-License-Identifier: Apache-2.0
// Tensor-core attention of heads of 96 columns.

#include "engine/cuda/attention/attention_tiles.cuh"

template struct baton::cuda::TileLaunches<96>;

// Tensor-core attention of heads of 128 columns.

template struct baton::cuda::TileLaunches<128>;
