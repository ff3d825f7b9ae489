// SPDX-License-Identifier: Apache-2.0
// Device `auto` on machines whose GPU cannot be used: the CPU takes its place, and the user learns why.
#include <baton/baton.h>
#include <baton/lab/profile.h>

#include <catch2/catch.hpp>
#include <stop_token>

#include "engine/backend/make_backend.h"
#include "tests/support/folders.h"
#include "tests/support/strict/strict.h"

namespace baton::test::fallback_test {
namespace {

using Catch::Contains;

BackendInfo automatic(const strict::Setup& machine) {
  strict::restart(machine);
  return make_backend({"auto", 1})->info();
}

TEST_CASE("auto takes the CPU where the GPU cannot be used, and keeps the reason") {
  const auto check = [](const strict::Setup& machine, const std::string& reason) {
    const BackendInfo info = automatic(machine);
    CHECK(info.name == "cpu");
    CHECK_THAT(info.fallback, Contains(reason));
    CHECK_THAT(info.description(), Contains(info.device) && Contains(info.fallback));
  };
  check({.driver = cudaErrorInsufficientDriver, .driver_version = 12020}, "driver for CUDA 12.2, runtime 13.0");
  check({.driver = cudaErrorInitializationError}, "cudaErrorInitializationError");
  check({.devices = {{.major = 7, .minor = 5}}}, "expected compute capability 8.0 or higher, found 7");
  check({.devices = {{.image = false}}}, "kernels cannot run on compute capability 8");
  check({.devices = {{.pools = false}}}, "expected a driver with memory pools");
}

TEST_CASE("auto takes the CPU without a reason where there is no GPU") {
  for (const strict::Setup& machine :
       {strict::Setup{.devices = {}}, strict::Setup{.driver = cudaErrorInsufficientDriver, .driver_version = 0}}) {
    const BackendInfo info = automatic(machine);
    CHECK(info.name == "cpu");
    CHECK(info.fallback.empty());
  }
  CHECK(automatic({}).name == "cuda:0");
}

TEST_CASE("auto survives every call that fails while the GPU is started") {
  strict::restart();
  strict::record_sites(true);
  auto started = make_backend({"auto", 1});
  strict::record_sites(false);
  REQUIRE(started->info().name == "cuda:0");
  started = nullptr;
  const std::vector<strict::Site> sites = strict::sites();
  REQUIRE(sites.size() > 10);
  std::size_t fallbacks = 0;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    for (const int error : sites[i].errors) {
      strict::restart();
      strict::fail_call(i + 1, error);
      INFO("call " << i + 1 << ", " << sites[i].call << ", error " << error);
      const BackendInfo info = make_backend({"auto", 1})->info();
      if (info.name == "cpu") ++fallbacks;
      REQUIRE((info.name == "cpu" || info.fallback.empty()));
      const auto broken = strict::take_reports_and_leaks();
      for (const std::string& what : broken) UNSCOPED_INFO(what);
      REQUIRE(broken.empty());
    }
  }
  CHECK(fallbacks > 10);
}

/// Runs one agent of nano on device auto of that machine.
RunRecord run_on(const strict::Setup& machine, std::vector<std::string>& warnings) {
  strict::restart(machine);
  EngineOptions options{.model = (source_folder() / "samples/models/nano").string()};
  options.on_warning = [&](const std::string& message) { warnings.push_back(message); };
  const auto workflow =
      Workflow::parse("version: 1\nmodels: {main: nano}\ndefaults: {max_tokens: 1}\nagents: {a: {prompt: hello}}\n");
  return Engine::open(options).start(workflow, {.inputs = {{"user_question", "hello"}}}).get();
}

TEST_CASE("a run on auto says in a warning and in its record why the GPU is not used") {
  const auto check = [](const strict::Setup& machine, const std::string& reason) {
    std::vector<std::string> warnings;
    const RunRecord record = run_on(machine, warnings);
    CHECK(record.state == RunState::ok);
    CHECK(record.device == "cpu");
    CHECK_THAT(record.device_fallback, Contains(reason));
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0], Contains("nano runs on the CPU: " + record.device_fallback));
    const auto broken = strict::take_reports_and_leaks();
    for (const std::string& what : broken) UNSCOPED_INFO(what);
    CHECK(broken.empty());
  };
  SECTION("the program's kernels do not run on it") {
    check({.devices = {{.image = false}}}, "kernels cannot run on compute capability 8");
  }
  SECTION("the model does not fit its memory") {
    check({.devices = {{.memory = std::size_t{6} << 20}}}, "cannot allocate");
  }
}

TEST_CASE("a profile on auto says in a warning why the GPU is not used") {
  strict::restart({.devices = {{.image = false}}});
  std::vector<std::string> warnings;
  std::stop_source stop;
  stop.request_stop();  // the model is opened, and nothing measured
  lab::ProfileOptions options;
  options.model = (source_folder() / "samples/models/nano").string();
  options.hand_overs = 1;
  options.max_tokens = 16;
  options.reading = "slope";
  options.stop = stop.get_token();
  options.on_warning = [&](const std::string& message) { warnings.push_back(message); };
  CHECK_FALSE(lab::profile_model(options).has_value());
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("nano runs on the CPU: ") && Contains("kernels cannot run on compute capability 8"));
}

}  // namespace
}  // namespace baton::test::fallback_test
