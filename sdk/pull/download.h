// SPDX-License-Identifier: Apache-2.0
// One file from a URL into its place: locked, resumed, checked, renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "sdk/pull/checksum.h"
#include "sdk/pull/http.h"
#include "sdk/pull/part_file.h"
#include "sdk/pull/retries.h"

namespace baton {

struct Download {
  std::string name;  // for messages
  std::string url;   // https:, http: or file:
  std::string token;
  std::string commit;  // what X-Repo-Commit must say where it is sent, or empty
  std::filesystem::path target;
  std::filesystem::path lock;
  std::int64_t bytes = -1;  // -1: unknown
  Checksum checksum;
  bool gguf_magic = false;   // it must begin as a GGUF file does
  bool check_there = false;  // a file that is in its place already must have the checksum, too
};

struct DownloadSettings {
  int retries = 5;
  std::stop_token stop;
  std::function<void(std::int64_t bytes)> on_bytes;  // of this file, so far
  std::function<void(const std::string& text)> on_note;
};

/// Throws PullError when the file in its place has another checksum and `what.check_there`, filesystem_error when it
/// cannot be read.
void check_there(const Download& what, const std::stop_token& stop);

/// Returns the size of the file, which another program may have completed meanwhile. Throws HttpError, PullError and
/// filesystem_error; then what has come stays for the next time, unless it is wrong.
std::int64_t download(HttpClient& client, const Download& what, const DownloadSettings& settings);

/// The path of a file: URL.
std::filesystem::path path_of_file_url(const std::string& url);

}  // namespace baton
