// SPDX-License-Identifier: Apache-2.0
// Every test case begins with a fresh strict runtime and ends the process when it broke a rule or left something
// behind. BATON_TEST_STREAMS=some: streams run some of their work with each call. BATON_TEST_DEVICE_MIB: the device's
// memory, for published models.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/support/strict/strict.h"

namespace baton::test::strict {
namespace {

struct Listener : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& /*info*/) override {
    const char* streams = std::getenv("BATON_TEST_STREAMS");
    const bool some = streams != nullptr && std::string_view(streams) == "some";
    DeviceSpec device;
    if (const char* mib = std::getenv("BATON_TEST_DEVICE_MIB")) device.memory = std::strtoull(mib, nullptr, 10) << 20;
    restart({.devices = {device}, .lateness = some ? Lateness::some : Lateness::late});
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const auto broken = take_reports_and_leaks();
    for (const std::string& what : broken)
      std::fprintf(stderr, "strict runtime: '%s': %s\n", stats.testInfo.name.c_str(), what.c_str());
    if (broken.empty() || stats.totals.assertions.failed > 0) return;
    std::fflush(nullptr);
    std::_Exit(1);
  }
  void testRunEnded(const Catch::TestRunStats& /*stats*/) override {
    std::printf("strict runtime: %llu calls checked\n", static_cast<unsigned long long>(all_calls()));
  }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace
}  // namespace baton::test::strict
