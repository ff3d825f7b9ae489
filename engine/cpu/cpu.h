// SPDX-License-Identifier: Apache-2.0
// The CPU backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/backend/backend.h"

namespace baton {

/// Returns the CPU backend. `threads` counts the caller; 0: one per core that the process may use. Throws
/// std::invalid_argument when `threads` is negative. `fallback`: BackendInfo::fallback.
std::unique_ptr<Backend> make_cpu_backend(int threads, std::string fallback = {});

/// Returns the scalar fp32 reference, written to be read; slow. Its results equal the CPU backend's within the
/// tolerances that the tests state.
std::unique_ptr<Backend> make_reference_backend();

/// What a product multiplies: floats, pairs of bf16, bytes by vectors, bytes by tiles (AMX).
enum class Products : std::uint8_t { f32, bf16, bytes, tiles };

/// Repeats the processor's best instruction for such products on the calling thread, with independent sums in
/// registers. Returns the number of operations, of which a product and its sum are two; 0 if the processor has no such
/// instruction.
double repeat_products(Products kind, std::int64_t times);

/// Reads all of it but a rest of less than 256 bytes a stream, in so many streams at once, on the calling thread.
/// Returns a value that depends on what was read.
std::uint32_t read_streams(std::span<const std::byte> bytes, std::size_t streams);

}  // namespace baton
