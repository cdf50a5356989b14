// What running kernels costs: the one model by which candidates of fusion are compared. It counts;
// rates are the target's (Tuning::Rates). A symbol counts as a middling number.
#pragma once

#include <string>

#include "base/target.h"
#include "ir/graph.h"

namespace tandem::schedule {

struct Cost {
  // Bytes, by the level of memory that they come from or go to. The first level's are free.
  double memory = 0;
  double l3 = 0;
  double l2 = 0;
  double flops = 0;     // of sums of products
  double launches = 0;  // kernels and library calls
  double slack = 0;     // microseconds in which cores have nothing to do: there are too few tasks

  Cost& operator+=(const Cost& other);
};

double microseconds(const Cost& cost, const Target& target);
/// "12.5 us: memory 1.2 MB, l2 0.3 MB, 4.2 MFLOP, 2 launches"; what is zero is left out.
std::string to_string(const Cost& cost, const Target& target);

/// Bytes that pass between a core and data of that size which was used not long ago: it lies in the
/// smallest cache that holds it, of whichever core. A core's scratch is in its own caches, and has
/// its share of the last one.
void count_shared(Cost& cost, const Target& target, double data, double bytes);
void count_scratch(Cost& cost, const Target& target, double data, double bytes);
/// The wait of the cores that have no task; last, as it asks for the work counted so far.
void count_slack(Cost& cost, const Target& target, double tasks);

double count_of(sym::Expr expr, const Target& target);
double bytes_of(const ir::Value& value, const Target& target);

}  // namespace tandem::schedule
