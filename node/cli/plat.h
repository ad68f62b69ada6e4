/* SPDX-License-Identifier: MIT
 * plat.h: what the command line asks of the operating system. plat.c holds what POSIX gives,
 * plat_darwin.c and plat_linux.c the rest. Zero or "" mean: this system does not say. */
#ifndef SHOAL_NODE_CLI_PLAT_H
#define SHOAL_NODE_CLI_PLAT_H

#include "node/store/pressure.h"
#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes of memory that this process may use at most: the machine's, or the limit of the container
 * it runs in. */
uint64_t plat_memory(void);
/* Is its memory short just now? */
enum pressure plat_pressure(void);
/* The processor's name for people. */
void plat_cpu(char *out, size_t n);
/* Processors that are online; *fast: those of the fastest kind (equal to it where all are alike).
 */
unsigned plat_cores(unsigned *fast);
/* Absolute path of this program, with links resolved. */
void plat_exe(char *out, size_t n);
/* Append the folder for this user's Shoal data: SHOAL_HOME, else the platform's place. */
int plat_home(struct buf *out, struct err *e);

/* Is the service manager that keeps a user's programs running launchd (or else systemd)? */
bool plat_has_launchd(void);
/* The Unix socket of the system's Bonjour responder. */
const char *plat_bonjour_socket(void);

/* ---- plat.c ---- */

uint64_t plat_page(void);
/* Raise the soft limit of open files as far as it goes; returns the limit in force. *before: as
 * found at the first call's time, may be NULL. */
uint64_t plat_raise_files(uint64_t *before);
/* Bytes free for this user on the volume that holds `path` or its nearest existing parent. */
int plat_disk_free(const char *path, uint64_t *bytes, struct err *e);
/* Append all of standard input; ERR_LIMIT when it is more than the buffer's maximum. */
int plat_read_stdin(struct buf *out, struct err *e);
/* Ask on the terminal of this process, whatever standard input is, and read a line that is not
 * shown: at most cap bytes (a longer one is ERR_LIMIT), not ended by a NUL. Control-C gives it up.
 * ERR_NOTFOUND: there is no terminal. */
int plat_ask_secret(const char *prompt, char *out, size_t cap, size_t *n, struct err *e);
/* Does somebody listen at this Unix socket? 0 or an errno value. */
int plat_listens(const char *path);
/* Remove a folder with everything in it; links are removed, not followed. */
int plat_remove_tree(const char *path, struct err *e);
/* Run a program, found by PATH, to its end, with nothing to read; the first bytes of what it says
 * on both outputs are appended to `said` as far as there is room. *status: its exit status, 128 +
 * the signal that killed it. ERR_NOTFOUND: there is no such program. */
int plat_run(const char *const *argv, struct buf *said, int *status, struct err *e);
uint64_t plat_peak_rss(void); /* largest resident size of this process in bytes */

#endif
