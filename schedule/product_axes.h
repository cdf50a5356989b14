// Which axes of a product are its rows and columns, as its factors lie in memory.
#pragma once

#include "base/target.h"
#include "schedule/map.h"

namespace tandem::schedule {

/// Cheap enough for the innermost loop: no cast, no mask, no index that is computed from data.
bool is_plain_load(loop::Val value);
/// A cast of such a load to a wider type: an instruction or two.
bool is_widened_load(loop::Val value);
/// Whether the rows' factor is read as it lies: else a task copies its part.
bool is_read_in_place(loop::Val left, sym::Expr rows);
/// Whether a factor that is loaded lies in panels: as many columns as the axis has, term by term.
/// quant/integer_products packs such ones; a narrow matrix is one.
bool lies_in_panels(const loop::Stage& stage, loop::Val value, const loop::Axis& columns);
/// The same of bf16, cast or not, pack by pack of two terms. passes/weight_panels packs such ones.
bool lies_in_packed_panels(const loop::Stage& stage, loop::Val value, const loop::Axis& columns);

/// Terms of bf16 whose packs are an axis of their own, as in panels of them, become one axis.
void merge_packs(loop::Kernel& kernel, const Product& product);
/// Terms of bf16 of which the last axis fills no tile, but all together do (heads of a few numbers
/// each), become one axis. The left factor is copied then.
void merge_short_terms(loop::Kernel& kernel);
/// Columns in panels are two axes, the panel and the column of it: one axis again, so that a task
/// may have several panels.
void merge_panels(loop::Kernel& kernel, Product& product);
/// The same of a stage whose rows are outer axes.
void merge_panels(loop::Kernel& kernel, loop::Stage& stage);
/// The rows of an image's convolution are its places, in several axes: where all but the left
/// factor walk them as one, they become one, and the left factor is copied row by row of the
/// product. A block of rows is then as high as it should be, whatever the image's width. What is
/// read in place stays so, unless rows are few and the columns would be copied for them.
void merge_rows(loop::Kernel& kernel, Product& product, const Target& target);

}  // namespace tandem::schedule
