/* SPDX-License-Identifier: MIT
 * where.h: finds the demo model that comes with the program. */
#ifndef SHOAL_NODE_DEMO_WHERE_H
#define SHOAL_NODE_DEMO_WHERE_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

/* Append the path of the demo model's folder to *out (use a buf of a few KiB). `exe` is the
 * absolute path of the running program, or NULL. The first of these that holds a config.json wins:
 *   1. the environment variable SHOAL_DEMO_MODEL (when set, nothing else is tried)
 *   2. demo-model beside the program
 *   3. ../share/shoal/demo-model from the program's folder: an installation, also a moved one
 *   4. the installation folder this build was configured for
 *   5. the source folder this build was made from
 * ERR_NOTFOUND names what was tried. */
int demo_model_find(const char *exe, struct buf *out, struct err *e);

#endif
