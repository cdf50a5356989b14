#!/usr/bin/env bash
# What `cmake --install` leaves, in a project of its own: README.md's C++ program is found, compiled
# by the distribution's compiler (ours is another one), linked and run.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

prefix="$PWD/build/package"
project="$PWD/build/package-project"
rm -rf "$prefix" "$project"
mkdir -p "$project"
cmake --install build/release --prefix "$prefix" >/dev/null

# The first block is a program; the second one goes on where its main ends.
python3 - README.md "$project/main.cc" <<'PYTHON'
import re
import sys

readme, program = sys.argv[1:]
with open(readme, encoding="utf-8") as file:
    whole, more = re.findall(r"^```cpp\n(.*?)^```$", file.read(), re.M | re.S)[:2]
body, end = whole.rstrip().rsplit("\n", 1)
assert end == "}" and "int main()" in body, end
with open(program, "w", encoding="utf-8") as file:
    file.write(f"{body}\n{more}{end}\n")
PYTHON
cat >"$project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(readme LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(tandem REQUIRED)
add_executable(readme main.cc)
target_link_libraries(readme PRIVATE tandem::tandem)
CMAKE

cd "$project"
cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=g++ \
  -DCMAKE_PREFIX_PATH="$prefix" --log-level=WARNING >/dev/null
cmake --build build >built.txt || fail "$(cat built.txt)"
./build/readme >printed.txt
[ -s net.safetensors ] || fail "the program left no net.safetensors"
awk '/^step/ { last = $4 } END { exit !(NR == 6 && last < 0.01) }' printed.txt ||
  fail "the program printed: $(cat printed.txt)"
say "a project of its own finds, links and runs what is installed"
