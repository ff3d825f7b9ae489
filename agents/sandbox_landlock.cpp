// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace baton {
namespace {

[[noreturn]] void landlock_failed(const std::string& what) {
  throw std::runtime_error("landlock: " + what + ": " + std::strerror(errno));
}

/// The kernel's landlock_ruleset_attr of version 6, which is newer than some headers.
struct RulesetAttributes {
  std::uint64_t files = 0;
  std::uint64_t network = 0;  // since version 4
  std::uint64_t scoped = 0;   // since version 6
};

constexpr std::uint64_t kRead = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kFilesOfVersion1 = (1u << 13) - 1;
constexpr std::uint64_t kRefer = 1u << 13;        // since version 2: rename from one folder to another
constexpr std::uint64_t kTruncate = 1u << 14;     // since version 3
constexpr std::uint64_t kDeviceIoctl = 1u << 15;  // since version 5
constexpr std::uint64_t kBindAndConnectTcp = 3;   // since version 4
constexpr std::uint64_t kSocketsAndSignals = 3;   // since version 6

}  // namespace

int landlock_version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

LandlockRules make_landlock_rules(const std::vector<std::filesystem::path>& readable) {
  const int version = landlock_version();
  if (version == 0) return {};
  RulesetAttributes attributes;
  attributes.files = kFilesOfVersion1;
  if (version >= 2) attributes.files |= kRefer;
  if (version >= 3) attributes.files |= kTruncate;
  if (version >= 5) attributes.files |= kDeviceIoctl;
  if (version >= 4) attributes.network = kBindAndConnectTcp;
  if (version >= 6) attributes.scoped = kSocketsAndSignals;
  const std::size_t bytes = sizeof(std::uint64_t) * (version >= 6 ? 3 : version >= 4 ? 2 : 1);
  UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, bytes, 0)));
  if (rules && rules.get() <= STDERR_FILENO)  // the child puts other files there
    rules = UniqueFd(fcntl(rules.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!rules) landlock_failed("cannot make a ruleset");

  const auto allow = [&](const std::filesystem::path& path, std::uint64_t access) {
    const UniqueFd place(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!place) {
      // Only what cannot be read anyway may be left out: a program without its libraries does not start.
      for (const int absent : {ENOENT, ENOTDIR, EACCES, ELOOP, ENXIO, ENODEV}) {
        if (errno == absent) return;
      }
      landlock_failed("cannot open " + path.string());
    }
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) access &= ~std::uint64_t{LANDLOCK_ACCESS_FS_READ_DIR};
    landlock_path_beneath_attr rule{};
    rule.allowed_access = access;
    rule.parent_fd = place.get();
    if (syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
      landlock_failed("cannot add a rule for " + path.string());
    }
  };
  for (const std::filesystem::path& path : readable) allow(path, kRead);
  allow("/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
  return {std::move(rules), attributes.files & ~(kDeviceIoctl | LANDLOCK_ACCESS_FS_EXECUTE)};
}

}  // namespace baton
