# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests
# Build directory: /tmp/me/merge/b/tests
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
subdirs("build")
subdirs("base")
subdirs("kernels")
subdirs("model")
subdirs("store")
subdirs("text")
subdirs("infer")
subdirs("cli")
subdirs("fuzz")
subdirs("bench")
subdirs("peer")
subdirs("discovery")
subdirs("lan")
