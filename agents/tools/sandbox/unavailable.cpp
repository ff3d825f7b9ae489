// SPDX-License-Identifier: Apache-2.0
// The sandbox of systems other than Linux: there is none.

#include <stdexcept>

#include "agents/tools/sandbox/sandbox.h"

namespace baton {

struct Sandbox::Rules {};

std::string why_no_sandbox() {
  return "there is no sandbox on this system (only on Linux), and no code is run unconfined";
}

Sandbox::Sandbox(SandboxLayers /*layers*/) {}
Sandbox::~Sandbox() = default;

SandboxResult Sandbox::run(const SandboxRequest& /*request*/) const { throw std::runtime_error(why_no_sandbox()); }

std::vector<IsolationFact> Sandbox::isolation() const { return {{"system calls", false, why_no_sandbox()}}; }

}  // namespace baton
