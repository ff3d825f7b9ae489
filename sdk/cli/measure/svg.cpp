// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/svg.h"

namespace baton::cli {

Markup begin_svg(double width, double height, double left, const std::string& title) {
  return html(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='sans-serif' "
      "font-size='12' fill='#333'>\n"
      "<style>.grid{{stroke:#e4e4e4}}.end{{text-anchor:end}}.middle{{text-anchor:middle}}</style>\n"
      "<rect width='{0}' height='{1}' fill='#fff'/>\n"
      "<text x='{2}' y='22' font-size='15' font-weight='bold'>{3}</text>\n",
      width, height, left, escaped(title));
}

}  // namespace baton::cli
