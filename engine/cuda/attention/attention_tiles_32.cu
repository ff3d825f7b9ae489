// SPDX-License-Identifier: Apache-2.0
// Tensor-core attention of heads of 32 columns.
#include "engine/cuda/attention/attention_tiles.cuh"

template struct baton::cuda::TileLaunches<32>;
