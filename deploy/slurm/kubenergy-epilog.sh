#!/bin/sh
# Appends the usage of a job to its output: joules by node, grams and cost, and the joules counted by Slurm, if available.
# slurm.conf: Epilog=/etc/slurm/kubenergy-epilog.sh. `kubenergy-epilog.sh JOB` prints the same.
#
# kubenergy-epilog.conf in the same directory, readable by root only, contains SERVER=https://HOST:9443 TOKEN=FILE CA=FILE,
# and optionally KUBENERGY=PROGRAM and WAIT=SECONDS. The script queries the usage WAIT seconds after the end of the job,
# in the background, when agents have delivered. The Epilog itself always succeeds, so that no node is drained.

if [ -n "$SLURM_JOB_ID" ] && [ "$1" != later ]; then
   setsid "$0" later < /dev/null > /dev/null 2>&1 & # slurmd kills the processes of its own session
   exit 0
fi
WAIT=45 KUBENERGY=/usr/local/bin/kubenergy
. "${0%.sh}.conf" || exit
export LC_ALL=C SLURM_TIME_FORMAT=%s
job=${SLURM_JOB_ID:-$1}

show() { # a field of the job at the start of a line; for the last task of an array, scontrol prints other jobs too
   scontrol show job "$job" | sed -n "/^JobId=$job /,/^\$/s/^ *$1=//p" | head -n 1
}

used() {
   start=$(show StartTime | sed 's/[^0-9].*//') # the name of a job may contain similar lines
   rows=$("$KUBENERGY" report --server "$SERVER" --token-file "$TOKEN" --ca-file "$CA" --owner "Job/slurm-$job" \
      --from "$(date -u -d "@$((${start:-0} - 600))" +%FT%TZ)" --group-by node -o csv 2>&1) ||
      { echo "kubenergy: $rows"; return; }
   echo "$rows" | awk -F, '
      NR == 1 {
         for (i = 1; i <= NF; i++) { column[$i] = i; if ($i ~ /^cost_/) cost = i }
         unit = toupper(substr($cost, 6))
         next
      }
      {
         kwh = $column["energy_kwh"]; sum += kwh; grams += 1000 * $column["emissions_kg_average"]
         if (cost) money += $cost
         nodes = nodes sprintf("; %s %.0f J", $1, kwh * 3600000); quality = $column["quality"]
      }
      END {
         if (!sum) { print "kubenergy: nothing is booked on this job"; exit }
         printf "kubenergy: %.0f J (%s), %.3g gCO2e", sum * 3600000, quality, grams
         print (cost ? sprintf(", %.3g %s", money, unit) : "") nodes
      }'
   sacct -n -P -j "$job" -o JobIDRaw,ConsumedEnergyRaw | awk -F '|' -v job="$job" '
      { sub(/\..*/, "", $1) }
      $1 != job || $2 == "" { next }
      $2 < 0 || $2 >= 9e18 { unknown = 1 } # -2, or close to 2^64
      $2 > most { most = $2 }
      END {
         if (unknown) print "kubenergy: Slurm does not know what it counted"
         else if (most) print "kubenergy: Slurm counted " most " J: all that nodes drew during its largest step"
      }'
}

if [ "$1" != later ]; then
   used
elif [ "$(show BatchHost)" = "$SLURMD_NODENAME" ]; then
   sleep "$WAIT"
   # As the user, so that a link cannot lead to files that the user may not write.
   used | runuser -u "$SLURM_JOB_USER" -- sh -c '[ -f "$1" ] && exec cat >> "$1"' - "$(show StdOut)"
fi
