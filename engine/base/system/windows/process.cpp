// SPDX-License-Identifier: Apache-2.0

#include <malloc.h>
#include <windows.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/system/process.h"

namespace baton {

namespace fs = std::filesystem;
namespace {

fs::path file_of(HMODULE module) {
  std::wstring name(32768, L'\0');  // the longest path
  name.resize(GetModuleFileNameW(module, name.data(), static_cast<DWORD>(name.size())));
  return name;
}

}  // namespace

std::int64_t process_number() { return GetCurrentProcessId(); }

fs::path own_program() { return file_of(nullptr); }

fs::path module_of(const void* code) {
  HMODULE module = nullptr;
  constexpr DWORD kFlags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (GetModuleHandleExW(kFlags, static_cast<const wchar_t*>(code), &module) == 0) return {};
  return file_of(module);
}

bool is_executable(const fs::path& file) { return file.extension() == ".exe"; }

// Writes to broken pipes fail here without a signal.
void block_pipe_signal() {}
void without_pipe_signal(const std::function<void()>& work) { work(); }

static_assert(sizeof(std::atomic<std::int32_t>) == sizeof(std::int32_t));

void wait_while(const std::atomic<std::int32_t>& number, std::int32_t old) noexcept {
  auto* address = const_cast<std::atomic<std::int32_t>*>(&number);  // it is only read
  WaitOnAddress(address, &old, sizeof(old), INFINITE);
}

void wake_all(std::atomic<std::int32_t>& number) noexcept { WakeByAddressAll(&number); }

int usable_cores(const std::filesystem::path& /*root*/) {
  DWORD_PTR own = 0, all = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all) != 0 && own != 0) return std::popcount(own);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::string processor_name() {
  std::array<char, 128> name{};
  auto bytes = static_cast<DWORD>(name.size());
  if (RegGetValueA(HKEY_LOCAL_MACHINE, "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0", "ProcessorNameString",
                   RRF_RT_REG_SZ, nullptr, name.data(), &bytes) != ERROR_SUCCESS)
    return "CPU";
  return name.data();
}

std::string vector_instructions() {
  constexpr std::array<std::pair<DWORD, const char*>, 2> kKnown = {{{40, "avx2"}, {41, "avx512f"}}};  // PF_...
  std::string found;
  for (const auto& [feature, name] : kKnown) {
    if (IsProcessorFeaturePresent(feature) != 0) found += (found.empty() ? "" : " ") + std::string(name);
  }
  return found;
}

MachineMemory machine_memory(const std::filesystem::path& /*root*/) {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof(status);
  if (GlobalMemoryStatusEx(&status) == 0) return {};
  return {static_cast<std::int64_t>(status.ullAvailPhys), static_cast<std::int64_t>(status.ullTotalPhys)};
}

/// Large pages need a privilege that users do not have.
void* map_pages(std::size_t bytes, bool /*huge*/) noexcept {
  return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_pages(void* data, std::size_t /*bytes*/) noexcept { VirtualFree(data, 0, MEM_RELEASE); }

void lend_pages(void* data, std::size_t bytes) noexcept { VirtualAlloc(data, bytes, MEM_RESET, PAGE_READWRITE); }

void return_free_memory() noexcept { _heapmin(); }

}  // namespace baton
