#!/bin/bash
# SPDX-License-Identifier: MIT
# t_lan_idle.sh SHOAL JGET MODEL_FOLDER: what a node with two dead peers does all day. Root; 77 = skipped.
set -u
shoal=$1 jget=$2 model=$3
cd "$(dirname "$0")" || exit 2
export LAN=li$$ LAN_DIR=${TMPDIR:-/tmp}/lan.idle.$$
. ./netns.sh
. ./check.sh
. ./up.sh
lan_need
lan_trap
M=$model

t 'three machines' lan_up 3
t 'avahi on all' lan_mdns 1 2 3
t 'a shoal on 1' found 1
t 'up on 1' up 1
T=$(invite 1 --uses 2)
t '2 joins' join 2 "$T"
t '3 joins' join 3 "$T"
t 'up on 2' up 2
t 'up on 3' up 3
t 'all are connected' within 60 eval 'connected 1 2 && connected 2 2 && connected 3 2'
for i in 2 3; do # the power goes: no goodbye of anybody
    lan_cut $i
    lan_kill $i
done
t 'both are gone' within 60 connected 1 0
for i in 2 3; do
    t "... $i after three heartbeats" test "$(logs 1 "peer ${id[$i]} is silent for 9000 ms: taken for dead")" -ge 1
done

cpu() { awk '{ print $14 + $15 }' "/proc/${up_pid[1]}/stat"; } # ticks of user and system time
rss() { awk '/^VmRSS/ { print $2 }' "/proc/${up_pid[1]}/status"; }
lines() { wc -l <"$LAN_DIR/up.1"; }
a=$(cpu) l=$(lines) m=$(rss)
sleep 30
b=$(cpu) k=$(lines) n=$(rss)
used=$(awk -v t=$((b - a)) -v hz="$(getconf CLK_TCK)" 'BEGIN { print t / hz / 30 * 100 }')
echo "     $used % of a core, $((k - l)) lines in the log, memory $m kB before and $n kB after"
# Bounds for loops and floods; the numbers proper are what is printed.
t 'it does not spin' between "$used" 0 10
t 'no flood of lines' between $((k - l)) 0 30
t 'memory stays' between $((n - m)) -100000 8000
t 'it still answers' connected 1 0
t 'it stops' down 1
[ $lan_failed = 0 ] || show_logs
lan_result 'idle with dead peers'
