// Lines of random graphs by theme. Each writes one operator, or a short chain of them, where some
// value fits; else nothing.
#pragma once

#include "test/property/writer.h"

namespace tandem::property {

// pointwise.cc
void add_unary(Writer& w);
void add_binary(Writer& w);
void add_scalar(Writer& w);
void add_choice(Writer& w);  // comparison and where, masked_fill, clamp by a mask
void add_cast(Writer& w);
void add_integer(Writer& w);  // i64 and bool
void add_smooth(Writer& w);   // exp, tanh, division: rounded
void add_update(Writer& w);   // an input gets a new value that it is part of
void add_partial_write(Writer& w);

// reductions.cc
void add_reduction(Writer& w);
void add_rows(Writer& w);      // a row's sum or maximum, and the row again
void add_extremum(Writer& w);  // argmax, max.dim
void add_norm(Writer& w);      // softmax, log_softmax, layer_norm, var
void add_long(Writer& w);      // rows and columns that are cut into blocks

// views.cc
void add_view(Writer& w);
void add_join(Writer& w);  // cat, stack, pad, repeat

// products.cc
void add_product(Writer& w);
void add_rows_between_products(Writer& w);  // scores, a softmax of integers, weighted values
void add_late_write(Writer& w);             // the same around a write over an input
void add_layers(Writer& w);                 // product, rows of it, product
void add_gathering(Writer& w);              // large: chains that sum along their rows

// windows.cc
void add_pool(Writer& w);
void add_convolution(Writer& w);
void add_transforms(Writer& w);         // of tiles of an image
void add_inverted_residual(Writer& w);  // a wide image between two narrow ones
void add_residual_block(Writer& w);     // a sum and bounds between two convolutions

// places.cc
void add_scan(Writer& w);
void add_scatter(Writer& w);
void add_gather(Writer& w);

}  // namespace tandem::property
