// SPDX-License-Identifier: Apache-2.0
// This process: its number, the files that it was loaded from, the signal of broken pipes, and waiting for a number.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

namespace baton {

// This process: its number, the files that it was loaded from, the signal of broken pipes.

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

// Waiting until an atomic number changes. Not std::atomic's wait: if the system offers none that libstdc++ 12 knows,
// as with MinGW-w64, that loses a wake-up between its look at the number and its sleep, and then sleeps for ever.

/// Returns once the number is no longer `old`, or sooner; the caller looks again.
void wait_while(const std::atomic<std::int32_t>& number, std::int32_t old) noexcept;

/// Wakes all that wait for it. After the change.
void wake_all(std::atomic<std::int32_t>& number) noexcept;

}  // namespace baton
