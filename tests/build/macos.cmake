# SPDX-License-Identifier: MIT
# macos.cmake: compiles and links real Mach-O arm64 files for macOS 14 on Linux x86-64. Nothing here
# can run them: the build proves that headers, types, calls and symbols fit.
# The compiler and the third-party headers come from `tests/build/macos-sdk build/macos-sdk`.
get_filename_component(_sdk "${CMAKE_CURRENT_LIST_DIR}/../../build/macos-sdk" ABSOLUTE)
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_C_COMPILER "${_sdk}/bin/zcc")
set(CMAKE_AR "${_sdk}/bin/zar" CACHE FILEPATH "archiver")
set(CMAKE_RANLIB true CACHE FILEPATH "the archiver writes the index")
set(CMAKE_INSTALL_NAME_TOOL true CACHE FILEPATH "nothing is installed")
set(CMAKE_OSX_SYSROOT "" CACHE STRING "the compiler brings its own")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "part of the compiler's target")
set(CMAKE_FIND_ROOT_PATH "${_sdk}/root")
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH) # pkg-config names files of the SDK by whole path
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} "${_sdk}/root/lib/pkgconfig")
set(ENV{PKG_CONFIG_PATH} "")
