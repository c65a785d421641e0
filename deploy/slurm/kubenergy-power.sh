#!/bin/sh
# Executes decisions of kubenergy-slurm about nodes that may sleep: kubenergy-power.sh suspend|resume NODES. Slurm calls its
# SuspendProgram and ResumeProgram. scontrol requires an account with AdminLevel=Administrator.
case $1 in
suspend) state=POWER_DOWN ;; # a node with jobs is powered down after them
resume) state=POWER_UP ;;
esac
exec scontrol update NodeName="$2" State="$state"
