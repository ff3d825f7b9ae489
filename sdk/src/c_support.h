// SPDX-License-Identifier: Apache-2.0
// The functions of baton/c.h share these: the border that no exception crosses, and checked arguments.
// Arguments that cannot be used are InputErrors, which become BATON_USAGE.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <baton/baton.h>
#include <baton/c.h>

struct baton_error {
  baton_status status;
  std::string message;
  std::string mistakes;  // JSON array
};

namespace baton::c_face {

/// Stores a new error in `error` unless it is NULL; stores NULL when out of memory. Returns the status.
baton_status set_error(baton_error** error, baton_status status, std::string_view message,
                       std::string_view mistakes = "[]") noexcept;

/// The same from the exception that is being handled.
baton_status set_error(baton_error** error) noexcept;

/// Runs the body of a function; exceptions become `error`.
template <typename Work>
baton_status guarded(baton_error** error, Work work) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    return work();
  } catch (...) {
    return set_error(error);
  }
}

/// The thing that an argument points to. Throws InputError when it is NULL.
template <typename Thing>
Thing& required(Thing* argument, const char* name) {
  if (argument == nullptr) throw InputError(std::string(name) + " is NULL");
  return *argument;
}

/// A place for a result, NULL for now.
template <typename Result>
Result*& result_place(Result** place, const char* name) {
  required(place, name) = nullptr;
  return *place;
}

/// Throws InputError when it is NULL, empty or not UTF-8.
std::string read_text(const char* text, const char* name);

/// NULL is empty.
std::string read_optional_text(const char* text, const char* name);

/// Values may be empty. Throws InputError for one that cannot be read, and for a name that comes twice.
std::vector<std::pair<std::string, std::string>> read_pairs(const baton_pair* pairs, std::size_t count,
                                                            const char* name);

/// Throws InputError for a size that no header had, and when bytes that this library does not know are not zero.
void check_options(const void* options, std::size_t size, std::size_t first, std::size_t known, const char* name);

/// A struct of options that may come from an earlier or later header: missing members are zero. `first` is its size in
/// the first header that had it.
template <typename Options>
Options read_options(const Options* given, std::size_t first, const char* name) {
  Options options{};
  if (given == nullptr) return options;
  check_options(given, given->size, first, sizeof(Options), name);
  std::memcpy(&options, given, std::min(given->size, sizeof(Options)));
  return options;
}

template <typename Options>
void init_options(Options* options, std::size_t size) noexcept {
  if (options == nullptr || size < sizeof(options->size)) return;
  std::memset(options, 0, size);  // size of the caller's struct, which may be smaller or larger than this library's
  options->size = size;
}

/// For baton_string_free. Throws std::bad_alloc.
char* new_text(std::string_view text);

}  // namespace baton::c_face

struct baton_workflow {
  baton::Workflow workflow;
};

struct baton_engine {
  baton::Engine engine;
};

namespace baton::c_face {

// What is behind the handles of baton/c.h that more than one file opens.

/// A run that `start` starts with the host's options.
baton_run* new_run(const Workflow& workflow, const baton_run_options* options,
                   const std::function<Run(const RunOptions& options)>& start);

}  // namespace baton::c_face
