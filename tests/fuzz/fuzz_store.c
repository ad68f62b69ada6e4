/* SPDX-License-Identifier: MIT
 * fuzz_store.c: what the store reads from outside: the head of an HTTP answer, the digest journal,
 * the list of metadata, signed addresses, names of a hub's models, the list of adopted folders,
 * names of expert files, where a scrub stands, the marks of a moved cache, the kept budget, bytes
 * written by day. The first byte chooses which. */
#include "node/store/adopt_list.h"
#include "node/store/http_head.h"
#include "node/store/hub.h"
#include "node/store/journal.h"
#include "node/store/kept.h"
#include "node/store/meta_list.h"
#include "node/store/place.h"
#include "node/store/scrub.h"
#include "node/store/signed_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int each(void *ctx, uint32_t id, struct digest *d)
{
    (void)id;
    *(uint64_t *)ctx += d->size;
    if (d->n != chunk_count(d->size)) {
        abort();
    }
    free(d);
    return 0;
}

static void head(const char *p, size_t n)
{
    struct http_head h = {0};
    const char *end = p + n;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t k = (size_t)((nl ? nl + 1 : end) - p);
        http_head_line(&h, p, k, 1700000000);
        p += k;
    }
    struct err e = {0};
    if (http_judge(&h, 5, 5, 100, &e) == HTTP_BODY &&
        !(h.status == 206 && h.start == 5 && h.end == 9)) {
        abort(); /* nothing else is the range that was asked for */
    }
    http_judge(&h, 0, HTTP_UNKNOWN, HTTP_UNKNOWN, &e);
    if (h.retry_after_ms > 86400000 || strlen(h.commit) >= sizeof h.commit ||
        strlen(h.etag) >= sizeof h.etag) {
        abort();
    }
}

static void signed_address(const char *p, size_t n)
{
    char *url = malloc(n + 1);
    if (url) {
        memcpy(url, p, n);
        url[n] = 0;
        int64_t at = signed_url_expires(url);
        if (at < 0 || at > 20000000000) {
            abort();
        }
        free(url);
    }
}

/* A model's name, and the record of its commit, from the first line on. */
static void name(const char *p, size_t n)
{
    const char *nl = memchr(p, '\n', n);
    size_t k = nl ? (size_t)(nl - p) : n;
    char *model = malloc(k + 1);
    struct hub_name h, again;
    struct hub_pin pin;
    if (!model) {
        return;
    }
    memcpy(model, p, k);
    model[k] = 0;
    if (hub_parse(model, HUB_SITE, true, &h)) {
        struct buf b;
        buf_init(&b, 1 << 16);
        /* its address is one that means the same */
        if (!hub_address(&h, h.revision, &b) &&
            (!hub_parse(b.p, HUB_SITE, false, &again) || strcmp(again.repo, h.repo) != 0 ||
             strcmp(again.revision, h.revision) != 0 || strcmp(again.folder, h.folder) != 0)) {
            abort();
        }
        buf_free(&b);
        if (nl && !hub_pin_parse(&h, nl + 1, n - k - 1, &pin) && !hub_is_commit(pin.commit)) {
            abort();
        }
    }
    free(model);
}

static void adopted(const char *p, size_t n)
{
    struct adopt_list l = {.n = 0};
    struct err e;
    if (!adopt_list_parse(&l, p, n, &e)) {
        for (size_t i = 0; i < l.n; i++) {
            if (l.path[i][0] != '/' || strlen(l.path[i]) > ADOPT_PATH_MAX ||
                strchr(l.path[i], '\n')) {
                abort();
            }
        }
    }
    adopt_list_free(&l);
}

static void expert_name(const char *p, size_t n)
{
    char name[64], again[64];
    unsigned layer, expert;
    n = n < sizeof name - 1 ? n : sizeof name - 1;
    memcpy(name, p, n);
    name[n] = 0;
    if (adopt_expert_name(name, &layer, &expert)) { /* one name for each expert */
        snprintf(again, sizeof again, "L%u-E%u.bin", layer, expert);
        if (strcmp(again, name) != 0) {
            abort();
        }
    }
}

