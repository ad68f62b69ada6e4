/* SPDX-License-Identifier: MIT
 * packed.h: private to node/store: an object of bf16 weights as a file of about two thirds of its
 * bytes (kernels/pack.h), read back without loss.
 *
 * Each MiB of the object is packed by itself, so that a row of the embedding, or a chunk for a
 * peer, needs no more than its own MiB. Little-endian: "SHOALPK1", u64 bytes of the object, u32
 * chunks, u32 0, u32 packed bytes of each chunk, u64 xxHash64 of all of this; then the chunks.
 * The file is no authority: what comes out of it is verified by the object's own checksums. */
#ifndef SHOAL_STORE_PACKED_H
#define SHOAL_STORE_PACKED_H

#include "node/model/model.h"
#include "node/store/uncached.h"
#include "proto/base/err.h"

struct packed {          /* where the chunks are; read-only once open, then any thread */
    uint64_t size, file; /* bytes of the object; of the file */
    uint32_t n;          /* chunks */
    uint64_t *at;        /* [n + 1] in the file */
    const uint8_t *ram;  /* the whole file in memory, in place of a descriptor; NULL: none */
};

/* Is it worth it: bf16 weights of the spine, of at least 64 KiB. */
bool packed_may(const struct model_object *o);
/* Of a chunk of n bytes at most (n even). */
size_t packed_bound(size_t n);

/* Its name: that of the plain file and ".packed". Malloc'ed, NULL: no memory. */
char *packed_path(const char *model_dir, const struct model *m, uint32_t id);

/* Reads the head of a file that holds an object of `size` bytes, and of whose `file` bytes all are
 * accounted for. ERR_DIGEST: it is damaged. p is to be closed after an error, too. */
int packed_open(struct packed *p, struct uncached *u, const char *path, uint64_t size,
                uint64_t file, struct err *e);
/* The same of a file in memory, which stays the caller's. */
int packed_open_ram(struct packed *p, const uint8_t *ram, uint64_t file, uint64_t size,
                    struct err *e);
void packed_close(struct packed *p);
/* n bytes of the object at off, whole chunks but for the object's last one. u is not used when the
 * file is in memory. Reads some MiB at a time past the page cache where u says so. */
int packed_read(const struct packed *p, struct uncached *u, const char *path, uint64_t off,
                uint8_t *to, size_t n, struct err *e);

/* Writes such a file: begin, each chunk in order, end. */
struct packed_writer {
    int fd;
    const char *path;
    uint64_t size, at;
    uint32_t n, done;
    uint8_t *head, *buf; /* the head; one chunk packed */
};
int packed_write_begin(struct packed_writer *w, int fd, const char *path, uint64_t size,
                       struct err *e);
int packed_write_chunk(struct packed_writer *w, const uint8_t *p, size_t n, struct err *e);
int packed_write_end(struct packed_writer *w, struct err *e); /* the head; no sync */
void packed_write_free(struct packed_writer *w);

#endif
