// SPDX-License-Identifier: Apache-2.0
// The weights of a safetensors checkpoint, of which some are quantised as its config.json says.
#pragma once

#include <string>

#include "engine/model/quantization.h"
#include "engine/model/safetensors.h"

namespace baton {

/// Which tensors are quantised is seen from the tensors: a "NAME.weight" of type F8_E4M3, or "NAME.qweight" in its
/// place. Every shape, type, scale and index is checked; errors are ModelErrors with the tensor's name, what was found
/// and what was expected. Safe from any thread.
class CheckpointWeights final : public WeightSource {
 public:
  /// `files` must outlive it.
  CheckpointWeights(const SafetensorsFolder& files, const QuantizationConfig& config)
      : files_(files), config_(config) {}

  bool contains(const std::string& name) const override;
  /// FP8 becomes f32; integers of 4 bits become blocks of Q4_0 or Q5_0 where those hold the same values, else f32.
  StoredWeight weight(const std::string& name, std::int64_t rows, std::int64_t cols) const override;
  /// Of what weight() returns, about.
  std::size_t total_bytes() const override;

 private:
  StoredWeight fp8(const std::string& name, std::int64_t rows, std::int64_t cols) const;
  StoredWeight int4(const std::string& stem, std::int64_t rows, std::int64_t cols) const;
  std::vector<float> scales(const std::string& name) const;
  std::vector<std::int32_t> groups(const std::string& stem, std::int64_t cols, std::int64_t count) const;
  std::vector<std::byte> bytes(const std::string& name, const char* type, const std::vector<std::int64_t>& shape) const;

  const SafetensorsFolder& files_;
  QuantizationConfig config_;
};

}  // namespace baton
