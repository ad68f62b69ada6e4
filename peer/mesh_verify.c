/* SPDX-License-Identifier: MIT
 * mesh_verify.c: prompts that members run for each other to compare receipts. See mesh_int.h.
 *
 * One question at a time on a connection in each direction. The asker's lies on the stack of the
 * thread that waits; a connection that ends, or the mesh, ends it with a sentence. */
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>

#define ANSWER_MS 600000 /* when the caller says nothing */

struct verify_ask {
    struct note n;
    const char *peer;
    const struct mesh_verify_ask *ask;
    struct mesh_verify_answer *out;
    struct plink *l; /* NULL: not asked, or over */
    char who[ID_SHORT];
    bool over;
    struct err e;
};

/* ---- asking ---- */

static void end(struct mesh *m, struct verify_ask *v)
{
    if (v->l) {
        v->l->verify = NULL;
        v->l = NULL;
    }
    uv_mutex_lock(&m->mu);
    v->over = true;
    uv_cond_broadcast(&m->cond);
    uv_mutex_unlock(&m->mu);
}

static struct plink *by_name(struct mesh *m, const char *name, bool *twice)
{
    struct plink *found = NULL;
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->state == LINK_UP && l->name[0] && strcmp(l->name, name) == 0) {
            *twice |= found != NULL;
            found = l;
        }
    }
    return found;
}

/* The connection with the member that `text` means. */
static struct plink *find(struct mesh *m, const char *text, struct err *e)
{
    const struct roster *r = &m->member.roster;
    bool twice = false;
    struct plink *l = by_name(m, text, &twice);
    if (twice) {
        err_set(e, ERR_ARG, "more than one peer is named %s: give its id", text);
        return NULL;
    }
    if (l) {
        return l;
    }
    struct key_id *ids = calloc(r->members_n + 1, sizeof *ids);
    size_t n = 0, at;
    for (size_t i = 0; ids && m->member.in_group && i < r->members_n; i++) {
        if (!id_equal(&r->members[i].id, &m->me.id)) {
            ids[n++] = r->members[i].id;
        }
    }
    int code = ids ? id_find(text, ids, n, &at, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!code) {
        l = mesh_find_up(m, &ids[at]);
        if (!l) {
            err_set(e, ERR_OFFLINE, "peer %s is not connected", text);
        }
    } else if (code == ERR_NOTFOUND && !id_find(text, &m->me.id, 1, &at, NULL)) {
        err_set(e, ERR_ARG, "%s is this node: name another (shoal peers)", text);
    } else if (code == ERR_NOTFOUND || code == ERR_FORMAT) {
        err_set(e, ERR_NOTFOUND, "no member of this shoal is %s, and no connected one is named so",
                text);
    }
    free(ids);
    return l;
}

static void put(struct plink *l, struct verify_ask *v)
{
    Shoal__Verify x = SHOAL__VERIFY__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.id = ++l->verify_id;
    x.prompt.data = (uint8_t *)(uintptr_t)v->ask->prompt;
    x.prompt.len = strlen(v->ask->prompt);
    x.max_new = v->ask->max_new;
    f.kind_case = SHOAL__FRAME__KIND_VERIFY;
    f.verify = &x;
    if (link_send(l, &f, TLS_CONTROL)) {
        err_set(&v->e, ERR_BUSY, "peer %s cannot be asked now: too much waits to be sent to it",
                l->who);
        return;
    }
    l->verify = v;
    v->l = l;
}

static void note_ask(struct mesh *m, struct note *n)
{
    struct verify_ask *v = (struct verify_ask *)n;
    struct plink *l = NULL;
    if (m->closing) {
        err_set(&v->e, ERR_CANCELLED, "the node is stopping");
    } else {
        l = find(m, v->peer, &v->e);
    }
    if (l) {
        memcpy(v->who, l->who, sizeof v->who);
        if (!l->answers) {
            err_set(&v->e, ERR_UNSUPPORTED,
                    "peer %s runs an older program that cannot verify: update it", l->who);
        } else if (l->verify) {
            err_set(&v->e, ERR_BUSY, "peer %s is being asked already", l->who);
        } else {
            put(l, v);
        }
    }
    if (!v->l) {
        end(m, v);
    }
}

static void note_give_up(struct mesh *m, struct note *n)
{
    struct verify_ask *v = (struct verify_ask *)n;
    if (!v->over) {
        err_set(&v->e, ERR_TIMEOUT, "peer %s did not answer in time", v->who);
        end(m, v);
    }
}

int mesh_verify(struct mesh *m, const char *peer, const struct mesh_verify_ask *ask,
                unsigned timeout_ms, struct mesh_verify_answer *out, struct err *e)
{
    struct verify_ask v = {
        .n = {.run = note_ask, .sync = true}, .peer = peer, .ask = ask, .out = out};
    uint64_t limit = (timeout_ms ? timeout_ms : ANSWER_MS) * MS_NS, start = clock_ns(), used;
    memset(out, 0, sizeof *out);
    if (ask->max_new < 1 || ask->max_new > MESH_VERIFY_NEW ||
        !memchr(ask->prompt, 0, sizeof ask->prompt)) {
        err_set(&v.e, ERR_ARG, "a question has a prompt of at most %d bytes and 1 to %d tokens",
                MESH_VERIFY_PROMPT, MESH_VERIFY_NEW);
        v.over = true;
    } else {
        mesh_post(m, &v.n);
    }
    mesh_wait_begin(m);
    while (!v.over && (used = clock_ns() - start) < limit) {
        uv_cond_timedwait(&m->cond, &m->mu, limit - used);
    }
    bool over = v.over;
    mesh_wait_end(m);
    if (!over) {
        v.n.run = note_give_up;
        mesh_post(m, &v.n);
    }
    if (v.e.code) {
        out->code = v.e.code;
        codec_clean(v.e.msg, out->text, WIRE_TEXT_MAX);
        return err_set(e, v.e.code, "%s", v.e.msg);
    }
    return 0;
}

