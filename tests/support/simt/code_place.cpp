// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simt/code_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

extern "C" const char __executable_start[];  // NOLINT: the linker's name

namespace baton::simt {
namespace {

struct Frame {
  std::string function;  // "attend_tiles<64, 4>"
  std::string file;      // "/.../attention_tiles.cuh:101"
};

/// "void baton::cuda::(anonymous namespace)::attend_tiles<64, 4>(float*)" without type, namespaces and parameters.
std::string plain_name(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  std::string all;
  for (std::size_t at = 0; at < name.size();) {
    if (name.substr(at).starts_with(kAnonymous)) {
      at += kAnonymous.size();
    } else {
      all += name[at++];
    }
  }
  std::size_t begin = 0, end = 0;
  for (int depth = 0; end < all.size(); ++end) {
    const char c = all[end];
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    if (depth == 0 && c == '(') break;
    if (depth == 0 && (c == ' ' || c == ':')) begin = end + 1;
  }
  return all.substr(begin, end - begin);
}

/// The innermost function first; empty when nothing is known.
std::vector<Frame> frames_at(std::uint32_t offset) {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return {};
  program[length] = 0;
  const std::string command = fmt::format("addr2line -C -f -i -e '{}' {:#x} 2>/dev/null", program, offset);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  if (pipe == nullptr) return {};
  std::vector<Frame> frames;
  char line[16384];
  const auto next = [&](std::string& to) {
    if (std::fgets(line, sizeof line, pipe.get()) == nullptr) return false;
    to.assign(line, std::string_view(line).find_last_not_of('\n') + 1);
    return true;
  };
  for (Frame frame; next(frame.function) && next(frame.file);) {
    if (frame.function.starts_with('?')) break;
    frame.function = plain_name(frame.function);
    frames.push_back(frame);
  }
  return frames;
}

}  // namespace

std::uint32_t code_offset(const void* address) {
  return address == nullptr ? 0
                            : static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) -
                                                         reinterpret_cast<std::uintptr_t>(__executable_start));
}

std::string code_place(std::uint32_t offset) {
  std::string place;
  for (const Frame& frame : frames_at(offset - 1)) {
    if (frame.file.find("simt_emulator.h:") != std::string::npos) continue;  // what stands for a device's instruction
    std::string_view file = frame.file;
    file = file.substr(0, file.find(' '));  // "file:line (discriminator 3)"
    if (const std::size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
    place += fmt::format("{}{}", place.empty() ? "" : " < ", file);
  }
  return place.empty() ? fmt::format("{:#x}", offset) : place;
}

std::string function_at(std::uint32_t offset) {
  const std::vector<Frame> frames = frames_at(offset);
  return frames.empty() ? fmt::format("{:#x}", offset) : frames.back().function;
}

}  // namespace baton::simt
