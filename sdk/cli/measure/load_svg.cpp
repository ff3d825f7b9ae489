// SPDX-License-Identifier: Apache-2.0
// A workflow under load as SVG: times over the rate of arrivals, a colour for each method.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sdk/cli/console/text.h"
#include "sdk/cli/measure/load_table.h"
#include "sdk/cli/measure/svg.h"

namespace baton::cli {
namespace {

constexpr double kWidth = 720, kLeft = 80, kRight = 24;
constexpr double kTitle = 54, kLine = 18, kPanel = 190, kGap = 34, kBelow = 66;
constexpr std::array kColours = {"#1f5fa8", "#a05a00", "#2a7d4f", "#8a3f8f", "#b3322c", "#4f5b66"};

const char* colour_of(std::size_t method) { return kColours[method % kColours.size()]; }

/// 1, 2 or 5 times a power of ten that cuts [0, high] into at most `pieces`.
double step_for(double high, double pieces) {
  double step = std::pow(10.0, std::floor(std::log10(high / pieces)));
  while (high / step > pieces) {
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (high / step > pieces) step *= factor;
    }
  }
  return step;
}

/// Some times of all methods over the rates.
class LoadPanel {
 public:
  using Of = const Times& (*)(const LoadPoint&);

  LoadPanel(double top, const std::vector<LoadRow>& rows, Of times) : top_(top), rows_(rows), times_(times) {
    for (const LoadRow& row : rows) {
      rate_ = std::max(rate_, row.point.offered);
      high_ = std::max(high_, times(row.point).quantile(0.95));
    }
    step_ = step_for(high_, 6);
    high_ = std::ceil(high_ / step_) * step_;
  }

  double x(double rate) const { return kLeft + rate * (kWidth - kLeft - kRight - 10) / rate_; }

  Markup axes(const std::string& title) const {
    Markup out;
    for (int i = 0; i * step_ <= high_ * 1.001; ++i) {
      const double at = y(i * step_);
      out += html(
          "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' class='grid'/><text x='{}' y='{:.1f}' class='end'>{}</text>\n",
          kLeft, kWidth - kRight, at, at, kLeft - 8, at + 4, i == 0 ? "0" : duration(i * step_));
    }
    return out + html("<text class='middle' transform='translate(16 {:.1f}) rotate(-90)'>{}</text>\n",
                      top_ + kPanel / 2, title);
  }

  Markup curves(const std::vector<std::string>& methods) const {
    Markup out;
    for (std::size_t i = 0; i < methods.size(); ++i) {
      out += curve(methods[i], 0.95, html(" stroke-dasharray='4 4' opacity='0.6' stroke='{}'", colour_of(i)));
      out += curve(methods[i], 0.5, html(" stroke='{}'", colour_of(i)));
      for (const LoadRow& row : rows_) {
        if (row.method != methods[i] || times_(row.point).empty()) continue;
        out += html("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>\n", x(row.point.offered),
                    y(times_(row.point).quantile(0.5)), colour_of(i));
      }
    }
    return out;
  }

 private:
  double y(double ms) const { return top_ + kPanel - ms / high_ * kPanel; }

  Markup curve(const std::string& method, double fraction, const Markup& style) const {
    Markup points;
    for (const LoadRow& row : rows_) {
      if (row.method == method && !times_(row.point).empty())  // some run ended well
        points += html("{:.1f},{:.1f} ", x(row.point.offered), y(times_(row.point).quantile(fraction)));
    }
    return html("<polyline points='{}' fill='none' stroke-width='1.8'{}/>\n", points, style);
  }

  double top_;
  const std::vector<LoadRow>& rows_;
  Of times_;
  double rate_ = 0, high_ = 1, step_ = 1;
};

}  // namespace

Markup load_svg(const std::string& workflow, std::vector<LoadRow> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const LoadRow& a, const LoadRow& b) { return a.point.offered < b.point.offered; });
  std::vector<std::string> methods;
  for (const LoadRow& row : rows) {
    if (std::find(methods.begin(), methods.end(), row.method) == methods.end()) methods.push_back(row.method);
  }
  const double top = kTitle + kLine * static_cast<double>(methods.size());
  const double bottom = top + 2 * kPanel + kGap, height = bottom + kBelow;
  const LoadPanel whole(top, rows, [](const LoadPoint& point) -> const Times& { return point.whole_run; });
  const LoadPanel first(top + kPanel + kGap, rows,
                        [](const LoadPoint& point) -> const Times& { return point.first_token; });
  Markup out = begin_svg(kWidth, height, kLeft, workflow + " under load");
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const double y = 42 + kLine * static_cast<double>(i);
    out += html(
        "<line x1='{0}' x2='{1}' y1='{2}' y2='{2}' stroke='{3}' stroke-width='3'/><text x='{4}' y='{5}'>{6}</text>\n",
        kLeft, kLeft + 24, y, colour_of(i), kLeft + 32, y + 4, escaped(methods[i]));
  }
  out += whole.axes("whole run") + first.axes("first token of a turn");
  out += whole.curves(methods) + first.curves(methods);
  double last = -kWidth;
  for (const LoadRow& row : rows) {
    const double x = first.x(row.point.offered);
    if (x - last < 30) continue;  // the same rate, or no room
    last = x;
    out += html("<text x='{:.1f}' y='{}' class='middle'>{:g}</text>\n", x, bottom + 18, row.point.offered);
  }
  out += html("<text x='{}' y='{}' class='middle'>runs that arrive in a minute</text>\n", (kLeft + kWidth - kRight) / 2,
              bottom + 36);
  out += html(
      "<text x='{}' y='{}' class='end' font-size='10' fill='#777'>lines: median; dashed: 95 %; waiting is "
      "included</text>\n",
      kWidth - kRight, height - 8);
  return out + "</svg>\n";
}

}  // namespace baton::cli
