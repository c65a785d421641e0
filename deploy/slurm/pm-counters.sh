#!/bin/sh
# Provides the counters of the agent to Slurm on nodes without a meter: acct_gather_energy/pm_counters reads the files in
# /sys/cray/pm_counters. Run one of each on a node as root:
#
#   pm-counters.sh feed FOLDER URL       writes the files to FOLDER every second, from the agent's /metrics
#   pm-counters.sh run FOLDER SLURMD…    runs slurmd with FOLDER mounted there
#
# With AcctGatherEnergyType=acct_gather_energy/pm_counters in slurm.conf.
set -eu
verb=$1 folder=$2
shift 2
mkdir -p "$folder"
case $verb in
feed)
   while sleep 1; do
      last=$(cat "$folder/.last" 2> /dev/null || :) # joules, microseconds and watts of the last change
      curl -sf -m 5 "$1" | awk -v folder="$folder" -v now="$(date +%s%6N)" -v last="$last" '
         /^kubenergy_node_energy_joules_total/ { joules += $NF }
         END {
            if (joules == "") exit 1
            split(last, was, " ")
            watts = was[3] + 0
            if (was[2] && joules > was[1]) watts = (joules - was[1]) * 1000000 / (now - was[2])
            if (joules != was[1]) printf "%.6f %s %.3f\n", joules, now, watts > (folder "/.last")
            printf "%d J %s us\n", joules, now > (folder "/.energy")
            printf "%d W %s us\n", watts, now > (folder "/.power")
         }' && mv "$folder/.power" "$folder/power" && mv "$folder/.energy" "$folder/energy" || : # retried
   done
   ;;
run)
   [ -e "$folder/energy" ] || { echo "0 J 0 us" > "$folder/energy"; echo "0 W 0 us" > "$folder/power"; }
   export folder sys="$folder.sys"
   mkdir -p "$sys/cray/pm_counters"
   exec unshare --mount --propagation private sh -ec '
      for entry in /sys/*; do
         mkdir -p "$sys/${entry##*/}"
         mount --rbind "$entry" "$sys/${entry##*/}"
      done
      mount --bind "$folder" "$sys/cray/pm_counters"
      mount --rbind "$sys" /sys
      exec "$@"' - "$@"
   ;;
esac
