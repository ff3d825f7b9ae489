// SPDX-License-Identifier: Apache-2.0
// The machine and this process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

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

// What the machine has, as far as the system says it, and memory by pages.

// What the machine has, as far as the system says it.

/// Those that this process may use, at least 1: where control groups, such as a container's, limit its processor time,
/// as many as can run all the time. `root` stands for "/", on systems that say it in files.
int usable_cores(const std::filesystem::path& root = "/");

/// "CPU" if the system names none.
std::string processor_name();

/// The vector instructions that the engine has kernels for, as "avx2 fma"; empty: none, or the system does not say.
std::string vector_instructions();

struct MachineMemory {
  std::int64_t available_bytes = 0;  // for new allocations; 0: unknown
  std::int64_t total_bytes = 0;      // 0: unknown
};
/// The smaller of what the machine has and what the control groups of this process, such as a container's, with those
/// around them, allow (versions 2 and 1). Files that were read and can be dropped again count as available. `root`
/// stands for "/", on systems that say it in files.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

// Memory by pages, and what the C library keeps of it.

/// Zeroed memory in whole pages, aligned as huge pages are if the system has those; null: there is none. `huge`: it
/// should be backed by huge pages. The caller gives it back with unmap_pages, with the same size.
void* map_pages(std::size_t bytes, bool huge) noexcept;
void unmap_pages(void* data, std::size_t bytes) noexcept;
/// The system may take the pages for others until they are written again; what they hold until then is undefined.
void lend_pages(void* data, std::size_t bytes) noexcept;

/// Returns freed memory that the C library keeps for later allocations to the operating system. Takes milliseconds;
/// threads that allocate meanwhile wait. Does nothing where the C library offers no way (it is glibc's malloc_trim).
void return_free_memory() noexcept;

}  // namespace baton