static void scrub(const char *p, size_t n)
{
    struct scrub s;
    scrub_parse(&s, p, n);
    if (s.id >= UINT32_MAX || s.chunk >= UINT32_MAX) {
        abort();
    }
    for (uint64_t now = 1; now; now *= 1000003) {
        if (scrub_due(&s, 10, 1000, now) && s.started > now) {
            abort();
        }
        if (now > UINT64_MAX / 1000003) {
            break;
        }
    }
}

static void budget(const char *p, size_t n)
{
    struct kept_budget b, none = {.has_budget = false};
    bool good = kept_budget_parse(p, n, &b);
    if ((!good && (b.has_budget || b.has_floor)) || (b.has_budget && !b.budget) ||
        (!b.has_budget && b.budget != none.budget) || (!b.has_floor && b.floor != none.floor)) {
        abort();
    }
}

static void days(const char *p, size_t n)
{
    struct kept_day v[KEPT_DAYS];
    size_t k = kept_written_parse(p, n, v);
    for (size_t i = 0; i < k; i++) {
        if (v[i].bytes > INT64_MAX || (i && v[i].day <= v[i - 1].day)) {
            abort();
        }
    }
    /* what is written again reads the same */
    struct kept_day again[KEPT_DAYS];
    char text[KEPT_DAYS * 64];
    size_t at = 0;
    for (size_t i = 0; i < k; i++) {
        char date[KEPT_DATE];
        kept_date(v[i].day, date);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %llu\n", date,
                               (unsigned long long)v[i].bytes);
    }
    if (kept_written_parse(text, at, again) != k) {
        abort();
    }
    for (size_t i = 0; i < k; i++) {
        if (again[i].day != v[i].day || again[i].bytes != v[i].bytes) {
            abort();
        }
    }
}

static void marks(const char *p, size_t n)
{
    for (int paths = 0; paths < 3; paths++) {
        struct place_mark m;
        bool good = place_mark_parse(p, n, paths, &m);
        if (good && (strlen(m.id) != PLACE_ID || (paths > 0) != (m.root && *m.root == '/') ||
                     (paths > 1) != (m.from && *m.from == '/'))) {
            abort();
        }
        if (!good && (m.root || m.from)) {
            abort();
        }
        place_mark_free(&m);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (!n) {
        return 0;
    }
    const char *text = (const char *)p + 1;
    if (*p == 'h') {
        head(text, n - 1);
    } else if (*p == 'a') {
        adopted(text, n - 1);
    } else if (*p == 'e') {
        expert_name(text, n - 1);
    } else if (*p == 'b') {
        budget(text, n - 1);
    } else if (*p == 'd') {
        days(text, n - 1);
    } else if (*p == 'm') {
        marks(text, n - 1);
    } else if (*p == 's') {
        scrub(text, n - 1);
    } else if (*p == 'n') {
        name(text, n - 1);
    } else if (*p == 'u') {
        signed_address(text, n - 1);
    } else if (*p == 'j') {
        uint64_t sum = 0, skipped;
        journal_scan(text, n - 1, each, &sum, &skipped, NULL);
    } else if (*p == 'l') {
        struct meta_list l = {0};
        struct err e = {0};
        if (!meta_list_parse(&l, text, n - 1, "http://h/x", &e)) {
            meta_list_free(&l);
        }
        /* the checksum keeps most inputs out: put a right one behind */
        struct buf b;
        buf_init(&b, 1 << 20);
        if (!buf_adds(&b, "shoal-origin 1 http://h/x\n") && !buf_add(&b, text, n - 1)) {
            uint64_t x = chunk_xxh(b.p, b.n);
            if (!buf_addf(&b, "end %016llx\n", (unsigned long long)x) &&
                !meta_list_parse(&l, b.p, b.n, "http://h/x", &e)) {
                struct buf o;
                buf_init(&o, 1 << 22);
                meta_list_write(&l, "http://h/x", &o);
                buf_free(&o);
                meta_list_free(&l);
            }
        }
        buf_free(&b);
    }
    return 0;
}
