// SPDX-License-Identifier: Apache-2.0
// Names for places in the program's code. They come from addr2line (binutils), which reads the line tables that kernels
// are compiled with; without it a place is its address in the file.
#pragma once

#include <cstdint>
#include <string>

namespace baton::simt {

/// The offset of an address in the program's file; 0 for null.
std::uint32_t code_offset(const void* address);

/// "attention_tiles.cuh:101 < attention_tiles.cuh:325", the place and its callers, for the call that returns there.
std::string code_place(std::uint32_t offset);

/// "attend_tiles<64, 4>" for the offset of a function.
std::string function_at(std::uint32_t offset);

}  // namespace baton::simt
