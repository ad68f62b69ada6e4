/* SPDX-License-Identifier: MIT
 * qos.h: how much a thread's work matters, said once by the thread itself. On the Mac these are its
 * quality-of-service classes, by which it chooses cores, their clock and the disk's order; without
 * one a thread of a program that nobody looks at is taken for less than it is. On Linux only what
 * nobody waits for is lowered: its scheduler shares out fairly by itself. */
#ifndef SHOAL_BASE_QOS_H
#define SHOAL_BASE_QOS_H

enum qos {
    QOS_ANSWER, /* somebody waits for what this thread does, or for what it hands on */
    QOS_SERVE,  /* for other machines, or to keep this node's tables in order */
    QOS_UPKEEP, /* nobody waits: only what others leave of processor and disk */
};

/* Of the calling thread, from now on. Lowering cannot be taken back on Linux. */
void qos_self(enum qos q);

#endif
