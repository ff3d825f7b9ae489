// SPDX-License-Identifier: Apache-2.0

#include <windows.h>

#include <string>

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

}  // namespace baton
