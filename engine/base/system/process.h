// SPDX-License-Identifier: Apache-2.0
// This process: its number, the files that it was loaded from, the signal of broken pipes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace baton {

/// Another one in a child of fork().
std::int64_t process_number();

/// The file of the program; empty: unknown.
std::filesystem::path own_program();

/// The file that the code at an address was loaded from: the program or a shared library; empty: unknown.
std::filesystem::path module_of(const void* code);

/// Whether this process may execute the file.
bool is_executable(const std::filesystem::path& file);

/// Writes to a pipe or socket that the other side has closed raise a signal that would end the host. Keeps it from this
/// thread from now on.
void block_pipe_signal();
/// Keeps it from this thread during `work`, and takes one away that was raised meanwhile. Not where it was pending
/// before. Passes exceptions on.
void without_pipe_signal(const std::function<void()>& work);

}  // namespace baton
