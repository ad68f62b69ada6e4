/* SPDX-License-Identifier: MIT
 * mesh_member.c: whom the mesh believes: the table that TLS workers read, rosters from peers and
 * from the disk, guests that join, one connection per member, doubles. See mesh_int.h. */
#include "peer/home.h"
#include "peer/join.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOCK_MS 20 /* the LAN thread's share of waiting for the home's lock */
#define LOOK_AGAIN_NS (200 * MS_NS)
#define LOCKED_LONG_NS (10000 * MS_NS)
#define LATE_MAX 16

/* What came while another process had the home's lock. */
struct mesh_late {
    struct mesh_late *next;
    uint8_t from[WIRE_ID];
    bool join;
    struct join_request q;
    size_t n; /* of the roster */
    uint8_t blob[];
};

static bool keep_late(struct plink *l, const struct join_request *q, const void *blob, size_t n);
static void do_late(struct mesh *m);

/* ---- the table ---- */

static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct key_id));
}

int mesh_trust_init(struct mesh *m)
{
    return pthread_rwlock_init(&m->trust.lock, NULL) ? ERR_NOMEM : 0;
}

void mesh_trust_free(struct mesh *m)
{
    pthread_rwlock_destroy(&m->trust.lock);
    free(m->trust.ids);
    free(m->trust.what);
    while (m->late) {
        struct mesh_late *x = m->late;
        m->late = x->next;
        free(x);
    }
}

static int look_up(struct mesh_trust *t, const uint8_t id[WIRE_ID], bool out)
{
    int r = TLS_STRANGER;
    pthread_rwlock_rdlock(&t->lock);
    if (t->in_group) {
        const struct key_id *k = bsearch(id, t->ids, t->n, sizeof *t->ids, by_id);
        r = k ? t->what[k - t->ids] : (out || t->guests) ? TLS_GUEST : TLS_STRANGER;
    }
    pthread_rwlock_unlock(&t->lock);
    return r;
}

int mesh_trusted_in(void *mesh, const uint8_t id[WIRE_ID])
{
    return look_up(&((struct mesh *)mesh)->trust, id, false);
}

/* Whoever this node dials may turn out to be a member that it has not heard of: then the roster
 * that comes says so, and until then nothing is told (link.c). */
int mesh_trusted_out(void *mesh, const uint8_t id[WIRE_ID])
{
    return look_up(&((struct mesh *)mesh)->trust, id, true);
}

/* Members and removed nodes are both ascending and disjoint. */
static int build(struct mesh *m)
{
    const struct roster *r = &m->member.roster;
    size_t n = m->member.in_group ? r->members_n + r->removed_n : 0, i = 0, k = 0;
    struct key_id *ids = malloc((n + 1) * sizeof *ids);
    int8_t *what = malloc(n + 1);
    if (!ids || !what) {
        free(ids);
        free(what);
        return ERR_NOMEM;
    }
    for (size_t j = 0; j < n; j++) {
        bool member = k == r->removed_n ||
                      (i < r->members_n && by_id(&r->members[i].id, &r->removed[k].id) < 0);
        ids[j] = member ? r->members[i].id : r->removed[k].id;
        what[j] = member ? TLS_MEMBER : TLS_REMOVED;
        i += member;
        k += !member;
    }
    struct mesh_trust *t = &m->trust;
    pthread_rwlock_wrlock(&t->lock);
    free(t->ids);
    free(t->what);
    t->ids = ids;
    t->what = what;
    t->n = n;
    t->in_group = m->member.in_group;
    pthread_rwlock_unlock(&t->lock);
    return 0;
}

static void set_guests(struct mesh *m, bool guests)
{
    pthread_rwlock_wrlock(&m->trust.lock);
    m->trust.guests = guests;
    pthread_rwlock_unlock(&m->trust.lock);
}

/* ---- the home's files ---- */

static uint64_t stamp_all(const char *home)
{
    static const char *const files[] = {"shoal",           "shoal/group",
                                        "shoal/roster",    "shoal/roster.also",
                                        "shoal/group.key", "shoal/invites"};
    uint64_t h = HOME_STAMP;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        h = home_stamp(home, files[i], h);
    }
    return h;
}

/* Another process has the home's lock. This thread does not wait for it: what is to be done is done
 * at one of the next looks, which come sooner until then. */
static void lock_is_taken(struct mesh *m)
{
    uint64_t now = clock_ns(), soon = now + LOOK_AGAIN_NS;
    m->look_at = soon < m->look_at ? soon : m->look_at;
    m->home_stamp = 0;
    if (!m->locked_since) {
        m->locked_since = now;
    } else if (now - m->locked_since > LOCKED_LONG_NS) {
        mesh_log_once(m,
                      "another shoal process has held %s/trust.lock for %u s: news about members "
                      "waits for it",
                      m->home, (unsigned)((now - m->locked_since) / (1000 * MS_NS)));
    }
}

