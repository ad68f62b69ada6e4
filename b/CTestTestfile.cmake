# CMake generated Testfile for 
# Source directory: /tmp/me/merge
# Build directory: /tmp/me/merge/b
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
subdirs("proto")
subdirs("peer")
subdirs("discovery")
subdirs("kernels")
subdirs("node")
subdirs("tests")
