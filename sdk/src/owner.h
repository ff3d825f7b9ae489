// SPDX-License-Identifier: Apache-2.0
// What has threads of the library belongs to the process that made it. In a child of fork() those threads do not exist
// and their locks may be held, so that not even a destructor touches it there.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/errors.h"
#include "engine/base/system/process.h"

namespace baton::inline v1 {

class Owner {
 public:
  bool here() const { return process_number() == process_; }

 private:
  std::int64_t process_ = process_number();
};

/// An object that is destroyed in the process that made it, and left alone in its children.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_owned(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [owner = Owner()](T* object) {
    if (owner.here()) {
      delete object;
      return;
    }
    try_to([&] {
      static std::vector<T*>& left_alone = *new std::vector<T*>;  // reachable, so that it is no leak
      left_alone.push_back(object);
    });
  });
}

}  // namespace baton::inline v1