/* Is there an invite that somebody may still come with? Spent ones let nobody in but a node that
 * lost the answer, so they count until they expire, too. */
static void look_at_invites(struct mesh *m)
{
    bool open = false;
    int r = m->member.signing_key && home_has(m->home, "shoal/invites")
                ? invite_any_open(m->home, (uint64_t)time(NULL), LOCK_MS, &open, NULL)
                : 0;
    if (r == ERR_BUSY) {
        lock_is_taken(m);
    } else {
        set_guests(m, open);
    }
}

void mesh_look_now(struct mesh *m)
{
    struct err e = {0};
    uint64_t s = stamp_all(m->home);
    bool changed;
    m->look_at = clock_ns() + m->o.look_ms * MS_NS;
    m->member.lock_ms = LOCK_MS;
    mesh_net_look(m);
    mesh_bans_look(m, false);
    if (s == m->home_stamp) {
        if (m->trust.guests) {
            look_at_invites(m); /* time may have ended it */
        }
        return;
    }
    int r = member_reload(&m->member, &changed, &e);
    if (r == ERR_BUSY) {
        lock_is_taken(m);
        return;
    }
    if (r) {
        mesh_log_once(m, "the membership on disk is not used: %s", e.msg);
        return;
    }
    m->locked_since = 0;
    m->home_stamp = stamp_all(m->home);
    mesh_membership(m, NULL);
    look_at_invites(m);
    do_late(m);
}

static void digest_rosters(const struct member *b, uint8_t out[SHA256_SIZE])
{
    uint8_t each[(MEMBER_ALSO + 1) * SHA256_SIZE];
    sha256(b->blob.p ? b->blob.p : "", b->blob.n, each);
    for (size_t i = 0; i < b->also_n; i++) {
        sha256(b->also[i].p, b->also[i].n, each + (i + 1) * SHA256_SIZE);
    }
    sha256(each, (b->also_n + 1) * SHA256_SIZE, out);
}

/* Every function of member.h may have brought news from the disk, so what counts is whether the
 * roster is the one that was acted on last. */
static bool is_news(struct mesh *m)
{
    uint8_t now[SHA256_SIZE] = {0};
    if (m->member.in_group) {
        digest_rosters(&m->member, now);
    }
    if (memcmp(now, m->acted_on, sizeof now) == 0) {
        return false;
    }
    memcpy(m->acted_on, now, sizeof now);
    return true;
}

void mesh_membership(struct mesh *m, const struct plink *but)
{
    struct err e = {0};
    if (!is_news(m)) {
        return;
    }
    if (build(m)) {
        mesh_log(m, "no memory for the new roster: the old one stays in use");
        memset(m->acted_on, 0, sizeof m->acted_on);
        return;
    }
    if (!m->member.in_group) {
        return;
    }
    if (!m->disco && !m->closing && mesh_disco_open(m, &e)) {
        mesh_log(m, "discovery does not run: %s", e.msg);
    }
    for (size_t i = 0; m->disco && i < m->member.roster.removed_n; i++) {
        char node[MESH_SHORT];
        mesh_short(&m->member.roster.removed[i].id, node);
        disco_forget(m->disco, node);
    }
    /* whoever was a stranger here, or to whom this node was one, may be dialled at once */
    for (size_t i = 0; m->disco && i < m->member.roster.members_n; i++) {
        char node[MESH_SHORT];
        mesh_short(&m->member.roster.members[i].id, node);
        disco_retry(m->disco, node);
    }
    if (m->disco) {
        disco_retry(m->disco, NULL);
    }
    if (roster_has_removed(&m->member.roster, &m->me.id)) {
        mesh_log_once(m, "this node was removed from the shoal: to come back it needs a new "
                         "identity and a new invite");
    }
    for (struct plink *l = m->links, *next; l; l = next) {
        next = l->next;
        struct err why = {0};
        if (l->state != LINK_UP) {
            continue;
        }
        enum roster_standing s = member_standing(&m->member, &l->inst.id, NULL, 0, &why);
        if (l != but || s != STANDING_MEMBER) {
            link_send_roster(l);
        }
        if (s != STANDING_MEMBER) {
            mesh_log(m, "peer %s is no member any more: closed", l->who);
            link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_REMOVED, why.msg, DISCO_REJECTED,
                       "it was removed from the shoal");
        }
    }
    mesh_dial_soon(m);
}

