// SPDX-License-Identifier: Apache-2.0
// One file from a URL into its place: locked, resumed, checked, renamed. Its bytes so far have the name
// TARGET.incomplete, from which a later download goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "engine/base/system/file.h"
#include "sdk/pull/http.h"
#include "sdk/pull/hub_access.h"

namespace baton {

/// Members throw std::filesystem::filesystem_error when reading or writing fails.
class PartFile {
 public:
  /// Opens what an earlier download left, or an empty file.
  explicit PartFile(std::filesystem::path target);
  /// Removes a part without a byte.
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::int64_t bytes() const { return bytes_; }
  void restart();  // drops all bytes
  void append(std::span<const std::byte> bytes);

  /// The checksum of all bytes, in hexadecimal digits. Reads the file as far as it was not written by this object.
  /// Empty when stopped.
  std::string hex(Checksum::Kind kind, const std::stop_token& stop);
  /// Lets `append` compute the checksum as bytes come, of a file that will have `size` bytes. False when stopped.
  bool expect(Checksum::Kind kind, std::int64_t size, const std::stop_token& stop);

  /// The first bytes, at most `count`.
  std::string head(std::size_t count) const;

  /// What a server calls this version of the file (an ETag or a date); a later part depends on it. Empty: unknown.
  std::string validator() const;
  void set_validator(const std::string& text);

  /// Gives the file its name, after its contents have reached the disk.
  void commit();
  /// Removes it.
  void discard();

 private:
  /// False when stopped.
  bool add_from_disk(ChecksumStream& stream, const std::stop_token& stop) const;
  [[noreturn]] void fail(int error) const;

  std::filesystem::path target_, part_, validator_;
  UniqueFd descriptor_;
  std::int64_t bytes_ = 0;
  Checksum::Kind kind_ = Checksum::Kind::none;
  std::int64_t size_ = -1;
  ChecksumStream stream_{Checksum::Kind::none, 0};
};

struct Download {
  std::string name;  // for messages
  std::string url;   // https:, http: or file:
  std::string token;
  std::string commit;  // what X-Repo-Commit must say if it is sent, or empty
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
  std::function<void(std::int64_t bytes)> on_bytes;  // bytes of this file so far
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
