/* SPDX-License-Identifier: MIT
 * tiers_none.c: a build of the store that reads local folders in place only. */
#include "node/store/disk.h"
#include "node/store/engine.h"
#include "node/store/meta.h"
#include "node/store/origin.h"

bool disk_has(struct disk *d, uint32_t id)
{
    return false;
}
void disk_pin(struct disk *d, uint32_t id, int by)
{
}
bool disk_has_partial(struct disk *d, uint32_t id)
{
    return false;
}
int disk_read(struct disk *d, uint32_t id, uint8_t *p, struct err *e)
{
    return ERR_UNSUPPORTED;
}
int disk_read_part(struct disk *d, uint32_t id, uint64_t off, void *p, size_t n, struct err *e)
{
    return ERR_UNSUPPORTED;
}
int disk_publish(struct disk *d, struct disk_file *l, struct err *e)
{
    return ERR_UNSUPPORTED;
}
void disk_free(struct disk *d, struct disk_file *f)
{
}
int disk_open(const struct disk_opts *o, struct disk **out, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "no disk tier");
}
void disk_close(struct disk *d)
{
}
int origin_open(const struct origin_opts *o, struct origin **out, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "only local folders without a cache");
}
void origin_stop(struct origin *o)
{
}
void origin_free(struct origin *o)
{
}
int origin_file(struct origin *o, const char *name, uint32_t *f, struct err *e)
{
    return ERR_UNSUPPORTED;
}
void origin_expect(struct origin *o, uint32_t f, uint64_t s, const char *t)
{
}
int origin_get_range(struct origin *o, const char *n, uint64_t off, void *p, size_t k,
                     struct err *e)
{
    return ERR_UNSUPPORTED;
}
void origin_numbers(struct origin *o, uint64_t *b, uint64_t *r)
{
}
int meta_open(const char *c, const char *a, struct origin *o, void (*l)(void *, const char *),
              void *x, struct meta **out, struct err *e)
{
    return ERR_UNSUPPORTED;
}
void meta_close(struct meta *m)
{
}
void meta_source(struct meta *m, struct model_source *o)
{
}
int meta_read(struct meta *m, const char *n, struct buf *o, struct err *e)
{
    return ERR_UNSUPPORTED;
}
int meta_get_blob(struct meta *m, struct buf *o, struct err *e)
{
    return ERR_UNSUPPORTED;
}
int meta_put_blob(struct meta *m, const void *p, size_t n, struct err *e)
{
    return ERR_UNSUPPORTED;
}
bool meta_shard(struct meta *m, const char *n, uint64_t *s, char t[ORIGIN_ETAG_MAX])
{
    return false;
}
void meta_learned(struct meta *m, const char *n, uint64_t s, const char *t)
{
}
int meta_save(struct meta *m, struct err *e)
{
    return 0;
}
void sink_start(struct store *st, struct entry *en)
{
}
void sink_resume(struct store *st, struct entry *en)
{
}
void sink_raise(struct store *st, struct entry *en)
{
}
bool sink_cancel(struct store *st, struct entry *en)
{
    return false;
}
void sink_count(struct store *st, uint64_t b)
{
}
