/* SPDX-License-Identifier: MIT
 * state_file.c: a state as a file: "SHOALST1", numerics version le32, position le32, model root,
 * body size le64, the body (KDA, convolution, latents; binary32 little-endian), SHA-256 of all
 * before it. A saved state is a prompt: mode 0600. */
#include "node/infer/internal.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "state files and shards are read in place: little-endian machines only"
#endif

#define MAGIC "SHOALST1"
#define HEAD (8 + 4 + 4 + SHA256_SIZE + 8)

/* The body as at most three kinds of stretches; calls fn for each in file order. */
static int each_part(const struct infer_state *s, int (*fn)(void *ctx, void *p, size_t n),
                     void *ctx)
{
    int r = s->kda ? fn(ctx, s->kda->host, s->kda->size) : 0;
    if (!r && s->conv) {
        r = fn(ctx, s->conv->host, s->conv->size);
    }
    size_t n = (size_t)s->pos * state_latent_width(s->f) * sizeof(float);
    for (uint32_t i = 0; !r && n && i < state_count(s->f, MODEL_MLA); i++) {
        r = fn(ctx, s->latent[i]->host, n);
    }
    return r;
}

static void head_bytes(const struct infer *f, uint32_t pos, uint8_t h[HEAD])
{
    memcpy(h, MAGIC, 8);
    num_put_le32(h + 8, SHOAL_NUMERICS_VERSION);
    num_put_le32(h + 12, pos);
    memcpy(h + 16, model_root(f->m), SHA256_SIZE);
    num_put_le64(h + 16 + SHA256_SIZE, infer_state_bytes(f, pos));
}

struct io {
    int fd;
    const char *name;
    uint64_t at;
    struct sha256 sum;
    struct err *e;
};

static int put(void *ctx, void *p, size_t n)
{
    struct io *io = ctx;
    sha256_add(&io->sum, p, n);
    int r = file_pwrite(io->fd, io->name, p, n, io->at, io->e);
    io->at += n;
    return r;
}

static int get(void *ctx, void *p, size_t n)
{
    struct io *io = ctx;
    int r = file_pread(io->fd, io->name, p, n, io->at, io->e);
    if (!r) {
        sha256_add(&io->sum, p, n);
    }
    io->at += n;
    return r;
}

int infer_state_save(const struct infer_state *s, const char *path, struct err *e)
{
    if (s->broken) {
        return err_set(e, ERR_ARG, "this state was left half done by an earlier error");
    }
    size_t len = strlen(path) + 32;
    char *tmp = malloc(len);
    if (!tmp) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    snprintf(tmp, len, "%s.tmp%ld", path, (long)getpid());
    struct io io = {
        .fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), .name = tmp, .e = e};
    int r;
    if (io.fd < 0) {
        r = err_sys(e, errno, "cannot create %s", tmp);
        free(tmp);
        return r;
    }
    uint8_t h[HEAD], d[SHA256_SIZE];
    head_bytes(s->f, s->pos, h);
    sha256_init(&io.sum);
    r = put(&io, h, sizeof h);
    if (!r) {
        r = each_part(s, put, &io);
    }
    sha256_done(&io.sum, d);
    if (!r) {
        r = file_pwrite(io.fd, tmp, d, sizeof d, io.at, e);
    }
    if (!r) {
        r = file_sync(io.fd, tmp, e);
    }
    close(io.fd);
    if (!r && rename(tmp, path) != 0) {
        r = err_sys(e, errno, "cannot rename %s to %s", tmp, path);
    }
    if (r) {
        unlink(tmp);
    } else {
        r = file_sync_dir_of(path, e);
    }
    free(tmp);
    return r;
}

/* The head and the length agree with this model; *pos is the position. */
static int check_head(const struct infer *f, struct io *io, uint32_t *pos)
{
    uint8_t h[HEAD], want[HEAD];
    int r = get(io, h, sizeof h);
    if (r) {
        return r;
    }
    *pos = num_get_le32(h + 12);
    head_bytes(f, *pos, want);
    if (memcmp(h, want, 8) != 0) {
        return err_set(io->e, ERR_FORMAT, "%s is not a saved state", io->name);
    }
    if (memcmp(h + 8, want + 8, 4) != 0) {
        return err_set(io->e, ERR_UNSUPPORTED,
                       "%s was saved with numerics version %u, this program has %u", io->name,
                       num_get_le32(h + 8), SHOAL_NUMERICS_VERSION);
    }
    if (memcmp(h + 16, want + 16, SHA256_SIZE) != 0) {
        return err_set(io->e, ERR_UNSUPPORTED, "%s belongs to another model", io->name);
    }
    struct stat st;
    if (fstat(io->fd, &st) != 0) {
        return err_sys(io->e, errno, "cannot read %s", io->name);
    }
    uint64_t size = HEAD + infer_state_bytes(f, *pos) + SHA256_SIZE;
    if (*pos > f->c->max_positions || memcmp(h, want, HEAD) != 0 || (uint64_t)st.st_size != size) {
        return err_set(io->e, ERR_FORMAT, "%s is damaged: %llu bytes, expected %llu", io->name,
                       (unsigned long long)st.st_size, (unsigned long long)size);
    }
    return 0;
}

int infer_state_load(struct infer *f, const char *path, struct infer_state **out, struct err *e)
{
    *out = NULL;
    struct io io = {.fd = open(path, O_RDONLY | O_CLOEXEC), .name = path, .e = e};
    if (io.fd < 0) {
        return err_sys(e, errno, "cannot open %s", path);
    }
    sha256_init(&io.sum);
    struct infer_state *s = NULL;
    uint32_t pos;
    int r = check_head(f, &io, &pos);
    if (!r) {
        r = infer_state_new(f, &s, e);
    }
    if (!r) {
        r = state_reserve(s, pos, e);
    }
    if (!r) {
        s->pos = pos;
        store_since_before(f->st, &s->since);
        r = each_part(s, get, &io);
    }
    uint8_t d[SHA256_SIZE], want[SHA256_SIZE];
    sha256_done(&io.sum, d);
    if (!r) {
        r = file_pread(io.fd, path, want, sizeof want, io.at, e);
    }
    if (!r && memcmp(d, want, sizeof d) != 0) {
        r = err_set(e, ERR_DIGEST, "%s is damaged: its checksum does not fit its bytes", path);
    }
    close(io.fd);
    if (r) {
        infer_state_free(s);
        return r;
    }
    *out = s;
    return 0;
}
