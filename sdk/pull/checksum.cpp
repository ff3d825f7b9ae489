// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/hub_access.h"

#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "engine/base/system/file.h"
#include "sdk/hub/model_source.h"

namespace baton {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

}  // namespace

std::string Checksum::text() const {
  if (kind == Kind::none) return "";
  return fmt::format("{}:{}", kind == Kind::sha256 ? "sha256" : "git-sha1", hex);
}

Checksum checksum_of(const std::string& hex) {
  if (is_hex(hex, 64)) return {Checksum::Kind::sha256, hex};
  if (is_hex(hex, 40)) return {Checksum::Kind::git_sha1, hex};
  return {};
}

std::string checksum_of_file(const std::filesystem::path& file, Checksum::Kind kind, const std::stop_token& stop) {
  const auto failure = [&file] {
    return std::filesystem::filesystem_error("cannot read", file, std::error_code(errno, std::generic_category()));
  };
  const UniqueFd opened = open_file(file, Open::read | Open::sequential);
  const std::optional<FileStatus> status = opened ? status_of(opened) : std::nullopt;
  if (!status) throw failure();
  ChecksumStream stream(kind, status->bytes);
  std::vector<std::byte> block(kReadBytes);
  while (!stop.stop_requested()) {
    const std::int64_t count = read_some(opened, block);
    if (count < 0) throw failure();
    if (count == 0) return stream.hex();
    stream.add(std::span(block).first(static_cast<std::size_t>(count)));
  }
  return "";
}

ChecksumStream::ChecksumStream(Checksum::Kind kind, std::int64_t bytes) {
  if (kind == Checksum::Kind::none) return;
  const bool sha256 = kind == Checksum::Kind::sha256;
  digest_ = std::make_unique<Digest>(sha256 ? Digest::Algorithm::sha256 : Digest::Algorithm::sha1);
  if (sha256) return;
  std::string head = fmt::format("blob {}", bytes);
  head += '\0';
  add(std::as_bytes(std::span(head)));
}

void ChecksumStream::add(std::span<const std::byte> bytes) {
  if (digest_) digest_->add(bytes);
}

std::string ChecksumStream::hex() {
  std::string text;
  if (!digest_) return text;
  for (const unsigned char byte : digest_->result()) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace baton
