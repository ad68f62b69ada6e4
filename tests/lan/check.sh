# SPDX-License-Identifier: MIT
# check.sh: the few words of a LAN test, to be sourced after netns.sh. $lan_failed is 1 after any failure.
lan_failed=0
t() { # WHAT CMD...: one check
    local what=$1
    shift
    if "$@"; then echo "ok   $what"; else
        echo "FAIL $what"
        lan_failed=1
    fi
}
no() { ! "$@"; }
quiet() { "$@" >/dev/null 2>&1; }
within() { # SECONDS CMD...: CMD succeeds within that time
    local end=$(($(date +%s%N) + $1 * 1000000000))
    shift
    until "$@"; do
        [ "$(date +%s%N)" -lt $end ] || return 1
        sleep .1
    done
}
between() { # X A B
    awk -v x="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(x >= a && x <= b) }' || {
        echo "     got $1, wanted $2..$3"
        false
    }
}
lan_result() { # NAME
    [ $lan_failed = 0 ] && echo "ok $1" || echo "FAIL $1"
    exit $lan_failed
}