void mesh_on_verify_reply(struct plink *l, const Shoal__VerifyReply *x)
{
    struct verify_ask *v = l->verify;
    const char *text = x->text[0] ? x->text : "it does not say why";
    if (!v || x->id != l->verify_id) {
        return; /* nobody waits for it any more */
    }
    struct mesh_verify_answer *a = v->out;
    switch (x->result) {
    case SHOAL__VERIFY_RESULT__VERIFY_OK:
        memcpy(a->receipt, x->receipt.data, SHA256_SIZE);
        memcpy(a->model_root, x->model_root.data, SHA256_SIZE);
        a->numerics_version = x->numerics_version;
        a->n_ids = (uint32_t)x->n_ids;
        if (x->n_ids) {
            memcpy(a->ids, x->ids, x->n_ids * sizeof a->ids[0]);
        }
        break;
    case SHOAL__VERIFY_RESULT__VERIFY_BUSY:
        err_set(&v->e, ERR_BUSY, "peer %s is busy: %s", l->who, text);
        break;
    case SHOAL__VERIFY_RESULT__VERIFY_REFUSED:
        err_set(&v->e, ERR_REFUSED, "peer %s does not do that: %s", l->who, text);
        break;
    default:
        err_set(&v->e, ERR_IO, "peer %s could not do it: %s", l->who, text);
        break;
    }
    end(l->m, v);
}

void mesh_verify_down(struct plink *l)
{
    struct verify_ask *v = l->verify;
    if (v) {
        err_set(&v->e, ERR_NET, "the connection with peer %s ended before it answered", l->who);
        end(l->m, v);
    }
    l->verifying = 0;
}

void mesh_verify_close(struct mesh *m)
{
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->verify) {
            err_set(&l->verify->e, ERR_CANCELLED, "the node is stopping");
            end(m, l->verify);
        }
    }
}

/* ---- answering ---- */

static void answer(struct plink *l, uint64_t id, int result, const char *text,
                   const struct mesh_verify_answer *a)
{
    Shoal__VerifyReply x = SHOAL__VERIFY_REPLY__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    char clean[WIRE_TEXT_MAX + 1];
    codec_clean(text, clean, WIRE_TEXT_MAX);
    x.id = id;
    x.result = (Shoal__VerifyResult)result;
    x.text = clean;
    if (result == SHOAL__VERIFY_RESULT__VERIFY_OK) {
        x.receipt.data = (uint8_t *)(uintptr_t)a->receipt;
        x.model_root.data = (uint8_t *)(uintptr_t)a->model_root;
        x.receipt.len = x.model_root.len = SHA256_SIZE;
        x.numerics_version = a->numerics_version;
        x.n_ids = a->n_ids < MESH_VERIFY_NEW ? a->n_ids : MESH_VERIFY_NEW;
        x.ids = (uint32_t *)(uintptr_t)a->ids;
    }
    f.kind_case = SHOAL__FRAME__KIND_VERIFY_REPLY;
    f.verify_reply = &x;
    link_send(l, &f, TLS_CONTROL);
}

void mesh_on_verify(struct plink *l, const Shoal__Verify *x)
{
    struct mesh *m = l->m;
    struct mesh_verify_ask a;
    if (!m->o.verify) {
        answer(l, x->id, SHOAL__VERIFY_RESULT__VERIFY_REFUSED,
               "this node runs no prompts for others", NULL);
        return;
    }
    if (l->verifying) {
        answer(l, x->id, SHOAL__VERIFY_RESULT__VERIFY_BUSY,
               "your last question is not answered yet", NULL);
        return;
    }
    memset(&a, 0, sizeof a);
    if (x->prompt.len) {
        memcpy(a.prompt, x->prompt.data, x->prompt.len); /* WIRE_PROMPT_MAX at most */
    }
    a.max_new = x->max_new;
    l->verifying = ++m->next_verify;
    l->verifying_id = x->id;
    m->o.verify(m->o.ctx, l->verifying, &a);
}

struct reply_note {
    struct note n;
    uint64_t id;
    struct mesh_verify_answer a;
};

static void note_reply(struct mesh *m, struct note *n)
{
    struct reply_note *x = (struct reply_note *)n;
    struct plink *l = m->links;
    while (l && (l->state != LINK_UP || l->verifying != x->id)) {
        l = l->next;
    }
    if (l) {
        int code = x->a.code;
        l->verifying = 0;
        x->a.text[WIRE_TEXT_MAX] = 0;
        answer(l, l->verifying_id,
               code == 0             ? SHOAL__VERIFY_RESULT__VERIFY_OK
               : code == ERR_BUSY    ? SHOAL__VERIFY_RESULT__VERIFY_BUSY
               : code == ERR_REFUSED ? SHOAL__VERIFY_RESULT__VERIFY_REFUSED
                                     : SHOAL__VERIFY_RESULT__VERIFY_FAILED,
               code ? x->a.text : "", &x->a);
    }
    free(x);
}

void mesh_verify_reply(struct mesh *m, uint64_t id, const struct mesh_verify_answer *a)
{
    struct reply_note *x = id ? calloc(1, sizeof *x) : NULL;
    if (x) {
        x->n.run = note_reply;
        x->id = id;
        x->a = *a;
        mesh_post(m, &x->n);
    }
}
