// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/c_support.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "engine/base/utf8.h"
#include "workflows/run/record.h"

#include <baton/version.h>

namespace baton::c_face {
namespace {

constexpr std::size_t kMaxOptionsBytes = 4096;  // more is a size that was never set

std::string mistakes_json(const std::vector<Diagnostic>& items) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& item : items) {
    list.push_back({{"file", item.file},
                    {"line", item.line},
                    {"column", item.column},
                    {"length", item.length},
                    {"code", item.code},
                    {"message", item.message},
                    {"hint", item.hint},
                    {"source_line", item.source_line}});
  }
  return dump(list, -1);
}

}  // namespace

baton_status set_error(baton_error** error, baton_status status, std::string_view message,
                       std::string_view mistakes) noexcept {
  if (error == nullptr) return status;
  try {
    *error = new baton_error{status, utf8::repaired(message), std::string(mistakes)};
  } catch (const std::bad_alloc&) {
    *error = nullptr;
  }
  return status;
}

baton_status set_error(baton_error** error) noexcept {
  try {
    throw;
  } catch (const WorkflowError& wrong) {
    try {
      return set_error(error, BATON_INVALID, wrong.what(), mistakes_json(wrong.items));
    } catch (const std::bad_alloc&) {
      return set_error(error, BATON_INVALID, wrong.what());
    }
  } catch (const InputError& wrong) {
    return set_error(error, BATON_USAGE, wrong.what());
  } catch (const std::invalid_argument& wrong) {
    return set_error(error, BATON_USAGE, wrong.what());
  } catch (const ResourceError& wrong) {
    return set_error(error, BATON_RESOURCES, wrong.what());
  } catch (const std::bad_alloc&) {
    return set_error(error, BATON_RESOURCES, "out of memory");
  } catch (const std::exception& wrong) {
    return set_error(error, BATON_FAILED, wrong.what());
  } catch (...) {
    return set_error(error, BATON_FAILED, "an exception of unknown type");
  }
}

std::string read_optional_text(const char* text, const char* name) {
  if (text == nullptr) return {};
  if (!utf8::is_valid(text)) throw InputError(fmt::format("{} is not UTF-8", name));
  return text;
}

std::string read_text(const char* text, const char* name) {
  required(text, name);
  std::string read = read_optional_text(text, name);
  if (read.empty()) throw InputError(fmt::format("{} is empty", name));
  return read;
}

std::vector<std::pair<std::string, std::string>> read_pairs(const baton_pair* pairs, std::size_t count,
                                                            const char* name) {
  std::vector<std::pair<std::string, std::string>> read;
  for (std::size_t i = 0; i < count; ++i) {
    const baton_pair& pair = (&required(pairs, name))[i];
    std::string key = read_text(pair.name, fmt::format("{}[{}].name", name, i).c_str());
    const std::string what = fmt::format("{} '{}'", name, key);
    required(pair.value, what.c_str());
    const auto same = [&](const auto& other) { return other.first == key; };
    if (std::any_of(read.begin(), read.end(), same)) throw InputError(what + " is given twice");
    std::string value = read_optional_text(pair.value, what.c_str());
    read.emplace_back(std::move(key), std::move(value));
  }
  return read;
}

void check_options(const void* options, std::size_t size, std::size_t first, std::size_t known, const char* name) {
  if (size < first || size > kMaxOptionsBytes) {
    throw InputError(fmt::format("{}: size is {}, expected {}; use {}_init", name, size, known, name));
  }
  const char* bytes = static_cast<const char*>(options);
  if (size > known && std::any_of(bytes + known, bytes + size, [](char byte) { return byte != 0; })) {
    throw InputError(
        fmt::format("{}: set by a later header, with a member that version {} does not know", name, baton::version()));
  }
}

char* new_text(std::string_view text) {
  const std::string valid = utf8::repaired(text);
  char* copy = static_cast<char*>(std::malloc(valid.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, valid.c_str(), valid.size() + 1);
  return copy;
}

}  // namespace baton::c_face

using namespace baton::c_face;

const char* baton_version(void) { return baton::version(); }

const char* baton_status_name(baton_status status) {
  switch (status) {
    case BATON_OK:
      return "ok";
    case BATON_FAILED:
      return "failed";
    case BATON_USAGE:
      return "usage";
    case BATON_INVALID:
      return "invalid workflow";
    case BATON_RESOURCES:
      return "resources";
    case BATON_TIMEOUT:
      return "timeout";
    case BATON_SUSPENDED:
      return "suspended";
    case BATON_STOPPED:
      return "stopped";
    case BATON_PENDING:
      return "pending";
    case BATON_END:
      return "end";
  }
  return "unknown";
}

baton_status baton_error_status(const baton_error* error) { return error == nullptr ? BATON_OK : error->status; }
const char* baton_error_message(const baton_error* error) { return error == nullptr ? "" : error->message.c_str(); }
const char* baton_error_mistakes(const baton_error* error) { return error == nullptr ? "[]" : error->mistakes.c_str(); }
void baton_error_free(baton_error* error) { delete error; }
void baton_string_free(char* text) { std::free(text); }
