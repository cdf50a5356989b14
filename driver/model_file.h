// A model in files: the text of a graph, and tensors by name. What quant::Model and `tandem run`
// take.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/api.h"
#include "frontend/tensor_file.h"
#include "ir/graph.h"

namespace tandem::driver {

/// .safetensors, .npz or .npy, by the end of the name; UserError for others.
std::shared_ptr<const frontend::TensorFile> read_tensor_file(const std::string& path);
/// The whole text of a file, or of standard input where `path` is empty or "-".
std::string read_text(const std::string& path);

/// Parameters and buffers of the graph, of a file that has them by their qualified names
/// ("fc.weight"; by the input's name where it has none). The State has them by input; it reads the
/// file's memory, which nobody may write, and keeps it. UserError with all that are missing or of
/// another type.
State weights_of(const ir::Graph& graph, const std::string& path);

/// A data input: neither parameter nor buffer. Its first size counts rows.
struct DataInput {
  std::string name;
  DType dtype = DType::f32;
  /// None: any number, from `least` on in front.
  std::vector<std::optional<int64_t>> sizes;
  int64_t least = 1;
};
/// UserError for an input that is no tensor.
std::vector<DataInput> data_inputs_of(const ir::Graph& graph);

/// Batches of data inputs, out of files that have arrays of their names: rows one after the other,
/// as many as the input has, or `rows` where it takes any number. Rows at the end of a file that do
/// not fill a batch are left out, or are a smaller one where the input takes that. Arrays are the
/// caller's.
class Batches {
 public:
  /// Looks into every file. UserError where an array is missing, of another type, the inputs have
  /// another number of batches each, or all files together have none.
  Batches(std::vector<std::string> paths, std::vector<DataInput> inputs, int64_t rows);
  /// Of all files.
  int64_t count() const { return count_; }
  /// Rows that fill no batch.
  int64_t left_out() const { return left_out_; }
  /// In the order of the inputs; none at the end.
  std::optional<std::vector<runtime::Array>> next();

 private:
  int64_t rows_of(const DataInput& input) const;
  int64_t batches_in(const frontend::TensorFile& file, const DataInput& input) const;
  runtime::Array batch_of(const DataInput& input) const;

  std::vector<std::string> paths_;
  std::vector<DataInput> inputs_;
  int64_t rows_;
  int64_t count_ = 0;
  int64_t left_out_ = 0;
  std::vector<int64_t> batches_;  // by file
  std::shared_ptr<const frontend::TensorFile> file_;
  size_t next_file_ = 0;
  int64_t batch_ = 0;  // of the file
};

}  // namespace tandem::driver
