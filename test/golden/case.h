// One golden file: a command in its first line, input under it, and what the compiler should make
// of it.
//
//   ; test roundtrip        the graphs print as they are written
//   ; test error            `; error: part of the message` stands on every bad line and on no
//                           other; `; test verify` is the same
//   ; test pass NAME[,NAME…] [gradients=ones] [partition=0.5] [solver=dp] [cost=flops]
//   [optimizer=sgd]
//                           what the passes make of a graph follows it as `; ` lines
//   ; test schedule [gradients=ones] [isa=avx512]
//                           the same for kernels and decisions after all passes
//   ; test annotate [recipe=x86_default]   layers and groups that quant/ finds
//   ; test convert [recipe=…] [low=-1] [high=1]
//                           the quantized graph, all values seen in that range
//   ; test loop roundtrip   kernels print as they are written
//
// Lines that start with `;;` are the author's and stay.
#pragma once

#include <string>
#include <string_view>

namespace tandem::golden {

/// What the file's text should be: equal to `text` when the compiler does what the file expects.
/// Throws UserError when the command is unknown or its input does not parse.
std::string expected_text(std::string_view text);

}  // namespace tandem::golden
