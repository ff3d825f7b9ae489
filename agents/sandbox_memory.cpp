// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_memory.h"

#include <sys/prctl.h>

namespace baton {
namespace {

std::mutex& setting() {
  static std::mutex one;  // the setting is one of the whole process
  return one;
}

}  // namespace

ClosedMemory::ClosedMemory() : lock_(setting()), before_(prctl(PR_GET_DUMPABLE)) {}

ClosedMemory::~ClosedMemory() {
  if (before_ == 1) prctl(PR_SET_DUMPABLE, 1);
}

}  // namespace baton
