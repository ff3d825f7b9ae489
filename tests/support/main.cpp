// SPDX-License-Identifier: Apache-2.0
// Catch2's main: version 2 makes it here, version 3 calls its session.
#include <csignal>

// Catch2 2 asks the C library for it, and one that is older than its headers (./dev gpu --pack) does not know.
#undef SIGSTKSZ
#define SIGSTKSZ 8192
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>

#if defined(__linux__)
#include "tests/support/host_locale.h"
#endif

/// With BATON_TEST_LOCALE the tests run in a host whose locale is not that of C.
int main(int argc, char** argv) {
#if defined(__linux__)
  std::optional<baton::test::HostLocale> locale;
  if (std::getenv("BATON_TEST_LOCALE") != nullptr) {
    locale.emplace();
    if (!locale->is_set()) std::puts("skipped: the package `locales` is missing");
    if (!locale->is_set()) return 0;
  }
#endif
  return Catch::Session().run(argc, argv);
}
