# The language, warnings, sanitizers, linker and compiler cache, for every target of this project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(NOT CMAKE_RUNTIME_OUTPUT_DIRECTORY)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endif()

# One flag for libraries and executables alike (not -fPIE for the latter), so that all share precompiled headers.
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
add_compile_options(-fPIC -ffunction-sections -fdata-sections)
add_compile_options(-Wall -Wextra -Wshadow -Wswitch $<$<BOOL:${TANDEM_WERROR}>:-Werror>)
# What each compiler warns of by mistake: g++ 12 of uninitialised values that are not (GCC bug 105562 and its kin);
# Clang of functions that its own use of libstdc++'s stable_sort names.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                    $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
add_link_options(LINKER:--as-needed LINKER:--gc-sections)
# No fused multiply-add across operations: engines compare bit for bit.
add_compile_options(-ffp-contract=off)

if(TANDEM_SANITIZE)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # The type before a function is not there before what is compiled at run time.
    add_compile_options(-fno-sanitize=function)
    if(TANDEM_SANITIZE MATCHES "address,undefined")
      # With them a file takes a quarter longer to compile. AddressSanitizer ends where memory behind a null pointer or
      # behind an object is touched; what goes unseen is a null pointer that is called or bound, and nothing read.
      add_compile_options(-fno-sanitize=null,object-size)
    endif()
    if(TANDEM_SANITIZE MATCHES "address")
      # No section of its own for each global; base/called.h has what the linker would drop else.
      add_compile_options(-fno-sanitize-address-globals-dead-stripping)
    endif()
  endif()
endif()

# lld links the static LLVM in a second where ld.bfd takes ten.
find_program(TANDEM_LLD ld.lld HINTS /usr/lib/llvm-19/bin)
if(TANDEM_LLD)
  cmake_path(GET TANDEM_LLD PARENT_PATH lld_folder)
  add_link_options(-fuse-ld=lld -B${lld_folder})
endif()

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache accepts precompiled headers only with these; GCC must keep the #pragma in preprocessed text.
  # Paths under the source folder are relative to it, so that another checkout takes the same objects where GCC compiles
  # (Clang's precompiled headers hold paths and times: its objects are found again in the same folder only).
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TANDEM_CCACHE})
  if(TANDEM_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()
