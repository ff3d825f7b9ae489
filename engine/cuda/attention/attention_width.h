// SPDX-License-Identifier: Apache-2.0
// The launches of tiles of one head width. Each width has a .cu file, so that they compile in parallel.
#pragma once

#include "engine/cuda/attention/attention.h"

namespace baton::cuda {

template <int D>
struct TileLaunches {
  static void attend(Stream stream, const AttentionCall& call, const AttentionTile* narrow, std::size_t narrow_count,
                     const AttentionTile* wide, std::size_t wide_count);
  /// Adds to `received` for wide tiles.
  static void receive(Stream stream, const AttentionCall& call, const AttentionTile* wide, std::size_t wide_count);
};

}  // namespace baton::cuda
