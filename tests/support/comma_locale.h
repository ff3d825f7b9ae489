// SPDX-License-Identifier: Apache-2.0
// CommaLocale: the locale of a host that writes numbers with a comma and names days in its language, as programs of
// Qt and GTK set the user's.
#pragma once

#include <clocale>
#include <cstdlib>
#include <locale>
#include <stdexcept>
#include <string>

#include "tests/support/temp_folder.h"

namespace baton::test {

/// Sets it for the whole process until it is destroyed. Where Debian's package `locales` is missing it sets nothing.
class CommaLocale {
 public:
  CommaLocale() {
    const std::string made = (folder_.path() / "de_DE.UTF-8").string();
    if (std::system(("localedef -i de_DE -f UTF-8 " + made + " 2>/dev/null").c_str()) != 0) return;
    ::setenv("LOCPATH", folder_.path().c_str(), 1);
    if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) throw std::runtime_error("the locale cannot be set");
    std::locale::global(std::locale("de_DE.UTF-8"));
  }
  ~CommaLocale() {
    std::locale::global(std::locale::classic());
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

 private:
  TempFolder folder_;
};

}  // namespace baton::test
