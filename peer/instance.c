/* SPDX-License-Identifier: MIT
 * instance.c: see instance.h. */
#include "peer/instance.h"

#include <stdio.h>
#include <string.h>

static bool other_machine(const struct instance *a, const struct instance *b)
{
    static const uint8_t none[MACHINE_MARK];
    return memcmp(a->machine, none, sizeof none) != 0 &&
           memcmp(b->machine, none, sizeof none) != 0 &&
           memcmp(a->machine, b->machine, sizeof none) != 0;
}

static bool same_run(const struct instance *a, const struct instance *b)
{
    return memcmp(a->run, b->run, sizeof a->run) == 0;
}

enum instance_verdict instance_decide(const struct instance *self, const struct instance *known,
                                      enum instance_old old, const struct instance *hello)
{
    if (id_equal(&self->id, &hello->id)) {
        return same_run(self, hello) ? INSTANCE_SELF : INSTANCE_TWICE;
    }
    if (!known) {
        return INSTANCE_NEW;
    }
    if (same_run(known, hello) && !other_machine(known, hello)) {
        return INSTANCE_SAME;
    }
    if (old == OLD_GONE) {
        return other_machine(known, hello) ? INSTANCE_MOVED : INSTANCE_RESTARTED;
    }
    /* An open connection may be the last trace of a run that was killed: only an answer counts. */
    return old == OLD_ANSWERS ? INSTANCE_TWICE : INSTANCE_PROBE;
}

void instance_of(const struct identity *me, struct instance *out)
{
    out->id = me->id;
    memcpy(out->machine, me->machine, sizeof out->machine);
    memcpy(out->run, me->run, sizeof out->run);
}

void instance_text(const struct key_id *id, enum instance_ear ear, char *out, size_t cap)
{
    static const char mend[] = "stop one of them, and on the machine that holds the copy move the "
                               "folder `identity` of its data folder away and join again";
    char s[ID_SHORT];
    id_short(id, s);
    switch (ear) {
    case EAR_OWN:
        snprintf(out, cap,
                 "another machine runs with this node's key (%s): its data folder is a copy of "
                 "this one, or this one of it; %s",
                 s, mend);
        return;
    case EAR_OLD:
        snprintf(out, cap,
                 "a second machine has just come with your key (%s): its data folder is a copy of "
                 "yours, or yours of it; %s",
                 s, mend);
        return;
    case EAR_NEW:
        snprintf(out, cap,
                 "another machine is already here with your key (%s): your data folder is a copy "
                 "of its, or its of yours; %s",
                 s, mend);
        return;
    case EAR_THIRD:
        break;
    }
    snprintf(out, cap,
             "node %s is running twice, with one key on two machines; the second was refused: %s",
             s, mend);
}
