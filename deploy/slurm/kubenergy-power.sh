#!/bin/sh
# Does what kubenergy-slurm decides about nodes that may sleep: kubenergy-power.sh suspend|resume NODES. Slurm's own
# SuspendProgram and ResumeProgram do it. scontrol wants an account with AdminLevel=Administrator here.
case $1 in
suspend) state=POWER_DOWN ;; # a node with jobs goes down after them
resume) state=POWER_UP ;;
esac
exec scontrol update NodeName="$2" State="$state"