static void take_roster(struct plink *l, const void *blob, size_t n)
{
    struct mesh *m = l->m;
    struct err e = {0};
    enum member_taken what;
    int r = member_take_roster(&m->member, blob, n, &what, &e);
    if (r == ERR_BUSY && keep_late(l, NULL, blob, n)) {
        return;
    }
    if (r) {
        mesh_log_once(m, "peer %s sent a roster that is not taken: %s", l->who, e.msg);
        if (l->state == LINK_GUEST) {
            link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_GROUP, NULL, DISCO_REJECTED,
                       "the node there is of another shoal");
        }
        return;
    }
    m->home_stamp = 0; /* looked at again, in case the disk had more */
    if (what == TAKEN_NEWER || what == TAKEN_MERGED) {
        mesh_log(m, "roster %llu taken from peer %s: %zu members, %zu removed",
                 (unsigned long long)m->member.roster.version, l->who, m->member.roster.members_n,
                 m->member.roster.removed_n);
        if (m->member.also_n) {
            mesh_log_once(m, "two keepers signed rosters without having seen each other's: what "
                             "either says counts, removals first, until a keeper that is met signs "
                             "them together");
        }
    }
    mesh_membership(m, what == TAKEN_NEWER ? l : NULL);
    if (what == TAKEN_OLDER && l->state == LINK_UP) {
        link_send_roster(l);
    }
    if (l->state != LINK_GUEST) {
        return;
    }
    struct key_id id;
    memcpy(id.b, l->tls.id, WIRE_ID);
    if (member_standing(&m->member, &id, blob, n, NULL) == STANDING_MEMBER) {
        /* A member after all: a fresh connection on equal terms. By its own list alone, while ours
         * wins and lacks it: if it is a keeper, it joins both once it has seen ours. */
        if (what == TAKEN_OLDER) {
            link_send_roster(l);
        }
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_REPLACED, NULL, DISCO_CLOSED, "");
    } else {
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_GROUP, NULL, DISCO_REJECTED,
                   "the node there is no member of this shoal");
    }
}

void mesh_take_roster(struct plink *l, const Shoal__Roster *r)
{
    if (l->tls.trust == TLS_MEMBER && l->state == LINK_GUEST && !l->m->member.signing_key) {
        return; /* it waits for ours */
    }
    take_roster(l, r->blob.data, r->blob.len);
}

/* ---- joining, the inviting side ---- */

static void reply(struct plink *l, const struct join_answer *a)
{
    Shoal__JoinReply r = SHOAL__JOIN_REPLY__INIT;
    Shoal__Roster roster = SHOAL__ROSTER__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    r.result = (Shoal__JoinResult)a->result;
    r.text = (char *)(uintptr_t)a->text;
    if (a->result == JOINED) {
        roster.version = l->m->member.roster.version;
        roster.blob.data = (uint8_t *)a->blob.p;
        roster.blob.len = a->blob.n;
        r.roster = &roster;
        r.proof.data = (uint8_t *)(uintptr_t)a->proof;
        r.proof.len = SHA256_SIZE;
    }
    f.kind_case = SHOAL__FRAME__KIND_JOIN_REPLY;
    f.join_reply = &r;
    link_send(l, &f, TLS_CONTROL);
}

static void admit(struct plink *l, const struct join_request *q)
{
    struct mesh *m = l->m;
    struct join_answer a;
    struct err e = {0};
    int r = join_admit(&m->member, q, l->tls.key, (uint64_t)time(NULL), &a, &e);
    if (r == ERR_BUSY && keep_late(l, q, NULL, 0)) {
        join_answer_free(&a);
        return;
    }
    if (r) {
        m->guests_failed++;
        char host[80];
        link_host(l->c, host);
        mesh_log_once(m, "not taken in, from %s: %s", host, e.msg);
    } else {
        m->joined++;
        mesh_log(m, "node %s joined the shoal by an invite", l->who);
    }
    reply(l, &a);
    join_answer_free(&a);
    link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_REPLACED, NULL, DISCO_CLOSED, "");
    mesh_membership(m, NULL);
}

void mesh_admit(struct plink *l, const Shoal__Join *j)
{
    struct mesh *m = l->m;
    struct join_request q;
    struct key_id id;
    crypto_key_id(l->tls.key, &id);
    if (memcmp(id.b, l->tls.id, SHA256_SIZE) != 0) { /* no canonical P-256 key */
        m->guests_failed++;
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_PROTOCOL, "a node's key must be of P-256",
                   DISCO_REJECTED, "");
        return;
    }
    memcpy(q.invite, j->invite_id.data, sizeof q.invite);
    memcpy(q.proof, j->proof.data, sizeof q.proof);
    admit(l, &q);
}

/* ---- what came while another process had the home's lock ---- */

/* False: no room; then it is an error like others. */
static bool keep_late(struct plink *l, const struct join_request *q, const void *blob, size_t n)
{
    struct mesh *m = l->m;
    size_t count = 0;
    struct mesh_late **at = &m->late;
    for (; *at; at = &(*at)->next) {
        count++;
    }
    struct mesh_late *x = count < LATE_MAX ? calloc(1, sizeof *x + n) : NULL;
    if (!x) {
        return false;
    }
    memcpy(x->from, l->tls.id, WIRE_ID);
    x->join = q != NULL;
    if (q) {
        x->q = *q;
    }
    x->n = n;
    if (n) {
        memcpy(x->blob, blob, n);
    }
    *at = x;
    lock_is_taken(m);
    return true;
}

