// SPDX-License-Identifier: Apache-2.0
// Catch2's main: version 2 makes it here, version 3 calls its session.
#include <csignal>

// Catch2 2 asks the C library for it, and one that is older than its headers (./dev gpu --pack) does not know.
#undef SIGSTKSZ
#define SIGSTKSZ 8192
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