static void do_late(struct mesh *m)
{
    struct mesh_late *list = m->late, *next;
    m->late = NULL;
    for (struct mesh_late *x = list; x; x = next) {
        next = x->next;
        struct plink *l = m->links;
        while (l && (memcmp(l->tls.id, x->from, WIRE_ID) != 0 ||
                     (l->state != LINK_UP && l->state != LINK_GUEST) ||
                     (x->join && l->state != LINK_GUEST))) {
            l = l->next;
        }
        if (l && x->join) {
            admit(l, &x->q);
        } else if (l) { /* one that is gone shows it again when it comes back */
            take_roster(l, x->blob, x->n);
        }
        crypto_wipe(&x->q, sizeof x->q);
        free(x);
    }
}

/* ---- one connection per member ---- */

struct plink *mesh_find_up(struct mesh *m, const struct key_id *id)
{
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->state == LINK_UP && id_equal(&l->inst.id, id)) {
            return l;
        }
    }
    return NULL;
}

static void refuse_double(struct plink *l, struct plink *known)
{
    struct mesh *m = l->m;
    char text[DISCO_TEXT * 2];
    bool own = id_equal(&m->self.id, &l->inst.id);
    m->clones++;
    instance_text(&l->inst.id, own ? EAR_OWN : EAR_THIRD, text, sizeof text);
    mesh_log_once(m, "%s", text);
    instance_text(&l->inst.id, own ? EAR_OWN : EAR_NEW, text, sizeof text);
    link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_CLONE, text, DISCO_REJECTED,
               "one node key runs on two machines");
    if (known) {
        instance_text(&known->inst.id, EAR_OLD, text, sizeof text);
        link_tell_clone(known, l->inst.run, text);
    }
}

static bool lower_dials(const struct plink *l)
{
    bool we_are_lower = memcmp(l->m->me.id.b, l->inst.id.b, WIRE_ID) < 0;
    return l->dialed == we_are_lower;
}

/* Two live connections of one run: the lower id's outgoing one stays; of two in one direction the
 * newer, since its dialler gave the older up. */
static void choose(struct plink *old, struct plink *l)
{
    bool keep_new = old->dialed == l->dialed || lower_dials(l);
    if (keep_new) {
        link_close(old,
                   old->dialed == l->dialed ? SHOAL__GOODBYE_REASON__GOODBYE_REPLACED
                                            : SHOAL__GOODBYE_REASON__GOODBYE_DUPLICATE,
                   NULL, DISCO_CLOSED, "another connection to the same node is kept");
        link_up(l);
        return;
    }
    mesh_report_up(l); /* the address works */
    link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_DUPLICATE, NULL, DISCO_CLOSED,
               "another connection to the same node is kept");
}

static void decide(struct plink *l, struct plink *old, enum instance_old state)
{
    struct mesh *m = l->m;
    switch (instance_decide(&m->self, old ? &old->inst : NULL, state, &l->inst)) {
    case INSTANCE_NEW:
        link_up(l);
        break;
    case INSTANCE_SAME:
        choose(old, l);
        break;
    case INSTANCE_MOVED:
        mesh_log(m, "peer %s runs on another machine now", l->who);
        /* fallthrough */
    case INSTANCE_RESTARTED:
        link_abort(old, DISCO_CLOSED, "the node was started anew");
        link_up(l);
        break;
    case INSTANCE_PROBE:
        l->state = LINK_PROBE;
        l->since = clock_ns();
        l->probe = old;
        old->probe = l;
        tls_conn_pause(l->c);
        link_ping(old, l->since);
        break;
    case INSTANCE_TWICE:
        refuse_double(l, old);
        break;
    case INSTANCE_SELF:
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_SELF, NULL, DISCO_REJECTED,
                   "that address is this node's own");
        break;
    }
}

void mesh_decide(struct plink *l)
{
    struct plink *old = mesh_find_up(l->m, &l->inst.id);
    if (old && old->probe && old->probe != l) { /* a third one while the second waits */
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_BUSY, NULL, DISCO_TIMEOUT,
                   "another connection of this node is being looked at");
        return;
    }
    decide(l, old, OLD_UNKNOWN);
}

void mesh_probe_over(struct plink *old, bool answers)
{
    struct plink *l = old->probe;
    old->probe = NULL;
    l->probe = NULL;
    if (l->state == LINK_PROBE) {
        decide(l, old, answers ? OLD_ANSWERS : OLD_GONE);
    }
}
